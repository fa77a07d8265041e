#include "compiler/support/config.h"

#define TOML_EXCEPTIONS 0
// Its assertions speak of what a file holds, and each is followed by an error in words.
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "compiler/support/env.h"
#include "compiler/support/names.h"

namespace whet {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;

bool IsOurs(const CLI::Option* option) {
  return !option->get_lnames().empty() && option->get_lnames()[0] != "help" &&
         option->get_lnames()[0] != "config" && option->get_lnames()[0] != "dump-config" &&
         option->get_lnames()[0] != "version" && option->get_lnames()[0] != "help-all";
}

bool IsFlag(const CLI::Option* option) { return option->get_expected_min() == 0; }

std::string EnvName(const std::string& flag) {
  std::string name = "WHET_";
  for (char c : flag)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// The parser's test for white space is undefined for U+FB26 to U+FEFE: where there is one of these,
// it is not asked. The line, from 1; 0: none.
int LineOfUnparsable(std::string_view text) {
  int line = 1;
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    line += text[i] == '\n';
    if (text[i] != '\xEF') continue;
    const auto rest = static_cast<unsigned>(static_cast<unsigned char>(text[i + 1]) << 8 |
                                            static_cast<unsigned char>(text[i + 2]));
    if (rest >= 0xACA6 && rest <= 0xBBBE) return line;
  }
  return 0;
}

// The value as text, as a flag would give it.
bool TomlText(const toml::node& node, std::vector<std::string>* out) {
  if (const auto* array = node.as_array()) {
    for (const auto& element : *array) {
      if (!TomlText(element, out)) return false;
    }
    return true;
  }
  if (const auto* s = node.as_string()) return out->push_back(s->get()), true;
  if (const auto* b = node.as_boolean()) return out->push_back(b->get() ? "true" : "false"), true;
  if (const auto* i = node.as_integer()) return out->push_back(std::to_string(i->get())), true;
  if (const auto* f = node.as_floating_point())
    return out->push_back(fmt::format("{}", f->get())), true;
  return false;
}

std::string TomlQuoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 32) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// A number as TOML has it, else a quoted text; either reads back as the same text.
std::string TomlValue(const std::string& text) {
  const size_t digits = text.rfind('-', 0) == 0 ? 1 : 0;
  const bool number = text.size() > digits && text.size() < 19 &&
                      text.find_first_not_of("0123456789", digits) == std::string::npos &&
                      (text[digits] != '0' || text == "0");
  return number ? text : TomlQuoted(text);
}

// The apps whose options hold: the main one and the sub-commands that were named.
void ActiveApps(CLI::App& app, std::vector<CLI::App*>* out) {
  out->push_back(&app);
  for (CLI::App* sub : app.get_subcommands()) ActiveApps(*sub, out);
}

// Every option name of the program, so that a file shared by several sub-commands may name those of
// others.
void KnownNames(CLI::App& app, std::set<std::string>* options, std::set<std::string>* tables) {
  for (const CLI::Option* option : app.get_options()) {
    if (IsOurs(option)) options->insert(option->get_lnames()[0]);
  }
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    tables->insert(sub->get_name());
    KnownNames(*sub, options, tables);
  }
}

Status CheckNames(CLI::App& app, const toml::table& file, const std::string& path) {
  std::set<std::string> options, tables;
  KnownNames(app, &options, &tables);
  auto check = [&](const toml::table& table) -> Status {
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (value.is_table() && tables.count(name)) continue;
      if (!options.count(name)) {
        return InvalidArgument("'{}' line {}: there is no option '{}'; the options are: {}", path,
                               value.source().begin.line, name, fmt::join(options, ", "));
      }
    }
    return OkStatus();
  };
  WHET_RETURN_IF_ERROR(check(file));
  for (const auto& [key, value] : file) {
    if (value.is_table()) WHET_RETURN_IF_ERROR(check(*value.as_table()));
  }
  return OkStatus();
}

