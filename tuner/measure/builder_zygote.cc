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
// Page tables, and files of the build where those lie in memory.
constexpr int64_t kMemoryBesides = int64_t{128} << 20;
constexpr int kMaxProcesses = 64;

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

// The last line of what the child printed: where libraries say why they abort. Others say it to
// people, so no control characters.
std::string LastWords(int fd) {
  char tail[1024];
  const off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
  const off_t from = std::max<off_t>(bytes - static_cast<off_t>(sizeof tail), 0);
  const ssize_t n = bytes > 0 ? pread(fd, tail, sizeof tail, from) : 0;
  std::string text(tail, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string line = text.substr(text.rfind('\n') + 1, 300);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return line.empty() ? "" : ": " + line;
}

struct OpenFile {
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
  int fd = -1;
};

v1::BuildReply BuildInChild(const v1::BuildRequest& request, const BuildFunction& build,
                            const std::vector<std::string>& readable) {
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
  const OpenFile printed{
      open(words.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600)};
  SandboxOptions options;
  options.address_space_bytes = request.memory_limit_bytes();
  if (request.memory_limit_bytes() > 0)
    options.memory_bytes = request.memory_limit_bytes() + kMemoryBesides;
  options.processes = kMaxProcesses;
  options.syscalls = Syscalls::kBuild;
  options.confine_files = true;
  options.readable = readable;
  options.writable = {dir.path()};
  options.file_bytes = kMaxBuildFrame;
  options.cpu_ns = limit;
  options.keep_fds = {fds->second};
  options.stdio_fd = printed.fd;
  StatusOr<SandboxedChild> child = SandboxedChild::Start(options, [&] {
    const v1::BuildReply reply = build(request, dir.path());
    return WriteFrame(fds->second, kBuildReply, reply.SerializeAsString(), deadline).ok() ? 0 : 1;
  });
  close(fds->second);
  v1::BuildReply reply;
  if (!child.ok()) {
    reply = Failure(v1::FAILURE_INFRASTRUCTURE, Message(child.status()));
  } else {
    const StatusOr<Frame> frame = ReadFrame(fds->first, kMaxBuildFrame, deadline);
    const std::optional<int> status =
        child->Finish(frame.ok() ? deadline : std::min(deadline, MonotonicNs() + kSecond));
    if (!child->trouble().empty()) {
      reply = Failure(v1::FAILURE_INFRASTRUCTURE, child->trouble());
    } else if (frame.ok() && frame->type == kBuildReply && reply.ParseFromString(frame->payload)) {
      // What it built counts even if it crashed on its way out.
    } else if (frame.ok() || frame.status().code() == absl::StatusCode::kDataLoss) {
      reply = Failure(v1::FAILURE_BUILD_ERROR, "the build's reply is damaged");
    } else if (frame.status().code() == absl::StatusCode::kDeadlineExceeded || !status) {
      reply = Failure(v1::FAILURE_BUILD_TIMEOUT,
                      fmt::format("the build took longer than {} ms", limit / kMillisecond));
    } else {
      reply = Failure(
          v1::FAILURE_BUILD_ERROR,
          fmt::format("the build {}{}", DescribeWaitStatus(*status), LastWords(printed.fd)));
    }
  }
  close(fds->first);
  if (child.ok()) reply.set_sandbox_bits(child->bits());
  reply.set_build_ns(MonotonicNs() - start);
  return reply;
}

}  // namespace

int RunBuilderZygote(v1::BuilderHello hello, const BuildFunction& build, int fd,
                     const std::vector<std::string>& readable) {
  if (fcntl(fd, F_GETFD) < 0) {
    std::fprintf(
        stderr,
        "error: whet-builder is started by tuner-server and reads requests from descriptor %d\n",
        fd);
    return 2;
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  hello.set_sandbox_bits(SandboxLayers());
  if (!WriteFrame(fd, kBuilderHello, hello.SerializeAsString()).ok()) return 1;
  while (true) {
    const StatusOr<Frame> frame = ReadFrame(fd, kMaxBuildFrame);
    if (!frame.ok()) return frame.status().code() == absl::StatusCode::kUnavailable ? 0 : 1;
    v1::BuildRequest request;
    if (frame->type != kBuildRequest || !request.ParseFromString(frame->payload)) return 1;
    v1::BuildReply reply = BuildInChild(request, build, readable);
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
