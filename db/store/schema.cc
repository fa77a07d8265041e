#include "db/store/schema.h"

#include <algorithm>
#include <cstring>

#include "compiler/support/crc32c.h"
#include "db/record/record.h"

namespace whet::db {
namespace {

// Schema 1. Kept as it was, for the migration and its test.
constexpr std::string_view kSchema1 = R"sql(
PRAGMA application_id = 1464354132;
PRAGMA user_version = 1;
CREATE TABLE meta(
  name TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE workloads(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  text TEXT NOT NULL,
  op_summary TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE targets(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  text TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE devices(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  device_id TEXT NOT NULL,
  device_key TEXT NOT NULL,
  feature_set TEXT NOT NULL,
  identity TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE jobs(
  job_id TEXT PRIMARY KEY NOT NULL,
  state TEXT NOT NULL,
  spec TEXT NOT NULL,
  error TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE trials(
  seq INTEGER PRIMARY KEY NOT NULL,
  task TEXT NOT NULL,
  workload TEXT NOT NULL REFERENCES workloads(fingerprint),
  target TEXT NOT NULL REFERENCES targets(fingerprint),
  threads INTEGER NOT NULL,
  cache_mode TEXT NOT NULL,
  generation TEXT NOT NULL,
  job_id TEXT NOT NULL REFERENCES jobs(job_id),
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  incarnation TEXT NOT NULL,
  lease_epoch INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  device_id TEXT NOT NULL,
  status TEXT NOT NULL,
  device TEXT REFERENCES devices(fingerprint),
  trace TEXT NOT NULL,
  trace_fingerprint TEXT NOT NULL,
  initial_program TEXT NOT NULL,
  codegen_version INTEGER NOT NULL,
  compiler_version TEXT NOT NULL,
  object_hash TEXT NOT NULL,
  is_default INTEGER NOT NULL,
  failure TEXT NOT NULL,
  message TEXT NOT NULL,
  samples_ns BLOB NOT NULL,
  median_ns REAL NOT NULL,
  min_ns REAL NOT NULL,
  contended INTEGER NOT NULL,
  baseline_ratio REAL,
  input_seed INTEGER NOT NULL,
  sandbox_bits INTEGER NOT NULL,
  exec_class TEXT NOT NULL,
  device_state TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX trials_ids ON trials(
  generation, job_id, task, trial, attempt, incarnation, device_id, lease_epoch);
CREATE INDEX trials_workload ON trials(workload, target, threads, cache_mode);
)sql";

// Schema 2: where a row came from (import), how far the racing ladder measured it, phase durations;
// tombstones, so that a gap in the sequence is either explained or damage.
constexpr std::string_view kSchema2 = R"sql(
PRAGMA application_id = 1464354132;
PRAGMA user_version = 2;
CREATE TABLE meta(
  name TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE workloads(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  text TEXT NOT NULL,
  op_summary TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE targets(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  text TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE devices(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  device_id TEXT NOT NULL,
  device_key TEXT NOT NULL,
  feature_set TEXT NOT NULL,
  identity TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE jobs(
  job_id TEXT PRIMARY KEY NOT NULL,
  state TEXT NOT NULL,
  spec TEXT NOT NULL,
  error TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE trials(
  seq INTEGER PRIMARY KEY NOT NULL,
  task TEXT NOT NULL,
  workload TEXT NOT NULL REFERENCES workloads(fingerprint),
  target TEXT NOT NULL REFERENCES targets(fingerprint),
  threads INTEGER NOT NULL,
  cache_mode TEXT NOT NULL,
  generation TEXT NOT NULL,
  job_id TEXT NOT NULL REFERENCES jobs(job_id),
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  incarnation TEXT NOT NULL,
  lease_epoch INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  device_id TEXT NOT NULL,
  status TEXT NOT NULL,
  device TEXT REFERENCES devices(fingerprint),
  trace TEXT NOT NULL,
  trace_fingerprint TEXT NOT NULL,
  initial_program TEXT NOT NULL,
  codegen_version INTEGER NOT NULL,
  compiler_version TEXT NOT NULL,
  object_hash TEXT NOT NULL,
  is_default INTEGER NOT NULL,
  failure TEXT NOT NULL,
  message TEXT NOT NULL,
  samples_ns BLOB NOT NULL,
  median_ns REAL NOT NULL,
  min_ns REAL NOT NULL,
  contended INTEGER NOT NULL,
  baseline_ratio REAL,
  input_seed INTEGER NOT NULL,
  sandbox_bits INTEGER NOT NULL,
  exec_class TEXT NOT NULL,
  device_state TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  origin TEXT NOT NULL DEFAULT 'measured',
  rung INTEGER NOT NULL DEFAULT 0,
  runs_per_sample INTEGER NOT NULL DEFAULT 1,
  build_ns INTEGER NOT NULL DEFAULT 0,
  measure_ns INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX trials_ids ON trials(
  generation, job_id, task, trial, attempt, incarnation, device_id, lease_epoch);
CREATE INDEX trials_workload ON trials(workload, target, threads, cache_mode);
CREATE TABLE tombstones(
  seq_first INTEGER PRIMARY KEY NOT NULL,
  seq_last INTEGER NOT NULL,
  reason TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
)sql";

// Schema 3: the plan table. `parts` has a line "workload count" per part.
constexpr std::string_view kAdded3 = R"sql(
PRAGMA user_version = 3;
CREATE TABLE plans(
  region TEXT NOT NULL,
  alternative TEXT NOT NULL,
  parts TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  PRIMARY KEY(region, alternative)
) STRICT, WITHOUT ROWID;
)sql";

// Schema 4: figures of machines.
constexpr std::string_view kAdded4 = R"sql(
PRAGMA user_version = 4;
CREATE TABLE machines(
  device TEXT PRIMARY KEY NOT NULL REFERENCES devices(fingerprint),
  figures TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
)sql";

void PutU64(std::string& out, uint64_t v) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(v >> (8 * i) & 0xff);
}

// tag, type letter, then the value: 8 bytes little-endian, or a length and bytes.
void PutCell(std::string& out, int tag, const Cell& cell) {
  PutU64(out, static_cast<uint64_t>(tag));
  if (std::holds_alternative<std::monostate>(cell)) {
    out += 'n';
  } else if (const auto* i = std::get_if<int64_t>(&cell)) {
    out += 'i';
    PutU64(out, static_cast<uint64_t>(*i));
  } else if (const auto* d = std::get_if<double>(&cell)) {
    out += 'd';
    uint64_t bits = 0;
    std::memcpy(&bits, d, sizeof(bits));
    PutU64(out, bits);
  } else {
    const auto* t = std::get_if<std::string>(&cell);
    const std::string& bytes = t != nullptr ? *t : std::get<Blob>(cell).bytes;
    out += t != nullptr ? 't' : 'b';
    PutU64(out, bytes.size());
    out += bytes;
  }
}

std::string ColumnList(const Table& table) {
  std::string out;
  for (const Column& c : table.columns) out += fmt::format("{},", c.name);
  return out + "crc";
}

Status Differs(Connection& db, int version, const std::string& want, const std::string& have) {
  return InvalidArgument(
      "'{}' is not a tuning log of schema {}, though it says so: expected {}, found {}", db.path(),
      version, want, CleanText(have, 200));
}

Status Compare(Connection& db, int version, const std::vector<std::string>& want,
               const std::vector<std::string>& have) {
  for (size_t i = 0; i < std::max(want.size(), have.size()); ++i) {
    const std::string w = i < want.size() ? want[i] : "nothing more";
    const std::string h = i < have.size() ? have[i] : "nothing more";
    if (w != h) return Differs(db, version, w, h);
  }
  return OkStatus();
}

// The objects of a database as lines of text. Asks nothing of the tables themselves, so that a
// virtual table (it has no root page) is refused before its module runs.
StatusOr<std::vector<std::string>> DescribeObjects(Connection& db) {
  WHET_ASSIGN_OR_RETURN(
      Statement objects,
      db.Prepare("SELECT type, name, tbl_name, CASE type WHEN 'index' THEN sql END, rootpage > 0 "
                 "FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\' ORDER BY "
                 "type, name"));
  std::vector<std::string> out;
  while (true) {
    WHET_ASSIGN_OR_RETURN(const bool row, objects.Step());
    if (!row) return out;
    out.push_back(fmt::format("{} {} on {} {}{}", objects.Text(0), objects.Text(1), objects.Text(2),
                              objects.Text(3), objects.Int(4) != 0 ? "" : " without pages"));
  }
}

// Columns and kinds of the tables named in AllTables and of meta.
StatusOr<std::vector<std::string>> DescribeTables(Connection& db) {
  std::vector<std::string> out;
  WHET_ASSIGN_OR_RETURN(
      Statement columns,
      db.Prepare(
          "SELECT t.name, t.type, t.wr, t.strict, c.name, c.type, c.\"notnull\", c.dflt_value, "
          "c.pk, c.hidden FROM pragma_table_list AS t, pragma_table_xinfo(t.name) AS c "
          "WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
          "ORDER BY t.name, c.cid"));
  while (true) {
    WHET_ASSIGN_OR_RETURN(const bool row, columns.Step());
    if (!row) return out;
    std::string line = "column";
    for (int i = 0; i < columns.columns(); ++i) line += fmt::format(" {}", columns.Text(i));
    out.push_back(line);
  }
}

}  // namespace

std::string_view SchemaSql(int version) {
  WHET_CHECK(version >= 1 && version <= kSchemaVersion, "schema {}", version);
  static const std::string schema3 = std::string(kSchema2) + std::string(kAdded3);
  static const std::string schema4 = schema3 + std::string(kAdded4);
  return version == 1   ? kSchema1
         : version == 2 ? kSchema2
         : version == 3 ? std::string_view(schema3)
                        : std::string_view(schema4);
}

std::string_view AddedTablesSql(int version) {
  WHET_CHECK(version == 3 || version == 4, "schema {}", version);
  return version == 3 ? kAdded3 : kAdded4;
}

const Table& MetaTable() {
  static const Table table{"meta", {{"name", 1}, {"value", 2}}};
  return table;
}

const Table& WorkloadsTable() {
  static const Table table{"workloads", {{"fingerprint", 1}, {"text", 2}, {"op_summary", 3}}};
  return table;
}

const Table& TargetsTable() {
  static const Table table{"targets", {{"fingerprint", 1}, {"text", 2}}};
  return table;
}

const Table& DevicesTable() {
  static const Table table{"devices",
                           {{"fingerprint", 1},
                            {"device_id", 2},
                            {"device_key", 3},
                            {"feature_set", 4},
                            {"identity", 5}}};
  return table;
}

const Table& JobsTable() {
  static const Table table{"jobs",
                           {{"job_id", 1},
                            {"state", 2},
                            {"spec", 3},
                            {"error", 4},
                            {"created_ms", 5},
                            {"updated_ms", 6}}};
  return table;
}

const Table& PlansTable() {
  static const Table table{"plans",
                           {{"region", 1}, {"alternative", 2}, {"parts", 3}, {"created_ms", 4}}};
  return table;
}

const Table& MachinesTable() {
  static const Table table{"machines", {{"device", 1}, {"figures", 2}, {"created_ms", 3}}};
  return table;
}

const Table& TombstonesTable() {
  static const Table table{"tombstones",
                           {{"seq_first", 1}, {"seq_last", 2}, {"reason", 3}, {"created_ms", 4}}};
  return table;
}

const Table& TrialsTable() {
  static const Table table{"trials",
                           {{"seq", 1},
                            {"task", 2},
                            {"workload", 3},
                            {"target", 4},
                            {"threads", 5},
                            {"cache_mode", 6},
                            {"generation", 7},
                            {"job_id", 8},
                            {"trial", 9},
                            {"attempt", 10},
                            {"incarnation", 11},
                            {"lease_epoch", 12},
                            {"worker_id", 13},
                            {"boot_id", 14},
                            {"device_id", 15},
                            {"status", 16},
                            {"device", 17},
                            {"trace", 18},
                            {"trace_fingerprint", 19},
                            {"initial_program", 20},
                            {"codegen_version", 21},
                            {"compiler_version", 22},
                            {"object_hash", 23},
                            {"is_default", 24},
                            {"failure", 25},
                            {"message", 26},
                            {"samples_ns", 27},
                            {"median_ns", 28},
                            {"min_ns", 29},
                            {"contended", 30},
                            {"baseline_ratio", 31},
                            {"input_seed", 32},
                            {"sandbox_bits", 33},
                            {"exec_class", 34},
                            {"device_state", 35},
                            {"created_ms", 36},
                            {"origin", 37, 2, std::string("measured")},
                            {"rung", 38, 2, int64_t{0}},
                            {"runs_per_sample", 39, 2, int64_t{1}},
                            {"build_ns", 40, 2, int64_t{0}},
                            {"measure_ns", 41, 2, int64_t{0}}}};
  return table;
}

const std::vector<const Table*>& AllTables() {
  static const std::vector<const Table*> tables = {
      &MetaTable(),  &WorkloadsTable(), &TargetsTable(), &DevicesTable(),   &JobsTable(),
      &PlansTable(), &MachinesTable(),  &TrialsTable(),  &TombstonesTable()};
  return tables;
}

uint32_t RowCrc(const Table& table, const std::vector<Cell>& cells) {
  std::string canonical = table.name;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& c = table.columns[i];
    if (c.since > 1 && cells[i] == c.default_value) continue;
    PutCell(canonical, c.tag, cells[i]);
  }
  return Crc32c(canonical);
}

std::vector<Cell> WithCrc(const Table& table, std::vector<Cell> cells) {
  const int64_t crc = RowCrc(table, cells);
  cells.emplace_back(crc);
  return cells;
}

std::string InsertSql(const Table& table, std::string_view verb) {
  std::string marks;
  for (size_t i = 0; i < table.columns.size(); ++i) marks += "?,";
  return fmt::format("{} INTO {}({}) VALUES({}?)", verb, table.name, ColumnList(table), marks);
}

std::string SelectSql(const Table& table, std::string_view tail) {
  return fmt::format("SELECT {} FROM {} {}", ColumnList(table), table.name, tail);
}

StatusOr<std::vector<Cell>> ReadChecked(const Table& table, const Statement& statement) {
  std::vector<Cell> cells;
  cells.reserve(table.columns.size());
  for (size_t i = 0; i < table.columns.size(); ++i)
    cells.push_back(statement.At(static_cast<int>(i)));
  if (statement.Int(static_cast<int>(cells.size())) == int64_t{RowCrc(table, cells)}) return cells;
  return DataLoss("{} row {} is damaged: its CRC does not match", table.name,
                  statement.Text(table.key));
}

Status CheckSchema(Connection& db, int version) {
  WHET_ASSIGN_OR_RETURN(Connection model, Connection::Open(":memory:", OpenMode::kCreate));
  WHET_RETURN_IF_ERROR(model.Exec(std::string(SchemaSql(version))));
  WHET_ASSIGN_OR_RETURN(const std::vector<std::string> want_objects, DescribeObjects(model));
  WHET_ASSIGN_OR_RETURN(const std::vector<std::string> have_objects, DescribeObjects(db));
  WHET_RETURN_IF_ERROR(Compare(db, version, want_objects, have_objects));
  WHET_ASSIGN_OR_RETURN(const std::vector<std::string> want_columns, DescribeTables(model));
  WHET_ASSIGN_OR_RETURN(const std::vector<std::string> have_columns, DescribeTables(db));
  return Compare(db, version, want_columns, have_columns);
}

}  // namespace whet::db
