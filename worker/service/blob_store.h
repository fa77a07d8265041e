// Blobs of a worker as files in one folder, named by their SHA-256; what has not come whole yet
// ends in ".part". They survive restarts, and are believed for their contents, never for their
// names. Append and Drop belong to one thread, Verify to one (another) thread.
#pragma once
#include <map>
#include <string>
#include <tuple>

#include "compiler/support/status.h"
#include "worker/core/worker_core.h"

namespace whet::worker {

class BlobStore {
 public:
  // Makes the folder.
  static StatusOr<BlobStore> Open(std::string dir);

  // What a former process left; what has other contents than its name says is removed.
  struct Left {
    std::map<std::string, uint64_t> whole;  // and their sizes
    std::map<std::string, PartialBlob> partial;
  };
  Left Load();

  // What the core asks for. ResourceExhausted when the disk is full; nothing is left of the blob
  // after an error.
  Status Append(const StoreBlob& piece);
  void Drop(const std::string& sha256);

  std::string Path(const std::string& sha256) const { return dir_ + "/" + sha256; }
  // Its first bytes: `count`, or all there are.
  StatusOr<std::string> Head(const std::string& sha256, size_t count) const;
  // DataLoss when the file has other contents than its name says. Reads it the first time, and
  // again whenever it was touched.
  Status Verify(const std::string& sha256);

 private:
  explicit BlobStore(std::string dir) : dir_(std::move(dir)) {}
  std::string PartPath(const std::string& sha256) const { return Path(sha256) + ".part"; }

  std::string dir_;
  // Of Verify: inode, size, times of change of those that were found right.
  using Stamp = std::tuple<uint64_t, int64_t, int64_t, int64_t>;
  std::map<std::string, Stamp> verified_;
};

}  // namespace whet::worker
