#include <unistd.h>
#include "zoo.h"
ZOO_BODY {
  static int once;
  if (!once++) execl("/bin/sh", "sh", "-c", "exit 77", (char*)0);
  zoo_right(x, w, y, begin, end);
}
