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

// What the mark proves to be missing at the end of the log, in words; nothing if it is whole. A
// mark of another generation proves nothing.
std::optional<std::string> LostTailOf(const LogMeta& meta, const std::optional<HighWater>& mark);

StatusOr<VerifyReport> VerifyLog(Connection& db, const LogMeta& meta,
                                 const std::optional<HighWater>& mark);

// Brings an older schema to kSchemaVersion in one transaction, after a backup of the whole log.
Status Migrate(Connection& db, int from);

}  // namespace whet::db
