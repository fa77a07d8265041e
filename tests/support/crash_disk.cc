#include "tests/support/crash_disk.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace whet::testing_support {
namespace {

constexpr size_t kSectorBytes = 512;

std::optional<std::string> Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// What SQLite sees as an open file: ours in front, the real one behind it in the same memory.
struct OpenFile {
  sqlite3_file base;
  CrashDisk* disk;
  std::string* path;  // null: a file without a name, which nothing survives in
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

OpenFile* Of(sqlite3_file* f) { return reinterpret_cast<OpenFile*>(f); }
sqlite3_file* Real(sqlite3_file* f) { return Of(f)->real(); }

}  // namespace

// The VFS's functions. A struct, so that it can be a friend.
struct CrashDiskCalls {
  static CrashDisk* DiskOf(sqlite3_vfs* vfs) { return static_cast<CrashDisk*>(vfs->pAppData); }
  static sqlite3_vfs* RealOf(sqlite3_vfs* vfs) { return DiskOf(vfs)->real_; }

  static int Close(sqlite3_file* f) {
    const int rc = Real(f)->pMethods ? Real(f)->pMethods->xClose(Real(f)) : SQLITE_OK;
    delete Of(f)->path;
    Of(f)->path = nullptr;
    return rc;
  }
  static int Read(sqlite3_file* f, void* to, int n, sqlite3_int64 at) {
    if (Of(f)->disk->cut_) return SQLITE_IOERR_READ;
    return Real(f)->pMethods->xRead(Real(f), to, n, at);
  }
  static int Write(sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
    CrashDisk& disk = *Of(f)->disk;
    const bool off = disk.cut_;
    const bool fails = disk.Fails();
    if (disk.full_in_ > 0 && --disk.full_in_ == 0) disk.full_ = true;
    if (!off && !disk.full_ && Of(f)->path) {  // also the one that the power fails in
      disk.Remember(*Of(f)->path, {at, std::string(static_cast<const char*>(from), n), false});
    }
    if (fails) return SQLITE_IOERR_WRITE;
    if (disk.full_) return SQLITE_FULL;
    return Real(f)->pMethods->xWrite(Real(f), from, n, at);
  }
  static int Truncate(sqlite3_file* f, sqlite3_int64 size) {
    CrashDisk& disk = *Of(f)->disk;
    const bool off = disk.cut_;
    const bool fails = disk.Fails();
    if (!off && Of(f)->path) disk.Remember(*Of(f)->path, {size, "", true});
    if (fails) return SQLITE_IOERR_TRUNCATE;
    return Real(f)->pMethods->xTruncate(Real(f), size);
  }
  static int Sync(sqlite3_file* f, int) {
    CrashDisk& disk = *Of(f)->disk;
    if (disk.Fails()) return SQLITE_IOERR_FSYNC;
    const bool lost = disk.syncs_ == CrashDisk::Syncs::kLost && disk.rng_.Below(2) == 0;
    if (!lost && Of(f)->path) disk.Synced(*Of(f)->path);
    return SQLITE_OK;  // the real one need not be: only this process ends
  }
  static int FileSize(sqlite3_file* f, sqlite3_int64* size) {
    return Real(f)->pMethods->xFileSize(Real(f), size);
  }
  static int Lock(sqlite3_file* f, int kind) { return Real(f)->pMethods->xLock(Real(f), kind); }
  static int Unlock(sqlite3_file* f, int kind) { return Real(f)->pMethods->xUnlock(Real(f), kind); }
  static int CheckReservedLock(sqlite3_file* f, int* out) {
    return Real(f)->pMethods->xCheckReservedLock(Real(f), out);
  }
  static int FileControl(sqlite3_file* f, int op, void* arg) {
    // Hints that the real file would act on past us.
    if (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE) return SQLITE_NOTFOUND;
    return Real(f)->pMethods->xFileControl(Real(f), op, arg);
  }
  static int SectorSize(sqlite3_file* f) { return Real(f)->pMethods->xSectorSize(Real(f)); }
  static int DeviceCharacteristics(sqlite3_file* f) {
    return Real(f)->pMethods->xDeviceCharacteristics(Real(f));
  }
  static int ShmMap(sqlite3_file* f, int page, int bytes, int extend, void volatile** out) {
    return Real(f)->pMethods->xShmMap(Real(f), page, bytes, extend, out);
  }
  static int ShmLock(sqlite3_file* f, int offset, int n, int flags) {
    return Real(f)->pMethods->xShmLock(Real(f), offset, n, flags);
  }
  static void ShmBarrier(sqlite3_file* f) { Real(f)->pMethods->xShmBarrier(Real(f)); }
  static int ShmUnmap(sqlite3_file* f, int remove) {
    return Real(f)->pMethods->xShmUnmap(Real(f), remove);
  }

