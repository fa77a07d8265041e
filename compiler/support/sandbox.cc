#include "compiler/support/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "compiler/support/cgroup.h"
#include "compiler/support/clock.h"
#include "compiler/support/env.h"
#include "compiler/support/sandbox_layers.h"
#include "compiler/support/subprocess.h"

namespace whet {
namespace {

struct Layer {
  SandboxBit bit;
  const char* name;
  const char* advice;  // where it is missing
};

constexpr const char* kNamespaces =
    "sysctl kernel.unprivileged_userns_clone=1, or run it as root or outside the container";
constexpr const char* kCgroups =
    "run it as a service with Delegate=yes (deploy/ has units), or as root";
const Layer kLayers[] = {
    {kSandboxLimits, "limits", "raise the hard limits of the user (ulimit -H)"},
    {kSandboxNoNewPrivileges, "no-new-privs", "use Linux 3.5 or later"},
    {kSandboxPidNamespace, "pid-ns", kNamespaces},
    {kSandboxUserNamespace, "user-ns", kNamespaces},
    {kSandboxNetNamespace, "net-ns", kNamespaces},
    {kSandboxIpcNamespace, "ipc-ns", kNamespaces},
    {kSandboxDescriptors, "fds", "use Linux 5.9 or later"},
    {kSandboxSyscalls, "seccomp", "use a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or arm64"},
    {kSandboxGroup, "session", ""},
    {kSandboxMountNamespace, "mnt-ns", kNamespaces},
    {kSandboxLandlock, "landlock",
     "use Linux 5.13 or later with landlock among the boot option lsm="},
    {kSandboxCgroupMemory, "cgroup-memory", kCgroups},
    {kSandboxCgroupPids, "cgroup-pids", kCgroups},
    {kSandboxCgroupKill, "cgroup-kill", kCgroups},
    {kSandboxNoCapabilities, "no-caps", ""},
    {kSandboxOtherUser, "other-user", "needs root, which starts candidates as nobody"},
};

// What init tells the zygote, through the pipe.
struct Report {
  enum Kind : int32_t { kEnded = 1, kMissing = 2 } kind;
  int32_t value;  // a wait status; the layers that could not be put up
};

bool Send(int fd, Report::Kind kind, int32_t value) {
  const Report report{kind, value};
  return write(fd, &report, sizeof report) == sizeof report;
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

struct Namespaces {
  unsigned long flags = 0;
  uint32_t bits = 0;
};

// What one start needs, complete before it forks.
struct Plan {
  const SandboxOptions* options;
  const std::function<int()>* body;  // null: say what is missing and end
  Namespaces namespaces;
  uint32_t own = 0;                       // of sandbox::OwnAffair
  const CandidateGroup* group = nullptr;  // where it is to be in it
  int status_fd = -1;
  uid_t user = 0;
  gid_t user_group = 0;
};

[[noreturn]] void RunCandidate(const Plan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s = 1; s < 32; ++s) signal(s, SIG_DFL);
  const uint32_t stands = sandbox::PutUp(plan.own, *plan.options, plan.group, plan.status_fd);
  const auto missing = static_cast<int32_t>(plan.own & ~stands);
  if (!plan.body || missing != 0) {
    Send(plan.status_fd, Report::kMissing, missing);
    _exit(1);
  }
  close(plan.status_fd);
  _exit((*plan.body)());
}

// The process between zygote and candidate.
[[noreturn]] void RunInit(const Plan& plan) {
  const bool has_namespace = plan.namespaces.bits & kSandboxPidNamespace;
  prctl(PR_SET_PDEATHSIG, has_namespace ? SIGKILL : SIGTERM);
  if (plan.namespaces.bits & kSandboxUserNamespace)
    sandbox::MapUser(plan.user, plan.user_group);  // where it fails, so do the layers that need it
  if (!has_namespace) prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  const pid_t candidate = plan.group ? plan.group->ForkInto() : fork();
  if (candidate == 0) RunCandidate(plan);
  int status = 1 << 8;
  if (candidate < 0) Send(plan.status_fd, Report::kMissing, kSandboxCgroupKill);
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
  Send(plan.status_fd, Report::kEnded, status);
  _exit(0);
}

// A raw clone shares no more than fork does, and takes namespaces along.
pid_t CloneInit(unsigned long flags) {
  return static_cast<pid_t>(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0));
}

// ---- what this host offers

bool CanClone(unsigned long flags) {
  const pid_t pid = CloneInit(flags);
  if (pid == 0) _exit(0);
  int status = 0;
  return pid > 0 && WaitPid(pid, kNever, &status);
}

uint32_t g_left_out = 0;

// An unprivileged user needs a user namespace for the others; root does without, because its
// candidates then can become another user.
Namespaces FindNamespaces() {
  Namespaces n;
  const std::pair<unsigned long, uint32_t> kinds[] = {{CLONE_NEWPID, kSandboxPidNamespace},
                                                      {CLONE_NEWNET, kSandboxNetNamespace},
                                                      {CLONE_NEWIPC, kSandboxIpcNamespace}};
  if (!(g_left_out & kSandboxUserNamespace) && !CanClone(CLONE_NEWNS) && CanClone(CLONE_NEWUSER)) {
    n.flags = CLONE_NEWUSER;
    n.bits = kSandboxUserNamespace;
  }
  for (const auto& [flag, bit] : kinds) {
    if (g_left_out & bit || !CanClone(n.flags | flag)) continue;
    n.flags |= flag;
    n.bits |= bit;
  }
  return n;
}

struct Offer {
  Namespaces namespaces;
  uint32_t own = 0;
  std::unique_ptr<CandidateGroup> group;
};

// The layers that a trial child cannot put up, or all of `plan`'s when there is no telling.
uint32_t MissingInTrial(Plan plan) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return plan.own;
  plan.status_fd = fds[1];
  const pid_t init = CloneInit(plan.namespaces.flags);
  if (init == 0) {
    close(fds[0]);
    RunInit(plan);
  }
  close(fds[1]);
  uint32_t missing = plan.own;
  Report report{};
  while (init > 0 && read(fds[0], &report, sizeof report) == sizeof report) {
    if (report.kind == Report::kMissing) missing = static_cast<uint32_t>(report.value);
  }
  close(fds[0]);
  int status = 0;
  if (init > 0) WaitPid(init, kNever, &status);
  return missing;
}

