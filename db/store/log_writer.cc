#include "db/store/log_writer.h"

#include "db/record/jsonl.h"
#include "db/store/codec.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

constexpr int64_t kPageBytes = 4096;

// An error that concerns one row only; every other one spoils the transaction.
bool IsOfRow(const Status& status) { return absl::IsFailedPrecondition(status); }

Status Configure(Connection& db, const WriterOptions& options) {
  WHET_ASSIGN_OR_RETURN(const std::string mode, db.QueryText("PRAGMA journal_mode=WAL"));
  if (mode != "wal") {
    return FailedPrecondition(
        "tuning log '{}': this file system offers no write-ahead log (mode '{}')", db.path(), mode);
  }
  WHET_RETURN_IF_ERROR(db.Exec(fmt::format(
      "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint={}; PRAGMA journal_size_limit={}",
      options.checkpoint_pages, 16 * options.checkpoint_pages * kPageBytes)));
  return OkStatus();
}

Status CreateTables(Connection& db, const WriterOptions& options) {
  WHET_RETURN_IF_ERROR(db.Exec("BEGIN IMMEDIATE"));
  WHET_RETURN_IF_ERROR(db.Exec(std::string(SchemaSql(kSchemaVersion))));
  const std::pair<std::string, std::string> values[] = {{"log_id", NewId()},
                                                        {"generation", NewId()},
                                                        {"created_ms", std::to_string(WallMs())},
                                                        {"written_by", options.program},
                                                        {"commit", "0"}};
  for (const auto& [name, value] : values) WHET_RETURN_IF_ERROR(PutMeta(db, name, value));
  return db.Exec("COMMIT");
}

Status CheckPages(Connection& db) {
  WHET_ASSIGN_OR_RETURN(const std::string check, db.QueryText("PRAGMA quick_check(1)"));
  if (check == "ok") return OkStatus();
  return DataLoss(
      "tuning log '{}' is damaged: {}; restore a backup, or go on with the rows that are whole: "
      "`whet log salvage --db {}`",
      db.path(), CleanText(check, 300), db.path());
}

// An empty log, whole under another name before it gets its own: whenever the power fails, there is
// a log or none.
Status CreateLog(const std::string& path, const WriterOptions& options) {
  const std::string fresh = path + ".new";
  RemoveLogFiles(fresh);  // of a creation that was cut short
  {
    WHET_ASSIGN_OR_RETURN(Connection db, Connection::Open(fresh, OpenMode::kCreate));
    WHET_RETURN_IF_ERROR(Configure(db, options));
    WHET_RETURN_IF_ERROR(CreateTables(db, options));
    WHET_RETURN_IF_ERROR(db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"));
  }
  // What SQLite left beside a file that is gone would be taken for the new one's.
  RemoveLogFiles(path);
  WHET_RETURN_IF_ERROR(SyncFolderOf(path));
  return RenameFile(fresh, path);
}

// The writing connection to a file that is known to be a log or nothing at all.
StatusOr<Connection> OpenForWriting(const std::string& path, const WriterOptions& options) {
  WHET_ASSIGN_OR_RETURN(Connection db, Connection::Open(path, OpenMode::kCreate));
  WHET_ASSIGN_OR_RETURN(const int version, IdentifyLog(db));
  WHET_RETURN_IF_ERROR(CheckPages(db));
  WHET_RETURN_IF_ERROR(Configure(db, options));
  if (version == 0) {  // an earlier release's creation that was cut short
    WHET_RETURN_IF_ERROR(CreateTables(db, options));
    WHET_RETURN_IF_ERROR(SyncFolderOf(path));
  } else {
    WHET_RETURN_IF_ERROR(Migrate(db, version));
  }
  return db;
}

}  // namespace

LogWriter::~LogWriter() {
  // A reader in the middle of something keeps the log beside the file from being emptied, no more.
  const Status ignored = db_.Exec("PRAGMA busy_timeout=200; PRAGMA wal_checkpoint(TRUNCATE)");
  ignored.IgnoreError();
}

