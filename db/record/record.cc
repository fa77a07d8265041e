#include "db/record/record.h"

#include <algorithm>
#include <array>

namespace whet::db {
namespace {

constexpr std::array<std::string_view, kFailureKinds> kFailureNames = {
    "ok",          "build_error",  "build_timeout",  "run_crash",
    "run_timeout", "wrong_output", "invalid_timing", "rejected",
    "poisoned",    "device_lost",  "infrastructure", "not_runnable",
    "unknown"};
constexpr std::array<std::string_view, 3> kCacheModeNames = {"warm", "cold", "turns"};
constexpr std::array<std::string_view, 2> kTrialStatusNames = {"counted", "late"};
constexpr std::array<std::string_view, 2> kOriginNames = {"measured", "imported"};
constexpr std::array<std::string_view, 2> kExecClassNames = {"native", "emulated"};
constexpr std::array<std::string_view, 6> kJobStateNames = {"queued", "running",   "done",
                                                            "failed", "cancelled", "no_device"};

// A value outside its enum can only come from a cast of our own.
template <typename Enum, size_t N>
std::string_view NameOf(const std::array<std::string_view, N>& names, Enum value) {
  const auto i = static_cast<size_t>(value);
  WHET_CHECK(i < N, "enum value {} of {}", i, N);
  return names[i];
}

template <typename Enum, size_t N>
StatusOr<Enum> ParseName(const std::array<std::string_view, N>& names, std::string_view what,
                         std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it != names.end()) return static_cast<Enum>(it - names.begin());
  std::string all;
  for (std::string_view n : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", n);
  return InvalidArgument("unknown {} '{}'; known are {}", what, CleanText(name, 64), all);
}

}  // namespace

std::string_view FailureName(FailureKind kind) { return NameOf(kFailureNames, kind); }
std::string_view CacheModeName(CacheMode mode) { return NameOf(kCacheModeNames, mode); }
std::string_view TrialStatusName(TrialStatus s) { return NameOf(kTrialStatusNames, s); }
std::string_view OriginName(Origin origin) { return NameOf(kOriginNames, origin); }
std::string_view ExecClassName(ExecClass c) { return NameOf(kExecClassNames, c); }
std::string_view JobStateName(JobState state) { return NameOf(kJobStateNames, state); }

StatusOr<FailureKind> ParseFailure(std::string_view name) {
  return ParseName<FailureKind>(kFailureNames, "failure kind", name);
}
StatusOr<CacheMode> ParseCacheMode(std::string_view name) {
  return ParseName<CacheMode>(kCacheModeNames, "cache mode", name);
}
StatusOr<TrialStatus> ParseTrialStatus(std::string_view name) {
  return ParseName<TrialStatus>(kTrialStatusNames, "trial status", name);
}
StatusOr<Origin> ParseOrigin(std::string_view name) {
  return ParseName<Origin>(kOriginNames, "origin", name);
}
StatusOr<ExecClass> ParseExecClass(std::string_view name) {
  return ParseName<ExecClass>(kExecClassNames, "execution class", name);
}
StatusOr<JobState> ParseJobState(std::string_view name) {
  return ParseName<JobState>(kJobStateNames, "job state", name);
}

FailureKind FailureFromName(std::string_view name) {
  const auto kind = ParseFailure(name);
  return kind.ok() ? *kind : FailureKind::kUnknown;
}

bool IsRetried(FailureKind kind) {
  return kind == FailureKind::kDeviceLost || kind == FailureKind::kInfrastructure;
}

bool IsTerminal(JobState state) {
  return state != JobState::kQueued && state != JobState::kRunning;
}

Fingerprint RecordKey::Task() const {
  return FingerprintOf(fmt::format("whet-task 1\n{}\n{}\n{}\n{}", workload.Hex(), threads,
                                   CacheModeName(cache_mode), target));
}

Fingerprint DeviceRow::fingerprint() const {
  return FingerprintOf(
      fmt::format("whet-device 1\n{}\n{}\n{}\n{}", device_id, device_key, feature_set, identity));
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t mid = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(mid), values.end());
  const double upper = values[mid];
  if (values.size() % 2 == 1) return upper;
  const double lower =
      *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(mid));
  return lower + (upper - lower) / 2;
}

}  // namespace whet::db
