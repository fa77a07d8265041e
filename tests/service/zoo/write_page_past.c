#include "zoo.h"
ZOO_BODY {
  zoo_right(x, w, y, begin, end);
  ((volatile char*)y)[ZOO_N * 4 + 4096] = 1;
}