StatusOr<std::unique_ptr<LogWriter>> LogWriter::Open(const std::string& given_path,
                                                     const WriterOptions& options) {
  WHET_ASSIGN_OR_RETURN(const std::string path, CanonicalPath(given_path));
  WHET_RETURN_IF_ERROR(RefuseNetworkFileSystem(path));
  WHET_ASSIGN_OR_RETURN(FileState state, LookAt(path));
  if (state == FileState::kFilled && !HasJournalOfOurs(path)) {
    // Before anything is created beside the file: is it ours at all?
    WHET_ASSIGN_OR_RETURN(Connection look, OpenForReading(path));
    WHET_RETURN_IF_ERROR(IdentifyLog(look).status());
  }
  WHET_ASSIGN_OR_RETURN(OwnedFd lock, LockForWriting(path));
  const std::optional<HighWater> mark = HighWaterFile::Read(path);
  WHET_ASSIGN_OR_RETURN(state, LookAt(path));  // as the lock's last holder left it
  if (state != FileState::kFilled) {
    if (mark && mark->seq > 0 && options.lost_tail == WriterOptions::LostTail::kRefuse) {
      return DataLoss(
          "tuning log '{}' is gone: {} trial rows were acknowledged here; restore a backup (`whet "
          "log restore`), or remove '{}' to begin a new log",
          path, mark->seq, HighWaterFile::PathFor(path));
    }
    WHET_RETURN_IF_ERROR(CreateLog(path, options));
  }
  WHET_ASSIGN_OR_RETURN(Connection db, OpenForWriting(path, options));
  WHET_ASSIGN_OR_RETURN(HighWaterFile high_water, HighWaterFile::Open(path));
  std::unique_ptr<LogWriter> writer(
      new LogWriter(std::move(lock), std::move(db), std::move(high_water), options.journal_limit));
  WHET_RETURN_IF_ERROR(writer->Prepare());
  if (const auto lost = LostTailOf(writer->meta_, mark)) {
    if (options.lost_tail == WriterOptions::LostTail::kRefuse) {
      return DataLoss(
          "tuning log '{}': {}; restore the newer file, or go on with what is there: `whet log "
          "salvage --db {}`",
          path, *lost, path);
    }
    writer->next_meta_.last_seq = std::max(mark->seq, writer->meta_.last_seq);
    writer->next_meta_.commit = std::max(mark->commit, writer->meta_.commit);
    WHET_RETURN_IF_ERROR(writer->Salvage(*lost));
  }
  WHET_RETURN_IF_ERROR(writer->SetPageLimit(options.page_limit));
  // Both slots must speak of this log, not of one that lay here before.
  for (int slot = 0; slot < 2; ++slot) {
    const LogMeta& m = writer->meta_;
    WHET_RETURN_IF_ERROR(writer->high_water_.Write({m.generation, m.last_seq, m.commit}));
  }
  return writer;
}

