// From a scheduled program to a loadable candidate: kernels, descriptor, shared library. A
// candidate is a model with one step, plus a prepack step when weights are packed; its weights are
// parameters that the caller supplies.
#pragma once
#include <string>

#include "compiler/codegen/codegen.h"

namespace whet::codegen {

struct Candidate {
  std::string object;  // the kernels and the descriptor function
  std::string symbol;  // of that function
  ObjectStats stats;
  std::string trace;  // for the caller to fill in
};

// `workload` is the fingerprint's text; `logical_shapes` of inputs and outputs are the physical
// ones (a measurement works on physical data).
StatusOr<Candidate> BuildCandidate(const loop::Program& scheduled, const std::string& workload,
                                   const Target& target);
// Writes the object to `dir` and links it. The directory is the caller's to delete.
Status LinkCandidate(const Candidate& candidate, const std::string& dir,
                     const std::string& out_path);

}  // namespace whet::codegen