Status ApplyOption(const CLI::App& app, CLI::Option* option, const toml::table& file,
                   const std::string& path) {
  if (!IsOurs(option) || option->count() > 0) return OkStatus();
  const std::string name = option->get_lnames()[0];
  std::vector<std::string> values;
  std::string from;
  if (const char* env = std::getenv(EnvName(name).c_str()); env && *env) {
    values.emplace_back(env);
    from = EnvName(name);
  } else {
    const toml::node* node = nullptr;
    if (const auto* table = file[app.get_name()].as_table()) node = table->get(name);
    if (!node) node = file.get(name);
    if (!node) return OkStatus();
    from = fmt::format("'{}' line {}", path, node->source().begin.line);
    if (!TomlText(*node, &values))
      return InvalidArgument("{}: '{}' has no value that an option can take", from, name);
  }
  try {
    for (const std::string& value : values)
      option->add_result(IsFlag(option) ? option->get_flag_value(name, value) : value);
    option->run_callback();
  } catch (const CLI::Error& e) {
    return InvalidArgument("{}: {}", from, e.what());
  }
  return OkStatus();
}

void Dump(const std::vector<CLI::App*>& apps) {
  for (const CLI::App* app : apps) {
    if (app != apps[0]) std::printf("\n[%s]\n", app->get_name().c_str());
    for (const CLI::Option* option : app->get_options()) {
      if (!IsOurs(option)) continue;
      const std::string name = option->get_lnames()[0];
      std::string description = option->get_description();
      for (size_t at = 0; (at = description.find('\n', at)) != std::string::npos; at += 3)
        description.replace(at, 1, "\n# ");
      std::printf("# %s\n", description.c_str());
      const std::vector<std::string> values =
          option->count() > 0 ? option->results()
                              : std::vector<std::string>{option->get_default_str()};
      if (IsFlag(option)) {
        std::printf("%s = %s\n", name.c_str(),
                    option->count() > 0 && values[0] != "false" ? "true" : "false");
      } else if (values.size() == 1 && values[0].empty()) {
        std::printf("# %s =\n", name.c_str());
      } else if (values.size() == 1) {
        std::printf("%s = %s\n", name.c_str(), TomlValue(values[0]).c_str());
      } else {
        std::vector<std::string> quoted;
        for (const std::string& v : values) quoted.push_back(TomlValue(v));
        std::printf("%s = [%s]\n", name.c_str(),
                    fmt::format("{}", fmt::join(quoted, ", ")).c_str());
      }
    }
  }
}

// Finds the first name of a command line that no option or sub-command has. CLI11 refuses it too,
// but says neither what there is nor what may have been meant.
class NameCheck {
 public:
  NameCheck(const CLI::App& app, const std::string& program) : app_(&app), called_(program) {}

  // What is wrong, in words; empty when all names are known.
  std::string Run(int argc, const char* const* argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string arg = argv[i];
      if (arg == "--") return "";
      if (arg.size() < 2 || arg[0] != '-') {
        if (std::string wrong = Argument(arg); !wrong.empty()) return wrong;
        continue;
      }
      const bool is_long = arg[1] == '-';
      const std::string name = is_long ? arg.substr(0, arg.find('=')) : arg.substr(0, 2);
      const CLI::Option* option = Find(name);
      if (!option) {
        return fmt::format("unknown flag '{}'{}; the flags of '{}' are {}", name,
                           Suggestion(name, Flags()), called_, fmt::join(Flags(), ", "));
      }
      if (!IsFlag(option) && name.size() == arg.size()) ++i;  // the next one is its value
    }
    return "";
  }

  const std::string& called() const { return called_; }  // "whet bench", when that was reached

 private:
  // The options that hold here: those of the sub-command, then those of the program.
  std::vector<const CLI::Option*> Options() const {
    std::vector<const CLI::Option*> all = app_->get_options();
    if (app_->get_parent()) {
      for (const CLI::Option* o : app_->get_parent()->get_options()) all.push_back(o);
    }
    return all;
  }
  const CLI::Option* Find(const std::string& name) const {
    for (const CLI::Option* o : Options()) {
      if (o->check_name(name)) return o;
    }
    return nullptr;
  }
  std::vector<std::string> Flags() const {
    std::vector<std::string> names;
    for (const CLI::Option* o : Options()) {
      for (const std::string& n : o->get_lnames()) {
        const std::string flag = "--" + n;
        if (!o->get_group().empty() && std::find(names.begin(), names.end(), flag) == names.end())
          names.push_back(flag);
      }
    }
    return names;
  }
  std::string Argument(const std::string& arg) {
    const std::vector<const CLI::App*> subs =
        app_->get_subcommands([](const CLI::App*) { return true; });
    if (!subs.empty()) {
      std::vector<std::string> verbs;
      for (const CLI::App* sub : subs) {
        if (sub->get_name() == arg) {
          app_ = sub;
          called_ += " " + arg;
          return "";
        }
        verbs.push_back(sub->get_name());
      }
      return fmt::format("unknown verb '{}'{}; the verbs are {}", arg, Suggestion(arg, verbs),
                         fmt::join(verbs, ", "));
    }
    std::vector<std::string> expected;
    for (const CLI::Option* o : app_->get_options()) {
      if (o->get_positional()) expected.push_back(o->get_name());
    }
    if (++arguments_ <= expected.size()) return "";
    return fmt::format(
        "unexpected argument '{}'; '{}' takes {}", arg, called_,
        expected.empty() ? "flags only" : fmt::format("{}", fmt::join(expected, " ")));
  }

  const CLI::App* app_;
  std::string called_;
  size_t arguments_ = 0;
};

