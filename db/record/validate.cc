// Normalize: the one gate through which a row enters a log, from a worker or from a file.
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "db/record/record.h"

namespace whet::db {
namespace {

constexpr int kMaxJsonDepth = 8;  // device descriptions are flat; depth only serves attackers
constexpr double kMaxNs = 1e15;   // 11 days
constexpr double kMaxRatio = 1e6;
constexpr int kMaxThreads = 4096;
constexpr int64_t kMaxCount = int64_t{1} << 48;

// Length of the well-formed UTF-8 sequence at s[0], 0 if there is none (RFC 3629, table 3-7).
size_t Utf8Length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = at(0);
  if (c < 0x80) return 1;
  const size_t n = c >= 0xc2 && c <= 0xdf   ? 2
                   : c >= 0xe0 && c <= 0xef ? 3
                   : c >= 0xf0 && c <= 0xf4 ? 4
                                            : 0;
  if (n == 0 || s.size() < n) return 0;
  const unsigned char low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < n; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return n;
}

bool IsControl(char c) {
  const auto u = static_cast<unsigned char>(c);
  return (u < 0x20 && u != '\n' && u != '\t') || u == 0x7f;
}

// `lines`: whether tab and newline may occur (texts) or not (identifiers).
enum class Lines { kOne, kMany };

Status CheckText(std::string_view field, std::string_view text, size_t cap, Lines lines) {
  if (text.size() > cap) {
    return InvalidArgument("{}: {} bytes exceed the limit of {}", field, text.size(), cap);
  }
  for (size_t i = 0; i < text.size();) {
    const size_t n = Utf8Length(text.substr(i));
    if (n == 0) return InvalidArgument("{}: byte {} is not valid UTF-8", field, i);
    const char c = text[i];
    if (IsControl(c) || (lines == Lines::kOne && (c == '\n' || c == '\t'))) {
      return InvalidArgument("{}: control character 0x{:02x} at byte {}", field,
                             static_cast<unsigned char>(c), i);
    }
    i += n;
  }
  return OkStatus();
}

Status CheckNotEmpty(std::string_view field, std::string_view text) {
  if (text.empty()) return InvalidArgument("{} is empty", field);
  return OkStatus();
}

Status CheckRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("{} {} is outside {}..{}", field, value, low, high);
}

// A flat check of depth before the parser, which would otherwise spend memory on nesting.
Status CheckJsonObject(std::string_view field, std::string_view text) {
  WHET_RETURN_IF_ERROR(CheckText(field, text, kMaxJsonBytes, Lines::kMany));
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxJsonDepth)
      return InvalidArgument("{}: nested deeper than {}", field, kMaxJsonDepth);
  }
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("{} is not a JSON object", field);
  return OkStatus();
}

Status CheckHash(std::string_view hash) {
  if (hash.empty()) return OkStatus();
  const bool hex = std::all_of(hash.begin(), hash.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (hash.size() == 64 && hex) return OkStatus();
  return InvalidArgument("object_hash is not 64 lower-case hex digits ({} bytes)", hash.size());
}

Status CheckIds(const TrialIds& ids) {
  const std::pair<std::string_view, const std::string*> fields[] = {
      {"generation", &ids.generation}, {"job_id", &ids.job_id},   {"incarnation", &ids.incarnation},
      {"worker_id", &ids.worker_id},   {"boot_id", &ids.boot_id}, {"device_id", &ids.device_id}};
  for (const auto& [name, value] : fields) {
    WHET_RETURN_IF_ERROR(CheckText(name, *value, kMaxIdBytes, Lines::kOne));
  }
  WHET_RETURN_IF_ERROR(CheckNotEmpty("generation", ids.generation));
  WHET_RETURN_IF_ERROR(CheckNotEmpty("job_id", ids.job_id));
  WHET_RETURN_IF_ERROR(CheckRange("trial", ids.trial, 0, kMaxCount));
  WHET_RETURN_IF_ERROR(CheckRange("attempt", ids.attempt, 1, 1000));
  return CheckRange("lease_epoch", ids.lease_epoch, 0, INT64_MAX);
}

Status CheckKey(const RecordKey& key) {
  WHET_RETURN_IF_ERROR(CheckText("target", key.target, kMaxTargetBytes, Lines::kOne));
  WHET_RETURN_IF_ERROR(CheckNotEmpty("target", key.target));
  return CheckRange("threads", key.threads, 1, kMaxThreads);
}

Status CheckTimes(const TrialRow& row) {
  if (row.samples_ns.size() > kMaxSamples) {
    return InvalidArgument("{} samples exceed the limit of {}", row.samples_ns.size(), kMaxSamples);
  }
  for (size_t i = 0; i < row.samples_ns.size(); ++i) {
    const double s = row.samples_ns[i];
    if (!std::isfinite(s) || s <= 0 || s > kMaxNs) {
      return InvalidArgument("sample {} is {} ns, outside (0, {}]", i, s, kMaxNs);
    }
  }
  if (row.failure == FailureKind::kOk && row.samples_ns.empty()) {
    return InvalidArgument("a trial that is ok has no samples");
  }
  if (row.baseline_ratio) {
    const double r = *row.baseline_ratio;
    if (!std::isfinite(r) || r <= 0 || r > kMaxRatio) {
      return InvalidArgument("baseline_ratio {} is outside (0, {}]", r, kMaxRatio);
    }
  }
  WHET_RETURN_IF_ERROR(CheckRange("runs_per_sample", row.runs_per_sample, 1, kMaxCount));
  WHET_RETURN_IF_ERROR(CheckRange("rung", row.rung, 0, 100));
  WHET_RETURN_IF_ERROR(CheckRange("build_ns", row.build_ns, 0, INT64_MAX));
  return CheckRange("measure_ns", row.measure_ns, 0, INT64_MAX);
}

}  // namespace

