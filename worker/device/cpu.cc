#include "worker/device/cpu.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "compiler/support/emulated.h"
#include "compiler/support/env.h"
#include "compiler/target/target.h"
#include "deploy/runtime/cpu_features.h"

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

// The vendor's name of the product: of the firmware's tables, or of the device tree.
std::string Board(const std::string& sys) {
  const std::string vendor = Line(sys + "/class/dmi/id/sys_vendor");
  const std::string product = Line(sys + "/class/dmi/id/product_name");
  if (!product.empty()) return vendor.empty() ? product : vendor + " " + product;
  return Line(sys + "/firmware/devicetree/base/model");
}

std::optional<bool> Boost(const std::string& sys) {
  if (const auto on = Number(sys + "/devices/system/cpu/cpufreq/boost")) return *on != 0;
  if (const auto off = Number(sys + "/devices/system/cpu/intel_pstate/no_turbo")) return *off == 0;
  return std::nullopt;
}

// What is told of each processor, put together.
void FillFromCores(const std::string& sys, v1::DeviceIdentity* d) {
  std::set<std::string> governors, cores, nodes;
  int64_t min_khz = 0, max_khz = 0;
  for (const uint32_t core : d->cores()) {
    const std::string cpu = fmt::format("{}/devices/system/cpu/cpu{}", sys, core);
    if (std::string g = Line(cpu + "/cpufreq/scaling_governor"); !g.empty())
      governors.insert(std::move(g));
    const int64_t low = Number(cpu + "/cpufreq/cpuinfo_min_freq").value_or(0);
    if (low > 0) min_khz = min_khz == 0 ? low : std::min(min_khz, low);
    max_khz = std::max(max_khz, Number(cpu + "/cpufreq/cpuinfo_max_freq").value_or(0));
    const std::string id = Line(cpu + "/topology/core_id");
    if (!id.empty()) cores.insert(Line(cpu + "/topology/physical_package_id") + ":" + id);
    if (const auto names = ListDir(cpu); names.ok()) {
      for (const std::string& name : *names) {
        if (name.compare(0, 4, "node") == 0) nodes.insert(name);
      }
    }
  }
  d->set_governor(fmt::format("{}", fmt::join(governors, ",")));
  d->set_min_khz(static_cast<uint64_t>(min_khz));
  d->set_max_khz(static_cast<uint64_t>(max_khz));
  d->set_physical_cores(static_cast<uint32_t>(cores.size()));
  d->set_numa_nodes(static_cast<uint32_t>(nodes.size()));
}

}  // namespace

std::vector<int> AllowedCores() {
  std::vector<int> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(c, &set)) cores.push_back(c);
  }
  return cores;
}

OnCores::OnCores(const std::vector<int>& cores) {
  if (cores.empty() || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int c : cores) {
    if (c >= 0 && c < CPU_SETSIZE) CPU_SET(c, &set);
  }
  changed_ = sched_setaffinity(0, sizeof set, &set) == 0;
}

OnCores::~OnCores() {
  if (changed_) sched_setaffinity(0, sizeof before_, &before_);
}

v1::DeviceIdentity CpuIdentity(std::vector<int> cores, const std::string& sys) {
  if (cores.empty()) cores = AllowedCores();
  const Target target = Target::Host();
  v1::DeviceIdentity d;
  d.set_target(target.ToString());
  d.set_feature_set(target.FeatureSet());
  std::stringstream features(CpuFeatures());
  for (std::string f; std::getline(features, f, ',');) d.add_cpu_features(f);
  utsname system = {};
  if (uname(&system) == 0) {
    d.set_triple(fmt::format("{}-linux-gnu", system.machine));
    d.set_kernel(fmt::format("{} {}", system.sysname, system.release));
  }
  d.set_cpu_model(CpuModel());
  d.set_processors(static_cast<uint32_t>(cores.size()));
  for (const int c : cores) d.add_cores(static_cast<uint32_t>(c));
  d.set_l1d_bytes(static_cast<uint64_t>(target.l1d_bytes));
  d.set_l2_bytes(static_cast<uint64_t>(target.l2_bytes));
  d.set_l3_bytes(static_cast<uint64_t>(target.l3_bytes));
  FillFromCores(sys, &d);
  d.set_board(Board(sys));
  if (const auto boost = Boost(sys)) d.set_boost(*boost);
  d.set_host_boot_id(Line("/proc/sys/kernel/random/boot_id"));
  d.set_emulated(Emulated());
  const std::pair<const char*, bool> told[] = {
      {"cpu_model", !d.cpu_model().empty()},
      // Where the C library does not know them the sizes are assumed.
      {"l1d_bytes", sysconf(_SC_LEVEL1_DCACHE_SIZE) > 0},
      {"l2_bytes", sysconf(_SC_LEVEL2_CACHE_SIZE) > 0},
      {"l3_bytes", sysconf(_SC_LEVEL3_CACHE_SIZE) > 0},
      {"governor", !d.governor().empty()},
      {"min_khz", d.min_khz() > 0},
      {"max_khz", d.max_khz() > 0},
      {"boost", d.has_boost()},
      {"physical_cores", d.physical_cores() > 0},
      {"numa_nodes", d.numa_nodes() > 0},
      {"board", !d.board().empty()},
      {"kernel", !d.kernel().empty()},
      {"host_boot_id", !d.host_boot_id().empty()}};
  for (const auto& [name, known] : told) {
    if (!known) d.add_unobserved(name);
  }
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
