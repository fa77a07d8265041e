#include "zoo.h"
__attribute__((constructor)) static void never(void) {
  for (volatile int forever = 1; forever;) {
  }
}
ZOO_BODY { zoo_right(x, w, y, begin, end); }
