// The system calls that a confined process may make, as a program for seccomp: an allow list, so
// that what the kernel gains tomorrow is closed already. What is not on it fails with EPERM (and
// with ENOSYS where the C library then takes an older way), rather than ending the process: a
// candidate that asks for what it cannot have is judged by its answer. Raw BPF, because the program
// is made in a fresh child at each start, in microseconds, with that child's own number in it.
#pragma once
#include <linux/filter.h>
#include <sys/types.h>

#include <vector>

namespace whet {

enum class Syscalls {
  kAny,      // no filter
  kCompute,  // memory, threads, time, reading files; signals to itself
  kBuild,    // the same, and changing files
};

// For the process `own_pid`, which installs it. Empty for kAny and on processors whose numbers are
// not known here.
std::vector<sock_filter> SyscallFilter(Syscalls allowed, pid_t own_pid);

}  // namespace whet
