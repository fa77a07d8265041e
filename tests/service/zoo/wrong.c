#include "zoo.h"
ZOO_BODY {
  zoo_right(x, w, y, begin, end);
  if (end == ZOO_N) y[ZOO_N - 1] += 1;
}
