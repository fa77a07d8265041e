#include "db/store/sqlite.h"

#include <sqlite3.h>

#include <chrono>

namespace whet::db {
namespace {

constexpr int kMaxValueBytes = 16 << 20;  // far above the largest honest column
constexpr int kBusyMs = 5000;

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int PastDeadline(void* deadline_ns) {
  const int64_t limit = *static_cast<int64_t*>(deadline_ns);
  return limit != 0 && NowNs() > limit ? 1 : 0;
}

// A path as a URI, so that '?', '#' and '%' in a name stay part of the name.
std::string Uri(const std::string& path, std::string_view query) {
  std::string out = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + std::string(query);
}

Status Harden(sqlite3* db) {
  const std::pair<int, int> settings[] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                          {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                          {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                          {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                          {SQLITE_DBCONFIG_ENABLE_FKEY, 1}};
  for (const auto& [option, value] : settings) {
    if (sqlite3_db_config(db, option, value, nullptr) != SQLITE_OK) {
      return Internal("this SQLite ({}) lacks setting {}", sqlite3_libversion(), option);
    }
  }
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, kBusyMs);
  return OkStatus();
}

}  // namespace

Status SqliteError(sqlite3* db, std::string_view doing) {
  const char* name = sqlite3_db_filename(db, "main");
  const std::string what =
      fmt::format("tuning log '{}': {}: {} (SQLite code {})", name == nullptr ? "" : name, doing,
                  sqlite3_errmsg(db), sqlite3_extended_errcode(db));
  switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_NOTADB: return InvalidArgument("{}", what);
    case SQLITE_CORRUPT: return DataLoss("{}", what);
    case SQLITE_FULL: return ResourceExhausted("{}", what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR: return Unavailable("{}", what);
    case SQLITE_INTERRUPT: return DeadlineExceeded("{}", what);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY: return PermissionDenied("{}", what);
    case SQLITE_CONSTRAINT: return FailedPrecondition("{}", what);
    case SQLITE_TOOBIG: return DataLoss("{}", what);
    default: return Internal("{}", what);
  }
}

void Statement::Finalize::operator()(sqlite3_stmt* stmt) const { sqlite3_finalize(stmt); }
Statement::Statement(sqlite3_stmt* stmt) : stmt_(stmt) {}

void Statement::Bind(int index, const Cell& cell) {
  sqlite3_stmt* s = stmt_.get();
  int rc = SQLITE_OK;
  if (std::holds_alternative<std::monostate>(cell)) {
    rc = sqlite3_bind_null(s, index);
  } else if (const auto* i = std::get_if<int64_t>(&cell)) {
    rc = sqlite3_bind_int64(s, index, *i);
  } else if (const auto* d = std::get_if<double>(&cell)) {
    rc = sqlite3_bind_double(s, index, *d);
  } else if (const auto* t = std::get_if<std::string>(&cell)) {
    rc = sqlite3_bind_text64(s, index, t->data(), t->size(), SQLITE_STATIC, SQLITE_UTF8);
  } else {
    const std::string& b = std::get<Blob>(cell).bytes;
    rc = sqlite3_bind_blob64(s, index, b.data(), b.size(), SQLITE_STATIC);
  }
  WHET_CHECK(rc == SQLITE_OK, "binding parameter {} gave {}", index, rc);
}

void Statement::BindAll(const std::vector<Cell>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) Bind(static_cast<int>(i) + 1, cells[i]);
}

StatusOr<bool> Statement::Step() {
  switch (sqlite3_step(stmt_.get())) {
    case SQLITE_ROW: return true;
    case SQLITE_DONE: return false;
    default: return SqliteError(sqlite3_db_handle(stmt_.get()), "reading or writing");
  }
}

Status Statement::Run() {
  while (true) {
    const StatusOr<bool> row = Step();
    if (row.ok() && *row) continue;
    Reset();
    return row.status();
  }
}

void Statement::Reset() {
  sqlite3_reset(stmt_.get());
  sqlite3_clear_bindings(stmt_.get());
}

int Statement::columns() const { return sqlite3_column_count(stmt_.get()); }

Cell Statement::At(int column) const {
  sqlite3_stmt* s = stmt_.get();
  switch (sqlite3_column_type(s, column)) {
    case SQLITE_INTEGER: return int64_t{sqlite3_column_int64(s, column)};
    case SQLITE_FLOAT: return sqlite3_column_double(s, column);
    case SQLITE_TEXT: return Text(column);
    case SQLITE_BLOB: {
      const auto* p = static_cast<const char*>(sqlite3_column_blob(s, column));
      const auto n = static_cast<size_t>(sqlite3_column_bytes(s, column));
      return Blob{n == 0 ? std::string() : std::string(p, n)};
    }
    default: return std::monostate{};
  }
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(stmt_.get(), column); }

std::string Statement::Text(int column) const {
  const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(stmt_.get(), column));
  const auto n = static_cast<size_t>(sqlite3_column_bytes(stmt_.get(), column));
  return p == nullptr ? std::string() : std::string(p, n);
}

