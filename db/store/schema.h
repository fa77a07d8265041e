// The tables of a tuning log: their SQL text for every schema version, and the column lists that
// writing, reading and checking share. Internal to db/store.
//
// Every table has a column `crc`: the CRC-32C of the row in a canonical form, made of one
// item per column: its tag (stable for ever), its type and its value. A column that came with a
// later schema is left out while it has its default, so a migration that adds columns keeps every
// row's check as it is: it neither launders a damaged row nor needs to rewrite a good one.
//
// Numbers of a column list are the order of its INSERT and SELECT, not the order in the file.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "db/store/sqlite.h"

namespace whet::db {

inline constexpr int kSchemaVersion = 4;
inline constexpr int64_t kApplicationId = 0x57484554;  // "WHET"

// The SQL that creates an empty log of schema `version`, 1..kSchemaVersion, pragmas included.
std::string_view SchemaSql(int version);
// What has to run on an empty or filled log of schema `version - 1`, where that is only new tables.
std::string_view AddedTablesSql(int version);

struct Column {
  const char* name;
  int tag;                  // in the canonical form; never reused
  int since = 1;            // the schema that brought it
  Cell default_value = {};  // of a column with since > 1
};

struct Table {
  const char* name;
  std::vector<Column> columns;  // without crc
  int key = 0;                  // the column that names a row in messages
};

const Table& MetaTable();
const Table& WorkloadsTable();
const Table& TargetsTable();
const Table& DevicesTable();
const Table& JobsTable();
const Table& PlansTable();
const Table& MachinesTable();
const Table& TrialsTable();
const Table& TombstonesTable();
const std::vector<const Table*>& AllTables();

uint32_t RowCrc(const Table& table, const std::vector<Cell>& cells);
std::vector<Cell> WithCrc(const Table& table, std::vector<Cell> cells);  // what InsertSql binds

std::string InsertSql(const Table& table,
                      std::string_view verb);  // verb: "INSERT", "INSERT OR IGNORE"
std::string SelectSql(const Table& table, std::string_view tail);  // columns in order, then crc

// The row a SelectSql statement stands on; DataLoss names the row if its check does not hold.
StatusOr<std::vector<Cell>> ReadChecked(const Table& table, const Statement& statement);

// Compares the open database with what SchemaSql(version) makes: InvalidArgument names the first
// object that differs. Works on structure (columns, types, keys, indexes), not on SQL text, since a
// migrated log words its tables differently.
Status CheckSchema(Connection& db, int version);

}  // namespace whet::db