std::string CleanText(std::string_view text, size_t cap) {
  std::string out;
  out.reserve(std::min(text.size(), cap));
  for (size_t i = 0; i < text.size();) {
    const size_t n = Utf8Length(text.substr(i));
    const bool bad = n == 0 || IsControl(text[i]);
    const size_t take = n == 0 ? 1 : n;
    if (out.size() + (bad ? 1 : take) > cap) break;
    if (bad) {
      out += '?';
    } else {
      out += text.substr(i, take);
    }
    i += take;
  }
  return out;
}

Status Normalize(WorkloadRow& row) {
  row.op_summary = CleanText(row.op_summary, kMaxMessageBytes);
  WHET_RETURN_IF_ERROR(CheckNotEmpty("workload text", row.text));
  return CheckText("workload text", row.text, kMaxWorkloadBytes, Lines::kMany);
}

Status Normalize(DeviceRow& row) {
  WHET_RETURN_IF_ERROR(CheckNotEmpty("device_id", row.device_id));
  WHET_RETURN_IF_ERROR(CheckText("device_id", row.device_id, kMaxIdBytes, Lines::kOne));
  WHET_RETURN_IF_ERROR(CheckText("device_key", row.device_key, kMaxIdBytes, Lines::kOne));
  WHET_RETURN_IF_ERROR(CheckText("feature_set", row.feature_set, kMaxTargetBytes, Lines::kOne));
  return CheckJsonObject("identity", row.identity);
}

Status Normalize(JobRow& row) {
  row.error = CleanText(row.error, kMaxMessageBytes);
  WHET_RETURN_IF_ERROR(CheckNotEmpty("job_id", row.job_id));
  WHET_RETURN_IF_ERROR(CheckText("job_id", row.job_id, kMaxIdBytes, Lines::kOne));
  return CheckText("spec", row.spec, kMaxSpecBytes, Lines::kMany);
}

Status Normalize(PlanRow& row) {
  WHET_RETURN_IF_ERROR(CheckNotEmpty("alternative", row.alternative));
  WHET_RETURN_IF_ERROR(CheckText("alternative", row.alternative, kMaxIdBytes, Lines::kOne));
  WHET_RETURN_IF_ERROR(
      CheckRange("number of parts", static_cast<int64_t>(row.parts.size()), 1, kMaxPlanParts));
  std::sort(row.parts.begin(), row.parts.end(),
            [](const auto& a, const auto& b) { return a.workload < b.workload; });
  for (size_t i = 0; i < row.parts.size(); ++i) {
    WHET_RETURN_IF_ERROR(CheckRange("count", row.parts[i].count, 1, kMaxCount));
    if (i > 0 && row.parts[i].workload == row.parts[i - 1].workload)
      return InvalidArgument("workload {} occurs twice", row.parts[i].workload.Hex());
  }
  return OkStatus();
}

Status Normalize(MachineRow& row) {
  WHET_RETURN_IF_ERROR(CheckNotEmpty("figures", row.figures));
  return CheckText("figures", row.figures, kMaxFiguresBytes, Lines::kOne);
}

Status Normalize(TrialRow& row) {
  row.message = CleanText(row.message, kMaxMessageBytes);
  WHET_RETURN_IF_ERROR(CheckKey(row.key));
  WHET_RETURN_IF_ERROR(CheckIds(row.ids));
  WHET_RETURN_IF_ERROR(CheckText("trace", row.trace, kMaxTraceBytes, Lines::kMany));
  WHET_RETURN_IF_ERROR(
      CheckText("compiler_version", row.compiler_version, kMaxIdBytes, Lines::kOne));
  WHET_RETURN_IF_ERROR(CheckHash(row.object_hash));
  WHET_RETURN_IF_ERROR(CheckTimes(row));
  if (!row.device_state.empty()) {
    WHET_RETURN_IF_ERROR(CheckJsonObject("device_state", row.device_state));
  }
  row.median_ns = MedianOf(row.samples_ns);
  row.min_ns =
      row.samples_ns.empty() ? 0 : *std::min_element(row.samples_ns.begin(), row.samples_ns.end());
  return OkStatus();
}

}  // namespace whet::db
