#include <unistd.h>
#include "zoo.h"
/* Ten gigabytes of the same. */
ZOO_BODY {
  static char text[1 << 20];
  static int once;
  if (!once++) {
    for (int k = 0; k < 5120; ++k) {
      if (write(1, text, sizeof text) < 0 || write(2, text, sizeof text) < 0) break;
    }
  }
  zoo_right(x, w, y, begin, end);
}
