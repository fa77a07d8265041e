// What the tuning log keeps: workloads, devices, jobs, plans and trials, as plain values. A trial
// is one measured (or failed) candidate. Values only; no I/O here; safe to copy between threads.
//
// A record is found by its RecordKey (workload, target feature set, threads, cache mode) and is
// used only under the same codegen_version and the same digest of the initial loop program, else
// the miss has a name (best.h). Units are in the names; every duration comes from a monotonic
// clock; created_ms is the wall clock, for information only, and decides nothing.
//
// Every string that comes from a peer is data: capped, UTF-8, without control characters.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"

namespace whet::db {

// What became of a trial. Only kDeviceLost and kInfrastructure are worth a retry: they say nothing
// about the candidate.
enum class FailureKind {
  kOk,
  kBuildError,  // lowering, code generation or linking refused it
  kBuildTimeout,
  kRunCrash,
  kRunTimeout,
  kWrongOutput,
  kInvalidTiming,  // ran, but the samples cannot be believed
  kRejected,       // a hard constraint or a limit, before it ran
  kPoisoned,       // gave up after repeated losses of the device
  kDeviceLost,
  kInfrastructure,
  kNotRunnable,  // made for another processor than the device's: it was never started
  kUnknown,
};
inline constexpr int kFailureKinds = static_cast<int>(FailureKind::kUnknown) + 1;
std::string_view FailureName(FailureKind kind);
FailureKind FailureFromName(std::string_view name);  // kUnknown for a name that this release lacks
bool IsRetried(FailureKind kind);

// What a kernel found in the caches when it was timed. kTurns: inputs and outputs as the run before
// left them, weights from beyond the second-level cache, as a network finds them; kWarm: all as the
// run before left it.
enum class CacheMode { kWarm, kCold, kTurns };
std::string_view CacheModeName(CacheMode mode);

// kCounted rows are evidence; kLate rows came under a lease, attempt or log generation that no
// longer held and are kept for the reader only.
enum class TrialStatus { kCounted, kLate };
std::string_view TrialStatusName(TrialStatus status);

// kImported rows came out of a file: they seed a search and never win until measured here.
enum class Origin { kMeasured, kImported };
std::string_view OriginName(Origin origin);

// Emulated devices prove code generation and protocol; their times are never compared.
enum class ExecClass { kNative, kEmulated };
std::string_view ExecClassName(ExecClass c);

enum class JobState { kQueued, kRunning, kDone, kFailed, kCancelled, kNoDevice };
std::string_view JobStateName(JobState state);
bool IsTerminal(JobState state);

// Parse one of the names above; InvalidArgument lists the names that exist.
StatusOr<FailureKind> ParseFailure(std::string_view name);
StatusOr<CacheMode> ParseCacheMode(std::string_view name);
StatusOr<TrialStatus> ParseTrialStatus(std::string_view name);
StatusOr<Origin> ParseOrigin(std::string_view name);
StatusOr<ExecClass> ParseExecClass(std::string_view name);
StatusOr<JobState> ParseJobState(std::string_view name);

struct RecordKey {
  Fingerprint workload;  // of the workload's canonical text
  std::string target;    // canonical target text: the feature set, not a board
  int threads = 1;
  CacheMode cache_mode = CacheMode::kTurns;
  friend bool operator==(const RecordKey&, const RecordKey&) = default;
  Fingerprint Task() const;  // one fingerprint of all four: what search calls a task
};

struct WorkloadRow {
  std::string text;        // canonical; its fingerprint is the row's key
  std::string op_summary;  // for people, e.g. "conv2d 1x96x32x32 -> 1x96x32x32, relu"
  Fingerprint fingerprint() const { return FingerprintOf(text); }
};

// The exact board a trial ran on. A changed driver, clock or kernel is another row of one
// device_id.
struct DeviceRow {
  std::string device_id;    // kept by the worker in its state directory
  std::string device_key;   // what users ask for, e.g. "rpi4"
  std::string identity;     // JSON object: triple, features, caches, cores, governor, SKU, driver
  std::string feature_set;  // canonical target text that the device reports
  Fingerprint fingerprint() const;
};

struct JobRow {
  std::string job_id;
  JobState state = JobState::kQueued;  // a terminal state is final
  std::string spec;                    // what was asked, opaque here; enough to resume the job
  std::string error;                   // words for kFailed and kNoDevice
  int64_t created_ms = 0;
  int64_t updated_ms = 0;
};

// One way to compute a region: what it consists of, not how long that takes (trials say). A region
// is a network (the structure of its graph) or a fused workload, by fingerprint, so that whoever
// has the same one shares the row. The alternatives of a region are its rows; see plan.h for the
// choice.
struct PlanRow {
  Fingerprint region;
  std::string alternative;  // unique within the region, e.g. "selected", "channels-last", "split"
  struct Part {
    Fingerprint workload;
    int64_t count = 0;  // how often one run of the region runs it
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Part> parts;  // by workload, each once
  int64_t created_ms = 0;
};

// Who measured what under which authority. (generation, job, task, trial, attempt, incarnation,
// device_id, lease_epoch) is unique in a log: a resend finds the first verdict.
struct TrialIds {
  std::string generation;  // of the log that gave out the trial
  std::string job_id;
  int64_t trial = 0;        // number within (job, task)
  int64_t attempt = 1;      // counts up when a trial is given out again
  std::string incarnation;  // of the tracker that granted the lease; empty before any lease
  int64_t lease_epoch = 0;
  std::string worker_id;
  std::string boot_id;
  std::string device_id;
};

struct TrialRow {
  // Set by the log; what a caller puts here is ignored.
  int64_t seq = 0;
  double median_ns = 0;  // of the samples, 0 without any
  double min_ns = 0;

