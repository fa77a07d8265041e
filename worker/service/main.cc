// rpc-worker: leases this machine out for measurements.
#include <poll.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "compiler/support/cgroup.h"
#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "compiler/support/names.h"
#include "compiler/support/paths.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/security_flags.h"
#include "worker/core/device_spec.h"
#include "worker/device/cpu.h"
#include "worker/measure/known_good.h"
#include "worker/service/worker.h"

namespace {

using namespace whet;
using Workers = std::vector<std::unique_ptr<worker::Worker>>;

// Draining begins with a signal, or when whoever started this worker is gone (its end of the
// lifeline is closed). A second signal ends the process at once.
void WaitForEnd(sigset_t stop, int lifeline, const Workers& workers) {
  const auto drain = [&workers] {
    for (const auto& w : workers) w->RequestDrain();
  };
  if (lifeline >= 0) {
    std::thread([lifeline, drain] {
      pollfd p{lifeline, POLLIN, 0};
      while (poll(&p, 1, -1) < 0) {
      }
      drain();
    }).detach();
  }
  std::thread([stop, drain] {
    int number = 0;
    sigwait(&stop, &number);
    drain();
    sigwait(&stop, &number);
    _exit(130);
  }).detach();
}

// The machine as one device, or those that were named; `folder` is held for these.
StatusOr<Workers> CreateWorkers(worker::WorkerOptions options,
                                const std::vector<std::string>& devices, FileLock* folder) {
  Workers workers;
  std::vector<worker::DeviceSpec> specs;
  if (!devices.empty()) {
    WHET_ASSIGN_OR_RETURN(specs,
                          worker::ParseDevices(devices, options.key, worker::AllowedCores()));
    WHET_ASSIGN_OR_RETURN(*folder, worker::TakeDevicesFolder(options.state_dir));
    options.boot_id = RandomHex(8);
  }
  // All of them before the first one runs: their runners are started while there are no threads.
  for (const worker::DeviceSpec& d : specs) {
    options.device = d.name;
    options.key = d.key;
    options.cores = d.cores;
    options.lock_index = d.index;
    WHET_ASSIGN_OR_RETURN(workers.emplace_back(), worker::Worker::Create(options));
  }
  if (specs.empty()) {
    WHET_ASSIGN_OR_RETURN(workers.emplace_back(), worker::Worker::Create(options));
  }
  return workers;
}

int Run(int argc, char** argv) {
  CLI::App app(
      "rpc-worker leases this machine out: it registers at a tracker under a key, takes candidates "
      "from the tuner\n"
      "server that leases it, runs each in a sandboxed child, checks its output, times it, and "
      "reports.\n"
      "It stops on SIGTERM or Ctrl-C, within ten seconds, after the measurement that runs; one "
      "that takes\n"
      "longer is given up and measured elsewhere.");
  app.footer(
      "Examples:\n  rpc-worker --key local --tracker 127.0.0.1:9190\n  rpc-worker --key rpi4 "
      "--tracker lab.example:9190 --tls /etc/whet/worker\n  rpc-worker --device "
      "cpu0:key=big:cores=4-7 --device cpu1:key=little:cores=0-3\nIt may start before its "
      "tracker "
      "and keeps trying. Exit codes: 0 stopped, 2 usage or bad input.");
  std::string key = "local", tracker = "127.0.0.1:9190", state_dir, lock_dir, known_good, without;
  int known_good_after = worker::WorkerOptions().known_good_after;
  rpc::SecurityFlags tls;
  std::vector<std::string> devices;
  bool verbose = false, weak = false;
  int lifeline = -1;
  app.add_option("--key", key, "what users ask for to measure on this device, e.g. rpi4")
      ->capture_default_str();
  app.add_option("--tracker", tracker, "address of the tracker, HOST:PORT")->capture_default_str();
  rpc::AddBundleFlag(app, &tls);
  app.add_option("--state-dir", state_dir,
                 "folder of this worker's identity and kept results (default: $XDG_STATE_HOME/whet "
                 "or ~/.local/state/whet)");
  app.add_option("--lock-dir", lock_dir,
                 "folder of the device lock, shared with other programs that measure (default: the "
                 "state folder)");
  app.add_flag("--allow-weak-sandbox", weak,
               "start although this host lacks layers of the sandbox (`whet doctor` shows which); "
               "only with a tracker on this machine");
  app.add_option("--device", devices,
                 "one of several devices that this machine is split into, may be repeated: "
                 "cpuN[:key=KEY][:cores=LIST]; without cores they share out what is left");
  app.add_flag("--verbose", verbose,
               "log every failed run, and every result that is kept or dropped");
  app.add_option("--known-good", known_good, "another candidate that is known to be right")
      ->group("");
  app.add_option("--known-good-after", known_good_after, "failures in a row")->group("");
  app.add_option("--sandbox-without", without, "layers that candidates go without, for tests")
      ->group("");
  app.add_option("--lifeline", lifeline, "drain when this inherited descriptor is closed")
      ->group("");
  if (const auto exit = ParseProgram(app, argc, argv)) return *exit;
  spdlog::set_default_logger(spdlog::stderr_logger_mt("rpc-worker"));
  if (verbose) spdlog::set_level(spdlog::level::debug);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  signal(SIGPIPE, SIG_IGN);
  MakeRoomInOwnCgroup();

  FileLock folder;
  const auto create = [&]() -> StatusOr<Workers> {
    worker::WorkerOptions options;
    if (!IsDeviceKey(key))
      return InvalidArgument("--key '{}' is not a key: {}", key, kDeviceKeyRule);
    options.key = key;
    WHET_ASSIGN_OR_RETURN(options.security, rpc::DiallingWith(tls, {pki::Role::kWorker}));
    if (const std::string host = tracker.substr(0, tracker.rfind(':'));
        weak && !rpc::IsUnix(tracker) && !host.empty() && !rpc::IsLoopback(host)) {
      return InvalidArgument(
          "--allow-weak-sandbox is for a tracker on this machine, '{}' is on another: candidates "
          "of "
          "others need the whole sandbox; `whet doctor` says what this host lacks",
          tracker);
    }
    WHET_ASSIGN_OR_RETURN(options.tracker,
                          rpc::ParseDialAddress("--tracker", tracker, options.security.get()));
    WHET_ASSIGN_OR_RETURN(const std::string state, StateDir(state_dir));
    options.state_dir = state;
    options.lock_dir = lock_dir.empty() ? state : lock_dir;
    WHET_ASSIGN_OR_RETURN(options.runner, FindProgram("whet-runner"));
    options.known_good = known_good;
    if (known_good.empty()) {
      WHET_ASSIGN_OR_RETURN(options.known_good, FindProgram(worker::kKnownGoodFile));
    }
    options.known_good_after = known_good_after;
    if (!without.empty()) options.runner_args = {"--without", without};
    if (weak) options.sandbox = worker::WorkerOptions::Sandbox::kBestEffort;
    options.probe = worker::WorkerOptions::Probe::kOnce;
    return CreateWorkers(options, devices, &folder);
  };
  const StatusOr<Workers> created = create();
  if (!created.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(created.status()).c_str());
    return 2;
  }
  WaitForEnd(stop, lifeline, *created);
  std::vector<std::thread> threads;
  for (const auto& w : *created) threads.emplace_back([&w] { w->Run(); });
  for (std::thread& t : threads) t.join();
  // The detached threads above hold the workers: the process ends here, not the objects.
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) { return Run(argc, argv); }
