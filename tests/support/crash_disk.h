// A disk for SQLite whose power can fail, deterministic from a seed: a VFS that takes the place of
// the default one while it lives. Files are real and what a process reads is what it wrote; only
// after a power cut do they hold what such a disk may hold. Until it is synced, a write may be
// there, missing, there in part (by sectors of 512 bytes) or overtaken by an earlier one, a file
// that was removed may be back, and one that was made may be missing.
//
//   CrashDisk disk(seed, CrashDisk::Syncs::kHonest);
//   disk.CutAfter(17);          // the power fails at the 17th write, truncation, sync or removal
//   ... use the database until something fails; close it ...
//   disk.Restart();             // the power is back
//
// The same seed and calls give the same files. One at a time; used by one thread.
#pragma once
#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/support/rng.h"

namespace whet::testing_support {

class CrashDisk {
 public:
  // kLost: a disk that says that it has synced, and half of the time has not.
  enum class Syncs { kHonest, kLost };
  CrashDisk(uint64_t seed, Syncs syncs);
  ~CrashDisk();
  CrashDisk(const CrashDisk&) = delete;
  CrashDisk& operator=(const CrashDisk&) = delete;

  void CutAfter(int64_t operations);  // counted from now; 1: the next one
  void Cut() { cut_ = true; }
  bool cut() const { return cut_; }
  // From the n-th write on there is no room for any, until SetFull(false).
  void FillAfter(int64_t writes);
  void SetFull(bool full) { full_ = full; }
  bool full() const { return full_; }

  void Restart();

 private:
  friend struct CrashDiskCalls;
  struct Change {
    int64_t offset = 0;
    std::string bytes;
    bool truncate = false;  // to `offset`
  };
  struct File {
    std::optional<std::string> synced;  // nothing: the file was not there
    std::vector<Change> changes;        // since, in order
    bool made = false;                  // since the last sync
  };

  bool Fails();  // counts one operation; true: the power is off
  void Remember(const std::string& path, Change change);
  void Synced(const std::string& path);
  void Removed(const std::string& path, bool synced);
  void Apply(const Change& change, std::string& bytes);
  std::optional<std::string> AfterCut(const File& file);

  Rng rng_;
  const Syncs syncs_;
  bool cut_ = false, full_ = false;
  int64_t cut_in_ = 0, full_in_ = 0;  // operations; 0: never
  std::map<std::string, File> files_;
  std::map<std::string, File> removed_;  // not durably
  sqlite3_vfs* real_;
  sqlite3_vfs vfs_;
};

}  // namespace whet::testing_support
