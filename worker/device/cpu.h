// What this machine is, as a measurement device: identity for the tracker and the log, state around
// a measurement. Stateless; reads the operating system each time.
#pragma once
#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/measure.pb.h"
#include "proto/target.pb.h"

namespace whet::worker {

// The processors that this process may run on, by the system's numbers, ascending.
std::vector<int> AllowedCores();

// The calling thread, and what it starts, runs on these processors only, until this ends. None: as
// it is.
class OnCores {
 public:
  explicit OnCores(const std::vector<int>& cores);
  ~OnCores();
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  cpu_set_t before_;
  bool changed_ = false;
};

// Of a device that consists of these processors; none: of all that this process may use. Everything
// but worker_id, device_id, boot_id, key and the baseline; what the system does not tell is named
// in `unobserved`. `sys`: where the system's tree is mounted.
v1::DeviceIdentity CpuIdentity(std::vector<int> cores = {}, const std::string& sys = "/sys");
// How often its cores and packages throttled themselves since it was started; nothing where the
// system does not count: unknown is not steady. `sys`: where the system's tree is mounted.
std::optional<int64_t> CpuThrottleCount(const std::string& sys = "/sys");
// What can be observed now; a field that cannot stays absent. `throttles_before`: the count before
// the measurement.
v1::DeviceState CpuState(std::optional<int64_t> throttles_before, const std::string& sys = "/sys");

}  // namespace whet::worker
