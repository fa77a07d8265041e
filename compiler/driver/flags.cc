#include "compiler/driver/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>

namespace whet::driver {

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

Flags::Handle Flags::Add(const std::string& names, std::string* value, const std::string& help) {
  CLI::Option* o = app_->add_option(names, *value, help)->type_name("TEXT");
  if (!value->empty()) o->capture_default_str();
  return Handle(o);
}
Flags::Handle Flags::Add(const std::string& names, int64_t* value, const std::string& help) {
  return Handle(app_->add_option(names, *value, help)->capture_default_str()->type_name("N"));
}
Flags::Handle Flags::Add(const std::string& names, double* value, const std::string& help) {
  return Handle(app_->add_option(names, *value, help)->capture_default_str()->type_name("NUMBER"));
}
Flags::Handle Flags::Add(const std::string& names, bool* value, const std::string& help) {
  return Handle(app_->add_flag(names, *value, help));
}
Flags::Handle Flags::Add(const std::string& names, std::vector<std::string>* values,
                         const std::string& help) {
  CLI::Option* o = app_->add_option(names, *values, help)
                       ->type_name("TEXT")
                       ->type_size(1)
                       ->expected(-1)
                       ->take_all();
  o->allow_extra_args(false);  // `--input a.npy face.so`: the second one is not the flag's
  return Handle(o);
}
Flags::Handle Flags::Positional(const std::string& name, std::string* value,
                                const std::string& help, Need need) {
  CLI::Option* o = app_->add_option(name, *value, help)->type_name("");
  if (need == Need::kRequired) o->required();
  return Handle(o);
}

void Flags::Json(std::string* value) {
  Add("--json", value,
      "write the result as JSON to this file; '-': to standard output, and nothing else")
      .Value("FILE|-")
      .option_->check([](const std::string& path) {  // before the work, not after it
        std::error_code ignored;
        const std::filesystem::path folder = std::filesystem::path(path).parent_path();
        if (std::filesystem::is_directory(path, ignored))
          return "cannot write '" + path + "': it is a folder";
        if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
          return "cannot write '" + path + "': there is no folder '" + folder.string() + "'";
        return std::string();
      });
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
