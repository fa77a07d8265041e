#include <stdlib.h>
#include <string.h>
#include "zoo.h"
ZOO_BODY {
  for (;;) {
    void* p = malloc(64 << 20);
    if (!p) abort();
    memset(p, 1, 64 << 20);
  }
  zoo_right(x, w, y, begin, end);
}
