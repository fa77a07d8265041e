// The worker's hold on its whet-runner zygote: starts it, sends it measurements, starts it anew
// when it is lost. Used by one thread at a time after construction.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/support/status.h"
#include "compiler/support/subprocess.h"
#include "proto/run.pb.h"

namespace whet::worker {

class RunnerClient {
 public:
  // `program`: path of whet-runner. Start it before gRPC's threads exist.
  static StatusOr<std::unique_ptr<RunnerClient>> Start(std::string program,
                                                       std::vector<std::string> args = {});
  ~RunnerClient();
  RunnerClient(const RunnerClient&) = delete;
  RunnerClient& operator=(const RunnerClient&) = delete;

  // Never fails as such: when the runner itself is lost, the measurement says so (DEVICE_LOST), and
  // a new one is started.
  v1::Measurement Run(v1::RunRequest request);
  const v1::RunnerHello& hello() const { return hello_; }
  pid_t pid() const { return process_.pid(); }

 private:
  RunnerClient(std::string program, std::vector<std::string> args)
      : program_(std::move(program)), args_(std::move(args)) {}
  Status Spawn();
  void Stop();

  const std::string program_;
  const std::vector<std::string> args_;
  Subprocess process_;
  int fd_ = -1;
  uint64_t last_id_ = 0;
  v1::RunnerHello hello_;
};

}  // namespace whet::worker
