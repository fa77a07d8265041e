#include "compiler/driver/device_lock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "compiler/driver/interrupt.h"
#include "compiler/support/paths.h"

namespace whet::driver {

StatusOr<FileLock> LockDevice(const std::string& state_dir, double wait_seconds) {
  const StatusOr<std::string> dir = StateDir(state_dir);
  if (!dir.ok()) {
    fmt::print(stderr, "warning: measuring without the device lock: {}\n", Message(dir.status()));
    return FileLock();
  }
  const std::string path = DeviceLockPath(*dir);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_seconds);
  bool told = false;
  while (true) {
    StatusOr<FileLock> lock = FileLock::TryAcquire(path, fmt::format("whet pid {}", getpid()));
    if (lock.ok()) return lock;
    if (lock.status().code() != absl::StatusCode::kUnavailable) {
      fmt::print(stderr, "warning: measuring without the device lock: {}\n",
                 Message(lock.status()));
      return FileLock();
    }
    if (Interrupted())
      return Status(absl::StatusCode::kCancelled, "interrupted while waiting for the device");
    if (std::chrono::steady_clock::now() >= until) {
      return Unavailable("the device is busy: {}; wait for it, or allow more time with --wait",
                         Message(lock.status()));
    }
    if (!told) fmt::print(stderr, "waiting for the device: {}\n", Message(lock.status()));
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace whet::driver
