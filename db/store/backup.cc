// Copies of a log, and the way back from one.
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "db/store/identify.h"
#include "db/store/maintenance.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

// The first few damages in words.
std::string DamageWords(const VerifyReport& report) {
  std::string out;
  for (size_t i = 0; i < report.damage.size() && i < 3; ++i) {
    out +=
        fmt::format("{}{}: {}", i > 0 ? "; " : "", report.damage[i].where, report.damage[i].what);
  }
  return report.damaged > 3 ? out + fmt::format("; and {} more", report.damaged - 3) : out;
}

struct CheckedCopy {
  LogMeta meta;
  VerifyReport report;
};

// Copies the log at `path` to `partial`, brings it to the present schema and reads all of it.
StatusOr<CheckedCopy> CopyAndCheck(const std::string& path, const std::string& partial) {
  RemoveLogFiles(partial);  // of a copy that was cut short
  {
    WHET_ASSIGN_OR_RETURN(Connection from, OpenForReading(path));
    WHET_ASSIGN_OR_RETURN(const int version, IdentifyLog(from));
    if (version == 0) return InvalidArgument("'{}' is not a tuning log: it has no tables", path);
    WHET_RETURN_IF_ERROR(CopyLog(from, partial));
  }
  WHET_ASSIGN_OR_RETURN(Connection copy, Connection::Open(partial, OpenMode::kReadWrite));
  WHET_ASSIGN_OR_RETURN(const int version, IdentifyLog(copy));
  if (version < kSchemaVersion) WHET_RETURN_IF_ERROR(Upgrade(copy, version));
  CheckedCopy checked;
  WHET_ASSIGN_OR_RETURN(checked.meta, ReadMeta(copy));
  WHET_ASSIGN_OR_RETURN(checked.report, VerifyLog(copy, checked.meta, std::nullopt));
  return checked;
}

// The new generation of a restored copy, and what of the replaced log is known to be lost.
StatusOr<RestoreReport> BeginGeneration(const std::string& partial, const CheckedCopy& copy,
                                        const std::optional<HighWater>& mark) {
  RestoreReport restored;
  restored.generation = NewId();
  restored.rows = copy.report.rows;
  restored.last_seq = copy.meta.last_seq;
  int64_t commit = copy.meta.commit;
  WHET_ASSIGN_OR_RETURN(Connection db, Connection::Open(partial, OpenMode::kReadWrite));
  WHET_RETURN_IF_ERROR(db.Exec("BEGIN IMMEDIATE"));
  if (mark && mark->generation == copy.meta.generation) {
    restored.last_seq = std::max(mark->seq, copy.meta.last_seq);
    restored.lost = restored.last_seq - copy.meta.last_seq;
    commit = std::max(mark->commit, commit);
  }
  if (restored.lost > 0) {
    WHET_RETURN_IF_ERROR(Bury(db, copy.meta.last_seq + 1, restored.last_seq, "restore"));
  }
  WHET_RETURN_IF_ERROR(PutMeta(db, "generation", restored.generation));
  WHET_RETURN_IF_ERROR(PutMeta(db, "commit", std::to_string(commit + 1)));
  WHET_RETURN_IF_ERROR(db.Exec("COMMIT"));
  return restored;
}

// Only a log may be replaced, or what is left of one.
Status CheckReplaced(const std::string& path) {
  WHET_ASSIGN_OR_RETURN(const FileState state, LookAt(path));
  if (state != FileState::kFilled) return OkStatus();
  StatusOr<Connection> db = OpenForReading(path);
  const Status identified = db.ok() ? IdentifyLog(*db).status() : db.status();
  if (!absl::IsInvalidArgument(identified)) return OkStatus();
  return InvalidArgument("{}; move it away first", Message(identified));
}

}  // namespace

