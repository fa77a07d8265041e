#include "zoo.h"
/* A small matrix product in the first-level cache, over and over. */
enum { kSide = 48 };
ZOO_BODY {
  static float a[kSide][kSide], b[kSide][kSide], c[kSide][kSide];
  for (int pass = 0; pass < 200; ++pass) {
    for (int i = 0; i < kSide; ++i) {
      for (int k = 0; k < kSide; ++k) {
        for (int j = 0; j < kSide; ++j) c[i][j] += a[i][k] * b[k][j];
      }
    }
    __asm__ volatile("" : : "r"(c) : "memory");
  }
  zoo_right(x, w, y, begin, end);
}
