#include "zoo.h"
#include <stdlib.h>
ZOO_BODY {
  zoo_right(x, w, y, begin, end);
  exit(0);
}
