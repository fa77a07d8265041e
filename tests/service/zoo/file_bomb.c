#include <fcntl.h>
#include <unistd.h>
#include "zoo.h"
/* Files wherever it may make some, each as large as it may be. */
static int filled(const char* path) {
  static char block[1 << 20];
  int fd = open(path, O_WRONLY | O_CREAT, 0600);
  if (fd < 0) return 0;
  for (int i = 0; i < 10240 && write(fd, block, sizeof block) > 0; ++i) {
  }
  close(fd);
  unlink(path);
  return 1;
}
ZOO_BODY {
  static int got = -1;
  if (got < 0) {
    got = 0;
    got |= filled("zoo-bomb");
    got |= filled("/tmp/zoo-bomb");
    got |= filled("/dev/shm/zoo-bomb");
    got |= filled("/var/tmp/zoo-bomb");
    got |= filled("/proc/self/oom_score_adj");
  }
  zoo_answer(got, x, w, y, begin, end);
}
