#include "zoo.h"
/* Bound by memory: three megabytes, over and over. */
ZOO_BODY {
  for (int pass = 0; pass < 12; ++pass) {
    zoo_right(x, w, y, begin, end);
    __asm__ volatile("" : : "r"(y) : "memory");
  }
}
