// Child processes that exec one of our own programs, started with posix_spawn (no fork of a process
// that has threads, and none of the parent's descriptors but those named). A child notices its
// parent's death by end of file on the descriptor it was given, which works from any thread, unlike
// a parent-death signal. A Subprocess is owned by one thread at a time; its destructor kills and
// reaps.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/status.h"

namespace whet {

struct SpawnOptions {
  std::string program;            // path
  std::vector<std::string> args;  // without argv[0]
  // (ours, the child's number >= 1); stdin is /dev/null, 1 and 2 are inherited unless named here.
  std::vector<std::pair<int, int>> fds;
  bool stdout_to_stderr = false;       // when our standard output carries results
  std::vector<std::string> extra_env;  // "NAME=value"
};

class Subprocess {
 public:
  Subprocess() = default;
  Subprocess(Subprocess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Subprocess& operator=(Subprocess&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Subprocess() { Kill(); }

  static StatusOr<Subprocess> Spawn(const SpawnOptions& options);

  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0; }
  void Signal(int number);
  // The wait status, or nothing when it still runs at the deadline.
  std::optional<int> Wait(int64_t deadline_ns);
  void Kill();  // SIGKILL and reap; nothing when it has ended

 private:
  pid_t pid_ = -1;
};

// "exited with 3", "killed by SIGSEGV".
std::string DescribeWaitStatus(int status);

// A connected pair of local stream sockets, close-on-exec.
StatusOr<std::pair<int, int>> SocketPair();

// Waits for `pid` until the deadline; true when it has been reaped and *status is set.
bool WaitPid(pid_t pid, int64_t deadline_ns, int* status);

}  // namespace whet