Status LogWriter::Prepare() {
  WHET_ASSIGN_OR_RETURN(meta_, ReadMeta(db_));
  next_meta_ = meta_;
  const auto prepare = [&](Statement& s, const std::string& sql) -> Status {
    WHET_ASSIGN_OR_RETURN(s, db_.Prepare(sql));
    return OkStatus();
  };
  WHET_RETURN_IF_ERROR(prepare(put_meta_, InsertSql(MetaTable(), "INSERT OR REPLACE")));
  WHET_RETURN_IF_ERROR(prepare(put_workload_, InsertSql(WorkloadsTable(), "INSERT")));
  WHET_RETURN_IF_ERROR(prepare(put_target_, InsertSql(TargetsTable(), "INSERT OR IGNORE")));
  WHET_RETURN_IF_ERROR(prepare(put_device_, InsertSql(DevicesTable(), "INSERT")));
  WHET_RETURN_IF_ERROR(prepare(put_trial_, InsertSql(TrialsTable(), "INSERT")));
  WHET_RETURN_IF_ERROR(prepare(
      put_job_, InsertSql(JobsTable(), "INSERT") +
                    " ON CONFLICT(job_id) DO UPDATE SET state=excluded.state, spec=excluded.spec, "
                    "error=excluded.error, created_ms=excluded.created_ms, "
                    "updated_ms=excluded.updated_ms, crc=excluded.crc"));
  WHET_RETURN_IF_ERROR(prepare(find_trial_,
                               "SELECT seq, status FROM trials WHERE generation=? AND job_id=? AND "
                               "task=? AND trial=? AND attempt=? "
                               "AND incarnation=? AND device_id=? AND lease_epoch=?"));
  WHET_RETURN_IF_ERROR(
      prepare(find_stale_,
              "SELECT 1 FROM trials WHERE generation=?1 AND job_id=?2 AND task=?3 AND trial=?4 AND "
              "(attempt>?5 OR (attempt=?5 AND status='counted')) LIMIT 1"));
  WHET_RETURN_IF_ERROR(prepare(find_pruned_, "SELECT 1 FROM meta WHERE name=?"));
  WHET_RETURN_IF_ERROR(
      prepare(find_plan_, SelectSql(PlansTable(), "WHERE region=? AND alternative=?")));
  WHET_RETURN_IF_ERROR(prepare(put_plan_, InsertSql(PlansTable(), "INSERT OR REPLACE")));
  WHET_RETURN_IF_ERROR(prepare(put_machine_, InsertSql(MachinesTable(), "INSERT")));
  return prepare(find_job_, SelectSql(JobsTable(), "WHERE job_id=?"));
}

Status LogWriter::SetPageLimit(int64_t pages) {
  // SQLite's own ceiling stands for "none".
  const int64_t limit = pages > 0 ? pages : int64_t{1073741823};
  return db_.Exec(fmt::format("PRAGMA max_page_count={}", limit));
}

Status LogWriter::SetMeta(const std::string& name, const std::string& value) {
  const std::vector<Cell> cells = WithCrc(MetaTable(), {name, value});
  put_meta_.BindAll(cells);
  return put_meta_.Run();
}

Status LogWriter::Salvage(const std::string& lost) {
  WHET_RETURN_IF_ERROR(db_.Exec("BEGIN IMMEDIATE"));
  if (next_meta_.last_seq > meta_.last_seq) {
    WHET_RETURN_IF_ERROR(Bury(db_, meta_.last_seq + 1, next_meta_.last_seq, "salvage: " + lost));
  }
  next_meta_.generation = NewId();
  WHET_RETURN_IF_ERROR(SetMeta("generation", next_meta_.generation));
  return Finish();
}

Status LogWriter::BoundJournal() {
  if (db_.JournalBytes() <= journal_limit_) return OkStatus();
  // Empty it, if no reader is in the middle of something just now.
  WHET_RETURN_IF_ERROR(db_.Exec("PRAGMA busy_timeout=0"));
  const Status emptied = db_.Exec("PRAGMA wal_checkpoint(TRUNCATE)");
  WHET_RETURN_IF_ERROR(db_.Exec("PRAGMA busy_timeout=5000"));
  const int64_t bytes = db_.JournalBytes();
  if (bytes <= journal_limit_) return OkStatus();
  return ResourceExhausted(
      "tuning log '{}': its write-ahead log has {} bytes, the limit is {}: another process reads "
      "in one transaction for too long, or the disk is full; `fuser {}-wal` names the readers",
      db_.path(), bytes, journal_limit_, db_.path());
}

Status LogWriter::Shrink() {
  WHET_RETURN_IF_ERROR(db_.Vacuum());
  return db_.Exec("PRAGMA wal_checkpoint(TRUNCATE)");
}

Status LogWriter::Begin() {
  WHET_RETURN_IF_ERROR(BoundJournal());
  next_meta_ = meta_;
  new_targets_.clear();
  return db_.Exec("BEGIN IMMEDIATE");
}

