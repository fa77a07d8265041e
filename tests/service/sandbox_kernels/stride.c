#include "zoo.h"
/* Bound by translations: a page further with each step, on which what the system gives for pages
 * shows. */
ZOO_BODY {
  float sum = 0;
  for (int pass = 0; pass < 1024; ++pass) {
    for (int64_t i = pass; i < ZOO_N; i += 1024) sum += x[i] + w[i];
  }
  __asm__ volatile("" : : "r"(&sum) : "memory");
  for (int pass = 0; pass < 4; ++pass) {
    zoo_right(x, w, y, begin, end);
    __asm__ volatile("" : : "r"(y) : "memory");
  }
}
