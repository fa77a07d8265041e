// What this machine is, as a measurement device: identity for the tracker and the log, state around
// a measurement. Stateless; reads the operating system each time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "proto/measure.pb.h"
#include "proto/target.pb.h"

namespace whet::worker {

// Everything but worker_id, device_id, boot_id and key.
v1::DeviceIdentity CpuIdentity();
// How often its cores and packages throttled themselves since it was started; nothing where the
// system does not count: unknown is not steady. `sys`: where the system's tree is mounted.
std::optional<int64_t> CpuThrottleCount(const std::string& sys = "/sys");
// What can be observed now; a field that cannot stays absent. `throttles_before`: the count before
// the measurement.
v1::DeviceState CpuState(std::optional<int64_t> throttles_before, const std::string& sys = "/sys");

}  // namespace whet::worker