Status LogWriter::Finish() {
  ++next_meta_.commit;
  WHET_RETURN_IF_ERROR(SetMeta("commit", std::to_string(next_meta_.commit)));
  WHET_RETURN_IF_ERROR(db_.Exec("COMMIT"));
  meta_ = next_meta_;
  targets_.insert(new_targets_.begin(), new_targets_.end());
  return high_water_.Write({meta_.generation, meta_.last_seq, meta_.commit});
}

void LogWriter::Abandon() { db_.Rollback(); }

StatusOr<std::vector<StatusOr<AppendVerdict>>> LogWriter::Commit(std::span<const Row* const> rows) {
  WHET_RETURN_IF_ERROR(Begin());
  std::vector<StatusOr<AppendVerdict>> verdicts;
  verdicts.reserve(rows.size());
  for (const Row* row : rows) {
    verdicts.push_back(std::visit([&](const auto& r) { return Apply(r); }, *row));
    const Status& status = verdicts.back().status();
    if (status.ok() || IsOfRow(status)) continue;
    Abandon();
    return status;
  }
  if (const Status finished = Finish(); !finished.ok()) {
    Abandon();
    return finished;
  }
  return verdicts;
}

Status LogWriter::Probe() {
  WHET_RETURN_IF_ERROR(Begin());
  const Status finished = Finish();
  if (!finished.ok()) Abandon();
  return finished;
}

StatusOr<bool> LogWriter::Exists(const char* table, const char* column, const Cell& value) {
  WHET_ASSIGN_OR_RETURN(Statement find,
                        db_.Prepare(fmt::format("SELECT 1 FROM {} WHERE {}=?", table, column)));
  find.Bind(1, value);
  return find.Step();
}

StatusOr<AppendVerdict> LogWriter::Apply(const WorkloadRow& row) {
  WHET_ASSIGN_OR_RETURN(const bool there,
                        Exists("workloads", "fingerprint", Cell(row.fingerprint().Hex())));
  if (there) return AppendVerdict{0, TrialStatus::kCounted, AppendVerdict::Delivery::kRepeated};
  const std::vector<Cell> cells = WithCrc(WorkloadsTable(), ToCells(row));
  put_workload_.BindAll(cells);
  WHET_RETURN_IF_ERROR(put_workload_.Run());
  return AppendVerdict{};
}

StatusOr<AppendVerdict> LogWriter::Apply(const DeviceRow& row) {
  WHET_ASSIGN_OR_RETURN(const bool there,
                        Exists("devices", "fingerprint", Cell(row.fingerprint().Hex())));
  if (there) return AppendVerdict{0, TrialStatus::kCounted, AppendVerdict::Delivery::kRepeated};
  const std::vector<Cell> cells = WithCrc(DevicesTable(), ToCells(row));
  put_device_.BindAll(cells);
  WHET_RETURN_IF_ERROR(put_device_.Run());
  return AppendVerdict{};
}

StatusOr<AppendVerdict> LogWriter::Apply(const JobRow& row) {
  JobRow merged = row;
  const Cell id = row.job_id;
  find_job_.Bind(1, id);
  const StatusOr<bool> there = find_job_.Step();
  auto old_cells = there.ok() && *there ? ReadChecked(JobsTable(), find_job_)
                                        : StatusOr<std::vector<Cell>>(std::vector<Cell>());
  find_job_.Reset();
  WHET_RETURN_IF_ERROR(there.status());
  if (*there) {
    // A damaged job row is not silently overwritten by a good one.
    if (!old_cells.ok()) return FailedPrecondition("{}", Message(old_cells.status()));
    WHET_ASSIGN_OR_RETURN(const JobRow old, JobFrom(*std::move(old_cells)));
    if (IsTerminal(old.state) && old.state != row.state) {
      return FailedPrecondition("job '{}' is already {}, it cannot become {}", row.job_id,
                                JobStateName(old.state), JobStateName(row.state));
    }
    merged.created_ms = old.created_ms;
  }
  const std::vector<Cell> cells = WithCrc(JobsTable(), ToCells(merged));
  put_job_.BindAll(cells);
  WHET_RETURN_IF_ERROR(put_job_.Run());
  return AppendVerdict{
      0, TrialStatus::kCounted,
      *there ? AppendVerdict::Delivery::kRepeated : AppendVerdict::Delivery::kFirst};
}

