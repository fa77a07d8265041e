#include <string.h>
#include "zoo.h"
static int deeper(int n) {
  volatile char frame[4096];
  memset((char*)frame, n, sizeof frame);
  return deeper(n + 1) + frame[n & 4095];
}
ZOO_BODY {
  y[begin] = (float)deeper(0);
  zoo_right(x, w, y, begin, end);
}
