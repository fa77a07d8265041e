#define ZOO_N 999
#include "zoo.h"
ZOO_BODY { zoo_right(x, w, y, begin, end); }
