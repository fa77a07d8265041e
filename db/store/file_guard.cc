#include "db/store/file_guard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "compiler/support/crc32c.h"
#include "db/record/record.h"

namespace whet::db {
namespace {

constexpr size_t kSlotBytes = 512;  // one sector: written whole or not at all by most disks

std::string Errno() { return std::strerror(errno); }

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

std::string SlotText(const HighWater& mark) {
  const std::string body =
      fmt::format("whet-highwater 1 {} {} {}", mark.generation, mark.seq, mark.commit);
  std::string slot = fmt::format("{} {:08x}\n", body, Crc32c(body));
  slot.resize(kSlotBytes, ' ');
  return slot;
}

std::optional<HighWater> ParseSlot(std::string_view slot) {
  const size_t line_end = slot.find('\n');
  if (line_end == std::string_view::npos) return std::nullopt;
  const std::string_view line = slot.substr(0, line_end);
  const size_t body_end = line.rfind(' ');
  if (body_end == std::string_view::npos) return std::nullopt;
  const std::string_view body = line.substr(0, body_end);
  if (line.substr(body_end + 1) != fmt::format("{:08x}", Crc32c(body))) return std::nullopt;
  std::istringstream in{std::string(body)};
  std::string magic;
  int version = 0;
  HighWater mark;
  if (!(in >> magic >> version >> mark.generation >> mark.seq >> mark.commit)) return std::nullopt;
  if (magic != "whet-highwater" || version != 1) return std::nullopt;
  return mark;
}

// The whole slot with the later mark, and its number.
std::optional<std::pair<int, HighWater>> NewestSlot(int fd) {
  char bytes[2 * kSlotBytes];
  const ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
  std::optional<std::pair<int, HighWater>> best;
  for (int slot = 0; slot < 2 && (slot + 1) * static_cast<ssize_t>(kSlotBytes) <= n; ++slot) {
    const auto mark = ParseSlot(std::string_view(bytes + slot * kSlotBytes, kSlotBytes));
    if (mark && (!best || mark->commit > best->second.commit)) best = {slot, *mark};
  }
  return best;
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<OwnedFd> LockForWriting(const std::string& path) {
  const std::string lock_path = path + "-lock";
  OwnedFd fd(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (fd.get() < 0) {
    return PermissionDenied("tuning log '{}' cannot be written: lock file '{}': {}", path,
                            lock_path, Errno());
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Internal("locking '{}': {}", lock_path, Errno());
    char holder[32] = {};
    const ssize_t n = pread(fd.get(), holder, sizeof(holder) - 1, 0);
    const std::string who =
        n > 0 ? CleanText(std::string(holder, strcspn(holder, "\n")), 31) : "unknown";
    return Unavailable(
        "tuning log '{}' is being written by process {}; use that server (--server HOST:PORT), or "
        "wait "
        "until it ends",
        path, who);
  }
  const std::string pid =
      fmt::format("{}\n", getpid());  // for people; the lock itself is the kernel's
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    // A full disk only costs the name of the holder.
  }
  return fd;
}

std::optional<std::string> NetworkFileSystemName(int64_t magic) {
  static constexpr std::pair<uint32_t, const char*> kMagics[] = {
      {0x6969, "NFS"},       {0x517b, "SMB"},      {0xff534d42, "CIFS"},   {0xfe534d42, "SMB2"},
      {0x00c36400, "Ceph"},  {0x5346414f, "AFS"},  {0x6b414653, "AFS"},    {0x73757245, "Coda"},
      {0x01021997, "9P"},    {0x65735546, "FUSE"}, {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},
      {0x7461636f, "OCFS2"}, {0x01161970, "GFS2"}, {0x19830326, "BeeGFS"}, {0x20030528, "OrangeFS"},
      {0x013111a8, "IBRIX"}, {0x564c, "NCP"}};
  for (const auto& [known, name] : kMagics) {
    if (static_cast<uint32_t>(magic) == known) return name;
  }
  return std::nullopt;
}

Status RefuseNetworkFileSystem(const std::string& path) {
  struct statfs fs = {};
  if (statfs(FolderOf(path).c_str(), &fs) != 0) {
    return NotFound("tuning log '{}': folder '{}': {}", path, FolderOf(path), Errno());
  }
  const auto name = NetworkFileSystemName(fs.f_type);
  if (!name) return OkStatus();
  return FailedPrecondition(
      "tuning log '{}' lies on a network or user-space file system ({}), where its locks and "
      "shared "
      "memory cannot be relied on; keep it on a local disk and share it through a tuner-server",
      path, *name);
}

StatusOr<std::string> CanonicalPath(const std::string& path) {
  if (path.empty()) return InvalidArgument("the path of the tuning log is empty");
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) != nullptr) return std::string(resolved);
  if (errno != ENOENT) return InvalidArgument("tuning log '{}': {}", path, Errno());
  if (realpath(FolderOf(path).c_str(), resolved) == nullptr) {
    return NotFound("tuning log '{}': folder '{}': {}", path, FolderOf(path), Errno());
  }
  const std::string name = std::filesystem::path(path).filename();
  if (name.empty()) return InvalidArgument("tuning log '{}' names a folder", path);
  return (std::filesystem::path(resolved) / name).string();
}

Status SyncFolderOf(const std::string& path) {
  const OwnedFd fd(open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) {
    return Unavailable("syncing folder '{}': {}", FolderOf(path), Errno());
  }
  return OkStatus();
}

void RemoveLogFiles(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) std::remove((path + suffix).c_str());
}

