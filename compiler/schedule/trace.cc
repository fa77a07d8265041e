#include "compiler/schedule/trace.h"

#include <charconv>

namespace whet::schedule {
namespace {

constexpr std::string_view kHeader = "whet-trace 1";
constexpr size_t kMaxText = 256 << 10;
constexpr size_t kMaxInstrs = 4096;
constexpr size_t kMaxArgs = 16;
constexpr size_t kMaxArgBytes = 256;

StatusOr<int64_t> Number(std::string_view s) {
  int64_t v = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (error != std::errc() || end != s.data() + s.size())
    return InvalidArgument("'{}' is not a number", s);
  return v;
}

bool PlainWord(std::string_view s) {
  if (s.empty()) return false;
  for (char c : s) {
    if (c == ' ' || c == '"' || c == '\n' || static_cast<unsigned char>(c) < 0x20) return false;
  }
  return true;
}

// Words separated by single blanks; a quoted word may hold blanks, not quotes.
StatusOr<std::vector<std::string>> Words(std::string_view line) {
  std::vector<std::string> words;
  size_t i = 0;
  while (i < line.size()) {
    const bool quoted = line[i] == '"';
    const size_t begin = i + quoted;
    const size_t end =
        quoted ? line.find('"', begin) : std::min(line.find(' ', begin), line.size());
    if (end == std::string_view::npos) return InvalidArgument("unterminated quote");
    if (end == begin) return InvalidArgument("an empty argument");
    words.emplace_back(line.substr(begin, end - begin));
    if (words.back().find('"') != std::string::npos)
      return InvalidArgument("a quote inside '{}'", words.back());
    if (words.back().size() > kMaxArgBytes)
      return InvalidArgument("an argument of {} bytes; the limit is {}", words.back().size(),
                             kMaxArgBytes);
    i = end + quoted;
    if (i < line.size()) {
      if (line[i] != ' ' || i + 1 == line.size())
        return InvalidArgument("expected one blank between arguments");
      ++i;
    }
    if (words.size() > kMaxArgs + 1) return InvalidArgument("more than {} arguments", kMaxArgs);
  }
  return words;
}

StatusOr<std::pair<std::string, int>> NameAndVersion(const std::string& word) {
  const size_t at = word.find('@');
  if (at == std::string::npos || at == 0) return InvalidArgument("'{}' is not name@version", word);
  WHET_ASSIGN_OR_RETURN(int64_t v, Number(std::string_view(word).substr(at + 1)));
  if (v < 1 || v > 1000) return InvalidArgument("'{}' has a version outside 1..1000", word);
  return std::make_pair(word.substr(0, at), static_cast<int>(v));
}

Status ParseLine(std::string_view line, Trace& trace) {
  if (line.substr(0, 5) == "rule ") {
    if (!trace.rule.empty() || !trace.instrs.empty()) return InvalidArgument("a second rule line");
    line.remove_prefix(5);
    // Knob lists can be longer than an instruction's arguments.
    bool first = true;
    while (!line.empty()) {
      const size_t end = std::min(line.find(' '), line.size());
      const std::string word(line.substr(0, end));
      line.remove_prefix(std::min(end + 1, line.size()));
      if (first) {
        WHET_ASSIGN_OR_RETURN(auto nv, NameAndVersion(word));
        trace.rule = nv.first;
        trace.rule_version = nv.second;
        first = false;
        continue;
      }
      const size_t eq = word.find('=');
      if (eq == std::string::npos || eq == 0)
        return InvalidArgument("'{}' is not knob=value", word);
      WHET_ASSIGN_OR_RETURN(int64_t v, Number(std::string_view(word).substr(eq + 1)));
      trace.knobs.emplace_back(word.substr(0, eq), v);
      if (trace.knobs.size() > 64) return InvalidArgument("more than 64 knobs");
    }
    return trace.rule.empty() ? InvalidArgument("an empty rule line") : OkStatus();
  }
  WHET_ASSIGN_OR_RETURN(std::vector<std::string> words, Words(line));
  if (words.empty()) return InvalidArgument("an empty line");
  if (!PlainWord(words[0])) return InvalidArgument("'{}' is not a primitive's name", words[0]);
  WHET_ASSIGN_OR_RETURN(auto nv, NameAndVersion(words[0]));
  Instr instr{nv.first, nv.second, {}};
  instr.args.assign(words.begin() + 1, words.end());
  trace.instrs.push_back(std::move(instr));
  if (trace.instrs.size() > kMaxInstrs)
    return InvalidArgument("more than {} instructions", kMaxInstrs);
  return OkStatus();
}

}  // namespace

std::string Trace::ToString() const {
  std::string s(kHeader);
  s += '\n';
  if (!rule.empty()) {
    s += fmt::format("rule {}@{}", rule, rule_version);
    for (const auto& [k, v] : knobs) s += fmt::format(" {}={}", k, v);
    s += '\n';
  }
  for (const Instr& i : instrs) {
    s += fmt::format("{}@{}", i.primitive, i.version);
    for (const std::string& a : i.args) s += PlainWord(a) ? " " + a : " \"" + a + "\"";
    s += '\n';
  }
  return s;
}

StatusOr<Trace> Trace::Parse(std::string_view text) {
  if (text.size() > kMaxText)
    return InvalidArgument("trace of {} bytes; the limit is {}", text.size(), kMaxText);
  Trace trace;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return InvalidArgument("trace line {}: no line end", number + 1);
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++number;
    if (number == 1) {
      if (line != kHeader)
        return InvalidArgument("not a trace: its first line is '{}', expected '{}'",
                               line.substr(0, 40), kHeader);
      continue;
    }
    WHET_RETURN_IF_ERROR(Annotate(ParseLine(line, trace), fmt::format("trace line {}", number)));
  }
  if (number == 0) return InvalidArgument("an empty trace");
  return trace;
}

}  // namespace whet::schedule
