// The `whet` command.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <system_error>
#include <vector>

#include "compiler/driver/flags.h"
#include "compiler/driver/report.h"
#include "compiler/driver/tuner_client.h"
#include "compiler/driver/verb.h"
#include "compiler/support/config.h"

namespace whet::driver {
namespace {

constexpr const char* kAbout =
    "whet sharpens deep-learning models for the device they run on: it measures candidates for "
    "every part of a model and compiles it with the fastest.";

// Whoever closed the pipe has seen enough, and is not told.
int OutputLost(int error) {
  if (error != EPIPE) {
    std::fprintf(stderr, "whet: cannot write to standard output%s%s\n", error != 0 ? ": " : "",
                 error != 0 ? std::strerror(error) : "");
  }
  return kExitUsage;
}

// What was printed may still be in the buffer.
int Flushed(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return code == kExitDone ? OutputLost(errno) : code;
}

// What fmt throws when it cannot write; on standard error nothing can be said then.
int Failed(const char* verb, const std::system_error& e) {
  if (std::ferror(stdout) != 0) return OutputLost(e.code().value());
  if (std::ferror(stderr) != 0) return kExitUsage;
  return Explain(verb, Internal("{}", e.what()));
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // `whet log best | head` ends by a failed write, not by a signal
  CLI::App app(kAbout, "whet");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(36);
  std::string tls;
  app.add_option("--tls", tls,
                 "folder of a bundle of `whet pki issue`, with which servers and trackers of other "
                 "machines are reached")
      ->type_name("DIR");
  std::vector<std::unique_ptr<Verb>> verbs;
  std::vector<std::unique_ptr<Flags>> flags;
  for (const VerbEntry& entry : Verbs()) {
    CLI::App* sub = app.add_subcommand(entry.name, entry.summary);
    sub->fallthrough();  // --config, --dump-config and --tls may follow the verb
    verbs.push_back(entry.make());
    flags.push_back(std::make_unique<Flags>(sub));
    verbs.back()->Declare(*flags.back());
  }
  app.footer(
      "whet VERB --help explains a verb, with examples.\nExit codes: 0 done, 1 no valid winner or "
      "a check failed, 2 usage or bad input, 3 unreachable, 130 interrupted.");
  // `whet help tune` is what many try first.
  std::vector<const char*> args(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    args.erase(args.begin() + 1);
    args.push_back("--help");
  }
  if (const auto done = ParseProgram(app, static_cast<int>(args.size()), args.data())) return *done;
  UseBundle(tls);
  for (size_t i = 0; i < verbs.size(); ++i) {
    if (!app.get_subcommand(Verbs()[i].name)->parsed()) continue;
    if (const Status s = flags[i]->CheckFiles(ConfigFile(app)); !s.ok())
      return Explain(Verbs()[i].name, s);
    try {
      return verbs[i]->Run();
    } catch (const std::bad_alloc&) {
      return Explain(Verbs()[i].name,
                     ResourceExhausted("there is not enough memory for this model or file"));
    } catch (const std::system_error& e) {
      return Failed(Verbs()[i].name, e);
    }
  }
  std::fputs(app.help().c_str(), stderr);
  return kExitUsage;
}

}  // namespace
}  // namespace whet::driver

int main(int argc, char** argv) { return whet::driver::Flushed(whet::driver::Main(argc, argv)); }
