// The `whet` command.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "compiler/driver/flags.h"
#include "compiler/driver/names.h"
#include "compiler/driver/verb.h"
#include "compiler/support/config.h"

namespace whet::driver {
namespace {

constexpr const char* kAbout =
    "whet sharpens deep-learning models for the device they run on: it measures candidates for "
    "every part of a model and compiles it with the fastest.";

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
  }
  return names;
}

// CLI11 names what it did not expect; we also say what there is. Nothing: all names are known.
std::string UnknownName(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> verbs;
  for (const VerbEntry& v : Verbs()) verbs.emplace_back(v.name);
  const CLI::App* verb = nullptr;
  for (int i = 1; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--", 0) == 0) {
      const std::string bare = arg.substr(0, arg.find('='));
      std::vector<std::string> known = verb ? FlagNames(*verb) : std::vector<std::string>{"--help"};
      for (const char* common : {"--config", "--dump-config", "--version"})
        known.emplace_back(common);
      if (std::find(known.begin(), known.end(), bare) != known.end()) continue;
      return fmt::format("unknown flag '{}'{}; the flags of '{}' are {}", bare,
                         Suggestion(bare, known), verb ? "whet " + verb->get_name() : "whet",
                         Join(known));
    }
    if (verb || arg.rfind('-', 0) == 0) continue;
    if (i > 1 && std::string(argv[i - 1]) == "--config") continue;
    if (std::find(verbs.begin(), verbs.end(), arg) == verbs.end()) {
      return fmt::format("unknown verb '{}'{}; the verbs are {}", arg, Suggestion(arg, verbs),
                         Join(verbs));
    }
    verb = app.get_subcommand(arg);
  }
  return "";
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // `whet log best | head` ends by a failed write, not by a signal
  CLI::App app(kAbout, "whet");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(36);
  std::vector<std::unique_ptr<Verb>> verbs;
  std::vector<std::unique_ptr<Flags>> flags;
  for (const VerbEntry& entry : Verbs()) {
    CLI::App* sub = app.add_subcommand(entry.name, entry.summary);
    sub->fallthrough();  // --config and --dump-config may follow the verb
    verbs.push_back(entry.make());
    flags.push_back(std::make_unique<Flags>(sub));
    verbs.back()->Declare(*flags.back());
  }
  app.footer(
      "whet VERB --help explains a verb, with examples.\nExit codes: 0 done, 1 no valid winner or "
      "a check failed, 2 usage or bad input, 3 unreachable, 130 interrupted.");
  if (const std::string wrong = UnknownName(app, argc, argv); !wrong.empty()) {
    fmt::print(stderr, "whet: {}\n", wrong);
    return kExitUsage;
  }
  if (const auto done = ParseProgram(app, argc, argv)) return *done;
  for (size_t i = 0; i < verbs.size(); ++i) {
    if (app.get_subcommand(Verbs()[i].name)->parsed()) return verbs[i]->Run();
  }
  fmt::print(stderr, "{}", app.help());
  return kExitUsage;
}

}  // namespace
}  // namespace whet::driver

int main(int argc, char** argv) { return whet::driver::Main(argc, argv); }
