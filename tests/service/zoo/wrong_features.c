#define ZOO_FEATURES "avx9000"
#include "zoo.h"
ZOO_BODY { zoo_right(x, w, y, begin, end); }
