// Files and the operating system's randomness. `Disk` is the seam that state machines' adapters
// write through: RealDisk for programs, MemDisk for simulations. All files that matter are written
// beside their final name, synced and renamed, so that a reader finds the old contents or the new,
// never a part. Free functions and RealDisk are safe from any thread.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet {

// NotFound when it does not exist; ResourceExhausted above `cap` bytes; InvalidArgument for a
// folder.
StatusOr<std::string> ReadFile(const std::string& path, size_t cap);
// Whole or not at all. kDurable also survives power loss. ResourceExhausted when the disk is full.
enum class Sync { kNone, kDurable };
Status WriteFile(const std::string& path, std::string_view bytes, Sync sync = Sync::kNone);
Status RemoveFile(const std::string& path);  // OK when it is not there
Status MakeDirs(const std::string& path);    // mode 0700 for those it makes
StatusOr<std::vector<std::string>> ListDir(const std::string& path);  // names, sorted

std::string RandomHex(int bytes);  // from the kernel
// An error of the operating system as a Status: "cannot open '/x/y': No such file or directory".
Status ErrnoStatus(int error, std::string_view doing);

class Disk {
 public:
  virtual ~Disk() = default;
  virtual StatusOr<std::string> Read(const std::string& path, size_t cap) = 0;
  virtual Status Write(const std::string& path, std::string_view bytes, Sync sync) = 0;
  virtual Status Remove(const std::string& path) = 0;
  virtual StatusOr<std::vector<std::string>> List(const std::string& dir) = 0;
};

Disk& RealDisk();

// Files in memory; can be told to be full. Guarded, so that a test may look while another thread
// writes.
class MemDisk : public Disk {
 public:
  StatusOr<std::string> Read(const std::string& path, size_t cap) override;
  Status Write(const std::string& path, std::string_view bytes, Sync sync) override;
  Status Remove(const std::string& path) override;
  StatusOr<std::vector<std::string>> List(const std::string& dir) override;
  void set_full(bool full) { full_ = full; }

 private:
  std::mutex mu_;
  std::map<std::string, std::string> files_;
  bool full_ = false;
};

// A device or state lock between processes: an open-file-description lock on a file, dropped when
// the process ends however it ends. Not fair. Move-only.
class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();
  bool held() const { return fd_ >= 0; }
  // Unavailable when another process (or another FileLock of this one) holds it; its note (see
  // below) is in the message. `note` is written into the file for others to read, e.g. "rpc-worker
  // pid 123".
  static StatusOr<FileLock> TryAcquire(const std::string& path, std::string_view note);

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace whet
