// The worker's hold on its whet-runner zygote: starts it, sends it measurements, starts it anew
// when it is lost. Used by one thread at a time after construction.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/support/status.h"
#include "compiler/support/subprocess.h"
#include "proto/run.pb.h"

namespace whet::worker {

struct RunnerOptions {
  std::string program;  // path of whet-runner
  std::vector<std::string> args;
  std::vector<int> cores;  // that it and its candidates run on; none: those of the calling thread
  int lock_fd = -1;        // of the device lock: it is held until the runner is gone, too
};

class RunnerClient {
 public:
  // Start it before gRPC's threads exist.
  static StatusOr<std::unique_ptr<RunnerClient>> Start(RunnerOptions options);
  ~RunnerClient();
  RunnerClient(const RunnerClient&) = delete;
  RunnerClient& operator=(const RunnerClient&) = delete;

  // Never fails as such: when the runner itself is lost, the measurement says so (DEVICE_LOST), and
  // a new one is started.
  v1::Measurement Run(v1::RunRequest request);
  // From any thread: what runs is killed, and with it all that it started; Run says that the runner
  // was lost.
  void Interrupt();
  const v1::RunnerHello& hello() const { return hello_; }
  pid_t pid() const { return process_.pid(); }

 private:
  explicit RunnerClient(RunnerOptions options) : options_(std::move(options)) {}
  Status Spawn();
  void Stop();

  const RunnerOptions options_;
  Subprocess process_;
  int fd_ = -1;
  std::atomic<pid_t> live_{-1};  // the runner's, for Interrupt
  uint64_t last_id_ = 0;
  v1::RunnerHello hello_;
};

}  // namespace whet::worker
