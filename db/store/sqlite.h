// The thinnest useful layer over SQLite's C interface: a connection, a statement, a cell. Internal
// to db/store; nothing outside includes it. One connection belongs to one thread at a time (it is
// opened without SQLite's own mutexes).
//
// Every connection is opened hardened: DEFENSIVE, trusted_schema off, triggers and views off, no
// memory-mapped I/O, and a cap on the length of any value, because a log may be somebody else's
// file.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/support/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace whet::db {

struct Blob {
  std::string bytes;
  friend bool operator==(const Blob&, const Blob&) = default;
};
using Cell = std::variant<std::monostate, int64_t, double, std::string, Blob>;

enum class OpenMode {
  kReadOnly,
  kReadOnlyImmutable,  // a log in a folder that cannot be written to and that nobody writes
  kReadWrite,
  kCreate,
};

class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* stmt);

  // Binds parameter `index`, counted from 1. The cell must outlive the steps.
  void Bind(int index, const Cell& cell);
  void BindAll(const std::vector<Cell>& cells);  // from parameter 1 on
  StatusOr<bool> Step();                         // true: a row; false: done
  Status Run();                                  // steps to the end and resets
  void Reset();

  int columns() const;
  Cell At(int column) const;
  int64_t Int(int column) const;
  std::string Text(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* stmt) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> stmt_;
};

class Connection {
 public:
  static StatusOr<Connection> Open(const std::string& path, OpenMode mode);

  const std::string& path() const { return path_; }
  StatusOr<Statement> Prepare(std::string_view sql);
  Status Exec(const std::string& sql);
  StatusOr<int64_t> QueryInt(const std::string& sql);
  StatusOr<std::string> QueryText(const std::string& sql);
  // Leaves no transaction open, whatever state an error left.
  void Rollback();
  int extended_error() const;
  int64_t changes() const;  // rows that the last INSERT, UPDATE or DELETE touched
  // Bytes of the write-ahead log beside the file, whoever wrote them; 0 without one.
  int64_t JournalBytes() const;
  // Rewrites the file without its free pages. Needs as much room again while it runs.
  Status Vacuum();
  sqlite3* raw() const { return db_.get(); }

  // The first bytes of the file, read through SQLite's own handle: closing a descriptor of our own
  // would drop the POSIX locks that another connection of this process holds.
  std::string FirstBytes(int n) const;

  // Calls longer than `ms` of a read end with DeadlineExceeded; 0 lifts the limit. Bounded reads
  // keep the write-ahead log from growing behind a forgotten reader.
  void LimitTime(int64_t ms);

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
  // Shared with SQLite's progress hook, which outlives a move.
  std::shared_ptr<int64_t> deadline_ns_;
};

// What went wrong on `db` last, as a Status that names the file. Full disks are ResourceExhausted,
// busy Unavailable, corruption DataLoss, a file that is not a database InvalidArgument.
Status SqliteError(sqlite3* db, std::string_view doing);

}  // namespace whet::db
