// A small scanner for the text forms of graphs and workloads. Blanks between tokens do not matter,
// `#` starts a comment. It reads untrusted text: every method is total and errors name line and
// column. Borrows the text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/support/status.h"

namespace whet::graph {

class Scanner {
 public:
  Scanner(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool AtEnd();
  bool Peek(std::string_view token);
  bool Accept(std::string_view token);  // consumes it when it is next
  Status Expect(std::string_view token);
  StatusOr<std::string> Word();    // [A-Za-z0-9_.]+
  StatusOr<std::string> Name();    // a word that may hold ':', '/' and '-' too, or a quoted string
  StatusOr<std::string> Quoted();  // "..." with \" \\ \n \xHH
  StatusOr<int64_t> Integer();
  StatusOr<std::string_view> Until(
      std::string_view end);  // consumes `end`, which is not part of the result
  std::string_view Rest() const { return text_.substr(at_); }
  void Advance(size_t n) { at_ += n; }
  Status Error(std::string_view message) const;

 private:
  void Space();
  std::string_view text_;
  std::string_view what_;  // "graph", "workload": for messages
  size_t at_ = 0;
};

// The text that Name() reads back: bare where possible, else quoted.
std::string QuoteName(std::string_view name);
std::string Quote(std::string_view text);

}  // namespace whet::graph
