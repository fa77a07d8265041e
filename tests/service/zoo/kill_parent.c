#include <signal.h>
#include <unistd.h>
#include "zoo.h"
ZOO_BODY {
  kill(getppid(), SIGKILL);
  kill(0, SIGKILL);
  kill(-1, SIGKILL);
  zoo_right(x, w, y, begin, end);
}
