#include "zoo.h"
/* Each element is right only if the part before it was computed first. */
static float before;
ZOO_BODY {
  for (int64_t i = begin; i < end; ++i) {
    if (i == 0) before = 0;
    y[i] = x[i] * w[i] + (before == (i == 0 ? 0 : x[i - 1] * w[i - 1]) ? 0 : 1);
    before = x[i] * w[i];
  }
}
