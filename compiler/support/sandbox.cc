#include "compiler/support/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "compiler/support/clock.h"
#include "compiler/support/env.h"
#include "compiler/support/subprocess.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WHET_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WHET_SANITIZED 1
#endif
#endif

namespace whet {
namespace {

// System calls that a measured kernel has no use for. Everything else stays allowed: the dynamic
// loader, memory, threads.
constexpr int kDenied[] = {
    SYS_execve,
    SYS_execveat,
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_setsid,
    SYS_setpgid,
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_truncate,
    SYS_ftruncate,
    SYS_mknodat,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_io_uring_setup,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_reboot,
    SYS_swapon,
    SYS_init_module,
    SYS_finit_module,
    SYS_setuid,
    SYS_setgid,
    SYS_setgroups,
    SYS_prlimit64,
    SYS_memfd_create,
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_unlink,
    SYS_rename,
    SYS_renameat,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_mknod,
    SYS_creat,
#endif
};

#if defined(__x86_64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kAuditArch = 0;
#endif

// Built before the fork; installed in the candidate. Offsets of jumps are in instructions and must
// fit a byte, so each denied call is its own compare-and-return.
std::vector<sock_filter> SyscallFilter() {
  constexpr uint32_t kErrno = SECCOMP_RET_ERRNO;
  std::vector<sock_filter> f;
  auto stmt = [&](uint16_t code, uint32_t k) { f.push_back({code, 0, 0, k}); };
  auto jump = [&](uint16_t code, uint32_t k, uint8_t yes, uint8_t no) {
    f.push_back({code, yes, no, k});
  };
  stmt(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
  jump(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0);
  stmt(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  stmt(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
#if defined(__x86_64__)
  jump(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0,
       1);  // the x32 interface would bypass the numbers below
  stmt(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
#endif
  for (int nr : kDenied) {
    jump(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(nr), 0, 1);
    stmt(BPF_RET | BPF_K, kErrno | EPERM);
  }
  // clone3 passes its flags in memory, out of a filter's sight: the C library falls back to clone.
  jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
  stmt(BPF_RET | BPF_K, kErrno | ENOSYS);
  // clone: threads only.
  jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
  stmt(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0]));
  jump(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
  stmt(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  stmt(BPF_RET | BPF_K, kErrno | EPERM);
  // Files: reading only.
  jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4);
  stmt(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2]));
  jump(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1);
  stmt(BPF_RET | BPF_K, kErrno | EPERM);
  stmt(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1);
  stmt(BPF_RET | BPF_K, kErrno | ENOSYS);
#if defined(__x86_64__)
  jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 4);
  stmt(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1]));
  jump(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1);
  stmt(BPF_RET | BPF_K, kErrno | EPERM);
  stmt(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
#endif
  stmt(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  return f;
}

bool Limit(int resource, rlim_t value) {
  const rlimit limit{value, value};
  return setrlimit(resource, &limit) == 0;
}

bool ApplyLimits(const SandboxOptions& o) {
  bool ok = Limit(RLIMIT_CORE, 0) && Limit(RLIMIT_FSIZE, static_cast<rlim_t>(o.file_bytes)) &&
            Limit(RLIMIT_NOFILE, 256);
  if (o.cpu_ns > 0) ok = Limit(RLIMIT_CPU, static_cast<rlim_t>(o.cpu_ns / kSecond + 2)) && ok;
#ifndef WHET_SANITIZED
  if (o.address_space_bytes > 0)
    ok = Limit(RLIMIT_AS, static_cast<rlim_t>(o.address_space_bytes)) && ok;
#endif
  return ok;
}

void CloseAllBut(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  unsigned int from = 3;
  for (int fd : keep) {
    if (fd < 3) continue;
    const auto next = static_cast<unsigned int>(fd);
    if (next > from) close_range(from, next - 1, 0);
    from = next + 1;
  }
  close_range(from, ~0U, 0);
}

// Everything below init, however often it forked. Ends when nothing is left.
void KillDescendants() {
  while (true) {
    const StatusOr<std::string> children =
        ReadFile(fmt::format("/proc/self/task/{}/children", getpid()), 1 << 20);
    if (children.ok()) {
      const char* p = children->c_str();
      char* end = nullptr;
      for (long pid = strtol(p, &end, 10); end != p; p = end, pid = strtol(p, &end, 10))
        kill(static_cast<pid_t>(pid), SIGKILL);
    }
    int status = 0;
    const pid_t r = waitpid(-1, &status, children.ok() ? 0 : WNOHANG);
    if (r < 0 && errno == ECHILD) return;
    if (!children.ok() && r == 0)
      return;  // no such file: the group was killed, which is the best there is
  }
}

[[noreturn]] void RunCandidate(const SandboxOptions& o, const std::vector<sock_filter>& filter,
                               const std::function<int()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s = 1; s < 32; ++s) signal(s, SIG_DFL);
  setsid();
  const int out = o.stdio_fd >= 0 ? o.stdio_fd : open("/dev/null", O_RDWR);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, 0);
  dup2(out, 1);
  dup2(out, 2);
  CloseAllBut(o.keep_fds);
  ApplyLimits(o);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (!filter.empty()) {
    const sock_fprog program{static_cast<unsigned short>(filter.size()),
                             const_cast<sock_filter*>(filter.data())};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  }
  _exit(body());
}

