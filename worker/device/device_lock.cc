#include "worker/device/device_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace whet::worker {
namespace {

bool SetLock(int fd, short type, int device) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  if (device != DeviceLock::kWholeMachine) {
    range.l_start = device;
    range.l_len = 1;
  }
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

// Of whoever locked last.
std::string Note(int fd) {
  char note[200];
  const ssize_t n = pread(fd, note, sizeof note, 0);
  std::string who(note, n > 0 ? static_cast<size_t>(n) : 0);
  std::erase_if(who, [](unsigned char c) { return c < 32 || c > 126; });
  return who.empty() ? "another process" : who;
}

}  // namespace

StatusOr<DeviceLock> DeviceLock::Open(const std::string& path, int device) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, fmt::format("cannot open the lock file '{}'", path));
  return DeviceLock(path, device, fd);
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<DeviceLock::Held> DeviceLock::TryLock(std::string_view note) {
  if (!SetLock(fd_, F_WRLCK, device_)) {
    if (errno != EAGAIN && errno != EACCES)
      return ErrnoStatus(errno, fmt::format("cannot lock '{}'", path_));
    return Unavailable("'{}' is held by {}", path_, Note(fd_));
  }
  Held held(this);
  struct stat ours = {}, there = {};
  if (fstat(fd_, &ours) != 0 || stat(path_.c_str(), &there) != 0 || ours.st_ino != there.st_ino ||
      ours.st_dev != there.st_dev) {
    return FailedPrecondition(
        "the lock file '{}' was removed or replaced, so that others may measure beside this "
        "worker; start the worker anew",
        path_);
  }
  if (ftruncate(fd_, 0) != 0 || pwrite(fd_, note.data(), note.size(), 0) < 0)
    return ErrnoStatus(errno, fmt::format("cannot write '{}'", path_));
  return held;
}

void DeviceLock::Unlock() { SetLock(fd_, F_UNLCK, device_); }

}  // namespace whet::worker
