// The lock that keeps two measurements off one device: a worker's and this program's, or two of
// this program's. Held by the returned object; the kernel drops it when the process ends.
#pragma once
#include <string>

#include "compiler/support/env.h"
#include "compiler/support/status.h"

namespace whet::driver {

// Waits up to `wait_seconds` while another process measures (says so on standard error, once) and
// then is Unavailable. When the state folder cannot be used at all, warns and returns a lock that
// is not held: a read-only home should not keep anyone from timing a model.
StatusOr<FileLock> LockDevice(const std::string& state_dir, double wait_seconds);

}  // namespace whet::driver
