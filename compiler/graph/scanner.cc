#include "compiler/graph/scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace whet::graph {
namespace {

bool IsAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool IsWord(char c) { return IsAlnum(c) || c == '_' || c == '.'; }
bool IsName(char c) { return IsWord(c) || c == ':' || c == '/' || c == '-'; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Status Scanner::Error(std::string_view message) const {
  const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return InvalidArgument("{} text, line {}, column {}: {}", what_, line, before.size() - start + 1,
                         message);
}

void Scanner::Space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

bool Scanner::AtEnd() {
  Space();
  return at_ >= text_.size();
}

bool Scanner::Peek(std::string_view token) {
  Space();
  if (text_.substr(at_, token.size()) != token) return false;
  // A word token must end there: "in" is not the start of "input".
  const size_t end = at_ + token.size();
  return !IsWord(token.back()) || end >= text_.size() || !IsWord(text_[end]);
}

bool Scanner::Accept(std::string_view token) {
  if (!Peek(token)) return false;
  at_ += token.size();
  return true;
}

Status Scanner::Expect(std::string_view token) {
  return Accept(token) ? OkStatus() : Error(fmt::format("expected '{}'", token));
}

StatusOr<std::string> Scanner::Word() {
  Space();
  const size_t begin = at_;
  while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
  if (begin == at_) return Error("expected a word");
  return std::string(text_.substr(begin, at_ - begin));
}

StatusOr<std::string> Scanner::Name() {
  if (Peek("\"")) return Quoted();
  const size_t begin = at_;
  while (at_ < text_.size() && IsName(text_[at_])) ++at_;
  if (begin == at_) return Error("expected a name");
  return std::string(text_.substr(begin, at_ - begin));
}

StatusOr<std::string> Scanner::Quoted() {
  WHET_RETURN_IF_ERROR(Expect("\""));
  std::string s;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] != '\\') {
      s += text_[at_++];
      continue;
    }
    if (at_ + 1 >= text_.size()) break;
    const char c = text_[at_ + 1];
    at_ += 2;
    if (c == 'n') {
      s += '\n';
    } else if (c == 'x') {
      const int hi = at_ < text_.size() ? HexDigit(text_[at_]) : -1;
      const int lo = at_ + 1 < text_.size() ? HexDigit(text_[at_ + 1]) : -1;
      if (hi < 0 || lo < 0) return Error("expected two hex digits after \\x");
      s += static_cast<char>(hi * 16 + lo);
      at_ += 2;
    } else if (c == '"' || c == '\\') {
      s += c;
    } else {
      return Error("unknown escape");
    }
  }
  if (at_ >= text_.size()) return Error("string without an end");
  ++at_;
  return s;
}

StatusOr<int64_t> Scanner::Integer() {
  Space();
  int64_t v = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), v);
  if (error != std::errc()) return Error("expected an integer");
  at_ += static_cast<size_t>(end - begin);
  return v;
}

StatusOr<std::string_view> Scanner::Until(std::string_view end) {
  Space();
  const size_t found = text_.find(end, at_);
  if (found == std::string_view::npos) return Error(fmt::format("expected '{}'", end));
  const std::string_view r = text_.substr(at_, found - at_);
  at_ = found + end.size();
  return r;
}

std::string Quote(std::string_view text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      s += '\\';
      s += c;
    } else if (c == '\n') {
      s += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      s += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      s += c;
    }
  }
  return s + "\"";
}

std::string QuoteName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), IsName) ? std::string(name)
                                                                        : Quote(name);
}

}  // namespace whet::graph
