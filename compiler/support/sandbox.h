// A child process for code that is not trusted to behave: a candidate, or one build. Only for
// single-threaded programs (whet-runner, whet-builder): it forks.
//
//   zygote ── init (process 1 of its own PID namespace where there is one) ── candidate
//
// The init process reaps and reports; nothing of a candidate outlives it: with a namespace the
// kernel kills what is left when init ends, without one init is a sub-reaper and kills its
// descendants until none is left, and a control group, where there is one, is emptied besides. Each
// layer stands by itself. Which of them this host offers is found once in a process, by trying; the
// child of a later start that cannot put up one of those ends before it runs anything. So bits()
// never says more than there is; they are stored with each result. Owned by one thread; the
// destructor kills.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"
#include "compiler/support/syscall_filter.h"

namespace whet {

// In records: a bit keeps its meaning.
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
  kSandboxGroup = 1 << 8,            // own session, dies with its parent
  kSandboxMountNamespace = 1 << 9,   // sees no files but those named, and the system's libraries
  kSandboxLandlock = 1 << 10,        // the same by Landlock
  kSandboxCgroupMemory = 1 << 11,    // memory of all its processes
  kSandboxCgroupPids = 1 << 12,      // their number
  kSandboxCgroupKill = 1 << 13,      // all of them are ended at once
  kSandboxNoCapabilities = 1 << 14,  // root, where it is that, can do no more than others
  kSandboxOtherUser = 1 << 15,       // not the user of the program that started it
};
std::string SandboxBitsText(uint32_t bits);  // "limits,no-new-privs,pid-ns"
// Of such a text. InvalidArgument names a word that is no layer, and those that are.
StatusOr<uint32_t> ParseSandboxBits(std::string_view text);

struct SandboxOptions {
  int64_t address_space_bytes = 0;  // 0: no limit. Not applied under address sanitizer
  int64_t memory_bytes = 0;         // by control group; 0: no limit
  int processes = 0;                // and threads, by control group; 0: no limit
  int64_t file_bytes = 0;           // largest file it may write; 0: none
  int64_t cpu_ns = 0;               // 0: no limit
  std::vector<int> keep_fds;        // besides 0, 1 and 2
  int stdio_fd = -1;                // becomes 1 and 2; -1: /dev/null
  Syscalls syscalls = Syscalls::kAny;
  bool confine_files = false;  // to the system's libraries and these files and folders, by path
  std::vector<std::string> readable, writable;
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
  // left of it on return, unless trouble() says otherwise.
  std::optional<int> Finish(int64_t deadline_ns);
  // After Finish. Not empty: the child ended because a layer could not be put up, or something of
  // it cannot be killed. It says nothing about the candidate.
  const std::string& trouble() const { return trouble_; }

 private:
  SandboxedChild() = default;
  void KillAll();

  pid_t init_ = -1;
  pid_t candidate_ = -1;  // as this process sees it; found when first needed
  int status_fd_ = -1;
  uint32_t bits_ = 0;
  std::string trouble_;
};

// The layers that a child of this process gets, found by trying once: with all options set, fewer
// with others.
uint32_t SandboxLayers();
// For tests and for measuring what they cost: children of this process do without these. Before the
// first use of any other function here.
void LeaveOutSandboxLayers(uint32_t bits);

// What of `bits` is missing for candidates that somebody else sent: empty, or words for a person,
// with what to do about it. Required are those that keep a candidate from other processes, from
// files, and from the network; the others are second walls behind them.
std::string MissingForStrangers(uint32_t bits);
// What can be done where this host does not offer a layer.
std::string SandboxAdvice(SandboxBit layer);

}  // namespace whet
