#include "compiler/support/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace whet {
namespace {

struct Fd {
  explicit Fd(int fd) : fd(fd) {}
  ~Fd() {
    if (fd >= 0) close(fd);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int fd;
};

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, fmt::format("cannot write '{}'", path));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status ErrnoStatus(int error, std::string_view doing) {
  const std::string text = fmt::format("{}: {}", doing, strerror(error));
  switch (error) {
    case ENOENT: return Status(absl::StatusCode::kNotFound, text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return Status(absl::StatusCode::kResourceExhausted, text);
    case EAGAIN:
    case EINTR:
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED: return Status(absl::StatusCode::kUnavailable, text);
    case EACCES:
    case EPERM:
    case EROFS: return Status(absl::StatusCode::kPermissionDenied, text);
    default: return Status(absl::StatusCode::kInvalidArgument, text);
  }
}

StatusOr<std::string> ReadFile(const std::string& path, size_t cap) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return ErrnoStatus(errno, fmt::format("cannot open '{}'", path));
  struct stat info = {};
  if (fstat(file.fd, &info) == 0 && S_ISDIR(info.st_mode))
    return InvalidArgument("'{}' is a folder, not a file", path);
  std::string bytes;
  if (S_ISREG(info.st_mode)) bytes.reserve(std::min(cap, static_cast<size_t>(info.st_size)));
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, fmt::format("cannot read '{}'", path));
    if (n == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(n) > cap)
      return ResourceExhausted("'{}' has more than {} bytes", path, cap);
    bytes.append(buffer, static_cast<size_t>(n));
  }
}

Status WriteFile(const std::string& path, std::string_view bytes, Sync sync) {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary = fmt::format("{}.{}.{}.tmp", path, getpid(), counter++);
  Status status;
  {
    const Fd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.fd < 0) return ErrnoStatus(errno, fmt::format("cannot write '{}'", path));
    status = WriteAll(file.fd, bytes, path);
    if (status.ok() && sync == Sync::kDurable && fdatasync(file.fd) != 0)
      status = ErrnoStatus(errno, fmt::format("cannot sync '{}'", path));
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    status = ErrnoStatus(errno, fmt::format("cannot write '{}'", path));
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  if (sync == Sync::kDurable) {
    const Fd dir(open(ParentOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (dir.fd < 0 || fsync(dir.fd) != 0)
      return ErrnoStatus(errno, fmt::format("cannot sync the folder of '{}'", path));
  }
  return OkStatus();
}

Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, fmt::format("cannot remove '{}'", path));
  return OkStatus();
}

Status MakeDirs(const std::string& path) {
  for (size_t end = 1; end <= path.size(); ++end) {
    if (end != path.size() && path[end] != '/') continue;
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int error = errno;
      struct stat info = {};
      if (stat(part.c_str(), &info) != 0)
        return ErrnoStatus(error, fmt::format("cannot make the folder '{}'", part));
    }
  }
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return ErrnoStatus(errno, fmt::format("cannot make the folder '{}'", path));
  if (!S_ISDIR(info.st_mode)) return InvalidArgument("'{}' exists and is not a folder", path);
  return OkStatus();
}

StatusOr<std::vector<std::string>> ListDir(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (!dir) return ErrnoStatus(errno, fmt::format("cannot list '{}'", path));
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::string RandomHex(int bytes) {
  std::string hex;
  for (int i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    WHET_CHECK(getrandom(&byte, 1, 0) == 1, "the kernel gives no random bytes");
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

namespace {

class OsDisk : public Disk {
 public:
  StatusOr<std::string> Read(const std::string& path, size_t cap) override {
    return ReadFile(path, cap);
  }
  Status Write(const std::string& path, std::string_view bytes, Sync sync) override {
    return WriteFile(path, bytes, sync);
  }
  Status Remove(const std::string& path) override { return RemoveFile(path); }
  StatusOr<std::vector<std::string>> List(const std::string& dir) override { return ListDir(dir); }
};

}  // namespace

Disk& RealDisk() {
  static OsDisk disk;
  return disk;
}

StatusOr<std::string> MemDisk::Read(const std::string& path, size_t cap) {
  const std::lock_guard lock(mu_);
  const auto it = files_.find(path);
  if (it == files_.end()) return NotFound("cannot open '{}': No such file or directory", path);
  if (it->second.size() > cap) return ResourceExhausted("'{}' has more than {} bytes", path, cap);
  return it->second;
}

Status MemDisk::Write(const std::string& path, std::string_view bytes, Sync) {
  const std::lock_guard lock(mu_);
  if (full_) return ResourceExhausted("cannot write '{}': No space left on device", path);
  files_[path] = std::string(bytes);
  return OkStatus();
}

Status MemDisk::Remove(const std::string& path) {
  const std::lock_guard lock(mu_);
  files_.erase(path);
  return OkStatus();
}

StatusOr<std::vector<std::string>> MemDisk::List(const std::string& dir) {
  const std::lock_guard lock(mu_);
  std::vector<std::string> names;
  const std::string prefix = dir + "/";
  for (const auto& [path, bytes] : files_) {
    if (path.compare(0, prefix.size(), prefix) == 0) names.push_back(path.substr(prefix.size()));
  }
  return names;
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<FileLock> FileLock::TryAcquire(const std::string& path, std::string_view note) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, fmt::format("cannot open the lock file '{}'", path));
  FileLock lock(fd);
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (fcntl(fd, F_OFD_SETLK, &range) != 0) {
    if (errno != EAGAIN && errno != EACCES)
      return ErrnoStatus(errno, fmt::format("cannot lock '{}'", path));
    char holder[200];
    const ssize_t n = pread(fd, holder, sizeof holder, 0);
    std::string who(holder, n > 0 ? static_cast<size_t>(n) : 0);
    who.erase(
        std::remove_if(who.begin(), who.end(), [](unsigned char c) { return c < 32 || c > 126; }),
        who.end());
    return Unavailable("'{}' is held by {}", path, who.empty() ? "another process" : who);
  }
  if (ftruncate(fd, 0) != 0 || pwrite(fd, note.data(), note.size(), 0) < 0)
    return ErrnoStatus(errno, fmt::format("cannot write '{}'", path));
  return lock;
}

}  // namespace whet
