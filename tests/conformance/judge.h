// Takes one test through the compiler: import, graph passes, partition, default schedules, code,
// link, load, run on the test's inputs, compare with its outputs. lld and compiled code run in this
// process, so the caller gives each test a process of its own.
#pragma once
#include <string>

#include "compiler/support/status.h"
#include "tests/conformance/suite.h"

namespace whet::conformance {

enum class Verdict { kPassed, kUnsupported, kFault };

struct Outcome {
  Verdict verdict = Verdict::kFault;
  // Of kUnsupported: "type", "sequence", "string", "training", "dynamic-output" or
  // "operator-not-yet NAME".
  std::string reason;
  std::string detail;   // for people; what went wrong
  bool folded = false;  // the outputs are constants once the inputs that have to be are bound
};

// Inputs that the importer wants as constants (shapes, axes, ...) are bound to the test's values,
// as few as make it import. Floats pass within 1e-5 of the largest element of the output (2^-10 for
// f16, 2^-7 for bf16), everything else exactly.
Outcome Judge(const TestCase& test, const std::string& artifact_path);

// Once per process, before the first fork: loads code generation.
Status Prepare();

}  // namespace whet::conformance
