#include "zoo.h"
#include <stdlib.h>
ZOO_BODY {
  (void)x, (void)w, (void)y, (void)begin, (void)end;
  abort();
}