Offer FindOffer() {
  Offer offer;
  offer.namespaces = FindNamespaces();
  offer.own = sandbox::OwnAffair() & ~g_left_out;
  offer.group = CandidateGroup::Make();
  if (!offer.group || !offer.group->bounds_memory()) offer.own &= ~kSandboxCgroupMemory;
  if (!offer.group || !offer.group->bounds_processes()) offer.own &= ~kSandboxCgroupPids;
  constexpr uint32_t kGroup = kSandboxCgroupMemory | kSandboxCgroupPids | kSandboxCgroupKill;
  if (!offer.group || !offer.group->ends_all()) offer.own &= ~kGroup;
  SandboxOptions all;
  all.syscalls = Syscalls::kCompute;
  all.confine_files = true;
  Plan plan{&all, nullptr, offer.namespaces, 0, nullptr, -1, getuid(), getgid()};
  // A group that cannot be joined, and a root that cannot be entered, leave the child in a state in
  // which others may fail as well: each round goes without what the one before it lacked.
  while (offer.own != 0) {
    plan.own = offer.own;
    plan.group = offer.own & kGroup ? offer.group.get() : nullptr;
    const uint32_t missing = MissingInTrial(plan) & offer.own;
    if (missing == 0) break;
    if (missing & kGroup) {
      offer.own &= ~kGroup;
    } else if (missing & kSandboxMountNamespace) {
      offer.own &= ~(kSandboxMountNamespace | kSandboxOtherUser);
    } else {
      offer.own &= ~missing;
    }
  }
  if (!(offer.own & kGroup)) offer.group.reset();
  return offer;
}

// Of this process, which its children inherit and do not use.
Offer& HostOffer() {
  static Offer offer = FindOffer();
  return offer;
}

}  // namespace

std::string SandboxBitsText(uint32_t bits) {
  std::string text;
  for (const Layer& layer : kLayers) {
    if (bits & layer.bit) text += (text.empty() ? "" : ",") + std::string(layer.name);
  }
  return text.empty() ? "none" : text;
}

