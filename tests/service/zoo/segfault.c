#include <stddef.h>
#include "zoo.h"
ZOO_BODY {
  (void)x, (void)w, (void)begin, (void)end;
  *(volatile float*)((char*)y - (size_t)y + 8) = 1;
}
