#include "tuner/measure/builder_zygote.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "compiler/support/env.h"
#include "compiler/support/frame.h"
#include "compiler/support/sandbox.h"
#include "compiler/support/subprocess.h"

namespace whet::tuner {
namespace {

constexpr int64_t kDefaultTimeLimit = 10 * kSecond;
constexpr int64_t kMaxTimeLimit = 600 * kSecond;

v1::BuildReply Failure(v1::FailureKind kind, std::string message) {
  v1::BuildReply reply;
  reply.set_failure(kind);
  reply.set_message(std::move(message));
  return reply;
}

// An empty folder of our own, in memory where there is such a place; removed with its files.
class WorkDir {
 public:
  WorkDir() {
    const char* tmp = std::getenv("TMPDIR");
    for (const std::string& base :
         {std::string("/dev/shm"), std::string(tmp ? tmp : "/tmp"), std::string("/tmp")}) {
      std::string name = base + "/whet-build-XXXXXX";
      if (mkdtemp(name.data())) {
        path_ = name;
        return;
      }
    }
  }
  ~WorkDir() {
    if (path_.empty()) return;
    const StatusOr<std::vector<std::string>> names = ListDir(path_);
    if (names.ok()) {
      for (const std::string& name : *names) unlink((path_ + "/" + name).c_str());
    }
    rmdir(path_.c_str());
  }
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The last line of what the child printed: where libraries say why they abort.
std::string LastWords(const std::string& file) {
  StatusOr<std::string> text = ReadFile(file, 1 << 20);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  std::string line = text->substr(text->rfind('\n') + 1);
  return line.empty() ? "" : ": " + line.substr(0, 300);
}

v1::BuildReply BuildInChild(const v1::BuildRequest& request, const BuildFunction& build) {
  const int64_t start = MonotonicNs();
  const int64_t limit = request.time_limit_ns() > 0
                            ? std::min<int64_t>(request.time_limit_ns(), kMaxTimeLimit)
                            : kDefaultTimeLimit;
  const int64_t deadline = start + limit;
  const WorkDir dir;
  if (dir.path().empty())
    return Failure(v1::FAILURE_INFRASTRUCTURE,
                   "cannot make a folder for the build in /dev/shm or /tmp");
  const StatusOr<std::pair<int, int>> fds = SocketPair();
  if (!fds.ok()) return Failure(v1::FAILURE_INFRASTRUCTURE, Message(fds.status()));
  const std::string words = dir.path() + "/stderr";
  SandboxOptions options;
  options.address_space_bytes = request.memory_limit_bytes();
  options.file_bytes = kMaxBuildFrame;
  options.cpu_ns = limit;
  options.keep_fds = {fds->second};
  options.stdio_fd = open(words.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  StatusOr<SandboxedChild> child = SandboxedChild::Start(options, [&] {
    const v1::BuildReply reply = build(request, dir.path());
    return WriteFrame(fds->second, kBuildReply, reply.SerializeAsString(), deadline).ok() ? 0 : 1;
  });
  if (options.stdio_fd >= 0) close(options.stdio_fd);
  close(fds->second);
  v1::BuildReply reply;
  if (!child.ok()) {
    reply = Failure(v1::FAILURE_INFRASTRUCTURE, Message(child.status()));
  } else {
    const StatusOr<Frame> frame = ReadFrame(fds->first, kMaxBuildFrame, deadline);
    const std::optional<int> status =
        child->Finish(frame.ok() ? deadline : std::min(deadline, MonotonicNs() + kSecond));
    if (frame.ok() && frame->type == kBuildReply && reply.ParseFromString(frame->payload)) {
      // What it built counts even if it crashed on its way out.
    } else if (frame.ok() || frame.status().code() == absl::StatusCode::kDataLoss) {
      reply = Failure(v1::FAILURE_BUILD_ERROR, "the build's reply is damaged");
    } else if (frame.status().code() == absl::StatusCode::kDeadlineExceeded || !status) {
      reply = Failure(v1::FAILURE_BUILD_TIMEOUT,
                      fmt::format("the build took longer than {} ms", limit / kMillisecond));
    } else {
      reply = Failure(v1::FAILURE_BUILD_ERROR,
                      fmt::format("the build {}{}", DescribeWaitStatus(*status), LastWords(words)));
    }
  }
  close(fds->first);
  reply.set_build_ns(MonotonicNs() - start);
  return reply;
}

}  // namespace

int RunBuilderZygote(const v1::BuilderHello& hello, const BuildFunction& build, int fd) {
  if (fcntl(fd, F_GETFD) < 0) {
    std::fprintf(
        stderr,
        "error: whet-builder is started by tuner-server and reads requests from descriptor %d\n",
        fd);
    return 2;
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  if (!WriteFrame(fd, kBuilderHello, hello.SerializeAsString()).ok()) return 1;
  while (true) {
    const StatusOr<Frame> frame = ReadFrame(fd, kMaxBuildFrame);
    if (!frame.ok()) return frame.status().code() == absl::StatusCode::kUnavailable ? 0 : 1;
    v1::BuildRequest request;
    if (frame->type != kBuildRequest || !request.ParseFromString(frame->payload)) return 1;
    v1::BuildReply reply = BuildInChild(request, build);
    reply.set_id(request.id());
    std::string bytes = reply.SerializeAsString();
    if (bytes.size() > kMaxBuildFrame) {
      reply = Failure(
          v1::FAILURE_REJECTED,
          fmt::format("the candidate has {} bytes, the limit is {}", bytes.size(), kMaxBuildFrame));
      reply.set_id(request.id());
      bytes = reply.SerializeAsString();
    }
    if (!WriteFrame(fd, kBuildReply, bytes).ok()) return 1;
  }
}

}  // namespace whet::tuner
