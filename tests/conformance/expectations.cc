#include "tests/conformance/expectations.h"

#include <fstream>
#include <sstream>

namespace whet::conformance {
namespace {

constexpr std::string_view kKinds[] = {"type",     "sequence",       "string",
                                       "training", "dynamic-output", "operator-not-yet"};

bool IsReason(const std::string& reason) {
  const size_t space = reason.find(' ');
  const std::string kind = reason.substr(0, space);
  const bool named = space != std::string::npos;
  for (std::string_view k : kKinds) {
    if (kind == k) return named == (k == "operator-not-yet");
  }
  return false;
}

std::string KindOf(const std::string& reason) { return reason.substr(0, reason.find(' ')); }

}  // namespace

void Count(Expectations& e) {
  e.passed = e.total - static_cast<int64_t>(e.reasons.size());
  e.unsupported.clear();
  for (const auto& [test, reason] : e.reasons) ++e.unsupported[KindOf(reason)];
}

StatusOr<Expectations> ReadExpectations(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound("cannot open '{}'", path);
  Expectations e;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first, rest;
    if (!(words >> first)) continue;
    std::getline(words >> std::ws, rest);
    int64_t count = -1;
    std::string kind;
    if (first == "total" || first == "passed") {
      (first == "total" ? e.total : e.passed) = std::atoll(rest.c_str());
    } else if (first == "unsupported" && std::istringstream(rest) >> kind >> count) {
      e.unsupported[kind] = count;
    } else if (IsReason(rest)) {
      if (!e.reasons.emplace(first, rest).second)
        return InvalidArgument("{}:{}: '{}' a second time", path, number, first);
    } else {
      return InvalidArgument("{}:{}: '{}' is no reason", path, number, rest);
    }
  }
  return e;
}

std::string ToText(const Expectations& e) {
  std::string s =
      "# Tests of ONNX's conformance data that do not pass, and why. Every other one has to, and "
      "one "
      "that is\n# listed must not. Written by `conformance_test --write-expectations`; the reasons "
      "are explained in\n# expectations.h.\n";
  s += fmt::format("total {}\npassed {}\n", e.total, e.passed);
  for (const auto& [kind, n] : e.unsupported) s += fmt::format("unsupported {} {}\n", kind, n);
  s += "\n";
  for (const auto& [test, reason] : e.reasons) s += test + " " + reason + "\n";
  return s;
}

}  // namespace whet::conformance
