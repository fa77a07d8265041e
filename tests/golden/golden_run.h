// Runs one side of a golden case: parses the program, takes the steps, checks after each that the
// program still prints and parses to itself, verifies, and computes what the input computes.
#pragma once
#include <string>

#include "compiler/loop/interpret.h"
#include "compiler/schedule/trace.h"
#include "tests/golden/golden_file.h"

namespace whet::golden {

struct Outcome {
  std::vector<loop::Program> programs;  // prepack and main once split, else one
  schedule::Trace trace;
  std::string Text() const;
};

// `steps_done` counts the steps that succeeded, so that a refusal can be told from an earlier
// failure.
StatusOr<Outcome> Run(const Source& source, size_t& steps_done);

}  // namespace whet::golden
