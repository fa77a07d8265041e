// Going on with what is left of a log. Rows are copied with their checks, so that salvage cannot
// make a damaged row look whole.
#include <algorithm>

#include "db/store/codec.h"
#include "db/store/identify.h"
#include "db/store/maintenance.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

// Whole rows of a damaged log, table by table, into a new one.
class Rescue {
 public:
  Rescue(Connection& from, Connection& to) : from_(from), to_(to) {}

  Status Rows(const Table& table) {
    WHET_ASSIGN_OR_RETURN(Statement put, to_.Prepare(InsertSql(table, "INSERT OR IGNORE")));
    // A page that cannot be read ends a scan: the other one comes from behind.
    for (const char* order : {"ASC", "DESC"}) {
      const std::string tail = fmt::format("ORDER BY {} {}", table.columns[0].name, order);
      WHET_ASSIGN_OR_RETURN(const bool to_the_end, Scan(table, tail, {}, put));
      if (to_the_end) return OkStatus();
    }
    return &table == &TrialsTable() ? Trials(put) : OkStatus();
  }

  // What no row refers to any more is taken out, or put in again where words will do.
  Status References() {
    WHET_RETURN_IF_ERROR(StandInJobs());
    return to_.Exec(
        "DELETE FROM trials WHERE workload NOT IN (SELECT fingerprint FROM workloads) "
        "OR target NOT IN (SELECT fingerprint FROM targets) "
        "OR (device IS NOT NULL AND device NOT IN (SELECT fingerprint FROM devices));"
        "DELETE FROM machines WHERE device NOT IN (SELECT fingerprint FROM devices)");
  }

  // Numbers that neither a row nor a tombstone has, up to `last`, are buried.
  StatusOr<int64_t> Gaps(int64_t last) {
    std::vector<std::pair<int64_t, int64_t>> gaps;
    {
      WHET_ASSIGN_OR_RETURN(Statement used,
                            to_.Prepare("SELECT seq, seq FROM trials UNION ALL SELECT seq_first, "
                                        "seq_last FROM tombstones ORDER BY 1"));
      int64_t next = 1;
      while (true) {
        WHET_ASSIGN_OR_RETURN(const bool row, used.Step());
        const int64_t first = row ? used.Int(0) : last + 1;
        if (first > next) gaps.emplace_back(next, first - 1);
        if (!row) break;
        next = std::max(next, used.Int(1) + 1);
      }
    }
    int64_t lost = 0;
    for (const auto& [first, end] : gaps) {
      WHET_RETURN_IF_ERROR(Bury(to_, first, end, "salvage"));
      lost += end - first + 1;
    }
    return lost;
  }

 private:
  // False: a page could not be read.
  StatusOr<bool> Scan(const Table& table, const std::string& tail, const std::vector<Cell>& bound,
                      Statement& put) {
    StatusOr<Statement> rows = from_.Prepare(SelectSql(table, tail));
    if (absl::IsDataLoss(rows.status())) return false;
    if (!rows.ok()) return rows.status();
    rows->BindAll(bound);
    while (true) {
      const StatusOr<bool> row = rows->Step();
      if (absl::IsDataLoss(row.status())) return false;
      if (!row.ok()) return row.status();
      if (!*row) return true;
      StatusOr<std::vector<Cell>> cells = ReadChecked(table, *rows);
      if (!cells.ok()) continue;
      const std::vector<Cell> whole = WithCrc(table, *std::move(cells));
      put.BindAll(whole);
      WHET_RETURN_IF_ERROR(put.Run());
    }
  }

  // Between unreadable pages: the index knows the rows, each is asked for alone.
  Status Trials(Statement& put) {
    std::vector<int64_t> seqs;
    StatusOr<Statement> index = from_.Prepare("SELECT seq FROM trials INDEXED BY trials_ids");
    while (index.ok()) {
      const StatusOr<bool> row = index->Step();
      if (!row.ok() || !*row) break;
      seqs.push_back(index->Int(0));
    }
    for (const int64_t seq : seqs) {
      WHET_RETURN_IF_ERROR(Scan(TrialsTable(), "WHERE seq=?", {seq}, put).status());
    }
    return OkStatus();
  }

  // A job's row says little that its trials need; the measurements are worth keeping without it.
  Status StandInJobs() {
    std::vector<std::string> missing;
    {
      WHET_ASSIGN_OR_RETURN(Statement jobs,
                            to_.Prepare("SELECT DISTINCT job_id FROM trials WHERE job_id NOT IN "
                                        "(SELECT job_id FROM jobs)"));
      while (true) {
        WHET_ASSIGN_OR_RETURN(const bool row, jobs.Step());
        if (!row) break;
        missing.push_back(jobs.Text(0));
      }
    }
    WHET_ASSIGN_OR_RETURN(Statement put, to_.Prepare(InsertSql(JobsTable(), "INSERT")));
    for (const std::string& id : missing) {
      const JobRow job{id, JobState::kFailed, "{}", "its row was lost to damage", 0, 0};
      const std::vector<Cell> cells = WithCrc(JobsTable(), ToCells(job));
      put.BindAll(cells);
      WHET_RETURN_IF_ERROR(put.Run());
    }
    return OkStatus();
  }

  Connection& from_;
  Connection& to_;
};