Status RenameFile(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return Unavailable("renaming '{}' to '{}': {}", from, to, Errno());
  }
  return SyncFolderOf(to);
}

StatusOr<std::string> ReplaceLog(const std::string& fresh, const std::string& path,
                                 const std::string& tag) {
  std::string kept;
  if (access(path.c_str(), F_OK) == 0) {
    kept = fmt::format("{}.{}", path, tag);
    for (int i = 2; access(kept.c_str(), F_OK) == 0; ++i) {
      kept = fmt::format("{}.{}.{}", path, tag, i);
    }
    // A second name first, so that no start in between finds nothing here and makes a new log. A
    // file system that has no second names cannot have that.
    if (link(path.c_str(), kept.c_str()) != 0 && std::rename(path.c_str(), kept.c_str()) != 0) {
      return Unavailable("keeping '{}' as '{}': {}", path, kept, Errno());
    }
  }
  // What lies beside the old file is a part of it, and would be taken for a part of the new one.
  if (kept.empty()) {
    std::remove((path + "-wal").c_str());
  } else if (std::rename((path + "-wal").c_str(), (kept + "-wal").c_str()) != 0 &&
             errno != ENOENT) {
    return Unavailable("keeping '{}-wal': {}", path, Errno());
  }
  std::remove((path + "-shm").c_str());
  std::remove((path + "-journal").c_str());
  WHET_RETURN_IF_ERROR(SyncFolderOf(path));
  WHET_RETURN_IF_ERROR(RenameFile(fresh, path));
  return kept;
}

std::string HighWaterFile::PathFor(const std::string& log_path) { return log_path + "-highwater"; }

std::optional<HighWater> HighWaterFile::Read(const std::string& log_path) {
  const OwnedFd fd(open(PathFor(log_path).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return std::nullopt;
  const auto newest = NewestSlot(fd.get());
  return newest ? std::optional(newest->second) : std::nullopt;
}

StatusOr<HighWaterFile> HighWaterFile::Open(const std::string& log_path) {
  HighWaterFile file;
  file.path_ = PathFor(log_path);
  file.fd_ = OwnedFd(open(file.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.fd_.get() < 0) return PermissionDenied("high-water file '{}': {}", file.path_, Errno());
  if (const int rc = posix_fallocate(file.fd_.get(), 0, 2 * kSlotBytes); rc != 0) {
    return ResourceExhausted("high-water file '{}': {}", file.path_, std::strerror(rc));
  }
  // The first write must not touch the mark that counts now.
  const auto newest = NewestSlot(file.fd_.get());
  file.next_slot_ = newest ? 1 - newest->first : 0;
  WHET_RETURN_IF_ERROR(SyncFolderOf(file.path_));
  return file;
}

Status HighWaterFile::Write(const HighWater& mark) {
  const std::string slot = SlotText(mark);
  const off_t at = static_cast<off_t>(next_slot_ * kSlotBytes);
  if (pwrite(fd_.get(), slot.data(), slot.size(), at) != static_cast<ssize_t>(slot.size()) ||
      fdatasync(fd_.get()) != 0) {
    return Unavailable("high-water file '{}': {}", path_, Errno());
  }
  next_slot_ ^= 1;
  return OkStatus();
}

}  // namespace whet::db