  RecordKey key;
  TrialIds ids;
  TrialStatus status = TrialStatus::kCounted;  // a caller may only lower it to kLate
  Origin origin = Origin::kMeasured;
  std::optional<Fingerprint> device;  // DeviceRow of the exact board; none if it never ran

  std::string trace;            // schedule, canonical text
  Fingerprint initial_program;  // digest of the loop program that the trace starts from
  int64_t codegen_version = 0;  // records outlive releases, not a change of code generation
  std::string compiler_version;
  std::string object_hash;  // SHA-256 of the candidate, hex; empty if none was built
  bool is_default = false;  // the default schedule's own row

  FailureKind failure = FailureKind::kOk;
  std::string message;             // of a failure; cut to 1 KiB, cleaned
  std::vector<double> samples_ns;  // per run
  int64_t runs_per_sample = 1;
  int rung = 0;                          // rung of the racing ladder that was reached
  bool contended = false;                // something else ran on the host meanwhile
  std::optional<double> baseline_ratio;  // median of the pairs candidate / default on this device
  uint64_t input_seed = 0;
  uint32_t sandbox_bits = 0;
  ExecClass exec_class = ExecClass::kNative;
  std::string device_state;  // JSON object, or empty when nothing could be observed
  int64_t build_ns = 0;
  int64_t measure_ns = 0;  // device time of the whole measurement
  int64_t created_ms = 0;

  Fingerprint trace_fingerprint() const { return FingerprintOf(trace); }
};

// How fast a board is, as its worker measured it, for estimates: figures in the text form of
// compiler/target/machine.h, which is opaque here. The first of a board stay: default schedules
// were chosen, and timed, by them. Nothing is found by them.
struct MachineRow {
  Fingerprint device;  // of its DeviceRow
  std::string figures;
  int64_t created_ms = 0;
};

using Row = std::variant<WorkloadRow, DeviceRow, JobRow, PlanRow, MachineRow, TrialRow>;

// Limits on what a row may hold, and why: they bound a hostile peer or file, far above honest use.
inline constexpr size_t kMaxIdBytes = 256;
inline constexpr size_t kMaxMessageBytes = 1024;
inline constexpr size_t kMaxTargetBytes = 8 << 10;
inline constexpr size_t kMaxJsonBytes = 16 << 10;
inline constexpr size_t kMaxTraceBytes = 256 << 10;
inline constexpr size_t kMaxWorkloadBytes = 1 << 20;
inline constexpr size_t kMaxSpecBytes = 1 << 20;
inline constexpr size_t kMaxSamples = 4096;
inline constexpr size_t kMaxPlanParts = 10'000;
inline constexpr size_t kMaxFiguresBytes = 1024;

// Puts a row into the form that is stored (derived values, cleaned and cut message) and checks
// every limit: InvalidArgument names the field, the value and the bound.
Status Normalize(WorkloadRow& row);
Status Normalize(DeviceRow& row);
Status Normalize(JobRow& row);
Status Normalize(PlanRow& row);
Status Normalize(MachineRow& row);
Status Normalize(TrialRow& row);

// Text as data: control characters other than tab and newline and malformed UTF-8 become '?', and
// the result is cut to `cap` bytes at a character's edge.
std::string CleanText(std::string_view text, size_t cap);

double MedianOf(std::vector<double> values);  // 0 for none

}  // namespace whet::db
