#include "db/store/codec.h"

#include <bit>
#include <cstring>
#include <sstream>

namespace whet::db {
namespace {

static_assert(std::endian::native == std::endian::little,
              "samples are stored as they lie in memory");

Cell Name(std::string_view name) { return std::string(name); }
Cell Flag(bool flag) { return int64_t{flag ? 1 : 0}; }

// Hands out a row's cells in order. STRICT tables fix the types; a mismatch is remembered as
// damage.
class CellReader {
 public:
  explicit CellReader(std::vector<Cell> cells) : cells_(std::move(cells)) {}

  std::string Text() { return Take<std::string>({}); }
  int64_t Int() { return Take<int64_t>(0); }
  double Real() { return Take<double>(0); }
  std::string Bytes() { return Take<Blob>({}).bytes; }
  bool NextIsNull() {
    if (next_ >= cells_.size() || !std::holds_alternative<std::monostate>(cells_[next_]))
      return false;
    ++next_;
    return true;
  }
  Fingerprint Print() { return Checked(ParseFingerprint(Text())); }
  template <typename Enum>
  Enum Name(StatusOr<Enum> (*parse)(std::string_view)) {
    return Checked(parse(Text()));
  }
  void Fail(std::string why) {
    if (fault_.ok()) fault_ = DataLoss("column {}: {}", next_, why);
  }
  const Status& fault() const { return fault_; }

 private:
  template <typename T>
  T Take(T fallback) {
    if (next_ < cells_.size()) {
      if (T* value = std::get_if<T>(&cells_[next_++])) return std::move(*value);
    }
    Fail("unexpected type");
    return fallback;
  }
  template <typename T>
  T Checked(StatusOr<T> value) {
    if (value.ok()) return *std::move(value);
    Fail(Message(value.status()));
    return {};
  }

  std::vector<Cell> cells_;
  size_t next_ = 0;
  Status fault_ = OkStatus();
};

std::vector<double> UnpackSamples(CellReader& r) {
  const std::string bytes = r.Bytes();
  if (bytes.size() % sizeof(double) != 0) r.Fail("samples are not whole numbers of 8 bytes");
  std::vector<double> out(bytes.size() / sizeof(double));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(double));
  return out;
}

}  // namespace

std::string PackSamples(const std::vector<double>& samples) {
  std::string bytes(samples.size() * sizeof(double), '\0');
  if (!samples.empty()) std::memcpy(bytes.data(), samples.data(), bytes.size());
  return bytes;
}

std::vector<Cell> ToCells(const WorkloadRow& row) {
  return {row.fingerprint().Hex(), row.text, row.op_summary};
}

std::vector<Cell> TargetCells(const std::string& text) { return {FingerprintOf(text).Hex(), text}; }

std::vector<Cell> ToCells(const DeviceRow& row) {
  return {row.fingerprint().Hex(), row.device_id, row.device_key, row.feature_set, row.identity};
}

std::vector<Cell> ToCells(const JobRow& row) {
  return {row.job_id,    Name(JobStateName(row.state)), row.spec, row.error, row.created_ms,
          row.updated_ms};
}

std::vector<Cell> ToCells(const PlanRow& row) {
  std::string parts;
  for (const PlanRow::Part& p : row.parts)
    parts += fmt::format("{} {}\n", p.workload.Hex(), p.count);
  return {row.region.Hex(), row.alternative, std::move(parts), row.created_ms};
}

std::vector<Cell> ToCells(const MachineRow& row) {
  return {row.device.Hex(), row.figures, row.created_ms};
}

std::vector<Cell> ToCells(const TrialRow& row) {
  return {row.seq,
          row.key.Task().Hex(),
          row.key.workload.Hex(),
          FingerprintOf(row.key.target).Hex(),
          int64_t{row.key.threads},
          Name(CacheModeName(row.key.cache_mode)),
          row.ids.generation,
          row.ids.job_id,
          row.ids.trial,
          row.ids.attempt,
          row.ids.incarnation,
          row.ids.lease_epoch,
          row.ids.worker_id,
          row.ids.boot_id,
          row.ids.device_id,
          Name(TrialStatusName(row.status)),
          row.device ? Cell(row.device->Hex()) : Cell(),
          row.trace,
          row.trace_fingerprint().Hex(),
          row.initial_program.Hex(),
          row.codegen_version,
          row.compiler_version,
          row.object_hash,
          Flag(row.is_default),
          Name(FailureName(row.failure)),
          row.message,
          Blob{PackSamples(row.samples_ns)},
          row.median_ns,
          row.min_ns,
          Flag(row.contended),
          row.baseline_ratio ? Cell(*row.baseline_ratio) : Cell(),
          static_cast<int64_t>(row.input_seed),
          int64_t{row.sandbox_bits},
          Name(ExecClassName(row.exec_class)),
          row.device_state,
          row.created_ms,
          Name(OriginName(row.origin)),
          int64_t{row.rung},
          row.runs_per_sample,
          row.build_ns,
          row.measure_ns};
}

