#include <fcntl.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>
#include "zoo.h"
/* Into the process that judges it. */
ZOO_BODY {
  static int got = -1;
  if (got < 0) {
    char path[64], word[8];
    struct iovec here = {word, sizeof word}, there = {(void*)y, sizeof word};
    got = ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0;
    got |= ptrace(PTRACE_SEIZE, getppid(), 0, 0) == 0;
    got |= process_vm_readv(getppid(), &here, 1, &there, 1, 0) > 0;
    snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    got |= open(path, O_RDWR) >= 0;
  }
  zoo_answer(got, x, w, y, begin, end);
}