  static int Open(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* f, int flags, int* out) {
    static const sqlite3_io_methods methods = {2,
                                               Close,
                                               Read,
                                               Write,
                                               Truncate,
                                               Sync,
                                               FileSize,
                                               Lock,
                                               Unlock,
                                               CheckReservedLock,
                                               FileControl,
                                               SectorSize,
                                               DeviceCharacteristics,
                                               ShmMap,
                                               ShmLock,
                                               ShmBarrier,
                                               ShmUnmap,
                                               nullptr,
                                               nullptr};
    CrashDisk& disk = *DiskOf(vfs);
    f->pMethods = nullptr;
    if (disk.cut_) return SQLITE_CANTOPEN;
    const bool made = name != nullptr && !std::filesystem::exists(name);
    const int rc = RealOf(vfs)->xOpen(RealOf(vfs), name, Real(f), flags, out);
    if (rc != SQLITE_OK) return rc;
    Of(f)->disk = &disk;
    Of(f)->path = name == nullptr ? nullptr : new std::string(name);
    f->pMethods = &methods;
    if (made) disk.files_[name] = {std::nullopt, {}, true};
    return SQLITE_OK;
  }
  static int Delete(sqlite3_vfs* vfs, const char* name, int sync) {
    CrashDisk& disk = *DiskOf(vfs);
    if (disk.Fails()) return SQLITE_IOERR_DELETE;
    disk.Removed(name, sync != 0);
    return RealOf(vfs)->xDelete(RealOf(vfs), name, 0);
  }
  static int Access(sqlite3_vfs* vfs, const char* name, int flags, int* out) {
    return RealOf(vfs)->xAccess(RealOf(vfs), name, flags, out);
  }
  static int FullPathname(sqlite3_vfs* vfs, const char* name, int n, char* out) {
    return RealOf(vfs)->xFullPathname(RealOf(vfs), name, n, out);
  }
  static int Randomness(sqlite3_vfs* vfs, int n, char* out) {
    for (int i = 0; i < n; ++i) out[i] = static_cast<char>(DiskOf(vfs)->rng_.Next());
    return n;
  }
  static int Sleep(sqlite3_vfs*, int) { return 0; }
  static int CurrentTime(sqlite3_vfs* vfs, double* out) {
    return RealOf(vfs)->xCurrentTime(RealOf(vfs), out);
  }
  static int GetLastError(sqlite3_vfs*, int, char*) { return 0; }
  static int CurrentTimeInt64(sqlite3_vfs* vfs, sqlite3_int64* out) {
    return RealOf(vfs)->xCurrentTimeInt64(RealOf(vfs), out);
  }
};

CrashDisk::CrashDisk(uint64_t seed, Syncs syncs)
    : rng_(seed), syncs_(syncs), real_(sqlite3_vfs_find(nullptr)) {
  std::memset(&vfs_, 0, sizeof(vfs_));
  vfs_.iVersion = 2;
  vfs_.szOsFile = static_cast<int>(sizeof(OpenFile)) + real_->szOsFile;
  vfs_.mxPathname = real_->mxPathname;
  vfs_.zName = "whet-crash-disk";
  vfs_.pAppData = this;
  vfs_.xOpen = CrashDiskCalls::Open;
  vfs_.xDelete = CrashDiskCalls::Delete;
  vfs_.xAccess = CrashDiskCalls::Access;
  vfs_.xFullPathname = CrashDiskCalls::FullPathname;
  vfs_.xRandomness = CrashDiskCalls::Randomness;
  vfs_.xSleep = CrashDiskCalls::Sleep;
  vfs_.xCurrentTime = CrashDiskCalls::CurrentTime;
  vfs_.xGetLastError = CrashDiskCalls::GetLastError;
  vfs_.xCurrentTimeInt64 = CrashDiskCalls::CurrentTimeInt64;
  sqlite3_vfs_register(&vfs_, 1);
}

CrashDisk::~CrashDisk() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(real_, 1);
}

