#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "zoo.h"
/* Children and grandchildren that never end. Right all the same, so that they have time to be
 * started. */
ZOO_BODY {
  static int once;
  if (!once++) {
    for (int i = 0; i < 20; ++i) {
      if (fork() == 0) {
        signal(SIGHUP, SIG_IGN);
        setsid();
        if (fork() == 0) {
          for (;;) pause();
        }
        for (;;) pause();
      }
    }
  }
  zoo_right(x, w, y, begin, end);
}
