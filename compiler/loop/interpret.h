// The interpreter: runs a program at any stage, blocks or stores, one element at a time. It is the
// oracle for every pass, primitive and backend at small extents, and slow by design (a tree walk).
// Arithmetic follows the types: f32 is rounded after each operation; a fused multiply-add is not
// modelled.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "compiler/loop/loop.h"

namespace whet::loop {

// Values of each buffer, row-major over its (physical) shape; f32 values are exactly representable.
using Memory = std::map<std::string, std::vector<double>>;

// Inputs must be in `memory`; outputs, workspaces and intermediates are created, filled with NaN.
// Errors: a missing or wrongly sized input, an index outside its buffer (with the place), more than
// `max_steps` loop iterations and stores.
Status Interpret(const Program& p, Memory& memory, int64_t max_steps = int64_t{1} << 32);

}  // namespace whet::loop
