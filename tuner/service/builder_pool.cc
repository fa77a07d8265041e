#include "tuner/service/builder_pool.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "compiler/support/frame.h"
#include "compiler/support/sandbox.h"
#include "tuner/measure/builder_zygote.h"

namespace whet::tuner {
namespace {

constexpr int64_t kStartTimeout = 30 * kSecond;
constexpr int64_t kGrace = 10 * kSecond;  // beyond a build's own limit

}  // namespace

StatusOr<std::unique_ptr<BuilderPool>> BuilderPool::Start(const std::string& program,
                                                          int builders) {
  std::unique_ptr<BuilderPool> pool(new BuilderPool(program));
  for (int i = 0; i < builders; ++i) {
    pool->zygotes_.push_back(std::make_unique<Zygote>());
    WHET_RETURN_IF_ERROR(pool->Spawn(pool->zygotes_.back().get(), &pool->hello_));
  }
  spdlog::info("event=builders count={} sandbox={}", builders,
               SandboxBitsText(pool->hello_.sandbox_bits()));
  for (auto& z : pool->zygotes_)
    z->thread = std::thread([p = pool.get(), zygote = z.get()] { p->Serve(zygote); });
  return pool;
}

BuilderPool::~BuilderPool() {
  stopping_ = true;
  for (size_t i = 0; i < zygotes_.size(); ++i) requests_.PushAlways({});
  for (auto& z : zygotes_) {
    // A thread that waits for a build wakes up: its zygote's socket ends.
    if (z->fd >= 0) shutdown(z->fd, SHUT_RDWR);
    if (z->thread.joinable()) z->thread.join();
    if (z->fd >= 0) close(z->fd);
    z->process.Wait(MonotonicNs() + kSecond);
    z->process.Kill();
  }
}

Status BuilderPool::Spawn(Zygote* z, v1::BuilderHello* hello) const {
  WHET_ASSIGN_OR_RETURN(const auto fds, SocketPair());
  SpawnOptions options;
  options.program = program_;
  options.fds = {{fds.second, kBuilderFd}};
  // Else every child would look up the same symbols of LLVM again.
  options.extra_env = {"LD_BIND_NOW=1"};
  options.stdout_to_stderr = true;
  StatusOr<Subprocess> process = Subprocess::Spawn(options);
  close(fds.second);
  if (z->fd >= 0) close(z->fd);
  z->fd = fds.first;
  WHET_RETURN_IF_ERROR(process.status());
  z->process = std::move(*process);
  const StatusOr<Frame> frame = ReadFrame(z->fd, kMaxBuildFrame, MonotonicNs() + kStartTimeout);
  if (!frame.ok()) return Annotate(frame.status(), fmt::format("'{}' does not start", program_));
  if (frame->type != kBuilderHello || !hello->ParseFromString(frame->payload))
    return Internal("'{}' does not speak this server's protocol", program_);
  return OkStatus();
}

void BuilderPool::Build(v1::BuildRequest request, Callback done) {
  requests_.PushAlways({std::move(request), std::move(done)});
}

void BuilderPool::Serve(Zygote* z) {
  while (true) {
    Request r = *requests_.Pop(kNever);
    if (stopping_ || !r.done) return;
    v1::BuildReply reply = Exchange(z, r.build);
    if (stopping_) return;
    reply.set_id(r.build.id());
    r.done(std::move(reply));
  }
}

v1::BuildReply BuilderPool::Exchange(Zygote* z, const v1::BuildRequest& request) {
  const int64_t deadline =
      MonotonicNs() + std::clamp<int64_t>(request.time_limit_ns(), kSecond, 600 * kSecond) + kGrace;
  Status status = z->process.running() ? OkStatus() : Unavailable("it is not running");
  if (status.ok()) status = WriteFrame(z->fd, kBuildRequest, request.SerializeAsString(), deadline);
  if (status.ok()) {
    StatusOr<Frame> frame = ReadFrame(z->fd, kMaxBuildFrame, deadline);
    v1::BuildReply reply;
    if (frame.ok() && frame->type == kBuildReply && reply.ParseFromString(frame->payload) &&
        reply.id() == request.id())
      return reply;
    status = frame.ok() ? DataLoss("its reply is damaged") : frame.status();
  }
  v1::BuildReply lost;
  lost.set_failure(v1::FAILURE_INFRASTRUCTURE);
  lost.set_message("the builder was lost: " + Message(status));
  if (!stopping_) {
    z->process.Kill();
    v1::BuilderHello ignored;
    if (const Status again = Spawn(z, &ignored); !again.ok())
      lost.set_message(lost.message() + "; " + Message(again));
  }
  return lost;
}

}  // namespace whet::tuner
