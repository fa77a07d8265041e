#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "db/store/identify.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

// `<file>.schema<N>.bak`, or with a number if that exists already.
std::string BackupPath(const std::string& path, int version) {
  const std::string base = fmt::format("{}.schema{}.bak", path, version);
  std::string candidate = base;
  for (int i = 2; access(candidate.c_str(), F_OK) == 0; ++i)
    candidate = fmt::format("{}.{}", base, i);
  return candidate;
}

// Copies under another name first, so that a backup that exists is a complete one.
Status Backup(Connection& db, int version) {
  const std::string path = BackupPath(db.path(), version);
  const std::string partial = path + ".partial";
  std::remove(partial.c_str());
  if (const Status copied = CopyLog(db, partial); !copied.ok()) {
    std::remove(partial.c_str());
    return copied;
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return Unavailable("backup '{}': {}", path, std::strerror(errno));
  }
  return SyncFolderOf(path);
}

// Schema 2 only adds, and its new columns have defaults that the check of a row leaves out
// (schema.h): rows keep their CRC, whole or damaged.
Status From1To2(Connection& db) {
  WHET_RETURN_IF_ERROR(db.Exec(R"sql(
    ALTER TABLE trials ADD COLUMN origin TEXT NOT NULL DEFAULT 'measured';
    ALTER TABLE trials ADD COLUMN rung INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE trials ADD COLUMN runs_per_sample INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE trials ADD COLUMN build_ns INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE trials ADD COLUMN measure_ns INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE tombstones(
      seq_first INTEGER PRIMARY KEY NOT NULL,
      seq_last INTEGER NOT NULL,
      reason TEXT NOT NULL,
      created_ms INTEGER NOT NULL,
      crc INTEGER NOT NULL
    ) STRICT;
    PRAGMA user_version = 2;
  )sql"));
  // Schema 1 did not count its commits.
  const std::vector<Cell> commit = WithCrc(MetaTable(), {std::string("commit"), std::string("0")});
  WHET_ASSIGN_OR_RETURN(Statement insert, db.Prepare(InsertSql(MetaTable(), "INSERT")));
  insert.BindAll(commit);
  return insert.Run();
}

}  // namespace

Status Upgrade(Connection& db, int from) {
  WHET_RETURN_IF_ERROR(db.Exec("BEGIN IMMEDIATE"));
  for (int version = from; version < kSchemaVersion; ++version) {
    WHET_RETURN_IF_ERROR(version == 1 ? From1To2(db)
                                      : db.Exec(std::string(AddedTablesSql(version + 1))));
  }
  WHET_RETURN_IF_ERROR(CheckSchema(db, kSchemaVersion));
  return db.Exec("COMMIT");
}

Status Migrate(Connection& db, int from) {
  if (from == kSchemaVersion) return OkStatus();
  const std::string where = fmt::format("migrating from schema {} to {}", from, kSchemaVersion);
  WHET_RETURN_IF_ERROR(Annotate(Backup(db, from), where));
  const Status upgraded = Upgrade(db, from);
  if (!upgraded.ok()) db.Rollback();
  return Annotate(upgraded, where);
}

}  // namespace whet::db
