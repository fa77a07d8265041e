#include "zoo.h"
/* Right, some twenty times slower than good. */
ZOO_BODY {
  for (volatile int k = 0; k < 20; ++k) zoo_right(x, w, y, begin, end);
}
