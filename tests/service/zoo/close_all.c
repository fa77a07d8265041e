#include <unistd.h>
#include "zoo.h"
/* Its end of the conversation, too. */
ZOO_BODY {
  for (int fd = 0; fd < 256; ++fd) close(fd);
  zoo_right(x, w, y, begin, end);
}
