// The tuning log: one SQLite file that keeps every measurement. Two faces:
//
//   TuningLog  the one writer (tuner-server, or an embedded server). Append queues a row; a writer
//   thread
//              commits many rows in one transaction and reports each row only once it is durable
//              (commit with synchronous=FULL, then the high-water file, both synced).
//   LogReader  any number of readers in any process (whet compile, whet log, the search of a
//   server).
//
// Invariants: exactly one connection of all processes writes and checkpoints (the lock file sees to
// it; SQLite up to 3.51.2 can corrupt a write-ahead log that two connections reset); readers never
// write and their transactions are short; a file that is not a tuning log is refused and stays as
// it is; damage is reported, never repaired; a full disk makes the log read-only until there is
// room, by itself.
//
// Both classes are thread-safe. Callbacks run on the writer thread: they must be quick and must not
// wait for the log.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "db/record/best.h"
#include "db/record/record.h"
#include "db/record/retention.h"

namespace whet::db {

struct AppendVerdict {
  int64_t seq = 0;                             // of the trial; 0 for other rows
  TrialStatus status = TrialStatus::kCounted;  // kLate: stored, but not evidence
  // The row was there already; seq and status are those of the first delivery.
  enum class Delivery { kFirst, kRepeated } delivery = Delivery::kFirst;
};
using AppendCallback = std::function<void(const StatusOr<AppendVerdict>&)>;

struct WriterOptions {
  size_t queue_rows = 4096;
  size_t queue_bytes = 64u << 20;
  size_t batch_rows = 512;  // one commit; bounds the latency of the first row of a batch
  // Cap on the file, in pages of 4 KiB; reaching it is a full disk. 0: none.
  int64_t page_limit = 0;
  // The write-ahead log goes into the file whenever it has this many pages. Beyond `journal_limit`
  // bytes, which only a reader that never ends its transaction brings about, the log is read-only
  // until that reader is gone.
  int64_t checkpoint_pages = 1000;
  int64_t journal_limit = int64_t{256} << 20;
  std::chrono::milliseconds full_retry{1000};
  // A log that ends before what was acknowledged has lost its tail (a file restored from a copy, a
  // disk that lied). kSalvage goes on with what is there: the gap becomes a tombstone and the log
  // gets a new generation, so that results given out under the old one come in late.
  enum class LostTail { kRefuse, kSalvage } lost_tail = LostTail::kRefuse;
  std::string program = "whet";  // kept as written_by
};

struct ImportReport {
  int64_t lines = 0;
  int64_t added = 0;
  int64_t repeated = 0;  // rows that the log had already
};

struct PruneOptions {
  Retention limits;
  int64_t now_ms = 0;        // wall clock, for the age of trials
  int64_t most = INT64_MAX;  // trials to forget in this call, about
  enum class Room { kReuse, kGiveBack } room = Room::kReuse;  // kGiveBack rewrites the file
};

struct PruneReport {
  int64_t forgotten = 0;  // trials
  int64_t forgotten_jobs = 0;
  int64_t kept = 0;        // trials
  int64_t kept_bytes = 0;  // as StoredBytes counts; may be above the limit: some must stay
  int64_t damaged = 0;     // rows that were passed over: damage is not forgotten
  bool more = false;       // `most` was reached
  Status shrunk;           // why the file did not get smaller, for kGiveBack
};

class TuningLog {
 public:
  // Creates the log if there is none; migrates an older schema, after a backup beside it
  // (`<file>.schema<N>.bak`). InvalidArgument: not a tuning log. DataLoss: damaged. Unavailable:
  // another process writes it. FailedPrecondition: a newer schema, or a network file system.
  static StatusOr<std::unique_ptr<TuningLog>> Open(const std::string& path,
                                                   const WriterOptions& options = {});
  ~TuningLog();  // commits what is queued; the file is then whole without those beside it
  TuningLog(const TuningLog&) = delete;
  TuningLog& operator=(const TuningLog&) = delete;

  // Normalizes and queues a row. On an error nothing was queued and `done` is never called:
  // InvalidArgument (bad row), ResourceExhausted (queue or disk full: retry later). Otherwise
  // `done` is called exactly once, after the row is durable or has failed. Rows are committed in
  // the order of the calls; a trial's workload, job and device must be in the log or ahead of it in
  // the queue, else FailedPrecondition.
  Status Append(Row row, AppendCallback done);
  StatusOr<AppendVerdict> AppendWait(Row row);
  Status Flush();  // returns once everything appended before is durable or has failed

  // Adds the rows of an exported file, all or nothing: an error names file and line. Trials come in
  // as Origin::kImported, jobs that were still open as cancelled. Other appends wait meanwhile.
  StatusOr<ImportReport> Import(const std::string& jsonl_path);

  // Forgets trials beyond the limits (record/retention.h), in transactions of some hundred rows
  // between which appends go on. Stops at the first error; what was forgotten by then is.
  StatusOr<PruneReport> Prune(const PruneOptions& options);

  // OK, or why the log is read-only just now.
  Status state() const;
  void SetPageLimit(int64_t pages);

  const std::string& path() const;  // canonical
  const std::string& log_id() const;
  const std::string& generation() const;  // carried in every id given out

