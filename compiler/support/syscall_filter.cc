#include "compiler/support/syscall_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace whet {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kAuditArch = 0;
#endif

// Calls that are harmless whatever their arguments.
constexpr int kCompute[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_preadv,
    SYS_close,
    SYS_close_range,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_mlock,
    SYS_munlock,
    SYS_brk,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_membarrier,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_futex,
    SYS_futex_waitv,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_getscheduler,
    SYS_sched_getparam,
    SYS_getcpu,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrusage,
    SYS_getrlimit,
    SYS_getrandom,
    SYS_uname,
    SYS_sysinfo,
    SYS_dup,
    SYS_dup3,
    SYS_ppoll,
    SYS_exit,
    SYS_exit_group,
#ifdef __x86_64__
    SYS_arch_prctl,  // tile registers
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_dup2,
    SYS_poll,
    SYS_time,
    SYS_getdents,
#endif
};

// What a build changes lies in its own folder: Landlock, the private root and the user see to that.
constexpr int kFiles[] = {
    SYS_openat,    SYS_pwrite64, SYS_ftruncate, SYS_fallocate, SYS_fsync,     SYS_fdatasync,
    SYS_fchmod,    SYS_fchmodat, SYS_unlinkat,  SYS_mkdirat,   SYS_renameat2,
#ifdef SYS_renameat
    SYS_renameat,
#endif
    SYS_utimensat, SYS_umask,    SYS_pipe2,     SYS_flock,
#ifdef __x86_64__
    SYS_open,      SYS_creat,    SYS_unlink,    SYS_mkdir,     SYS_rmdir,     SYS_rename,
    SYS_chmod,     SYS_pipe,
#endif
};

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t Error(int number) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(number); }

using Program = std::vector<sock_filter>;

void Statement(Program& p, uint16_t code, uint32_t k) { p.push_back({code, 0, 0, k}); }
void Jump(Program& p, uint16_t test, uint32_t k, uint8_t yes, uint8_t no) {
  p.push_back({static_cast<uint16_t>(BPF_JMP | test | BPF_K), yes, no, k});
}
void Return(Program& p, uint32_t action) { Statement(p, BPF_RET | BPF_K, action); }
void ReturnIf(Program& p, uint16_t test, uint32_t k, uint32_t action) {
  Jump(p, test, k, 0, 1);
  Return(p, action);
}
// Both processors are little endian.
void LoadArgument(Program& p, int index, bool upper_half = false) {
  Statement(p, BPF_LD | BPF_W | BPF_ABS,
            static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(index) +
                                  (upper_half ? 4 : 0)));
}

// What becomes of one call; `body` returns on every path.
void For(Program& p, int call, const Program& body) {
  Jump(p, BPF_JEQ, static_cast<uint32_t>(call), 0, static_cast<uint8_t>(body.size()));
  p.insert(p.end(), body.begin(), body.end());
}

// Argument `index` is one of these.
Program OneOf(int index, const std::vector<uint32_t>& values) {
  Program body;
  LoadArgument(body, index);
  for (const uint32_t v : values) ReturnIf(body, BPF_JEQ, v, kAllow);
  Return(body, Error(EPERM));
  return body;
}

Program NoneOfBits(int index, uint32_t bits) {
  Program body;
  LoadArgument(body, index);
  ReturnIf(body, BPF_JSET, bits, Error(EPERM));
  Return(body, kAllow);
  return body;
}

Program NullArgument(int index) {
  Program body;
  for (const bool upper : {false, true}) {
    LoadArgument(body, index, upper);
    Jump(body, BPF_JEQ, 0, 1, 0);
    Return(body, Error(EPERM));
  }
  Return(body, kAllow);
  return body;
}

// Threads, not processes, and no namespaces of its own.
Program ThreadsOnly() {
  constexpr uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  Program body;
  LoadArgument(body, 0);
  ReturnIf(body, BPF_JSET, kNamespaces, Error(EPERM));
  ReturnIf(body, BPF_JSET, CLONE_THREAD, kAllow);
  Return(body, Error(EPERM));
  return body;
}

}  // namespace

std::vector<sock_filter> SyscallFilter(Syscalls allowed, pid_t own_pid) {
  Program p;
  if (allowed == Syscalls::kAny || kAuditArch == 0) return p;
  Statement(p, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
  Jump(p, BPF_JEQ, kAuditArch, 1, 0);
  Return(p, SECCOMP_RET_KILL_PROCESS);
  Statement(p, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
#ifdef __x86_64__
  // The x32 interface has the same calls under other numbers.
  Jump(p, BPF_JGE, 0x40000000, 0, 1);
  Return(p, SECCOMP_RET_KILL_PROCESS);
#endif
  for (const int call : kCompute) ReturnIf(p, BPF_JEQ, static_cast<uint32_t>(call), kAllow);
  if (allowed == Syscalls::kBuild) {
    for (const int call : kFiles) ReturnIf(p, BPF_JEQ, static_cast<uint32_t>(call), kAllow);
    // A reply on a connected socket; no other address.
    For(p, SYS_sendto, NullArgument(4));
  } else {
    constexpr uint32_t kChanging = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
    For(p, SYS_openat, NoneOfBits(2, kChanging));
#ifdef __x86_64__
    For(p, SYS_open, NoneOfBits(1, kChanging));
#endif
  }
  For(p, SYS_clone, ThreadsOnly());
  // These pass their flags in memory, out of a filter's sight.
  ReturnIf(p, BPF_JEQ, SYS_clone3, Error(ENOSYS));
  ReturnIf(p, BPF_JEQ, SYS_openat2, Error(ENOSYS));
  // abort() and raise(); no other process.
  For(p, SYS_tgkill, OneOf(0, {static_cast<uint32_t>(own_pid)}));
  For(p, SYS_prlimit64, NullArgument(2));  // reading limits, not setting them
  For(p, SYS_prctl, OneOf(0, {PR_SET_NAME, PR_GET_NAME, 0x53564d41 /* PR_SET_VMA */}));
  // No owners of signals, which may be other processes.
  For(p, SYS_fcntl,
      OneOf(1, {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_OFD_GETLK,
                F_OFD_SETLK, F_DUPFD_CLOEXEC, F_GET_SEALS}));
  ReturnIf(p, BPF_JEQ, SYS_ioctl, Error(ENOTTY));
  Return(p, Error(EPERM));
  return p;
}

}  // namespace whet
