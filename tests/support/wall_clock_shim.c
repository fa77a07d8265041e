/* Preloaded into a program, moves its wall clock: by as many seconds as the file that
   WHET_WALL_SHIM names says just now, as eight bytes. Its monotonic clocks stay as they are. So
   tests step the clock of running programs without touching that of the machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long* shift;

__attribute__((constructor)) static void map_shift(void) {
  const char* path = getenv("WHET_WALL_SHIM");
  const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) shift = page;
}

int clock_gettime(clockid_t id, struct timespec* at) {
  const int r = (int)syscall(SYS_clock_gettime, id, at);
  if (r == 0 && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
    at->tv_sec += *shift;
  return r;
}

int gettimeofday(struct timeval* at, void* zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