 private:
  class Impl;
  explicit TuningLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ReaderOptions {
  // kTail compares the end of the log with the high-water mark; kFull also reads and checks every
  // row and index (about a second for 300 MB), so that no answer can rest on silent damage.
  enum class Check { kTail, kFull } check = Check::kTail;
  std::chrono::milliseconds query_limit{10000};  // for one read transaction
};

struct Damage {
  std::string where;  // "trials row 17", "trials rows 20..25", "file"
  std::string what;
};

struct VerifyReport {
  int64_t rows = 0;
  int64_t damaged = 0;  // all of them; `damage` lists the first 1000
  std::vector<Damage> damage;
  enum class Mark {
    kChecked,
    kAbsent
  } high_water = Mark::kAbsent;  // kAbsent: the tail is unproven
  bool ok() const { return damaged == 0; }
};

// Counts of one task under one code generation and initial program.
struct TaskStats {
  RecordKey key;
  int64_t codegen_version = 0;
  Fingerprint initial_program;
  std::string op_summary;
  int64_t trials = 0;  // counted and measured here; failures below are a part of them
  int64_t late = 0;
  int64_t imported = 0;
  std::array<int64_t, kFailureKinds> by_failure{};
  double default_median_ns = 0;  // of the latest default row; 0 if none
  std::optional<BestChooser::Choice> best;
  double best_median_ns = 0;
  MissReason miss = MissReason::kNone;
  std::string why;
  int64_t first_ms = 0, last_ms = 0;
};

struct LogStats {
  int64_t trials = 0, late = 0, imported = 0;
  std::array<int64_t, kFailureKinds> by_failure{};
  int64_t first_ms = 0, last_ms = 0;
  int64_t damaged_rows = 0;
  int64_t buried = 0;            // numbers of trials that were forgotten or lost, and said so
  int64_t bytes = 0;             // of the file's pages in use
  int64_t free_bytes = 0;        // of pages that the next rows will use
  int64_t journal_bytes = 0;     // of the write-ahead log beside it
  std::vector<TaskStats> tasks;  // in the order of their first trial
};

struct TriedTraces {
  std::set<Fingerprint> traces;
  int64_t damaged_rows = 0;
};

struct Plans {
  std::vector<PlanRow> rows;
  std::map<Fingerprint, WorkloadRow> workloads;  // that they name
  int64_t damaged_rows = 0;                      // left out
};

struct KnownMachine {
  DeviceRow device;
  MachineRow machine;
};

enum class OnDamage { kRefuse, kSkip };

class LogReader {
 public:
  // Opens read-only. NotFound: no such file. InvalidArgument, DataLoss, FailedPrecondition as
  // above; an older schema is refused too, with the way to migrate it.
  static StatusOr<std::unique_ptr<LogReader>> Open(const std::string& path,
                                                   const ReaderOptions& options = {});
  ~LogReader();
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // Damage found when the log was opened, in words to print. Not empty: answers may lack rows.
  const std::vector<std::string>& warnings() const;
  const std::string& log_id() const;
  const std::string& generation() const;

  StatusOr<Best> FindBest(const BestQuery& query);

  // Traces that need no further trial: counted and measured here under the same code generation and
  // initial program, and not merely lost with a device (those count after three attempts).
  StatusOr<TriedTraces> Tried(const RecordKey& key, int64_t codegen_version,
                              const Fingerprint& initial_program);

  // Calls `visit` with every whole row (of `key`, if given) in order of seq until it returns false,
  // in short transactions: rows that are appended meanwhile may or may not be seen. Returns the
  // number of damaged rows that were passed over.
  StatusOr<int64_t> ForEachTrial(const RecordKey* key,
                                 const std::function<bool(const TrialRow&)>& visit);

  StatusOr<LogStats> Stats();
  StatusOr<TrialRow> Trial(int64_t seq);  // NotFound, DataLoss
  StatusOr<WorkloadRow> Workload(const Fingerprint& fingerprint);
  StatusOr<DeviceRow> Device(const Fingerprint& fingerprint);
  StatusOr<JobRow> Job(const std::string& job_id);
  // By creation. With kRefuse a damaged one is DataLoss, with kSkip it is left out.
  StatusOr<std::vector<JobRow>> Jobs(OnDamage on_damage = OnDamage::kRefuse);
  // Of one region, or of all; by region, then alternative. Plans of which a row is damaged, their
  // own or a workload's, are left out.
  StatusOr<Plans> FindPlans(const std::optional<Fingerprint>& region = std::nullopt);

  // Boards whose speed was measured, the first one first; damaged rows are left out.
  StatusOr<std::vector<KnownMachine>> Machines();
  // The figures of the first board of this instruction set; empty: none was measured.
  StatusOr<std::string> FiguresOf(const std::string& feature_set);

  StatusOr<VerifyReport> Verify();

  // Writes the log as JSON Lines (record/jsonl.h); returns the number of rows. With kRefuse a
  // damaged row is DataLoss that names it, with kSkip it is left out.
  StatusOr<int64_t> Export(std::ostream& out, OnDamage on_damage);

 private:
  class Impl;
  Status CountRoom(LogStats& stats);
  explicit LogReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace whet::db