StatusOr<WorkloadRow> WorkloadFrom(std::vector<Cell> cells) {
  CellReader r(std::move(cells));
  const Fingerprint print = r.Print();
  WorkloadRow row;
  row.text = r.Text();
  row.op_summary = r.Text();
  if (print != row.fingerprint()) r.Fail("fingerprint differs from the text's");
  if (!r.fault().ok()) return r.fault();
  return row;
}

StatusOr<DeviceRow> DeviceFrom(std::vector<Cell> cells) {
  CellReader r(std::move(cells));
  const Fingerprint print = r.Print();
  DeviceRow row;
  row.device_id = r.Text();
  row.device_key = r.Text();
  row.feature_set = r.Text();
  row.identity = r.Text();
  if (print != row.fingerprint()) r.Fail("fingerprint differs from the device's");
  if (!r.fault().ok()) return r.fault();
  return row;
}

StatusOr<JobRow> JobFrom(std::vector<Cell> cells) {
  CellReader r(std::move(cells));
  JobRow row;
  row.job_id = r.Text();
  row.state = r.Name(ParseJobState);
  row.spec = r.Text();
  row.error = r.Text();
  row.created_ms = r.Int();
  row.updated_ms = r.Int();
  if (!r.fault().ok()) return r.fault();
  return row;
}

StatusOr<MachineRow> MachineFrom(std::vector<Cell> cells) {
  CellReader r(std::move(cells));
  MachineRow row;
  row.device = r.Print();
  row.figures = r.Text();
  row.created_ms = r.Int();
  if (!r.fault().ok()) return r.fault();
  return row;
}

StatusOr<PlanRow> PlanFrom(std::vector<Cell> cells) {
  CellReader r(std::move(cells));
  PlanRow row;
  row.region = r.Print();
  row.alternative = r.Text();
  std::istringstream parts(r.Text());
  std::string workload;
  int64_t count = 0;
  while (parts >> workload >> count) {
    StatusOr<Fingerprint> print = ParseFingerprint(workload);
    if (!print.ok()) return DataLoss("plan of {}: {}", row.region.Hex(), Message(print.status()));
    row.parts.push_back({*print, count});
  }
  if (!parts.eof()) r.Fail("a part is no workload and count");
  row.created_ms = r.Int();
  if (!r.fault().ok()) return r.fault();
  return row;
}

StatusOr<TrialRow> TrialFrom(std::vector<Cell> cells, const std::string& target) {
  CellReader r(std::move(cells));
  TrialRow row;
  row.seq = r.Int();
  const Fingerprint task = r.Print();
  row.key.workload = r.Print();
  const Fingerprint target_print = r.Print();
  row.key.target = target;
  row.key.threads = static_cast<int>(r.Int());
  row.key.cache_mode = r.Name(ParseCacheMode);
  row.ids.generation = r.Text();
  row.ids.job_id = r.Text();
  row.ids.trial = r.Int();
  row.ids.attempt = r.Int();
  row.ids.incarnation = r.Text();
  row.ids.lease_epoch = r.Int();
  row.ids.worker_id = r.Text();
  row.ids.boot_id = r.Text();
  row.ids.device_id = r.Text();
  row.status = r.Name(ParseTrialStatus);
  if (!r.NextIsNull()) row.device = r.Print();
  row.trace = r.Text();
  const Fingerprint trace_print = r.Print();
  row.initial_program = r.Print();
  row.codegen_version = r.Int();
  row.compiler_version = r.Text();
  row.object_hash = r.Text();
  row.is_default = r.Int() != 0;
  row.failure = FailureFromName(r.Text());
  row.message = r.Text();
  row.samples_ns = UnpackSamples(r);
  row.median_ns = r.Real();
  row.min_ns = r.Real();
  row.contended = r.Int() != 0;
  if (!r.NextIsNull()) row.baseline_ratio = r.Real();
  row.input_seed = static_cast<uint64_t>(r.Int());
  row.sandbox_bits = static_cast<uint32_t>(r.Int());
  row.exec_class = r.Name(ParseExecClass);
  row.device_state = r.Text();
  row.created_ms = r.Int();
  row.origin = r.Name(ParseOrigin);
  row.rung = static_cast<int>(r.Int());
  row.runs_per_sample = r.Int();
  row.build_ns = r.Int();
  row.measure_ns = r.Int();
  const bool agrees = task == row.key.Task() && trace_print == row.trace_fingerprint() &&
                      target_print == FingerprintOf(target);
  if (!agrees) r.Fail("fingerprints differ from the texts'");
  if (!r.fault().ok()) return r.fault();
  return row;
}

}  // namespace whet::db
