#include "worker/device/cpu.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "compiler/support/emulated.h"
#include "compiler/support/env.h"
#include "compiler/target/target.h"

namespace whet::worker {
namespace {

std::string Line(const std::string& path) {
  StatusOr<std::string> text = ReadFile(path, 1 << 16);
  if (!text.ok()) return "";
  std::string line = text->substr(0, text->find('\n'));
  std::erase_if(line, [](unsigned char c) { return c < 32 || c > 126; });
  return line.substr(0, 200);
}

std::optional<int64_t> Number(const std::string& path) {
  const std::string line = Line(path);
  char* end = nullptr;
  const int64_t v = strtoll(line.c_str(), &end, 10);
  if (end == line.c_str()) return std::nullopt;
  return v;
}

// "model name" of the first processor: the first eight kilobytes hold it.
std::string CpuModel() {
  const StatusOr<std::string> text = ReadFile("/proc/cpuinfo", 16 << 20);
  if (!text.ok()) return "";
  for (const char* field : {"model name", "Model", "Hardware", "CPU part"}) {
    const size_t at = text->find(field);
    if (at == std::string::npos) continue;
    const size_t colon = text->find(": ", at), end = text->find('\n', at);
    if (colon < end) return text->substr(colon + 2, std::min<size_t>(end - colon - 2, 200));
  }
  return "";
}

}  // namespace

v1::DeviceIdentity CpuIdentity() {
  const Target target = Target::Host();
  v1::DeviceIdentity d;
  d.set_target(target.ToString());
  d.set_feature_set(target.FeatureSet());
  utsname system = {};
  if (uname(&system) == 0) {
    d.set_triple(fmt::format("{}-linux-gnu", system.machine));
    d.set_kernel(fmt::format("{} {}", system.sysname, system.release));
  }
  d.set_cpu_model(CpuModel());
  cpu_set_t set;
  d.set_processors(
      sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1);
  d.set_l1d_bytes(static_cast<uint64_t>(target.l1d_bytes));
  d.set_l2_bytes(static_cast<uint64_t>(target.l2_bytes));
  d.set_l3_bytes(static_cast<uint64_t>(target.l3_bytes));
  d.set_governor(Line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  d.set_max_khz(static_cast<uint64_t>(std::max<int64_t>(
      Number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").value_or(0), 0)));
  d.set_host_boot_id(Line("/proc/sys/kernel/random/boot_id"));
  d.set_emulated(Emulated());
  return d;
}

// A candidate may run on any of them.
std::optional<int64_t> CpuThrottleCount(const std::string& sys) {
  std::optional<int64_t> sum;
  const std::string cpus = sys + "/devices/system/cpu";
  const StatusOr<std::vector<std::string>> names = ListDir(cpus);
  if (!names.ok()) return sum;
  for (const std::string& name : *names) {
    if (name.compare(0, 3, "cpu") != 0) continue;
    for (const char* count : {"core_throttle_count", "package_throttle_count"}) {
      if (const auto n = Number(fmt::format("{}/{}/thermal_throttle/{}", cpus, name, count)))
        sum = sum.value_or(0) + *n;
    }
  }
  return sum;
}

v1::DeviceState CpuState(std::optional<int64_t> throttles_before, const std::string& sys) {
  v1::DeviceState s;
  if (const auto khz = Number(sys + "/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
      khz && *khz > 0)
    s.set_khz(static_cast<uint64_t>(*khz));
  const std::string load = Line("/proc/loadavg");
  char* end = nullptr;
  const double load1 = strtod(load.c_str(), &end);
  if (end != load.c_str()) s.set_load1(load1);
  if (const auto t = Number(sys + "/class/thermal/thermal_zone0/temp")) s.set_temperature_mc(*t);
  if (const auto n = CpuThrottleCount(sys); n && throttles_before)
    s.set_throttled(*n > *throttles_before);
  return s;
}

}  // namespace whet::worker
