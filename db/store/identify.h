// Is this file a tuning log, which one, and is it whole at its end? Shared by the writer and the
// reader, which ask before anything is written. Internal to db/store.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "db/store/file_guard.h"
#include "db/store/sqlite.h"
#include "db/store/tuning_log.h"

namespace whet::db {

// What lies at `path`: nothing, an empty file, or bytes. InvalidArgument for a folder or a device.
enum class FileState { kMissing, kEmpty, kFilled };
StatusOr<FileState> LookAt(const std::string& path);

// Opens the file read-only. A log in a folder that cannot be written to is opened as immutable,
// which is sound only because nobody can be writing it.
StatusOr<Connection> OpenForReading(const std::string& path);

// The schema version, 0 for a database without anything in it (a creation that was cut short).
// InvalidArgument says what the file is instead; FailedPrecondition if its schema is newer than
// ours.
StatusOr<int> IdentifyLog(Connection& db);

struct LogMeta {
  std::string log_id;
  std::string generation;
  std::string written_by;
  int64_t commit = 0;    // commits so far
  int64_t last_seq = 0;  // highest sequence number in use, tombstones included
};
StatusOr<LogMeta> ReadMeta(Connection& db);
StatusOr<LogMeta> ReadMetaRows(Connection& db);  // without last_seq

// Small writes that creation, restoring and salvage share.
Status PutMeta(Connection& db, const std::string& name, const std::string& value);
// A tombstone: no row has the numbers first..last, and why.
Status Bury(Connection& db, int64_t first, int64_t last, const std::string& reason);
std::string NewId();  // 128 random bits: of a log, of a generation
int64_t WallMs();     // for people only, see record.h

// Whether `path` is a log beside which SQLite left a rollback journal: a change of its mode was cut
// short (of a backup that is opened for writing for the first time). Only a writer can undo that;
// the file's first bytes are believed.
bool HasJournalOfOurs(const std::string& path);

// What the mark proves to be missing at the end of the log, in words; nothing if it is whole. A
// mark of another generation proves nothing.
std::optional<std::string> LostTailOf(const LogMeta& meta, const std::optional<HighWater>& mark);

StatusOr<VerifyReport> VerifyLog(Connection& db, const LogMeta& meta,
                                 const std::optional<HighWater>& mark);

// Brings an older schema to kSchemaVersion in one transaction. Migrate makes a backup first.
Status Upgrade(Connection& db, int from);
Status Migrate(Connection& db, int from);

// The whole log, as it is at one moment, as one file at `to_path`, where nothing lies; durable.
// Damage is copied with the rest.
Status CopyLog(Connection& from, const std::string& to_path);

}  // namespace whet::db
