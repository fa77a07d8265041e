// rpc-worker as a component: carries out the actions of WorkerCore over gRPC, the file system and a
// whet-runner. Run() blocks until the worker has drained. RequestDrain() is safe from any thread
// and from a signal-waiting thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/env.h"
#include "compiler/support/status.h"
#include "proto/rpc/security.h"

namespace whet::worker {

struct WorkerOptions {
  std::string key;                          // what users ask for
  std::string tracker;                      // address to dial
  std::shared_ptr<rpc::Security> security;  // of all that is dialled; null: loopback only
  std::string
      state_dir;  // identity, spool, cache, in a folder for each worker that lives at the same time
  std::string lock_dir;  // of the device lock, shared with other programs that measure
  std::string runner;    // path of whet-runner
  std::vector<std::string> runner_args;
  std::string known_good;    // path of whet-known-good.so
  int known_good_after = 5;  // candidates that failed in a row it is run
  // Of the sandbox: what a candidate of strangers needs, or what this host has.
  enum class Sandbox { kStrict, kBestEffort } sandbox = Sandbox::kStrict;
  // One of several devices of this process (worker/core/device_spec.h). Empty: the machine itself.
  std::string device;
  int lock_index = -1;     // of that device, in the device lock; -1: the machine
  std::vector<int> cores;  // that it consists of; none: all that this process may use
  std::string boot_id;     // of this process, common to its devices; empty: the device's own
  // Measure how fast the machine is, once per state folder. Off: nothing is known of that.
  enum class Probe { kOff, kOnce } probe = Probe::kOff;
};

// A process with named devices has the state folder for itself. Unavailable names who has it.
StatusOr<FileLock> TakeDevicesFolder(const std::string& state_dir);

class Worker {
 public:
  // Takes a folder under the state folder, starts the runner. Unavailable: too many workers have
  // one.
  static StatusOr<std::unique_ptr<Worker>> Create(const WorkerOptions& options);
  ~Worker();
  void Run();
  void RequestDrain();

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace whet::worker
