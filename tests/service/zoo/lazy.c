#include "zoo.h"
/* Right while it is checked, idle while it is timed. */
static int runs;
ZOO_BODY {
  if (end != ZOO_N || runs++ < 3) zoo_right(x, w, y, begin, end);
}
