#include "compiler/support/config.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <fmt/format.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "compiler/support/env.h"

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
        std::printf("%s = %s\n", name.c_str(), TomlQuoted(values[0]).c_str());
      } else {
        std::vector<std::string> quoted;
        for (const std::string& v : values) quoted.push_back(TomlQuoted(v));
        std::printf("%s = [%s]\n", name.c_str(),
                    fmt::format("{}", fmt::join(quoted, ", ")).c_str());
      }
    }
  }
}

int Usage(const std::string& message) {
  std::fprintf(stderr, "error: %s\nRun with --help for more information.\n", message.c_str());
  return 2;
}

}  // namespace

std::optional<int> ParseProgram(CLI::App& app, int argc, const char* const* argv) {
  std::string config;
  bool dump = false, version = false;
  app.add_option("--config", config,
                 "TOML file with options (flags and WHET_<FLAG> variables win over it)");
  app.add_flag("--dump-config", dump, "print the configuration that results, as TOML, and exit");
  app.add_flag("--version", version, "print the version and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e), 0;
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e), 0;
  } catch (const CLI::ParseError& e) {
    if (version) return std::printf("whet %s\n", kVersion), 0;
    return Usage(e.what());
  }
  if (version) return std::printf("whet %s\n", kVersion), 0;
  toml::table file;
  if (config.empty()) {
    if (const char* env = std::getenv("WHET_CONFIG")) config = env;
  }
  if (!config.empty()) {
    const StatusOr<std::string> text = ReadFile(config, kMaxConfigBytes);
    if (!text.ok()) return Usage(Message(text.status()));
    toml::parse_result parsed = toml::parse(*text, config);
    if (!parsed) {
      return Usage(fmt::format("'{}' line {}: {}", config, parsed.error().source().begin.line,
                               std::string(parsed.error().description())));
    }
    file = std::move(parsed).table();
    if (const Status status = CheckNames(app, file, config); !status.ok())
      return Usage(Message(status));
  }
  std::vector<CLI::App*> apps;
  ActiveApps(app, &apps);
  for (CLI::App* active : apps) {
    for (CLI::Option* option : active->get_options()) {
      if (const Status status = ApplyOption(*active, option, file, config); !status.ok())
        return Usage(Message(status));
    }
  }
  if (dump) return Dump(apps), 0;
  return std::nullopt;
}

}  // namespace whet
