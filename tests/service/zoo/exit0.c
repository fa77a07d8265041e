#include <stdlib.h>
#include "zoo.h"
ZOO_BODY {
  zoo_right(x, w, y, begin, end);
  exit(0);
}