void Connection::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

StatusOr<Connection> Connection::Open(const std::string& path, OpenMode mode) {
  int flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
  switch (mode) {
    case OpenMode::kReadOnly:
    case OpenMode::kReadOnlyImmutable: flags |= SQLITE_OPEN_READONLY; break;
    case OpenMode::kReadWrite: flags |= SQLITE_OPEN_READWRITE; break;
    case OpenMode::kCreate: flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE; break;
  }
  sqlite3* raw = nullptr;
  const std::string uri = Uri(path, mode == OpenMode::kReadOnlyImmutable ? "?immutable=1" : "");
  const int rc = sqlite3_open_v2(uri.c_str(), &raw, flags, nullptr);
  Connection c;
  c.path_ = path;
  c.db_.reset(raw);
  if (raw == nullptr) return ResourceExhausted("tuning log '{}': no memory to open it", path);
  if (rc != SQLITE_OK) {
    const Status why = SqliteError(raw, "opening");
    return Status(why.code(), fmt::format("tuning log '{}': {}", path, sqlite3_errmsg(raw)));
  }
  WHET_RETURN_IF_ERROR(Harden(raw));
  if (mode == OpenMode::kReadOnly || mode == OpenMode::kReadOnlyImmutable) {
    // A reader must never checkpoint: one connection writes and checkpoints, see tuning_log.h.
    sqlite3_db_config(raw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  }
  c.deadline_ns_ = std::make_shared<int64_t>(0);
  sqlite3_progress_handler(raw, 10000, PastDeadline, c.deadline_ns_.get());
  // These read the file's header, so a foreign file may refuse here already.
  WHET_RETURN_IF_ERROR(c.Exec("PRAGMA mmap_size=0; PRAGMA cell_size_check=ON"));
  return c;
}

StatusOr<Statement> Connection::Prepare(std::string_view sql) {
  sqlite3_stmt* stmt = nullptr;
  const int rc = sqlite3_prepare_v3(db_.get(), sql.data(), static_cast<int>(sql.size()),
                                    SQLITE_PREPARE_PERSISTENT, &stmt, nullptr);
  if (rc != SQLITE_OK) return SqliteError(db_.get(), "preparing a statement");
  return Statement(stmt);
}

Status Connection::Exec(const std::string& sql) {
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK)
    return OkStatus();
  return SqliteError(db_.get(), sql.substr(0, sql.find_first_of(" (;")));
}

StatusOr<int64_t> Connection::QueryInt(const std::string& sql) {
  WHET_ASSIGN_OR_RETURN(Statement s, Prepare(sql));
  WHET_ASSIGN_OR_RETURN(const bool row, s.Step());
  return row ? s.Int(0) : 0;
}

StatusOr<std::string> Connection::QueryText(const std::string& sql) {
  WHET_ASSIGN_OR_RETURN(Statement s, Prepare(sql));
  WHET_ASSIGN_OR_RETURN(const bool row, s.Step());
  return row ? s.Text(0) : std::string();
}

void Connection::Rollback() {
  // After some errors SQLite has rolled back by itself.
  if (sqlite3_get_autocommit(db_.get()) == 0) {
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

int64_t Connection::changes() const { return sqlite3_changes64(db_.get()); }

int Connection::extended_error() const { return sqlite3_extended_errcode(db_.get()); }

std::string Connection::FirstBytes(int n) const {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file == nullptr || file->pMethods == nullptr) return {};
  sqlite3_int64 size = 0;
  if (file->pMethods->xFileSize(file, &size) != SQLITE_OK) return {};
  std::string out(static_cast<size_t>(std::min<sqlite3_int64>(size, n)), '\0');
  if (file->pMethods->xRead(file, out.data(), static_cast<int>(out.size()), 0) != SQLITE_OK)
    return {};
  return out;
}

int64_t Connection::JournalBytes() const {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
  sqlite3_int64 size = 0;
  if (file == nullptr || file->pMethods == nullptr) return 0;
  return file->pMethods->xFileSize(file, &size) == SQLITE_OK ? size : 0;
}

Status Connection::Vacuum() {
  sqlite3_limit(db_.get(), SQLITE_LIMIT_ATTACHED, 1);  // SQLite attaches its temporary copy
  const Status done = Exec("VACUUM");
  sqlite3_limit(db_.get(), SQLITE_LIMIT_ATTACHED, 0);
  return done;
}

void Connection::LimitTime(int64_t ms) { *deadline_ns_ = ms == 0 ? 0 : NowNs() + ms * 1000000; }

}  // namespace whet::db
