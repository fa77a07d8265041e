// Lines of an exported tuning log, which anyone may have edited: any line gives a row or an error,
// and a row that was read is written as a line that reads as the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "db/record/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  (void)whet::db::ParseHeaderLine(line);
  auto parsed = whet::db::ParseLine(line);
  if (!parsed.ok() || !parsed->row.has_value()) return 0;
  const std::string text = whet::db::RowLine(*parsed->row);
  auto again = whet::db::ParseLine(text);
  if (!again.ok() || !again->row.has_value() || whet::db::RowLine(*again->row) != text)
    std::abort();
  return 0;
}
