#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "zoo.h"
/* A thread of its own finds the memory shared with the runner and overwrites its head over and
 * over. */
static void* scribble(void* unused) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long found[16][2];
  int n = 0;
  while (maps && n < 16 && fgets(line, sizeof line, maps)) {
    unsigned long begin, end;
    if (!strstr(line, "memfd:whet-run") || sscanf(line, "%lx-%lx", &begin, &end) != 2 ||
        end - begin < 32768)
      continue;
    found[n][0] = begin;
    found[n++][1] = end;
  }
  for (;;) {
    for (int i = 0; i < n; ++i) memset((void*)found[i][0], 0xff, 32768);
  }
  return unused;
}
ZOO_BODY {
  static pthread_t thread;
  static int runs;
  if (++runs == 100) pthread_create(&thread, 0, scribble, 0);
  zoo_right(x, w, y, begin, end);
}
