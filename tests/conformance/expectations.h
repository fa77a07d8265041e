// expectations.txt: which tests do not pass, and why; every other test has to. Sorted, so that two
// people who add operators rarely meet in it.
//
//   # text to the end of the line is a comment
//   total 1072                      the numbers of the file itself, checked by `--summary`
//   passed 650
//   unsupported type 100
//   node/test_acos type             a test and its reason
//
// Reasons: type, sequence, string, training, dynamic-output, operator-not-yet NAME.
#pragma once
#include <map>
#include <string>

#include "compiler/support/status.h"

namespace whet::conformance {

struct Expectations {
  std::map<std::string, std::string> reasons;  // by test
  int64_t total = 0, passed = 0;
  std::map<std::string, int64_t> unsupported;  // by the first word of the reason
};

// Lines that are no expectation, and reasons that are none, are errors that name the line.
StatusOr<Expectations> ReadExpectations(const std::string& path);
std::string ToText(const Expectations& e);
// `reasons` and `total` given, the other numbers follow.
void Count(Expectations& e);

}  // namespace whet::conformance
