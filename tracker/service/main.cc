// rpc-tracker: matches tuner servers with devices by key.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>

#include "compiler/support/config.h"
#include "compiler/support/paths.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/security_flags.h"
#include "tracker/service/tracker_server.h"

namespace {

int Run(int argc, char** argv) {
  using namespace whet;
  CLI::App app(
      "rpc-tracker matches tuner servers with measurement devices: workers register under a key, "
      "servers lease them.\n"
      "It listens on loopback, or anywhere with certificates (--tls), and stops on SIGTERM or "
      "Ctrl-C.");
  app.footer(
      "Examples:\n  rpc-tracker --listen 127.0.0.1:9190\n  rpc-tracker --listen 0.0.0.0:9190 --tls "
      "/etc/whet/tracker\nPrints `listening on HOST:PORT tracker` "
      "once "
      "it is ready. Exit codes: 0 stopped, 2 usage or bad input.");
  std::string listen = "127.0.0.1:9190", state_dir;
  app.add_option("--listen", listen,
                 "address to listen on, HOST:PORT or :PORT; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--state-dir", state_dir,
                 "folder for what must outlive a restart (default: $XDG_STATE_HOME/whet or "
                 "~/.local/state/whet)");
  rpc::SecurityFlags tls;
  rpc::AddListenerFlags(app, &tls);
  if (const auto exit = ParseProgram(app, argc, argv)) return *exit;
  spdlog::set_default_logger(spdlog::stderr_logger_mt("rpc-tracker"));

  // Blocked before any thread starts, so that every thread leaves them to sigwait below.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  signal(SIGPIPE, SIG_IGN);

  tracker::TrackerOptions options;
  const auto start = [&]() -> StatusOr<std::unique_ptr<tracker::TrackerServer>> {
    WHET_ASSIGN_OR_RETURN(options.listening, rpc::ListeningWith(tls, {pki::Role::kTracker}));
    WHET_ASSIGN_OR_RETURN(
        options.listen,
        rpc::ParseListenAddress("--listen", listen, options.listening.security.get()));
    WHET_ASSIGN_OR_RETURN(options.state_dir, StateDir(state_dir));
    options.state_dir += "/tracker";
    return tracker::TrackerServer::Start(options);
  };
  StatusOr<std::unique_ptr<tracker::TrackerServer>> server = start();
  if (!server.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(server.status()).c_str());
    return 2;
  }
  rpc::AnnounceListening((*server)->address(), "tracker");
  int signal_number = 0;
  sigwait(&stop, &signal_number);
  spdlog::info("event=stopping signal={}", signal_number);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return Run(argc, argv); }
