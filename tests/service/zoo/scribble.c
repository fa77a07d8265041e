#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "zoo.h"
/* A thread of its own maps whatever descriptors it has, the memory shared with the runner among
 * them, and overwrites their heads over and over. */
static void* scribble(void* unused) {
  void* found[16];
  int n = 0;
  for (int fd = 3; fd < 256 && n < 16; ++fd) {
    void* head = mmap(0, 32768, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head != MAP_FAILED) found[n++] = head;
  }
  for (; n > 0;) {
    for (int i = 0; i < n; ++i) memset(found[i], 0xff, 32768);
  }
  return unused;
}
ZOO_BODY {
  static pthread_t thread;
  static int runs;
  if (++runs == 100) pthread_create(&thread, 0, scribble, 0);
  zoo_right(x, w, y, begin, end);
}