StatusOr<uint32_t> ParseSandboxBits(std::string_view text) {
  uint32_t bits = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    uint32_t bit = 0;
    for (const Layer& layer : kLayers) {
      if (word == layer.name) bit = layer.bit;
    }
    if (bit == 0)
      return InvalidArgument("'{}' is no layer of the sandbox; they are {}", word,
                             SandboxBitsText(~0u));
    bits |= bit;
  }
  return bits;
}

std::string SandboxAdvice(SandboxBit bit) {
  for (const Layer& layer : kLayers) {
    if (layer.bit == bit) return layer.advice;
  }
  return "";
}

void LeaveOutSandboxLayers(uint32_t bits) { g_left_out |= bits; }

uint32_t SandboxLayers() { return HostOffer().namespaces.bits | HostOffer().own; }

std::string MissingForStrangers(uint32_t bits) {
  constexpr uint32_t kNeeded = kSandboxLimits | kSandboxNoNewPrivileges | kSandboxDescriptors |
                               kSandboxSyscalls | kSandboxGroup | kSandboxNoCapabilities;
  uint32_t missing = kNeeded & ~bits;
  if (!(bits & (kSandboxLandlock | kSandboxMountNamespace))) missing |= kSandboxLandlock;
  std::string text;
  for (const Layer& layer : kLayers) {
    if (!(missing & layer.bit)) continue;
    text += (text.empty() ? "" : "; ") + std::string(layer.name);
    if (*layer.advice) text += fmt::format(" ({})", layer.advice);
  }
  return text;
}

StatusOr<SandboxedChild> SandboxedChild::Start(const SandboxOptions& options,
                                               const std::function<int()>& body) {
  Offer& offer = HostOffer();
  Plan plan{&options, &body, offer.namespaces, offer.own, nullptr, -1, getuid(), getgid()};
  if (options.syscalls == Syscalls::kAny) plan.own &= ~kSandboxSyscalls;
  if (!options.confine_files)
    plan.own &= ~(kSandboxMountNamespace | kSandboxLandlock | kSandboxOtherUser);
  if (offer.group) {
    plan.group = offer.group.get();
    WHET_RETURN_IF_ERROR(offer.group->SetLimits(options.memory_bytes, options.processes));
  }
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make a pipe");
  plan.status_fd = pipe_fds[1];
  const pid_t pid = CloneInit(plan.namespaces.flags);
  const int error = errno;
  if (pid == 0) {
    close(pipe_fds[0]);
    RunInit(plan);
  }
  close(pipe_fds[1]);
  if (pid < 0) {
    close(pipe_fds[0]);
    return ErrnoStatus(error, "cannot fork");
  }
  SandboxedChild child;
  child.init_ = pid;
  child.status_fd_ = pipe_fds[0];
  child.bits_ = plan.namespaces.bits | plan.own;
  return child;
}

SandboxedChild::SandboxedChild(SandboxedChild&& other) noexcept
    : init_(std::exchange(other.init_, -1)),
      candidate_(other.candidate_),
      status_fd_(std::exchange(other.status_fd_, -1)),
      bits_(other.bits_),
      trouble_(std::move(other.trouble_)) {}

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
  CandidateGroup* const group = HostOffer().group.get();
  if (group != nullptr && !group->KillAll(MonotonicNs() + 10 * kSecond))
    trouble_ = "something of the candidate cannot be killed";
}

std::optional<int> SandboxedChild::Finish(int64_t deadline_ns) {
  std::optional<int> result;
  while (init_ > 0 && !result) {
    pollfd p{status_fd_, POLLIN, 0};
    const int n = poll(&p, 1, PollTimeoutMs(MonotonicNs(), deadline_ns));
    if (n < 0 && errno == EINTR) continue;
    Report report{};
    if (n <= 0 || read(status_fd_, &report, sizeof report) != sizeof report) break;
    if (report.kind == Report::kMissing) {
      trouble_ = fmt::format("layers of the sandbox that were there before cannot be put up: {}",
                             SandboxBitsText(static_cast<uint32_t>(report.value)));
    } else {
      result = report.value;
    }
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

}  // namespace whet