// The whole rows of `from` as a new log at `fresh`. Numbers up to `last_seq` were in use.
StatusOr<SalvageReport> Rebuild(Connection& from, const LogMeta& meta, int64_t last_seq,
                                const std::string& fresh) {
  RemoveLogFiles(fresh);
  WHET_ASSIGN_OR_RETURN(Connection to, Connection::Open(fresh, OpenMode::kCreate));
  WHET_RETURN_IF_ERROR(to.Exec("PRAGMA foreign_keys=OFF; BEGIN IMMEDIATE"));
  WHET_RETURN_IF_ERROR(to.Exec(std::string(SchemaSql(kSchemaVersion))));
  Rescue rescue(from, to);
  for (const Table* table : AllTables()) WHET_RETURN_IF_ERROR(rescue.Rows(*table));
  SalvageReport report;
  // Before rows without references go: their numbers were in use too.
  WHET_ASSIGN_OR_RETURN(const LogMeta copied, ReadMeta(to));
  WHET_RETURN_IF_ERROR(rescue.References());
  WHET_ASSIGN_OR_RETURN(report.lost, rescue.Gaps(std::max(last_seq, copied.last_seq)));
  report.salvaged = true;
  report.generation = NewId();
  WHET_RETURN_IF_ERROR(PutMeta(to, "generation", report.generation));
  WHET_RETURN_IF_ERROR(PutMeta(to, "commit", std::to_string(meta.commit + 1)));
  WHET_RETURN_IF_ERROR(to.Exec("COMMIT"));
  WHET_ASSIGN_OR_RETURN(report.trials, to.QueryInt("SELECT count(*) FROM trials"));
  WHET_ASSIGN_OR_RETURN(const LogMeta now, ReadMeta(to));
  WHET_ASSIGN_OR_RETURN(const VerifyReport check, VerifyLog(to, now, std::nullopt));
  if (check.ok()) return report;
  return DataLoss("what was saved of tuning log '{}' is not whole: {}: {}", from.path(),
                  check.damage[0].where, check.damage[0].what);
}

// What is wrong with the log, and a new one at `fresh` if more than its end is missing.
struct Found {
  SalvageReport report;
  bool only_end = false;
};
StatusOr<Found> LookAndRebuild(const std::string& path, const std::string& fresh) {
  std::optional<HighWater> mark = HighWaterFile::Read(path);
  WHET_ASSIGN_OR_RETURN(Connection from, OpenForReading(path));
  WHET_ASSIGN_OR_RETURN(const int version, IdentifyLog(from));
  if (version < kSchemaVersion) {
    return FailedPrecondition(
        "tuning log '{}' has schema {}: open it once for writing first, which migrates it", path,
        version);
  }
  // The last page, which the next line may not find, is also the one that was written last.
  StatusOr<LogMeta> meta = ReadMeta(from);
  if (absl::IsDataLoss(meta.status())) meta = ReadMetaRows(from);
  if (!meta.ok()) return meta.status();
  if (mark && mark->generation != meta->generation) mark.reset();
  WHET_ASSIGN_OR_RETURN(const VerifyReport check, VerifyLog(from, *meta, mark));
  Found found;
  found.report.generation = meta->generation;
  found.only_end = check.damaged == 1 && LostTailOf(*meta, mark).has_value();
  if (found.only_end) found.report.lost = std::max<int64_t>(mark->seq - meta->last_seq, 0);
  if (!check.ok() && !found.only_end) {
    if (mark) meta->commit = std::max(meta->commit, mark->commit);
    WHET_ASSIGN_OR_RETURN(
        found.report, Rebuild(from, *meta, std::max(meta->last_seq, mark ? mark->seq : 0), fresh));
  }
  found.report.damage = check.damage;
  return found;
}

}  // namespace

StatusOr<SalvageReport> SalvageLog(const std::string& given_path) {
  WHET_ASSIGN_OR_RETURN(const std::string path, CanonicalPath(given_path));
  WHET_RETURN_IF_ERROR(RefuseNetworkFileSystem(path));
  WHET_ASSIGN_OR_RETURN(const FileState state, LookAt(path));
  if (state != FileState::kFilled) return NotFound("there is no tuning log '{}'", given_path);
  const std::string fresh = path + ".salvaged";
  Found found;
  {
    WHET_ASSIGN_OR_RETURN(const OwnedFd lock, LockForWriting(path));
    StatusOr<Found> looked = LookAndRebuild(path, fresh);
    if (!looked.ok()) {
      RemoveLogFiles(fresh);
      return looked.status();
    }
    found = *std::move(looked);
    if (found.report.salvaged) {
      WHET_ASSIGN_OR_RETURN(found.report.kept_as, ReplaceLog(fresh, path, "damaged"));
    }
  }
  if (!found.only_end) return found.report;
  WriterOptions options;
  options.lost_tail = WriterOptions::LostTail::kSalvage;
  WHET_ASSIGN_OR_RETURN(const auto log, TuningLog::Open(path, options));
  found.report.salvaged = true;
  found.report.generation = log->generation();
  WHET_ASSIGN_OR_RETURN(const auto reader, LogReader::Open(path));
  WHET_ASSIGN_OR_RETURN(const LogStats stats, reader->Stats());
  found.report.trials = stats.trials + stats.late + stats.imported;
  return found.report;
}

}  // namespace whet::db