// The process between zygote and candidate.
[[noreturn]] void RunInit(const SandboxOptions& o, bool has_namespace, int status_fd,
                          const std::vector<sock_filter>& filter,
                          const std::function<int()>& body) {
  prctl(PR_SET_PDEATHSIG, has_namespace ? SIGKILL : SIGTERM);
  if (!has_namespace) prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  const pid_t candidate = fork();
  if (candidate == 0) {
    close(status_fd);
    RunCandidate(o, filter, body);
  }
  int status = 1 << 8;
  while (candidate > 0) {
    siginfo_t info;
    if (sigwaitinfo(&wanted, &info) == SIGTERM) {  // time is up, or the zygote died
      KillDescendants();
      _exit(0);
    }
    int s = 0;
    pid_t r;
    bool ended = false;
    while ((r = waitpid(-1, &s, WNOHANG)) > 0) {
      if (r == candidate) {
        status = s;
        ended = true;
      }
    }
    if (ended || (r < 0 && errno == ECHILD)) break;
  }
  if (!has_namespace) KillDescendants();
  [[maybe_unused]] const ssize_t n = write(status_fd, &status, sizeof status);
  _exit(0);
}

struct Attempt {
  unsigned long flags;
  uint32_t bits;
};

// Best first. A container may refuse some, an unprivileged user needs a user namespace for the
// others.
const Attempt kAttempts[] = {
    {CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET,
     kSandboxPidNamespace | kSandboxIpcNamespace | kSandboxNetNamespace},
    {CLONE_NEWPID, kSandboxPidNamespace},
    {CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET,
     kSandboxUserNamespace | kSandboxPidNamespace | kSandboxIpcNamespace | kSandboxNetNamespace},
    {CLONE_NEWUSER | CLONE_NEWPID, kSandboxUserNamespace | kSandboxPidNamespace},
    {0, 0},
};

}  // namespace

std::string SandboxBitsText(uint32_t bits) {
  static const std::pair<uint32_t, const char*> kNames[] = {
      {kSandboxLimits, "limits"},       {kSandboxNoNewPrivileges, "no-new-privs"},
      {kSandboxPidNamespace, "pid-ns"}, {kSandboxUserNamespace, "user-ns"},
      {kSandboxNetNamespace, "net-ns"}, {kSandboxIpcNamespace, "ipc-ns"},
      {kSandboxDescriptors, "fds"},     {kSandboxSyscalls, "seccomp"},
      {kSandboxGroup, "session"}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if (bits & bit) text += (text.empty() ? "" : ",") + std::string(name);
  }
  return text.empty() ? "none" : text;
}

