#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "zoo.h"
/* A grandchild in a session of its own that never stops computing. */
ZOO_BODY {
  static int once;
  if (!once++) {
    pid_t child = fork();
    if (child == 0) {
      setsid();
      if (fork() == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, 0);
        for (volatile int forever = 1; forever;) {
        }
      }
      _exit(0);
    }
    if (child > 0) waitpid(child, 0, 0);
  }
  zoo_right(x, w, y, begin, end);
}