// A damaged row counts as none: whoever writes plans can always write them again.
StatusOr<std::optional<PlanRow>> LogWriter::FindPlan(const PlanRow& row) {
  const std::vector<Cell> key = {row.region.Hex(), row.alternative};
  find_plan_.BindAll(key);
  const StatusOr<bool> there = find_plan_.Step();
  auto cells = there.ok() && *there ? ReadChecked(PlansTable(), find_plan_)
                                    : StatusOr<std::vector<Cell>>(std::vector<Cell>());
  find_plan_.Reset();
  WHET_RETURN_IF_ERROR(there.status());
  if (!*there || !cells.ok()) return std::nullopt;
  StatusOr<PlanRow> found = PlanFrom(*std::move(cells));
  return found.ok() ? std::optional<PlanRow>(*std::move(found)) : std::nullopt;
}

// The latest says what an alternative consists of: a release that cuts networks in another way
// overwrites what an earlier one wrote.
StatusOr<AppendVerdict> LogWriter::Apply(const PlanRow& row) {
  WHET_ASSIGN_OR_RETURN(const std::optional<PlanRow> old, FindPlan(row));
  if (old && old->parts == row.parts)
    return AppendVerdict{0, TrialStatus::kCounted, AppendVerdict::Delivery::kRepeated};
  for (const PlanRow::Part& p : row.parts) {
    WHET_ASSIGN_OR_RETURN(const bool there,
                          Exists("workloads", "fingerprint", Cell(p.workload.Hex())));
    if (!there)
      return FailedPrecondition("plan '{}' of region {}: workload {} is not in the log",
                                row.alternative, row.region.Hex(), p.workload.Hex());
  }
  const std::vector<Cell> cells = WithCrc(PlansTable(), ToCells(row));
  put_plan_.BindAll(cells);
  WHET_RETURN_IF_ERROR(put_plan_.Run());
  return AppendVerdict{};
}

StatusOr<AppendVerdict> LogWriter::Apply(const MachineRow& row) {
  WHET_ASSIGN_OR_RETURN(const bool known, Exists("devices", "fingerprint", row.device.Hex()));
  if (!known)
    return FailedPrecondition("figures of a machine: device {} is not in the log",
                              row.device.Hex());
  WHET_ASSIGN_OR_RETURN(const bool there, Exists("machines", "device", row.device.Hex()));
  if (there) return AppendVerdict{0, TrialStatus::kCounted, AppendVerdict::Delivery::kRepeated};
  const std::vector<Cell> cells = WithCrc(MachinesTable(), ToCells(row));
  put_machine_.BindAll(cells);
  WHET_RETURN_IF_ERROR(put_machine_.Run());
  return AppendVerdict{};
}

// A result under an authority that no longer holds: another generation of the log, or a trial that
// a later attempt, or another lease of this one, has answered already, or may have, had it not been
// forgotten since.
StatusOr<bool> LogWriter::IsStale(const TrialRow& row) {
  if (row.status == TrialStatus::kLate || row.ids.generation != meta_.generation) return true;
  const Cell mark = PrunedMark(row.ids.job_id);
  find_pruned_.Bind(1, mark);
  const StatusOr<bool> pruned = find_pruned_.Step();
  find_pruned_.Reset();
  if (!pruned.ok() || *pruned) return pruned;
  const std::vector<Cell> ids = {row.ids.generation, row.ids.job_id, row.key.Task().Hex(),
                                 row.ids.trial, row.ids.attempt};
  find_stale_.BindAll(ids);
  const StatusOr<bool> found = find_stale_.Step();
  find_stale_.Reset();
  return found;
}