StatusOr<SandboxedChild> SandboxedChild::Start(const SandboxOptions& options,
                                               const std::function<int()>& body) {
  static size_t first = 0;  // attempts before it were refused: they will be again
  static const bool filter_works = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 && kAuditArch != 0;
  const std::vector<sock_filter> filter =
      options.filter_syscalls && filter_works ? SyscallFilter() : std::vector<sock_filter>{};
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make a pipe");
  for (; first < std::size(kAttempts); ++first) {
    // A raw clone shares no more than fork does, and takes namespaces along.
    const long pid = syscall(SYS_clone, kAttempts[first].flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
      close(pipe_fds[0]);
      RunInit(options, kAttempts[first].bits != 0, pipe_fds[1], filter, body);
    }
    if (pid > 0) {
      close(pipe_fds[1]);
      SandboxedChild child;
      child.init_ = static_cast<pid_t>(pid);
      child.status_fd_ = pipe_fds[0];
      child.bits_ = kAttempts[first].bits | kSandboxLimits | kSandboxNoNewPrivileges |
                    kSandboxDescriptors | kSandboxGroup |
                    (filter.empty() ? 0 : static_cast<uint32_t>(kSandboxSyscalls));
      return child;
    }
    if (errno == EAGAIN || errno == ENOMEM) break;  // no room now, not a refusal
  }
  const int error = errno;
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  if (first == std::size(kAttempts)) first = std::size(kAttempts) - 1;
  return ErrnoStatus(error, "cannot fork");
}

SandboxedChild::SandboxedChild(SandboxedChild&& other) noexcept
    : init_(std::exchange(other.init_, -1)),
      candidate_(other.candidate_),
      status_fd_(std::exchange(other.status_fd_, -1)),
      bits_(other.bits_) {}

SandboxedChild::~SandboxedChild() {
  KillAll();
  if (status_fd_ >= 0) close(status_fd_);
}

void SandboxedChild::KillAll() {
  if (init_ <= 0) return;
  kill(init_, bits_ & kSandboxPidNamespace ? SIGKILL : SIGTERM);
  int status = 0;
  if (!WaitPid(init_, MonotonicNs() + 10 * kSecond, &status)) {
    kill(init_, SIGKILL);
    WaitPid(init_, kNever, &status);
  }
  init_ = -1;
}

std::optional<int> SandboxedChild::Finish(int64_t deadline_ns) {
  std::optional<int> result;
  while (init_ > 0) {
    pollfd p{status_fd_, POLLIN, 0};
    const int n = poll(&p, 1, PollTimeoutMs(MonotonicNs(), deadline_ns));
    if (n < 0 && errno == EINTR) continue;
    int status = 0;
    if (n > 0 && read(status_fd_, &status, sizeof status) == sizeof status) result = status;
    break;
  }
  KillAll();
  return result;
}

std::optional<int64_t> SandboxedChild::CpuNs() {
  if (candidate_ <= 0) {
    const StatusOr<std::string> children =
        ReadFile(fmt::format("/proc/{}/task/{}/children", init_, init_), 4096);
    if (!children.ok()) return std::nullopt;
    candidate_ = static_cast<pid_t>(strtol(children->c_str(), nullptr, 10));
    if (candidate_ <= 0) return std::nullopt;
  }
  const int64_t give_up = MonotonicNs() + 200 * kMillisecond;
  while (true) {
    const StatusOr<std::string> stat = ReadFile(fmt::format("/proc/{}/stat", candidate_), 4096);
    if (!stat.ok()) return std::nullopt;
    const size_t state = stat->rfind(") ");  // after the program's name, which may hold anything
    if (state == std::string::npos || stat->size() < state + 3) return std::nullopt;
    if ((*stat)[state + 2] != 'R') break;
    if (MonotonicNs() >= give_up) return std::nullopt;
    const timespec moment{0, 50'000};
    nanosleep(&moment, nullptr);
  }
  const StatusOr<std::string> stat = ReadFile(fmt::format("/proc/{}/schedstat", candidate_), 4096);
  if (!stat.ok() || stat->empty()) return std::nullopt;
  return strtoll(stat->c_str(), nullptr, 10);
}

uint32_t ProbeSandbox(bool filter_syscalls) {
  SandboxOptions options;
  options.filter_syscalls = filter_syscalls;
  StatusOr<SandboxedChild> child = SandboxedChild::Start(options, [] { return 0; });
  if (!child.ok()) return 0;
  child->Finish(MonotonicNs() + 5 * kSecond);
  return child->bits();
}

}  // namespace whet
