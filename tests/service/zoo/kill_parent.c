#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "zoo.h"
ZOO_BODY {
  static int once;
  if (!once++) {
    pid_t parent = getppid();
    kill(parent, SIGKILL);
    syscall(SYS_tkill, parent, SIGKILL);
    syscall(SYS_tgkill, parent, parent, SIGKILL);
    int fd = (int)syscall(SYS_pidfd_open, parent, 0);
    if (fd >= 0) syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0);
    kill(0, SIGKILL);
    kill(-1, SIGKILL);
  }
  zoo_right(x, w, y, begin, end);
}
