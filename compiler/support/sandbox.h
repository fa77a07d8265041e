// A child process for code that is not trusted to behave: a candidate, or one build. Only for
// single-threaded programs (whet-runner, whet-builder): it forks.
//
//   zygote ── init (process 1 of its own PID namespace where there is one) ── candidate
//
// The init process reaps and reports; nothing of a candidate outlives it: with a namespace the
// kernel kills what is left when init ends, without one init is a sub-reaper and kills its
// descendants until none is left. Layers that the system refuses are left out; those that are
// active are in bits() and are stored with each result. Owned by one thread; the destructor kills.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/support/status.h"

namespace whet {

enum SandboxBit : uint32_t {
  kSandboxLimits = 1 << 0,  // address space, file size, CPU time, core 0
  kSandboxNoNewPrivileges = 1 << 1,
  kSandboxPidNamespace = 1 << 2,
  kSandboxUserNamespace = 1 << 3,
  kSandboxNetNamespace = 1 << 4,
  kSandboxIpcNamespace = 1 << 5,
  kSandboxDescriptors = 1 << 6,  // none but those named; standard output and error go nowhere
  kSandboxSyscalls =
      1 << 7,  // seccomp: no new processes, programs, sockets, signals to others, changes of files
  kSandboxGroup = 1 << 8,  // own session, dies with its parent
};
std::string SandboxBitsText(uint32_t bits);  // "limits,no-new-privs,pid-ns"

struct SandboxOptions {
  int64_t address_space_bytes = 0;  // 0: no limit. Not applied under address sanitizer
  int64_t file_bytes = 0;           // largest file it may write; 0: none
  int64_t cpu_ns = 0;               // 0: no limit
  std::vector<int> keep_fds;        // besides 0, 1 and 2
  int stdio_fd = -1;                // becomes 1 and 2; -1: /dev/null
  bool filter_syscalls = false;
};

class SandboxedChild {
 public:
  // Runs `body` in the child; what it returns is the exit code. Its other threads, atexit handlers
  // and buffers do not matter: it ends with _exit.
  static StatusOr<SandboxedChild> Start(const SandboxOptions& options,
                                        const std::function<int()>& body);
  SandboxedChild(SandboxedChild&& other) noexcept;
  SandboxedChild& operator=(SandboxedChild&&) = delete;
  ~SandboxedChild();

  uint32_t bits() const { return bits_; }
  // Becomes readable when the candidate has ended.
  int status_fd() const { return status_fd_; }
  // Time that the candidate's main thread has been on a processor, once it waits for something:
  // what the system says of a running thread is a tick old. Nothing where it does not come to wait
  // in 200 ms, or the system does not say.
  std::optional<int64_t> CpuNs();
  // The candidate's wait status if it ends by the deadline, else nothing. Either way nothing is
  // left of it on return.
  std::optional<int> Finish(int64_t deadline_ns);

 private:
  SandboxedChild() = default;
  void KillAll();

  pid_t init_ = -1;
  pid_t candidate_ = -1;  // as this process sees it; found when first needed
  int status_fd_ = -1;
  uint32_t bits_ = 0;
};

// What Start would achieve here, found by trying once.
uint32_t ProbeSandbox(bool filter_syscalls);

}  // namespace whet