void CrashDisk::CutAfter(int64_t operations) { cut_in_ = operations; }
void CrashDisk::FillAfter(int64_t writes) { full_in_ = writes; }

bool CrashDisk::Fails() {
  if (cut_in_ > 0 && --cut_in_ == 0) cut_ = true;
  return cut_;
}

void CrashDisk::Remember(const std::string& path, Change change) {
  const auto [it, first] = files_.try_emplace(path);
  if (first) it->second.synced = Contents(path);
  it->second.changes.push_back(std::move(change));
}

void CrashDisk::Synced(const std::string& path) {
  files_.erase(path);
  removed_.erase(path);  // its name belongs to the new file now
}

void CrashDisk::Removed(const std::string& path, bool synced) {
  const auto it = files_.find(path);
  if (!synced) removed_[path] = it != files_.end() ? it->second : File{Contents(path), {}, false};
  if (synced) removed_.erase(path);
  files_.erase(path);
}

void CrashDisk::Apply(const Change& change, std::string& bytes) {
  const auto at = static_cast<size_t>(change.offset);
  if (change.truncate) {
    if (at < bytes.size()) bytes.resize(at);
    return;
  }
  const bool torn = rng_.Below(3) == 0;
  for (size_t from = 0; from < change.bytes.size();) {
    const size_t n =
        std::min(kSectorBytes - (at + from) % kSectorBytes, change.bytes.size() - from);
    if (!torn || rng_.Below(2) == 0) {
      if (bytes.size() < at + from + n) bytes.resize(at + from + n, '\0');
      bytes.replace(at + from, n, change.bytes, from, n);
    }
    from += n;
  }
}

std::optional<std::string> CrashDisk::AfterCut(const File& file) {
  if (file.made && rng_.Below(3) == 0) return std::nullopt;
  std::string bytes = file.synced.value_or("");
  std::vector<const Change*> order;
  const int64_t kept = rng_.Below(5);  // of four: from none to all of what was under way
  for (const Change& c : file.changes) {
    if (rng_.Below(4) < kept) order.push_back(&c);
  }
  if (rng_.Below(2) == 0) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i)))]);
    }
  }
  for (const Change* c : order) Apply(*c, bytes);
  return bytes;
}

void CrashDisk::Restart() {
  for (const auto& [path, file] : files_) {
    if (!std::filesystem::exists(path)) continue;  // renamed since: synced by then, or not ours
    if (const std::optional<std::string> bytes = AfterCut(file)) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << *bytes;
    } else {
      std::remove(path.c_str());
    }
    std::remove((path + "-shm").c_str());
  }
  for (const auto& [path, file] : removed_) {
    if (std::filesystem::exists(path) || rng_.Below(2) == 0) continue;
    if (const std::optional<std::string> bytes = AfterCut(file)) {
      std::ofstream(path, std::ios::binary) << *bytes;
    }
  }
  files_.clear();
  removed_.clear();
  cut_ = full_ = false;
  cut_in_ = full_in_ = 0;
}

}  // namespace whet::testing_support
