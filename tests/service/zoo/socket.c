#include <sys/socket.h>
#include "zoo.h"
/* Whatever leads elsewhere. */
ZOO_BODY {
  static int got = -1;
  if (got < 0) {
    int pair[2];
    got = socket(AF_INET, SOCK_STREAM, 0) >= 0;
    got |= socket(AF_INET6, SOCK_DGRAM, 0) >= 0;
    got |= socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
    got |= socket(AF_NETLINK, SOCK_RAW, 0) >= 0;
    got |= socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
  }
  zoo_answer(got, x, w, y, begin, end);
}
