// Import: the half of LogWriter that reads an exported file, one transaction for all of it.
#include <istream>

#include "db/record/jsonl.h"
#include "db/store/log_writer.h"

namespace whet::db {
namespace {

// Reads lines of bounded length: a file without line ends must not fill memory.
class LineReader {
 public:
  explicit LineReader(std::istream& in) : in_(in) {}

  // The next line, without its end; false at the end of the file. A last line without an end
  // counts: the parser will say what is wrong with half a line.
  StatusOr<bool> Next(std::string& line) {
    line.clear();
    ++number_;
    std::streambuf* buffer = in_.rdbuf();
    while (true) {
      const int c = buffer->sbumpc();
      if (c == std::char_traits<char>::eof()) return !line.empty();
      if (c == '\n') return true;
      if (line.size() >= kMaxLineBytes) {
        return InvalidArgument("longer than the limit of {} bytes a line", kMaxLineBytes);
      }
      line.push_back(static_cast<char>(c));
    }
  }
  int64_t number() const { return number_; }

 private:
  std::istream& in_;
  int64_t number_ = 0;
};

// Codes that the disk or the log is to blame for, not the file.
bool IsOfLog(const Status& s) {
  return !absl::IsInvalidArgument(s) && !absl::IsFailedPrecondition(s);
}

}  // namespace

StatusOr<ImportReport> LogWriter::Import(std::istream& in, const std::string& name) {
  LineReader lines(in);
  std::string line;
  ImportReport report;
  const auto read_all = [&]() -> Status {
    WHET_ASSIGN_OR_RETURN(const bool any, lines.Next(line));
    if (!any) return InvalidArgument("the file is empty");
    WHET_RETURN_IF_ERROR(ParseHeaderLine(line).status());
    int64_t rows = 0;
    while (true) {
      WHET_ASSIGN_OR_RETURN(const bool more, lines.Next(line));
      if (!more) return InvalidArgument("the file ends without an 'end' line: it was cut off");
      WHET_ASSIGN_OR_RETURN(ParsedLine parsed, ParseLine(line));
      if (parsed.end) {
        if (*parsed.end == rows) break;
        return InvalidArgument("the 'end' line counts {} rows, the file has {}", *parsed.end, rows);
      }
      ++rows;
      WHET_ASSIGN_OR_RETURN(const AppendVerdict verdict, ApplyImported(*std::move(parsed.row)));
      const bool first = verdict.delivery == AppendVerdict::Delivery::kFirst;
      ++(first ? report.added : report.repeated);
    }
    WHET_ASSIGN_OR_RETURN(const bool more, lines.Next(line));
    if (more) return InvalidArgument("text after the 'end' line");
    return OkStatus();
  };
  WHET_RETURN_IF_ERROR(Begin());
  Status status = read_all();
  report.lines = lines.number() - 1;
  if (status.ok()) {
    status = Finish();
  } else if (!IsOfLog(status)) {
    status = InvalidArgument("'{}', line {}: {}; nothing was imported", name, lines.number(),
                             Message(status));
  }
  if (status.ok()) return report;
  Abandon();
  return status;
}

}  // namespace whet::db
