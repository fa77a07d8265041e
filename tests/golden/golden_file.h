// Golden files: small programs as text, what is done to them, and what must come out. A file is a
// list of sections, each a line starting "== " and the lines up to the next; '#' lines before the
// first section say what the file is about.
//
//   == input NAME            a program that cases of this file share
//   == case TITLE            "use NAME", or a program's text
//   == run                   steps, one a line; may be left out
//     split@1 a.i 4 o i      an instruction of a trace
//     pass simplify          a lowering pass by name, or split_prepack
//     lower                  the split and every pass
//     rule matmul TARGET     the rule's default schedule
//   then one of
//   == expect                the exact text of the resulting program (two after split_prepack)
//   == expect trace          the exact text of the schedule's trace
//   == same                  another program (or "use NAME"); with its own "== run" it must end as
//                            the same text
//   == error                 a piece of the message with which the last step, or without steps the
//                            input, is refused
//
// Whatever the verb, every program on the way is printed and parsed again, verified, and
// interpreted on seeded inputs against the input it came from. `golden_test --update` writes the
// expected texts anew.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet::golden {

enum class Verb { kExpect, kExpectTrace, kSame, kError };

struct Source {
  std::string program;  // its text
  std::vector<std::string> steps;
};

struct Case {
  std::string title;
  Source source;
  Verb verb = Verb::kExpect;
  Source other;          // of `same`
  std::string expected;  // a text, or a piece of a message
  size_t section = 0;    // the one that --update replaces
};

struct Section {
  std::string header;  // without "== "
  std::string body;    // whole lines
};

struct File {
  std::string comment;
  std::vector<Section> sections;
  std::vector<Case> cases;

  std::string ToString() const;
};

StatusOr<File> Parse(std::string_view text);

}  // namespace whet::golden
