#include "compiler/support/sandbox_layers.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <utility>

#include "compiler/support/clock.h"
#include "compiler/support/env.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WHET_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WHET_SANITIZED 1
#endif
#endif

namespace whet::sandbox {
namespace {

constexpr uid_t kNobody = 65534;

// What a library may need to be loaded, and the C library to find out about processors and memory.
const std::vector<std::string>& SystemPaths() {
  static const std::vector<std::string> paths = {
      "/usr",
      "/lib",
      "/lib64",
      "/etc/ld.so.cache",
      "/sys/devices/system/cpu",
      "/sys/kernel/mm/transparent_hugepage",
#ifdef WHET_SANITIZED
      "/proc",  // sanitizers look at the process's own mappings
#endif
  };
  return paths;
}

// ---- descriptors, limits, users

bool SetStandardFiles(int stdio_fd) {
  const int out = stdio_fd >= 0 ? stdio_fd : open("/dev/null", O_RDWR);
  const int in = open("/dev/null", O_RDONLY);
  return dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2;
}

bool CloseAllBut(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  bool ok = true;
  unsigned int from = 3;
  for (int fd : keep) {
    if (fd < 3) continue;
    const auto next = static_cast<unsigned int>(fd);
    if (next > from) ok = close_range(from, next - 1, 0) == 0 && ok;
    from = next + 1;
  }
  return close_range(from, ~0U, 0) == 0 && ok;
}

// Never raised: what the process is bound to already is less.
bool Limit(int resource, rlim_t value) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max = std::min(limit.rlim_max, value);
  return setrlimit(resource, &limit) == 0;
}

bool SetLimits(const SandboxOptions& o) {
  bool ok = Limit(RLIMIT_CORE, 0) && Limit(RLIMIT_FSIZE, static_cast<rlim_t>(o.file_bytes)) &&
            Limit(RLIMIT_NOFILE, 256) && Limit(RLIMIT_MEMLOCK, 1 << 20);
  if (o.cpu_ns > 0) ok = Limit(RLIMIT_CPU, static_cast<rlim_t>(o.cpu_ns / kSecond + 2)) && ok;
#ifndef WHET_SANITIZED
  if (o.address_space_bytes > 0)
    ok = Limit(RLIMIT_AS, static_cast<rlim_t>(o.address_space_bytes)) && ok;
#endif
  return ok;
}

// Only root can; where it is root of a container there may be nobody else to become.
bool BecomeNobody() {
  return geteuid() == 0 && setgroups(0, nullptr) == 0 &&
         setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0;
}

bool DropCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return syscall(SYS_capset, &header, none) == 0;
}

// ---- a root of its own

bool PutText(const char* file, const std::string& text) {
  const int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

// Folders above `path`, which has no leading slash, below the working directory.
void MakeFoldersAbove(const std::string& path) {
  for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0755);
}

bool CopyFile(int from, const std::string& to) {
  const int out = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (out < 0) return false;
  char buffer[1 << 16];
  ssize_t n;
  bool ok = true;
  while (ok && (n = read(from, buffer, sizeof buffer)) != 0)
    ok = n > 0 && write(out, buffer, static_cast<size_t>(n)) == n;
  close(out);
  return ok;
}

// Something of the old root, taken before that is out of reach.
struct Piece {
  std::string path;  // without the leading slash
  std::string link;  // of a symbolic link
  int tree = -1;     // a copy of the mount
  int file = -1;     // to be copied
  bool folder = false, writable = false, exists = false;
};

