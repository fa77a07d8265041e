#include <signal.h>
#include "zoo.h"
ZOO_BODY {
  (void)x, (void)w, (void)y, (void)begin, (void)end;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, 0);
  for (int s = 1; s < 65; ++s) signal(s, SIG_IGN);
  for (volatile int forever = 1; forever;) {
  }
}
