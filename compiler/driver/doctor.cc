#include "compiler/driver/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "compiler/driver/names.h"
#include "compiler/driver/timing.h"
#include "compiler/support/content_cache.h"
#include "compiler/support/env.h"
#include "compiler/support/paths.h"
#include "compiler/support/sandbox.h"
#include "compiler/target/target.h"
#include "deploy/runtime/pool.h"

namespace whet::driver {
namespace {

using Level = Finding::Level;

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string CpuInfo(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "";
}

void ExamineProcessor(std::vector<Finding>* out) {
  const Target host = Target::Host();
  const std::string name = CpuInfo("model name");
  const bool virtual_machine = CpuInfo("flags").find(" hypervisor") != std::string::npos;
  out->push_back({"processor", fmt::format("{}{}", name.empty() ? host.arch : name,
                                           virtual_machine ? " (virtual machine)" : "")});
  const bool wide = host.arch != "x86_64" || (host.Has("avx2") && host.Has("fma"));
  out->push_back({"target", host.ToString(), wide ? Level::kOk : Level::kNote,
                  wide ? ""
                       : "without AVX2 and FMA kernels are several times slower; nothing can be "
                         "done about it"});
  out->push_back(
      {"caches",
       fmt::format("L1d {}, L2 {}, L3 {}", BytesText(static_cast<double>(host.l1d_bytes)),
                   BytesText(static_cast<double>(host.l2_bytes)),
                   host.l3_bytes ? BytesText(static_cast<double>(host.l3_bytes)) : "unknown")});
  const int usable = AvailableProcessors();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  out->push_back({"processors", fmt::format("{} usable of {} online", usable, online)});
  std::set<std::string> sharing;
  for (int cpu = 0; cpu < online; ++cpu) {
    const std::string siblings =
        FirstLine(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    if (siblings.find_first_of(",-") != std::string::npos) sharing.insert(siblings);
  }
  if (!sharing.empty()) {
    out->push_back({"hyper-threads", fmt::format("{} cores run two threads each", sharing.size()),
                    Level::kNote,
                    "leave the second thread of a core idle while tuning, or tune with at most as "
                    "many --threads as cores"});
  }
}

void ExamineClocks(std::vector<Finding>* out) {
  const std::string governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty()) {
    out->push_back(
        {"clock governor", "unknown (the system does not show it, as in most virtual machines)"});
  } else if (governor == "performance") {
    out->push_back({"clock governor", governor});
  } else {
    out->push_back({"clock governor", governor, Level::kNote,
                    "for steady figures: cpupower frequency-set -g performance"});
  }
  const std::string no_turbo = FirstLine("/sys/devices/system/cpu/intel_pstate/no_turbo"),
                    boost = FirstLine("/sys/devices/system/cpu/cpufreq/boost");
  if (no_turbo == "0" || boost == "1") {
    out->push_back({"turbo", "on", Level::kNote,
                    "for steady figures: echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo "
                    "(or 0 > .../cpufreq/boost)"});
  } else {
    out->push_back({"turbo", no_turbo == "1" || boost == "0" ? "off" : "unknown"});
  }
  const std::string source =
      FirstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const bool cheap =
      source.empty() || source == "tsc" || source == "arch_sys_counter" || source == "kvm-clock";
  out->push_back({"clock source", source.empty() ? "unknown" : source,
                  cheap ? Level::kOk : Level::kNote,
                  cheap ? "" : "reading the time is slow; boot with clocksource=tsc"});
}

// How even a fixed piece of work runs: (p90 - min) / min over a quarter of a second.
void ExamineNoise(std::vector<Finding>* out) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> ms;
  volatile uint64_t sink = 1;
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::milliseconds(250);) {
    const auto start = Clock::now();
    uint64_t x = sink;
    for (int i = 0; i < 200'000; ++i) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    sink = x;
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  const double least = Quantile(ms, 0), spread = (Quantile(ms, 0.9) - least) / least;
  const bool noisy = spread > 0.1;
  out->push_back(
      {"noise",
       fmt::format("{:.1f} % (how much longer equal work takes, 90th percentile against the best)",
                   100 * spread),
       noisy ? Level::kNote : Level::kOk,
       noisy ? "something else uses this machine; tuning still compares fairly, but needs longer"
             : ""});
  const std::string load = FirstLine("/proc/loadavg");
  out->push_back({"load", load.substr(0, load.find(' '))});
}

// By putting them up around a child that does nothing.
void ExamineSandbox(std::vector<Finding>* out) {
  const uint32_t layers = SandboxLayers();
  const std::string weak = MissingForStrangers(layers);
  out->push_back({"sandbox", SandboxBitsText(layers), weak.empty() ? Level::kOk : Level::kNote,
                  weak.empty() ? ""
                               : "not enough for candidates of others, which workers here refuse; "
                                 "missing: " +
                                     weak});
  struct Wall {
    const char* what;
    uint32_t any_of;  // one of them does
    SandboxBit first;
    const char* without;
  };
  const Wall walls[] = {
      {"system calls", kSandboxSyscalls, kSandboxSyscalls, "candidates can call any system call"},
      {"files", kSandboxLandlock | kSandboxMountNamespace, kSandboxLandlock,
       "candidates can read your files"},
      {"other processes", kSandboxPidNamespace, kSandboxPidNamespace,
       "candidates see other processes"},
      {"network", kSandboxNetNamespace | kSandboxSyscalls, kSandboxNetNamespace,
       "candidates reach the network"},
      {"memory", kSandboxCgroupMemory, kSandboxCgroupMemory,
       "the memory of candidates is limited by address space only"},
      {"number of processes", kSandboxCgroupPids, kSandboxCgroupPids,
       "only the filter of system calls keeps candidates from starting processes"},
  };
  for (const Wall& w : walls) {
    const uint32_t there = layers & w.any_of;
    out->push_back({fmt::format("walls: {}", w.what),
                    there ? SandboxBitsText(there) : "not available",
                    there ? Level::kOk : Level::kNote,
                    there ? "" : fmt::format("{}; {}", w.without, SandboxAdvice(w.first))});
  }
}

void ExamineDevices(std::vector<Finding>* out) {
  auto library = [](const char* name) {
    void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (handle) dlclose(handle);
    return handle != nullptr;
  };
  out->push_back(
      {"NVIDIA GPU", library("libcuda.so.1") ? "driver found" : "none (no libcuda.so.1)"});
  out->push_back(
      {"OpenCL", library("libOpenCL.so.1") ? "loader found" : "none (no libOpenCL.so.1)"});
}

void ExamineObjectCache(std::vector<Finding>* out) {
  const std::string dir = ObjectCacheDir();
  if (dir.empty()) {
    out->push_back({"object cache", "none (no HOME)"});
    return;
  }
  const StatusOr<ContentCache> cache = ContentCache::Open(dir, kObjectCacheBytes);
  if (!cache.ok()) {
    out->push_back({"object cache", Message(cache.status()), Level::kNote,
                    "models are compiled without it; name another with --object-cache or "
                    "WHET_OBJECT_CACHE"});
    return;
  }
  const ContentCache::Usage usage = cache->Measure();
  out->push_back({"object cache", fmt::format("{}: {} objects, {} of {}", dir, usage.entries,
                                              BytesText(static_cast<double>(usage.bytes)),
                                              BytesText(static_cast<double>(kObjectCacheBytes)))});
}

void ExamineInstallation(const std::string& state_dir, std::vector<Finding>* out) {
  const StatusOr<std::string> dir = StateDir(state_dir);
  if (!dir.ok()) {
    out->push_back({"state folder", Message(dir.status()), Level::kFail,
                    "name a folder one can write with --state-dir or WHET_STATE_DIR"});
  } else {
    const StatusOr<FileLock> lock = FileLock::TryAcquire(DeviceLockPath(*dir), "whet doctor");
    const bool busy = lock.status().code() == absl::StatusCode::kUnavailable;
    out->push_back({"state folder", *dir, lock.ok() || busy ? Level::kOk : Level::kFail,
                    lock.ok() || busy ? "" : Message(lock.status())});
    out->push_back({"device lock", busy ? Message(lock.status()) : "free"});
    // As worker/device/probe.cc leaves it: what it is of, then the figures.
    const StatusOr<std::string> probed = ReadFile(*dir + "/machine", 16 << 10);
    const size_t line = probed.ok() ? probed->find('\n') : std::string::npos;
    out->push_back({"speed", line == std::string::npos
                                 ? "not measured yet; the first worker or `whet tune` does so"
                                 : probed->substr(line + 1)});
  }
  ExamineObjectCache(out);
  for (const char* program : {"whet-builder", "whet-runner", "whet-known-good.so", "rpc-worker",
                              "rpc-tracker", "tuner-server"}) {
    const StatusOr<std::string> path = FindProgram(program);
    out->push_back({program,
                    path.ok() ? std::filesystem::path(*path).lexically_normal().string()
                              : Message(path.status()),
                    path.ok() ? Level::kOk : Level::kFail,
                    path.ok() ? "" : "build or install it beside `whet`"});
  }
}

}  // namespace

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kNote: return "note";
    case Level::kFail: return "fail";
  }
  return "";
}

std::vector<Finding> Examine(const std::string& state_dir) {
  std::vector<Finding> out;
  ExamineProcessor(&out);
  ExamineClocks(&out);
  ExamineNoise(&out);
  ExamineSandbox(&out);
  ExamineDevices(&out);
  ExamineInstallation(state_dir, &out);
  return out;
}

}  // namespace whet::driver
