#include <unistd.h>
#include "zoo.h"
/* As many children as it gets; more than two hundred are a bomb. */
ZOO_BODY {
  static int got = -1;
  if (got < 0) {
    got = 0;
    for (int i = 0; i < 1000; ++i) {
      pid_t child = fork();
      if (child < 0) break;
      if (child == 0) {
        for (;;) pause();
      }
      ++got;
    }
  }
  zoo_answer(got > 200, x, w, y, begin, end);
}
