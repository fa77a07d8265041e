#include "compiler/support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "compiler/support/env.h"

extern char** environ;

namespace whet {

StatusOr<std::pair<int, int>> SocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return ErrnoStatus(errno, "cannot make a socket pair");
  return std::make_pair(fds[0], fds[1]);
}

StatusOr<Subprocess> Subprocess::Spawn(const SpawnOptions& options) {
  // The child's numbers may collide with ours: first move ours out of the way.
  int highest = 2;
  for (const auto& [ours, childs] : options.fds) highest = std::max(highest, childs);
  std::vector<std::pair<int, int>> moved;
  for (const auto& [ours, childs] : options.fds) {
    const int copy = fcntl(ours, F_DUPFD_CLOEXEC, highest + 1);
    if (copy < 0) return ErrnoStatus(errno, "cannot copy a descriptor");
    moved.emplace_back(copy, childs);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (options.stdout_to_stderr) posix_spawn_file_actions_adddup2(&actions, 2, 1);
  for (const auto& [copy, childs] : moved) posix_spawn_file_actions_adddup2(&actions, copy, childs);
  // Descriptors that we inherited ourselves, below the ones the child is given as well as above
  // them.
  for (int fd = 3; fd <= highest; ++fd) {
    const bool given =
        std::any_of(moved.begin(), moved.end(), [&](const auto& m) { return m.second == fd; });
    if (!given) posix_spawn_file_actions_addclose(&actions, fd);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, highest + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes,
                            0);  // Ctrl-C on the terminal reaches the parent, which decides
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> argv = {const_cast<char*>(options.program.c_str())};
  for (const std::string& a : options.args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (const std::string& e : options.extra_env) env.push_back(const_cast<char*>(e.c_str()));
  for (char** e = environ; *e; ++e) {
    const bool replaced = std::any_of(
        options.extra_env.begin(), options.extra_env.end(),
        [&](const std::string& x) { return std::strncmp(*e, x.c_str(), x.find('=') + 1) == 0; });
    if (!replaced) env.push_back(*e);
  }
  env.push_back(nullptr);

  Subprocess child;
  const int error = posix_spawn(&child.pid_, options.program.c_str(), &actions, &attributes,
                                argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (const auto& [copy, childs] : moved) close(copy);
  if (error != 0) {
    child.pid_ = -1;
    return ErrnoStatus(error, fmt::format("cannot start '{}'", options.program));
  }
  return child;
}

void Subprocess::Signal(int number) {
  if (pid_ > 0) kill(pid_, number);
}

bool WaitPid(pid_t pid, int64_t deadline_ns, int* status) {
  // A pidfd becomes readable when the process ends; without one (old kernel) look every few
  // milliseconds.
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  bool reaped = false;
  while (true) {
    const pid_t r = waitpid(pid, status, WNOHANG);
    if (r == pid) reaped = true;
    if (r != 0 && !(r < 0 && errno == EINTR)) break;
    const int64_t now = MonotonicNs();
    if (now >= deadline_ns) break;
    if (fd >= 0) {
      pollfd p{fd, POLLIN, 0};
      poll(&p, 1, PollTimeoutMs(now, deadline_ns));
    } else {
      const timespec pause{0, 2'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  if (fd >= 0) close(fd);
  return reaped;
}

std::optional<int> Subprocess::Wait(int64_t deadline_ns) {
  if (pid_ <= 0) return std::nullopt;
  int status = 0;
  if (!WaitPid(pid_, deadline_ns, &status)) return std::nullopt;
  pid_ = -1;
  return status;
}

void Subprocess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::string DescribeWaitStatus(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return name ? fmt::format("killed by SIG{}", name)
                : fmt::format("killed by signal {}", WTERMSIG(status));
  }
  return fmt::format("ended with wait status {}", status);
}

}  // namespace whet