Piece Take(const std::string& path, bool writable, bool copy_private) {
  Piece p;
  struct stat info = {};
  if (path.size() < 2 || path[0] != '/' || lstat(path.c_str(), &info) != 0) return p;
  p.path = path.substr(1);
  p.writable = writable;
  p.exists = true;
  if (S_ISLNK(info.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    if (n > 0) p.link.assign(target, static_cast<size_t>(n));
    return p;
  }
  p.folder = S_ISDIR(info.st_mode);
  // What only its owner may read, another user is given a copy of.
  if (copy_private && S_ISREG(info.st_mode) && !(info.st_mode & S_IROTH)) {
    p.file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } else {
    p.tree = open_tree(AT_FDCWD, path.c_str(),
                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (p.folder ? AT_RECURSIVE : 0));
  }
  return p;
}

bool Place(const Piece& p) {
  if (!p.exists) return true;
  struct stat info = {};
  const bool there = lstat(p.path.c_str(), &info) == 0;
  if (there && !p.writable) return true;  // beneath one that was placed before
  if (!there) MakeFoldersAbove(p.path);
  if (!p.link.empty()) return symlink(p.link.c_str(), p.path.c_str()) == 0;
  if (p.file >= 0) return CopyFile(p.file, p.path);
  if (p.tree < 0) return false;
  if (!there && p.folder) mkdir(p.path.c_str(), 0755);
  if (!there && !p.folder) {
    const int fd = open(p.path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    if (fd >= 0) close(fd);
  }
  mount_attr attributes = {};
  attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (!p.writable) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  return mount_setattr(p.tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) ==
             0 &&
         move_mount(p.tree, "", AT_FDCWD, p.path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

// Nothing but the system's libraries and what was named. Whatever this fails at, the process is of
// no use afterwards: it ends, or it was a trial.
bool EnterOwnRoot(const SandboxOptions& o, bool copy_private) {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return false;
  std::vector<Piece> pieces;
  for (const std::string& path : SystemPaths()) pieces.push_back(Take(path, false, false));
  for (const std::string& path : o.readable) pieces.push_back(Take(path, false, copy_private));
  for (const std::string& path : o.writable) pieces.push_back(Take(path, true, false));
  // Any folder will do to build the new root on: it is this process's mount alone.
  bool ok =
      mount("whet", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") == 0 && chdir("/proc") == 0;
  for (const Piece& p : pieces) {
    ok = ok && Place(p);
    for (const int fd : {p.tree, p.file}) {
      if (fd >= 0) close(fd);  // the others were closed before
    }
  }
  ok = ok && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0;
  mount_attr attributes = {};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  return ok && mount_setattr(AT_FDCWD, "/", 0, &attributes, sizeof attributes) == 0 &&
         chdir("/") == 0;
}

// ---- Landlock. The header of Debian 12 knows its first version; these are later ones' words.

struct Ruleset {
  uint64_t files, net, scoped;
};
constexpr uint64_t kRefer = 1 << 13, kTruncate = 1 << 14, kIoctl = 1 << 15;
constexpr uint64_t kBindAndConnect = 3, kSignalsAndAbstractSockets = 3;
constexpr uint64_t kReadAccess = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                              LANDLOCK_ACCESS_FS_READ_FILE | kTruncate;

bool Allow(int ruleset, const std::string& path, uint64_t access) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return true;  // what is not there cannot be reached
  struct stat info = {};
  bool ok = fstat(fd, &info) == 0;
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = S_ISDIR(info.st_mode) ? access : access & kOfFiles;
  rule.parent_fd = fd;
  ok = ok && syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
  close(fd);
  return ok;
}

bool RestrictByLandlock(const SandboxOptions& o) {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return false;
  Ruleset r = {kRefer - 1, 0, 0};
  if (version >= 2) r.files |= kRefer;
  if (version >= 3) r.files |= kTruncate;
  if (version >= 5) r.files |= kIoctl;
  if (version >= 4) r.net = kBindAndConnect;
  if (version >= 6) r.scoped = kSignalsAndAbstractSockets;
  const size_t bytes = version >= 6   ? sizeof r
                       : version >= 4 ? offsetof(Ruleset, scoped)
                                      : offsetof(Ruleset, net);
  const int ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &r, bytes, 0));
  if (ruleset < 0) return false;
  bool ok = true;
  for (const auto* paths : {&SystemPaths(), &o.readable}) {
    for (const std::string& path : *paths) ok = Allow(ruleset, path, kReadAccess) && ok;
  }
  for (const std::string& path : o.writable)
    ok = Allow(ruleset, path, r.files & ~(LANDLOCK_ACCESS_FS_EXECUTE | kIoctl)) && ok;
  ok = ok && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
  close(ruleset);
  return ok;
}

bool FilterSyscalls(Syscalls allowed) {
  std::vector<sock_filter> filter = SyscallFilter(allowed, getpid());
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return !filter.empty() && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

}  // namespace

uint32_t OwnAffair() {
  return kSandboxLimits | kSandboxNoNewPrivileges | kSandboxDescriptors | kSandboxSyscalls |
         kSandboxGroup | kSandboxMountNamespace | kSandboxLandlock | kSandboxCgroupMemory |
         kSandboxCgroupPids | kSandboxCgroupKill | kSandboxNoCapabilities | kSandboxOtherUser;
}

bool MapUser(uid_t user, gid_t group) {
  PutText("/proc/self/setgroups", "deny");
  return PutText("/proc/self/uid_map", fmt::format("{} {} 1", user, user)) &&
         PutText("/proc/self/gid_map", fmt::format("{} {} 1", group, group));
}

uint32_t PutUp(uint32_t wanted, const SandboxOptions& o, const CandidateGroup* group,
               int also_keep) {
  uint32_t stands = 0;
  auto put_up = [&](uint32_t bits, const auto& layer) {
    if (wanted & bits && layer()) stands |= wanted & bits;
  };
  // Joined by a descriptor that is closed next.
  put_up(kSandboxCgroupMemory | kSandboxCgroupPids | kSandboxCgroupKill,
         [&] { return group != nullptr && group->Enter(); });
  put_up(kSandboxGroup, [] { return setsid() > 0; });
  put_up(kSandboxDescriptors, [&] {
    std::vector<int> keep = o.keep_fds;
    keep.push_back(also_keep);
    return SetStandardFiles(o.stdio_fd) && CloseAllBut(std::move(keep));
  });
  // Needs the right to mount, and to copy files; the rest gives rights up, one after the other.
  const bool other_user = (wanted & kSandboxOtherUser) && geteuid() == 0;
  put_up(kSandboxMountNamespace, [&] { return EnterOwnRoot(o, other_user); });
  // Another user reaches the files only where a root of its own has them.
  put_up(kSandboxOtherUser, [&] {
    if (!(stands & kSandboxMountNamespace)) return false;
    for (const std::string& path : o.writable) {
      if (chown(path.c_str(), kNobody, kNobody) != 0) return false;
    }
    return BecomeNobody();
  });
  put_up(kSandboxNoCapabilities, DropCapabilities);
  put_up(kSandboxLimits, [&] { return SetLimits(o); });
  put_up(kSandboxGroup, [] { return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0; });
  put_up(kSandboxNoNewPrivileges, [] { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0; });
  put_up(kSandboxLandlock, [&] { return RestrictByLandlock(o); });
  put_up(kSandboxSyscalls, [&] { return FilterSyscalls(o.syscalls); });
  return stands;
}

}  // namespace whet::sandbox
