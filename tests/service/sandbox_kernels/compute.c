#include "zoo.h"
/* Bound by arithmetic: a chain of multiplications for each element. */
ZOO_BODY {
  for (int64_t i = begin; i < end; ++i) {
    float v = x[i];
    for (int k = 0; k < 12; ++k) v = v * 1.0009765625f + 0.5f;
    __asm__ volatile("" : : "r"(&v) : "memory");
    y[i] = x[i] * w[i];
  }
}
