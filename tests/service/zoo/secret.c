#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "zoo.h"
/* Files that are none of its business: one beside its own, the system's, its parent's environment.
 */
static int read_something(const char* path) {
  char byte;
  int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  int got = read(fd, &byte, 1) == 1;
  close(fd);
  return got;
}
ZOO_BODY {
  static int got = -1;
  if (got < 0) {
    char path[4096];
    Dl_info info;
    got = read_something("/etc/passwd") | read_something("/proc/1/environ");
    snprintf(path, sizeof path, "/proc/%d/environ", (int)getppid());
    got |= read_something(path);
    if (dladdr((void*)&read_something, &info) && info.dli_fname) {
      snprintf(path, sizeof path, "%s", info.dli_fname);
      char* slash = strrchr(path, '/');
      if (slash) {
        strcpy(slash, "/secret.txt");
        got |= read_something(path);
      }
    }
  }
  zoo_answer(got, x, w, y, begin, end);
}