int Usage(const std::string& program, const std::string& message) {
  std::fprintf(stderr, "error: %s\n`%s --help` explains.\n", message.c_str(), program.c_str());
  return 2;
}

}  // namespace

std::string ConfigFile(const CLI::App& app) {
  const CLI::Option* option = app.get_option_no_throw("--config");
  if (option && option->count() > 0 && !option->results()[0].empty()) return option->results()[0];
  const char* env = std::getenv("WHET_CONFIG");
  return env ? env : "";
}

std::optional<int> ParseProgram(CLI::App& app, int argc, const char* const* argv) {
  std::string config;
  bool dump = false, version = false;
  app.add_option("--config", config,
                 "TOML file with options (flags and WHET_<FLAG> variables win over it)");
  app.add_flag("--dump-config", dump, "print the configuration that results, as TOML, and exit");
  app.add_flag("--version", version, "print the version and exit");
  std::string program = app.get_name();
  if (program.empty() && argc > 0) program = std::filesystem::path(argv[0]).filename().string();
  NameCheck names(app, program);
  if (const std::string wrong = names.Run(argc, argv); !wrong.empty())
    return Usage(names.called(), wrong);
  program = names.called();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e), 0;
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e), 0;
  } catch (const CLI::RequiredError& e) {
    if (!dump && !version) return Usage(program, e.what());  // neither needs what is missing
  } catch (const CLI::ParseError& e) {
    return Usage(program, e.what());
  }
  if (version) return std::printf("whet %s\n", kVersion), 0;
  toml::table file;
  config = ConfigFile(app);
  if (!config.empty()) {
    const StatusOr<std::string> text = ReadFile(config, kMaxConfigBytes);
    if (!text.ok()) return Usage(program, Message(text.status()));
    if (const int line = LineOfUnparsable(*text); line > 0) {
      return Usage(program, fmt::format("'{}' line {}: characters U+FB26 to U+FEFE (presentation "
                                        "forms, variation selectors) cannot be read here",
                                        config, line));
    }
    toml::parse_result parsed = toml::parse(*text, config);
    if (!parsed) {
      return Usage(program,
                   fmt::format("'{}' line {}: {}", config, parsed.error().source().begin.line,
                               std::string(parsed.error().description())));
    }
    file = std::move(parsed).table();
    if (const Status status = CheckNames(app, file, config); !status.ok())
      return Usage(program, Message(status));
  }
  std::vector<CLI::App*> apps;
  ActiveApps(app, &apps);
  for (CLI::App* active : apps) {
    for (CLI::Option* option : active->get_options()) {
      if (const Status status = ApplyOption(*active, option, file, config); !status.ok())
        return Usage(program, Message(status));
    }
  }
  if (dump) return Dump(apps), 0;
  return std::nullopt;
}

}  // namespace whet
