#include "compiler/driver/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "compiler/driver/output_file.h"

namespace whet::driver {

Flags::Flags(CLI::App* app) : app_(app) {
  app_->final_callback([this] {  // before values from elsewhere join those of the command line
    for (const CLI::Option* o : app_->get_options()) {
      if (o->count() > 0) on_command_line_.insert(o->get_name());
    }
  });
}

Flags::Handle& Flags::Handle::Range(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Flags::Handle& Flags::Handle::OneOf(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}
Flags::Handle& Flags::Handle::Value(std::string placeholder) {
  option_->type_name(std::move(placeholder));
  return *this;
}

Flags::Handle& Flags::Handle::Reads() {
  if (text_) flags_->read_.push_back(text_);
  if (texts_) flags_->read_specs_.push_back(texts_);
  return *this;
}
Flags::Handle& Flags::Handle::Writes() {
  if (text_) flags_->written_.emplace_back(option_->get_name(), text_);
  return *this;
}

Flags::Handle Flags::Add(const std::string& names, std::string* value, const std::string& help) {
  CLI::Option* o = app_->add_option(names, *value, help)->type_name("TEXT");
  if (!value->empty()) o->capture_default_str();
  return Handle(this, o, value);
}
Flags::Handle Flags::Add(const std::string& names, int64_t* value, const std::string& help) {
  return Handle(this, app_->add_option(names, *value, help)->capture_default_str()->type_name("N"));
}
Flags::Handle Flags::Add(const std::string& names, double* value, const std::string& help) {
  return Handle(this,
                app_->add_option(names, *value, help)->capture_default_str()->type_name("NUMBER"));
}
Flags::Handle Flags::Add(const std::string& names, bool* value, const std::string& help) {
  return Handle(this, app_->add_flag(names, *value, help));
}
Flags::Handle Flags::Add(const std::string& names, std::vector<std::string>* values,
                         const std::string& help) {
  CLI::Option* o = app_->add_option(names, *values, help)
                       ->type_name("TEXT")
                       ->type_size(1)
                       ->expected(-1)
                       ->take_all();
  o->allow_extra_args(false);  // `--input a.npy face.so`: the second one is not the flag's
  return Handle(this, o, nullptr, values);
}
Flags::Handle Flags::Positional(const std::string& name, std::string* value,
                                const std::string& help, Need need) {
  CLI::Option* o = app_->add_option(name, *value, help)->type_name("");
  if (need == Need::kRequired) o->required();
  return Handle(this, o, value);
}

void Flags::Json(std::string* value) {
  Add("--json", value,
      "write the result as JSON to this file; '-': to standard output, and nothing else")
      .Value("FILE|-")
      .Writes()
      .option_->check([](const std::string& path) {  // before the work, not after it
        const Status s = CheckPlace(path);
        return s.ok() ? std::string() : std::string(Message(s));
      });
}

Status Flags::CheckFiles(const std::string& config) const {
  std::vector<std::string> read = {config};
  for (const std::string* path : read_) read.push_back(*path);
  for (const std::vector<std::string>* specs : read_specs_) {
    const std::vector<std::string> files = FilesOf(*specs);
    read.insert(read.end(), files.begin(), files.end());
  }
  for (size_t i = 0; i < written_.size(); ++i) {
    const auto& [flag, path] = written_[i];
    WHET_RETURN_IF_ERROR(Annotate(CheckNotRead(*path, read), flag));
    for (size_t other = 0; other < i; ++other)
      WHET_RETURN_IF_ERROR(
          CheckDistinct(flag, *path, written_[other].first, *written_[other].second));
  }
  return OkStatus();
}

std::vector<std::string> Flags::Written() const {
  std::vector<std::string> paths;
  for (const auto& [flag, path] : written_) {
    if (!path->empty() && *path != "-") paths.push_back(*path);
  }
  return paths;
}

void Flags::Notes(const std::string& text) {
  notes_ = text;
  ShowFooter();
}
void Flags::Example(const std::string& line) {
  examples_.push_back(line);
  ShowFooter();
}

void Flags::ShowFooter() {
  std::string footer = notes_;
  if (!examples_.empty()) footer += footer.empty() ? "Examples:" : "\n\nExamples:";
  for (const std::string& e : examples_) footer += "\n  " + e;
  app_->footer(footer +
               "\n\nA flag may also come from WHET_<FLAG> in the environment or from a TOML file "
               "(--config FILE); the command line wins.");
}

double ParseSeconds(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || !(value >= 0) || value > 1e9) return -1;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (unit.empty() || unit == "s") return value;
  if (unit == "m") return value * 60;
  if (unit == "h") return value * 3600;
  if (unit == "ms") return value / 1000;
  return -1;
}

}  // namespace whet::driver
