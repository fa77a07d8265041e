// What surrounds the database file: the writer's lock, the high-water file and the refusal of
// network file systems. Internal to db/store.
//
//   tuning.db             the database; tuning.db-wal and tuning.db-shm beside it are SQLite's
//   tuning.db-lock        held by the one writer (open-file-description lock: gone with the
//   process) tuning.db-highwater   the last durable row that was acknowledged, see HighWater
//
// The lock is a file of its own because closing any descriptor of the database drops SQLite's
// locks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "compiler/support/status.h"

namespace whet::db {

// A file descriptor that closes itself.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Takes the writer's lock of the log at `path`, whose holder's process id the lock file names.
// Unavailable if another holds it: the message names the file and the ways on.
StatusOr<OwnedFd> LockForWriting(const std::string& path);

// The name of a network file system by its statfs magic; nothing for a local one. On a network file
// system neither SQLite's shared memory nor its locks can be relied on.
std::optional<std::string> NetworkFileSystemName(int64_t magic);

// FailedPrecondition if the folder of `path` lies on a network file system.
Status RefuseNetworkFileSystem(const std::string& path);

// The path with links resolved (of its folder, if the file does not exist yet), so that one log has
// one lock whatever name it is reached by. NotFound for a folder that is missing.
StatusOr<std::string> CanonicalPath(const std::string& path);

struct HighWater {
  std::string generation;  // of the log it belongs to
  int64_t seq = 0;         // last trial acknowledged
  int64_t commit = 0;      // last commit acknowledged, of any table
};

// The high-water file: two slots of kSlotBytes, written alternately, each
//   whet-highwater 1 GENERATION SEQ COMMIT CRC32C\n   padded with spaces
// so that a torn write spoils one and leaves the other. Written and synced before rows are
// acknowledged; a log that ends below it has lost its tail.
class HighWaterFile {
 public:
  static std::string PathFor(const std::string& log_path);
  // Nothing if there is no file or no slot of it is whole.
  static std::optional<HighWater> Read(const std::string& log_path);
  // Creates the file at its full size, so that a full disk cannot stop an acknowledgement later.
  static StatusOr<HighWaterFile> Open(const std::string& log_path);
  Status Write(const HighWater& mark);  // durable when it returns

 private:
  std::string path_;
  OwnedFd fd_;
  int next_slot_ = 0;
};

Status SyncFolderOf(const std::string& path);
// The database at `path` and SQLite's files beside it; those that are there.
void RemoveLogFiles(const std::string& path);
// Durable when it returns; replaces what is at `to`.
Status RenameFile(const std::string& from, const std::string& to);
// Puts the closed log at `fresh` in the place of the one at `path`, whose lock the caller holds,
// and says where that one is now: `<path>.<tag>`, or with a number; empty if there was none. At
// every moment a log lies at `path`, and the mark says whether it is whole.
StatusOr<std::string> ReplaceLog(const std::string& fresh, const std::string& path,
                                 const std::string& tag);

}  // namespace whet::db