StatusOr<AppendVerdict> LogWriter::Apply(const TrialRow& row) {
  const std::vector<Cell> ids = {row.ids.generation, row.ids.job_id,     row.key.Task().Hex(),
                                 row.ids.trial,      row.ids.attempt,    row.ids.incarnation,
                                 row.ids.device_id,  row.ids.lease_epoch};
  find_trial_.BindAll(ids);
  const StatusOr<bool> there = find_trial_.Step();
  if (there.ok() && *there) {
    AppendVerdict verdict{find_trial_.Int(0), TrialStatus::kLate,
                          AppendVerdict::Delivery::kRepeated};
    if (find_trial_.Text(1) == TrialStatusName(TrialStatus::kCounted)) {
      verdict.status = TrialStatus::kCounted;
    }
    find_trial_.Reset();
    return verdict;
  }
  find_trial_.Reset();
  WHET_RETURN_IF_ERROR(there.status());
  TrialRow stored = row;
  if (row.origin == Origin::kMeasured) {
    WHET_ASSIGN_OR_RETURN(const bool stale, IsStale(row));
    stored.status = stale ? TrialStatus::kLate : TrialStatus::kCounted;
  }
  return InsertTrial(std::move(stored));
}

StatusOr<AppendVerdict> LogWriter::InsertTrial(TrialRow row) {
  if (!targets_.contains(row.key.target)) {
    const std::vector<Cell> cells = WithCrc(TargetsTable(), TargetCells(row.key.target));
    put_target_.BindAll(cells);
    WHET_RETURN_IF_ERROR(put_target_.Run());
    new_targets_.push_back(row.key.target);
  }
  row.seq = next_meta_.last_seq + 1;
  const std::vector<Cell> cells = WithCrc(TrialsTable(), ToCells(row));
  put_trial_.BindAll(cells);
  const Status inserted = put_trial_.Run();
  if (absl::IsFailedPrecondition(inserted)) return MissingReference(row);
  WHET_RETURN_IF_ERROR(inserted);
  next_meta_.last_seq = row.seq;
  return AppendVerdict{row.seq, row.status, AppendVerdict::Delivery::kFirst};
}

Status LogWriter::MissingReference(const TrialRow& row) {
  WHET_ASSIGN_OR_RETURN(const bool workload,
                        Exists("workloads", "fingerprint", Cell(row.key.workload.Hex())));
  if (!workload) {
    return FailedPrecondition("trial {} of job '{}': workload {} is not in the log", row.ids.trial,
                              row.ids.job_id, row.key.workload.Hex());
  }
  WHET_ASSIGN_OR_RETURN(const bool job, Exists("jobs", "job_id", Cell(row.ids.job_id)));
  if (!job) {
    return FailedPrecondition("trial {}: job '{}' is not in the log", row.ids.trial,
                              row.ids.job_id);
  }
  return FailedPrecondition("trial {} of job '{}': device {} is not in the log", row.ids.trial,
                            row.ids.job_id, row.device ? row.device->Hex() : "(none)");
}

// An imported trial seeds a search but is no evidence; an imported job must not start to run here;
// an imported plan does not replace one of this log.
StatusOr<AppendVerdict> LogWriter::ApplyImported(Row row) {
  if (auto* trial = std::get_if<TrialRow>(&row)) {
    trial->origin = Origin::kImported;
    return Apply(*trial);
  }
  if (auto* job = std::get_if<JobRow>(&row)) {
    WHET_ASSIGN_OR_RETURN(const bool there, Exists("jobs", "job_id", Cell(job->job_id)));
    if (there) return AppendVerdict{0, TrialStatus::kCounted, AppendVerdict::Delivery::kRepeated};
    if (!IsTerminal(job->state)) {
      job->error = fmt::format("was {} in the log it was imported from", JobStateName(job->state));
      job->state = JobState::kCancelled;
    }
    return Apply(*job);
  }
  if (const auto* plan = std::get_if<PlanRow>(&row)) {
    WHET_ASSIGN_OR_RETURN(const std::optional<PlanRow> old, FindPlan(*plan));
    if (old) return AppendVerdict{0, TrialStatus::kCounted, AppendVerdict::Delivery::kRepeated};
  }
  return std::visit([&](const auto& r) { return Apply(r); }, row);
}

}  // namespace whet::db
