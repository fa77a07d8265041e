// The exchange form of a log: JSON Lines, one object a line, so that a file can be read, filtered
// and joined with ordinary tools.
//   {"kind":"whet-log","version":1,"log_id":…,"generation":…}     first line
//   {"kind":"workload"|"device"|"job"|"plan"|"machine"|"trial", …}           references come before
//   their use
//   {"kind":"end","rows":N}                                        last line: a cut file is noticed
// Reading is strict: unknown kinds, unknown or missing fields, wrong types, numbers that are not
// finite and lines over kMaxLineBytes are refused. Seeds are decimal strings: many readers of JSON
// keep only 53 bits of a number. Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "db/record/record.h"

namespace whet::db {

inline constexpr int kJsonlVersion = 1;
// The largest honest line is a workload or job of 1 MiB whose every byte is escaped as \u00XX.
inline constexpr size_t kMaxLineBytes = 8 << 20;

struct JsonlHeader {
  int version = kJsonlVersion;
  std::string log_id;
  std::string generation;
};

std::string HeaderLine(const JsonlHeader& header);
std::string RowLine(const Row& row);
std::string EndLine(int64_t rows);

// Logs of AutoTVM and MetaSchedule are refused by name. Their records are (template or workload
// module of TVM, its configuration or trace, seconds): without TVM's templates neither the kernel
// nor its operator's layouts can be told, so that not even the times are of anything we have.
StatusOr<JsonlHeader> ParseHeaderLine(std::string_view line);

struct ParsedLine {
  std::optional<Row> row;      // normalized, not yet marked as imported
  std::optional<int64_t> end;  // the row count of the end line
};
StatusOr<ParsedLine> ParseLine(std::string_view line);

}  // namespace whet::db
