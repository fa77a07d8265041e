#include "worker/service/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "compiler/support/env.h"
#include "compiler/support/sha256.h"

namespace whet::worker {
namespace {

constexpr size_t kMaxVerified = 10'000;
constexpr size_t kPieceBytes = 1 << 20;
constexpr std::string_view kPart = ".part";

class OwnedFile {
 public:
  OwnedFile(const std::string& path, int flags)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~OwnedFile() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Piece by piece: blobs may be larger than memory allows. Nothing when it cannot be read.
std::optional<PartialBlob> HashFile(const std::string& path) {
  const OwnedFile file(path, O_RDONLY | O_NOFOLLOW);
  if (file.fd() < 0) return std::nullopt;
  PartialBlob result;
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t n = read(file.fd(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return result;
    result.hash.Update({piece.data(), static_cast<size_t>(n)});
    result.bytes += static_cast<uint64_t>(n);
  }
}

Status WriteAt(const std::string& path, uint64_t offset, std::string_view bytes) {
  const OwnedFile file(path, O_WRONLY | O_NOFOLLOW | (offset == 0 ? O_CREAT | O_TRUNC : 0));
  struct stat info = {};
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0)
    return ErrnoStatus(errno, fmt::format("cannot write '{}'", path));
  if (static_cast<uint64_t>(info.st_size) != offset) {
    return DataLoss("'{}' has {} bytes, and {} were written to it", path, info.st_size, offset);
  }
  while (!bytes.empty()) {
    const ssize_t n = pwrite(file.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, fmt::format("cannot write '{}'", path));
    offset += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

}  // namespace

StatusOr<BlobStore> BlobStore::Open(std::string dir) {
  WHET_RETURN_IF_ERROR(MakeDirs(dir));
  return BlobStore(std::move(dir));
}

BlobStore::Left BlobStore::Load() {
  Left left;
  const StatusOr<std::vector<std::string>> names = ListDir(dir_);
  if (!names.ok()) return left;
  for (const std::string& name : *names) {
    const std::string sha = name.substr(0, 64);
    const std::string_view rest = std::string_view(name).substr(sha.size());
    std::optional<PartialBlob> read;
    if (IsSha256Hex(sha) && (rest.empty() || rest == kPart)) read = HashFile(dir_ + "/" + name);
    if (read && rest == kPart && read->bytes > 0) {
      left.partial[sha] = std::move(*read);
    } else if (read && rest.empty() && read->hash.Hex() == sha) {
      left.whole[sha] = read->bytes;
    } else {
      unlink((dir_ + "/" + name).c_str());
    }
  }
  return left;
}

Status BlobStore::Append(const StoreBlob& piece) {
  const std::string part = PartPath(piece.sha256);
  Status status = WriteAt(part, piece.offset, piece.bytes);
  if (status.ok() && piece.last && rename(part.c_str(), Path(piece.sha256).c_str()) != 0)
    status = ErrnoStatus(errno, fmt::format("cannot write '{}'", Path(piece.sha256)));
  if (!status.ok()) unlink(part.c_str());
  return status;
}

void BlobStore::Drop(const std::string& sha256) {
  unlink(Path(sha256).c_str());
  unlink(PartPath(sha256).c_str());
}

StatusOr<std::string> BlobStore::Head(const std::string& sha256, size_t count) const {
  const OwnedFile file(Path(sha256), O_RDONLY | O_NOFOLLOW);
  std::string bytes(count, '\0');
  const ssize_t n = file.fd() < 0 ? -1 : pread(file.fd(), bytes.data(), count, 0);
  if (n < 0) return ErrnoStatus(errno, fmt::format("cannot read '{}'", Path(sha256)));
  bytes.resize(static_cast<size_t>(n));
  return bytes;
}

Status BlobStore::Verify(const std::string& sha256) {
  const std::string path = Path(sha256);
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0)
    return DataLoss("'{}' is gone from this worker's folder", path);
  const Stamp stamp = {info.st_ino, info.st_size,
                       info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec,
                       info.st_ctim.tv_sec * int64_t{1'000'000'000} + info.st_ctim.tv_nsec};
  const auto known = verified_.find(sha256);
  if (known != verified_.end() && known->second == stamp) return OkStatus();
  const std::optional<PartialBlob> read = HashFile(path);
  if (!read || read->hash.Hex() != sha256)
    return DataLoss("'{}' was changed on this worker's disk", path);
  if (verified_.size() >= kMaxVerified) verified_.clear();
  verified_[sha256] = stamp;
  return OkStatus();
}

}  // namespace whet::worker
