#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "zoo.h"
/* A grandchild in a session of its own that waits. */
ZOO_BODY {
  static int once;
  if (!once++) {
    pid_t child = fork();
    if (child == 0) {
      setsid();
      if (fork() == 0) {
        signal(SIGHUP, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        for (;;) sleep(1000);
      }
      _exit(0);
    }
    if (child > 0) waitpid(child, 0, 0);
  }
  zoo_right(x, w, y, begin, end);
}