Status CopyLog(Connection& from, const std::string& to_path) {
  WHET_ASSIGN_OR_RETURN(Connection to, Connection::Open(to_path, OpenMode::kCreate));
  sqlite3_backup* copy = sqlite3_backup_init(to.raw(), "main", from.raw(), "main");
  if (copy == nullptr) return SqliteError(to.raw(), "starting the backup");
  sqlite3_backup_step(copy, -1);
  if (sqlite3_backup_finish(copy) != SQLITE_OK) return SqliteError(to.raw(), "writing the backup");
  // A backup is one file: it must not need a write-ahead log beside it.
  WHET_RETURN_IF_ERROR(to.Exec("PRAGMA journal_mode=DELETE"));
  WHET_ASSIGN_OR_RETURN(const std::string check, to.QueryText("PRAGMA quick_check(1)"));
  if (check != "ok") return DataLoss("the backup '{}' is not whole: {}", to_path, check);
  return OkStatus();
}

StatusOr<BackupReport> BackupLog(const std::string& given_path, const std::string& given_to) {
  WHET_ASSIGN_OR_RETURN(const std::string path, CanonicalPath(given_path));
  WHET_ASSIGN_OR_RETURN(const std::string to, CanonicalPath(given_to));
  WHET_RETURN_IF_ERROR(RefuseNetworkFileSystem(path));
  WHET_RETURN_IF_ERROR(RefuseNetworkFileSystem(to));
  WHET_ASSIGN_OR_RETURN(const FileState state, LookAt(path));
  if (state != FileState::kFilled) return NotFound("there is no tuning log '{}'", given_path);
  if (access(to.c_str(), F_OK) == 0)
    return InvalidArgument("'{}' is there already, and a backup overwrites nothing", given_to);
  const std::string partial = to + ".partial";
  const std::optional<HighWater> mark = HighWaterFile::Read(path);  // before the rows it speaks of
  StatusOr<CheckedCopy> copy = CopyAndCheck(path, partial);
  if (copy.ok() && !copy->report.ok()) {
    copy = DataLoss(
        "tuning log '{}' is damaged, so that there is no backup of it: {}; `whet log "
        "export` writes the rows that are whole",
        path, DamageWords(copy->report));
  }
  const Status named = copy.ok() ? RenameFile(partial, to) : copy.status();
  if (!named.ok()) {
    RemoveLogFiles(partial);
    return named;
  }
  BackupReport report;
  report.rows = copy->report.rows;
  report.last_seq = copy->meta.last_seq;
  std::error_code ignored;
  report.bytes = static_cast<int64_t>(std::filesystem::file_size(to, ignored));
  if (const auto lost = LostTailOf(copy->meta, mark)) {
    report.warnings.push_back(fmt::format("tuning log '{}': {}", path, *lost));
  }
  return report;
}

StatusOr<RestoreReport> RestoreLog(const std::string& given_backup, const std::string& given_path) {
  WHET_ASSIGN_OR_RETURN(const std::string backup, CanonicalPath(given_backup));
  WHET_ASSIGN_OR_RETURN(const std::string path, CanonicalPath(given_path));
  if (backup == path) return InvalidArgument("'{}' is both the backup and the log", given_path);
  WHET_RETURN_IF_ERROR(RefuseNetworkFileSystem(path));
  WHET_ASSIGN_OR_RETURN(const FileState state, LookAt(backup));
  if (state != FileState::kFilled) return NotFound("there is no backup '{}'", given_backup);
  WHET_RETURN_IF_ERROR(CheckReplaced(path));  // before anything is made beside it
  WHET_ASSIGN_OR_RETURN(const OwnedFd lock, LockForWriting(path));
  const std::string partial = path + ".restoring";
  const auto prepare = [&]() -> StatusOr<RestoreReport> {
    WHET_ASSIGN_OR_RETURN(const CheckedCopy copy, CopyAndCheck(backup, partial));
    if (!copy.report.ok()) {
      return DataLoss("backup '{}' is damaged: {}; nothing was restored", given_backup,
                      DamageWords(copy.report));
    }
    return BeginGeneration(partial, copy, HighWaterFile::Read(path));
  };
  StatusOr<RestoreReport> restored = prepare();
  if (!restored.ok()) {
    RemoveLogFiles(partial);
    return restored.status();
  }
  WHET_ASSIGN_OR_RETURN(restored->kept_as, ReplaceLog(partial, path, "before-restore"));
  return restored;
}

}  // namespace whet::db
