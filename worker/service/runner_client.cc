#include "worker/service/runner_client.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "compiler/support/frame.h"
#include "worker/device/cpu.h"
#include "worker/measure/runner.h"

namespace whet::worker {
namespace {

constexpr int64_t kStartTimeout = 20 * kSecond;
// Beyond a candidate's own limit: cleaning up after it on a machine that is busy.
constexpr int64_t kGrace = 30 * kSecond;

}  // namespace

StatusOr<std::unique_ptr<RunnerClient>> RunnerClient::Start(RunnerOptions options) {
  std::unique_ptr<RunnerClient> client(new RunnerClient(std::move(options)));
  WHET_RETURN_IF_ERROR(client->Spawn());
  return client;
}

RunnerClient::~RunnerClient() { Stop(); }

void RunnerClient::Interrupt() {
  if (const pid_t pid = live_.load(); pid > 0) kill(pid, SIGKILL);
}

void RunnerClient::Stop() {
  live_ = -1;
  if (fd_ >= 0) close(fd_);  // the zygote ends at the end of its requests
  fd_ = -1;
  process_.Wait(MonotonicNs() + 2 * kSecond);
  process_.Kill();
}

Status RunnerClient::Spawn() {
  WHET_ASSIGN_OR_RETURN(const auto fds, SocketPair());
  SpawnOptions spawn;
  spawn.program = options_.program;
  spawn.args = options_.args;
  spawn.fds = {{fds.second, kRunnerFd}};
  if (options_.lock_fd >= 0) spawn.fds.emplace_back(options_.lock_fd, kRunnerLockFd);
  spawn.stdout_to_stderr = true;
  StatusOr<Subprocess> process = [&] {
    const OnCores inherited(options_.cores);
    return Subprocess::Spawn(spawn);
  }();
  close(fds.second);
  fd_ = fds.first;
  WHET_RETURN_IF_ERROR(process.status());
  process_ = std::move(*process);
  live_ = process_.pid();
  const StatusOr<Frame> frame = ReadFrame(fd_, kMaxRunFrame, MonotonicNs() + kStartTimeout);
  if (!frame.ok())
    return Annotate(frame.status(), fmt::format("'{}' does not start", options_.program));
  if (frame->type != kRunnerHello || !hello_.ParseFromString(frame->payload))
    return Internal("'{}' does not speak this worker's protocol", options_.program);
  if (hello_.kernel_abi() != kKernelAbi) {
    return FailedPrecondition(
        "'{}' runs kernels of interface {}, this worker of {}; install one release",
        options_.program, hello_.kernel_abi(), kKernelAbi);
  }
  return OkStatus();
}

v1::Measurement RunnerClient::Run(v1::RunRequest request) {
  auto lost = [](const Status& why) {
    v1::Measurement m;
    m.set_failure(v1::FAILURE_DEVICE_LOST);
    m.set_message("the runner was lost: " + Message(why));
    return m;
  };
  if (!process_.running() || fd_ < 0) {
    if (const Status started = Spawn(); !started.ok()) return lost(started);
  }
  request.set_id(++last_id_);
  const int64_t limit =
      std::clamp<int64_t>(request.spec().time_limit_ns(), kSecond, 3600 * kSecond);
  const int64_t deadline = MonotonicNs() + limit + kGrace;
  Status status = WriteFrame(fd_, kRunRequest, request.SerializeAsString(), deadline);
  if (status.ok()) {
    StatusOr<Frame> frame = ReadFrame(fd_, kMaxRunFrame, deadline);
    v1::RunReply reply;
    if (frame.ok() && frame->type == kRunReply && reply.ParseFromString(frame->payload) &&
        reply.id() == request.id()) {
      return std::move(*reply.mutable_measurement());
    }
    status = frame.ok() ? DataLoss("its reply is damaged") : frame.status();
  }
  live_ = -1;
  process_.Kill();
  Stop();
  return lost(status);
}

}  // namespace whet::worker
