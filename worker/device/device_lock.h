// Keeps measurements off each other: two on one device, or one on a device and one on the whole
// machine, which is what other programs (`whet bench`) lock. One file for all of a machine: device
// N is its byte N, the machine is all bytes.
//
// The lock belongs to the open file, not to the process: one that inherits fd() holds what this one
// has locked, and goes on holding it when this one is killed. That is how a runner keeps the device
// of a worker that died until its candidate is gone. Used by one thread at a time.
#pragma once
#include <string>
#include <string_view>

#include "compiler/support/status.h"

namespace whet::worker {

class DeviceLock {
 public:
  static constexpr int kWholeMachine = -1;

  // Locks nothing yet. `device`: its number, or kWholeMachine.
  static StatusOr<DeviceLock> Open(const std::string& path, int device);
  DeviceLock(DeviceLock&& other) noexcept
      : path_(std::move(other.path_)), device_(other.device_), fd_(other.fd_) {
    other.fd_ = -1;
  }
  DeviceLock& operator=(DeviceLock&&) = delete;
  ~DeviceLock();

  // Ends the lock, for those who inherited it as well.
  class Held {
   public:
    explicit Held(DeviceLock* lock) : lock_(lock) {}
    Held(Held&& other) noexcept : lock_(other.lock_) { other.lock_ = nullptr; }
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (lock_ != nullptr) lock_->Unlock();
    }

   private:
    DeviceLock* lock_;
  };
  // Unavailable while someone else has it, with what they left as their `note`; FailedPrecondition
  // when the file is not the one that was opened any more. Outlives what it returns.
  StatusOr<Held> TryLock(std::string_view note);
  int fd() const { return fd_; }

 private:
  DeviceLock(std::string path, int device, int fd)
      : path_(std::move(path)), device_(device), fd_(fd) {}
  void Unlock();

  std::string path_;
  int device_;
  int fd_;
};

}  // namespace whet::worker
