#include <unistd.h>
#include "zoo.h"
/* Says the same over and over. */
ZOO_BODY {
  static char text[1 << 16];
  for (int k = 0; k < 1000; ++k) {
    if (write(1, text, sizeof text) < 0 || write(2, text, sizeof text) < 0) break;
  }
  zoo_right(x, w, y, begin, end);
}
