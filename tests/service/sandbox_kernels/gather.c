#include "zoo.h"
/* Bound by latency: addresses that no prefetcher guesses. */
ZOO_BODY {
  uint32_t at = 1;
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    at = at * 1664525u + 1013904223u + (uint32_t)(sum != sum);
    sum += x[at % ZOO_N];
  }
  __asm__ volatile("" : : "r"(&sum) : "memory");
  zoo_right(x, w, y, begin, end);
}
