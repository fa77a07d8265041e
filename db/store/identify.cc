#include "db/store/identify.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/support/env.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

Status NotADatabase(Connection& db) {
  std::string hex;
  for (const char c : db.FirstBytes(8))
    hex += fmt::format(" {:02x}", static_cast<unsigned char>(c));
  return InvalidArgument("'{}' is not a tuning log: it is not a SQLite database (it begins with{})",
                         db.path(), hex.empty() ? " nothing readable" : hex);
}

StatusOr<int64_t> MetaInt(const std::map<std::string, std::string>& meta, const std::string& name) {
  const auto it = meta.find(name);
  const std::string text = it == meta.end() ? "" : it->second;
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec == std::errc() && end == text.data() + text.size()) return value;
  return DataLoss("meta row '{}' is missing or not a number", name);
}

// Damage to what every reader needs first. (Damage to rows costs those rows only.)
Status BeyondReading(const Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return DataLoss(
      "{}; it is damaged beyond reading: restore a copy of it, or begin a new log under another "
      "name",
      Message(status));
}

StatusOr<int> Identify(Connection& db) {
  // SQLite takes a file of a few bytes for an empty database and would write to it.
  const std::string magic("SQLite format 3", 16);
  if (const std::string start = db.FirstBytes(16); !start.empty() && start != magic) {
    return NotADatabase(db);
  }
  const StatusOr<int64_t> application_id = db.QueryInt("PRAGMA application_id");
  const StatusOr<int64_t> objects =
      application_id.ok() ? db.QueryInt("SELECT count(*) FROM sqlite_schema") : application_id;
  if (absl::IsInvalidArgument(objects.status())) return NotADatabase(db);
  if (!objects.ok()) return objects.status();
  WHET_ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  if (*application_id == 0 && version == 0 && *objects == 0) return 0;
  if (*application_id != kApplicationId) {
    return InvalidArgument(
        "'{}' is not a tuning log: it is a SQLite database of another program (application_id "
        "0x{:08x}, expected 0x{:08x})",
        db.path(), static_cast<uint32_t>(*application_id), kApplicationId);
  }
  if (version > kSchemaVersion) {
    return FailedPrecondition(
        "tuning log '{}' has schema {}, made by a newer release; this release knows up to schema "
        "{}: use "
        "the newer release, or export there and import here",
        db.path(), version, kSchemaVersion);
  }
  if (version < 1) {
    return InvalidArgument("tuning log '{}' says schema {}, which never existed", db.path(),
                           version);
  }
  WHET_RETURN_IF_ERROR(CheckSchema(db, static_cast<int>(version)));
  return static_cast<int>(version);
}

StatusOr<LogMeta> MetaRows(Connection& db) {
  std::map<std::string, std::string> values;
  WHET_ASSIGN_OR_RETURN(Statement rows, db.Prepare(SelectSql(MetaTable(), "")));
  while (true) {
    WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) break;
    auto cells = ReadChecked(MetaTable(), rows);
    if (!cells.ok()) return Annotate(cells.status(), fmt::format("tuning log '{}'", db.path()));
    values[std::get<std::string>((*cells)[0])] = std::get<std::string>((*cells)[1]);
  }
  LogMeta meta;
  meta.log_id = values["log_id"];
  meta.generation = values["generation"];
  meta.written_by = values["written_by"];
  if (meta.log_id.empty() || meta.generation.empty()) {
    return DataLoss("tuning log '{}': meta rows 'log_id' or 'generation' are missing", db.path());
  }
  WHET_ASSIGN_OR_RETURN(meta.commit, MetaInt(values, "commit"));
  return meta;
}

StatusOr<LogMeta> Meta(Connection& db) {
  WHET_ASSIGN_OR_RETURN(LogMeta meta, MetaRows(db));
  WHET_ASSIGN_OR_RETURN(const int64_t seq, db.QueryInt("SELECT max(seq) FROM trials"));
  WHET_ASSIGN_OR_RETURN(const int64_t buried, db.QueryInt("SELECT max(seq_last) FROM tombstones"));
  meta.last_seq = std::max(seq, buried);
  return meta;
}

}  // namespace

StatusOr<FileState> LookAt(const std::string& path) {
  struct stat st = {};
  if (stat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return FileState::kMissing;
    return PermissionDenied("tuning log '{}': {}", path, std::strerror(errno));
  }
  if (S_ISDIR(st.st_mode)) return InvalidArgument("tuning log '{}' is a folder", path);
  if (!S_ISREG(st.st_mode)) return InvalidArgument("tuning log '{}' is not a regular file", path);
  // SQLite sees a file of one byte as empty, and would overwrite it.
  if (st.st_size == 1)
    return InvalidArgument("'{}' is not a tuning log: it is one byte long", path);
  return st.st_size == 0 ? FileState::kEmpty : FileState::kFilled;
}

StatusOr<Connection> OpenForReading(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const bool others_may_write = access(folder.empty() ? "." : folder.c_str(), W_OK) == 0 ||
                                access((path + "-wal").c_str(), F_OK) == 0;
  return Connection::Open(path,
                          others_may_write ? OpenMode::kReadOnly : OpenMode::kReadOnlyImmutable);
}

StatusOr<int> IdentifyLog(Connection& db) {
  StatusOr<int> version = Identify(db);
  return version.ok() ? version : BeyondReading(version.status());
}

StatusOr<LogMeta> ReadMeta(Connection& db) {
  StatusOr<LogMeta> meta = Meta(db);
  return meta.ok() ? meta : BeyondReading(meta.status());
}

Status PutMeta(Connection& db, const std::string& name, const std::string& value) {
  WHET_ASSIGN_OR_RETURN(Statement put, db.Prepare(InsertSql(MetaTable(), "INSERT OR REPLACE")));
  const std::vector<Cell> cells = WithCrc(MetaTable(), {name, value});
  put.BindAll(cells);
  return put.Run();
}

Status Bury(Connection& db, int64_t first, int64_t last, const std::string& reason) {
  WHET_ASSIGN_OR_RETURN(Statement bury, db.Prepare(InsertSql(TombstonesTable(), "INSERT")));
  const std::vector<Cell> cells = WithCrc(TombstonesTable(), {first, last, reason, WallMs()});
  bury.BindAll(cells);
  return bury.Run();
}

std::string NewId() { return RandomHex(16); }

int64_t WallMs() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1);
}

bool HasJournalOfOurs(const std::string& path) {
  if (access((path + "-journal").c_str(), F_OK) != 0) return false;
  std::ifstream in(path, std::ios::binary);
  std::string header(72, '\0');
  if (!in.read(header.data(), static_cast<std::streamsize>(header.size()))) return false;
  // SQLite's file format, section 1.3: bytes 68 to 71 are the application id, big-endian.
  return header.starts_with("SQLite format 3") && header.substr(68) == "WHET";
}

StatusOr<LogMeta> ReadMetaRows(Connection& db) {
  StatusOr<LogMeta> meta = MetaRows(db);
  return meta.ok() ? meta : BeyondReading(meta.status());
}

std::optional<std::string> LostTailOf(const LogMeta& meta, const std::optional<HighWater>& mark) {
  if (!mark || mark->generation != meta.generation) return std::nullopt;
  if (mark->seq <= meta.last_seq && mark->commit <= meta.commit) return std::nullopt;
  return fmt::format(
      "acknowledged rows are missing at its end: it holds {} trial rows and {} commits, {} and {} "
      "were "
      "acknowledged",
      meta.last_seq, meta.commit, mark->seq, mark->commit);
}

}  // namespace whet::db
