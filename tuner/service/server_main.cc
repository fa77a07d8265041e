#include "tuner/service/server_main.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <thread>

#include "compiler/support/cgroup.h"
#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "compiler/support/paths.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/security_flags.h"
#include "tracker/service/tracker_server.h"
#include "tuner/service/tuner_server.h"

namespace whet::tuner {
namespace {

struct Flags {
  std::string tracker = ":9190", listen = "127.0.0.1:9191", advertise, db = "tuning.db";
  std::string leftovers = "resume";
  int builders = 0;
  int64_t max_db_mb = 0, max_wal_mb = 256, max_artifact_mb = 64, keep_mb = 0, keep_trials = 0,
          keep_days = 0;
  rpc::SecurityFlags security;
};

constexpr int64_t kMb = int64_t{1} << 20;
constexpr int64_t kDayMs = 86'400'000;

std::string HostBootId() {
  StatusOr<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id", 100);
  return id.ok() ? id->substr(0, id->find('\n')) : "";
}

StatusOr<std::unique_ptr<TunerServer>> StartServer(
    const Flags& flags, const SpaceProvider& spaces, const ReferenceProvider& references,
    const std::string& builder, const CoreConfig& core,
    std::unique_ptr<tracker::TrackerServer>* tracker) {
  ServerOptions options;
  options.core = core;
  WHET_ASSIGN_OR_RETURN(options.listening,
                        rpc::ListeningWith(flags.security, {pki::Role::kServer}));
  const rpc::Security* security = options.listening.security.get();
  WHET_ASSIGN_OR_RETURN(options.listen,
                        rpc::ParseListenAddress("--listen", flags.listen, security));
  if (!flags.advertise.empty()) {
    // As an address to listen on is read: port 0 stands for the one that is listened on.
    WHET_ASSIGN_OR_RETURN(options.advertise,
                          rpc::ParseListenAddress("--advertise", flags.advertise, security));
  }
  if (rpc::IsAnyAddress(options.advertise.empty() ? options.listen : options.advertise)) {
    return InvalidArgument(
        "--listen '{}' is every address of this machine, and workers have to be told one that they "
        "can dial: --advertise HOST:0 with this machine's name or address as they know it",
        flags.listen);
  }
  const bool embedded = !flags.tracker.empty() && flags.tracker[0] == ':';
  std::string tracker_listen;
  if (embedded) {
    // On the address that --listen names: who reaches the one has to reach the other.
    const std::string beside =
        rpc::IsUnix(options.listen)
            ? options.listen.substr(0, options.listen.rfind('/')) + "/tracker.sock"
            : options.listen.substr(0, options.listen.rfind(':')) + flags.tracker;
    WHET_ASSIGN_OR_RETURN(tracker_listen, rpc::ParseListenAddress("--tracker", beside, security));
  } else {
    WHET_ASSIGN_OR_RETURN(options.tracker,
                          rpc::ParseDialAddress("--tracker", flags.tracker, security));
  }
  WHET_ASSIGN_OR_RETURN(const std::string program, FindProgram(builder));
  db::WriterOptions writing;
  writing.program = "tuner-server " + std::string(kVersion);
  writing.page_limit = flags.max_db_mb * (kMb / 4096);
  writing.journal_limit = flags.max_wal_mb * kMb;
  options.max_unneeded_blob_bytes = static_cast<size_t>(flags.max_artifact_mb * kMb);
  options.retention = {flags.keep_days * kDayMs, flags.keep_trials, flags.keep_mb * kMb};
  WHET_ASSIGN_OR_RETURN(auto log, db::TuningLog::Open(flags.db, writing));
  // One processor is for the device, when it is this machine; the builders share the others.
  const int builders = flags.builders > 0
                           ? flags.builders
                           : std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  WHET_ASSIGN_OR_RETURN(auto pool, BuilderPool::Start(program, builders));
  if (embedded) {
    tracker::TrackerOptions serving;
    serving.listen = tracker_listen;
    serving.listening = options.listening;
    WHET_ASSIGN_OR_RETURN(*tracker, tracker::TrackerServer::Start(serving));
    options.tracker = rpc::DialableHere((*tracker)->address());
  }
  options.core.host_boot_id = HostBootId();
  options.leftovers = flags.leftovers == "end" ? Leftovers::kEnd : Leftovers::kResume;
  return TunerServer::Start(options, std::move(log), std::move(pool), &spaces, &references);
}

}  // namespace

int RunServerMain(int argc, char** argv, const SpaceProvider& spaces,
                  const ReferenceProvider& references, const std::string& builder,
                  const CoreConfig& core) {
  CLI::App app(
      "tuner-server holds tuning jobs: it searches schedules, builds candidates, has leased "
      "workers measure them and keeps\n"
      "every measurement in the tuning log. It listens on loopback, or anywhere with certificates "
      "(--tls), and stops on SIGTERM or Ctrl-C.");
  Flags flags;
  app.add_option("--tracker", flags.tracker,
                 "':PORT' serves a tracker here, on the address of --listen; 'HOST:PORT' uses that "
                 "one")
      ->capture_default_str();
  app.add_option("--listen", flags.listen,
                 "address for clients and workers, HOST:PORT or :PORT; port 0 picks a free one; or "
                 "unix:PATH in a folder of mode 0700, with the tracker's socket beside it")
      ->capture_default_str();
  app.add_option("--advertise", flags.advertise,
                 "address that workers are told to dial (default: the one listened on); port 0 is "
                 "the one listened on");
  rpc::AddListenerFlags(app, &flags.security);
  app.add_option("--db", flags.db, "the tuning log; made when there is none")
      ->capture_default_str();
  app.add_option("--leftovers", flags.leftovers,
                 "jobs that a former process left unfinished: 'resume' them, or 'end' them; what "
                 "they measured is in the log either way")
      ->check(CLI::IsMember({"resume", "end"}))
      ->capture_default_str();
  app.add_option("--builders", flags.builders,
                 "processes that build candidates (default: one less than there are processors)")
      ->check(CLI::Range(0, 256));
  app.add_option("--keep-mb", flags.keep_mb,
                 "forget the oldest trials beyond this much, never the best ones; 0: forget none")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--keep-trials", flags.keep_trials,
                 "the same by number, for each task; 0: no limit")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--keep-days", flags.keep_days, "the same by age; 0: no limit")
      ->check(CLI::Range(0, 36500))
      ->capture_default_str();
  app.add_option("--max-db-mb", flags.max_db_mb,
                 "the log's file grows no further: then nothing is acknowledged until there is "
                 "room, like on a full disk; 0: no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-wal-mb", flags.max_wal_mb,
                 "the same for the write-ahead log beside it, which grows while another program "
                 "reads in one transaction")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-artifact-mb", flags.max_artifact_mb,
                 "memory for candidates that no trial needs any more and a worker may yet ask for")
      ->check(CLI::Range(0, 1 << 14))
      ->capture_default_str();
  app.footer(
      "Examples:\n  tuner-server --tracker :9190 --listen :9191 --db tuning.db\n  tuner-server "
      "--tracker 127.0.0.1:9190 --listen 127.0.0.1:9191\n  tuner-server --tracker :9190 --listen "
      "0.0.0.0:9191 --advertise lab.example:9191 --tls /etc/whet/server\nPrints `listening on "
      "HOST:PORT ROLE` for "
      "each port once it is ready. Exit codes: 0 stopped, 2 usage or bad input.");
  if (const auto exit = ParseProgram(app, argc, argv)) return *exit;
  spdlog::set_default_logger(spdlog::stderr_logger_mt("tuner-server"));
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  signal(SIGPIPE, SIG_IGN);
  MakeRoomInOwnCgroup();  // for the builders' children

  std::unique_ptr<tracker::TrackerServer> tracker;
  StatusOr<std::unique_ptr<TunerServer>> server =
      StartServer(flags, spaces, references, builder, core, &tracker);
  if (!server.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(server.status()).c_str());
    return 2;
  }
  if (tracker) rpc::AnnounceListening(tracker->address(), "tracker");
  rpc::AnnounceListening((*server)->address(), "server");
  int signal_number = 0;
  sigwait(&stop, &signal_number);
  spdlog::info("event=stopping signal={}", signal_number);
  server->reset();
  tracker.reset();
  return 0;
}

}  // namespace whet::tuner
