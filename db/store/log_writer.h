// The single-threaded heart of the writer: owns the lock, the writing connection and the high-water
// file, and turns a batch of rows into one durable transaction. TuningLog puts a queue and a thread
// around it. Not thread-safe. Internal to db/store.
#pragma once
#include <istream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "db/record/retention.h"
#include "db/store/file_guard.h"
#include "db/store/identify.h"
#include "db/store/sqlite.h"
#include "db/store/tuning_log.h"

namespace whet::db {

class LogWriter {
 public:
  static StatusOr<std::unique_ptr<LogWriter>> Open(const std::string& path,
                                                   const WriterOptions& options);
  // Brings what was committed into the database file: people copy that one alone. (SQLite would do
  // so for the last connection only, and readers may be open.)
  ~LogWriter();

  // Commits all rows or none. An error of the batch (disk, damage) is the return value; an error of
  // one row (a missing reference) is in its place and leaves the others alone.
  StatusOr<std::vector<StatusOr<AppendVerdict>>> Commit(std::span<const Row* const> rows);

  StatusOr<ImportReport> Import(std::istream& in, const std::string& name);

  // One transaction: forgets these traces, except those that a row after `as_of_seq` speaks of; the
  // number of trials that went. Results of their jobs that come yet are late, since the log can no
  // longer tell a resend.
  StatusOr<int64_t> Forget(std::span<const ForgottenTrace> traces, int64_t as_of_seq);
  // The same for closed jobs, which up to `as_of_seq` have no trial.
  StatusOr<int64_t> ForgetJobs(const std::set<std::string>& jobs, int64_t as_of_seq);
  // Gives the room of what was forgotten back to the disk. Not in a transaction.
  Status Shrink();

  Status Probe();  // one small commit: is there room again?
  Status SetPageLimit(int64_t pages);

  const std::string& path() const { return db_.path(); }
  const LogMeta& meta() const { return meta_; }

 private:
  LogWriter(OwnedFd lock, Connection db, HighWaterFile high_water, int64_t journal_limit)
      : journal_limit_(journal_limit),
        lock_(std::move(lock)),
        db_(std::move(db)),
        high_water_(std::move(high_water)) {}

  Status Prepare();
  Status Salvage(const std::string& lost);
  Status SetMeta(const std::string& name, const std::string& value);
  // ResourceExhausted while a reader keeps the write-ahead log from being emptied beyond its limit.
  Status BoundJournal();

  // Everything between Begin and Finish is one transaction; Finish makes it durable and
  // acknowledgeable.
  Status Begin();
  Status Finish();
  void Abandon();

  StatusOr<AppendVerdict> Apply(const WorkloadRow& row);
  StatusOr<AppendVerdict> Apply(const DeviceRow& row);
  StatusOr<AppendVerdict> Apply(const JobRow& row);
  StatusOr<AppendVerdict> Apply(const PlanRow& row);
  StatusOr<AppendVerdict> Apply(const MachineRow& row);
  StatusOr<AppendVerdict> Apply(const TrialRow& row);
  StatusOr<AppendVerdict> ApplyImported(Row row);
  StatusOr<AppendVerdict> InsertTrial(TrialRow row);
  StatusOr<bool> IsStale(const TrialRow& row);
  Status MissingReference(const TrialRow& row);
  StatusOr<std::set<std::pair<std::string, std::string>>> TracesAfter(int64_t seq);
  Status BuryForgotten(int64_t first, int64_t last);
  StatusOr<bool> Exists(const char* table, const char* column, const Cell& value);
  StatusOr<std::optional<PlanRow>> FindPlan(const PlanRow& row);

  const int64_t journal_limit_;  // bytes
  OwnedFd lock_;
  Connection db_;
  HighWaterFile high_water_;
  LogMeta meta_;                          // as committed
  LogMeta next_meta_;                     // as of the open transaction
  std::set<std::string> targets_;         // texts known to be in the log
  std::vector<std::string> new_targets_;  // of the open transaction

  Statement put_meta_, put_workload_, put_target_, put_device_, put_job_, put_trial_;
  Statement find_trial_, find_stale_, find_pruned_, find_job_, find_plan_, put_plan_, put_machine_;
};

// The meta row that says that trials of a job were forgotten.
std::string PrunedMark(const std::string& job_id);

}  // namespace whet::db
