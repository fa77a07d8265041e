#include "compiler/driver/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace whet::driver {
namespace {

volatile std::sig_atomic_t interrupted = 0;
int pipe_fds[2] = {-1, -1};

void OnSignal(int) {
  if (interrupted) _exit(130);
  interrupted = 1;
  [[maybe_unused]] const ssize_t n = write(pipe_fds[1], "", 1);
}

}  // namespace

void WatchInterrupts() {
  if (pipe_fds[0] >= 0 || pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }
int InterruptFd() { return pipe_fds[0]; }

}  // namespace whet::driver
