#include <sys/stat.h>
#include "zoo.h"
/* A file that somebody forgot to close. The memory shared with the runner has no name: no links. */
ZOO_BODY {
  static int got = -1;
  if (got < 0) {
    got = 0;
    for (int fd = 3; fd < 4096; ++fd) {
      struct stat info;
      if (fstat(fd, &info) == 0 && !S_ISSOCK(info.st_mode) && info.st_nlink > 0) got = 1;
    }
  }
  zoo_answer(got, x, w, y, begin, end);
}
