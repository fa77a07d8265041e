// Reads what ToString(Program) prints: parse(print(p)) prints the same text again and means the
// same program. One line per parameter, buffer, loop, condition and store, two per block; a body is
// indented by two more blanks:
//
//   program NAME
//   input|output|workspace NAME: [const ]TYPE SCOPE[D,D,...]      as many as there are, then
//   buffer NAME: TYPE SCOPE[D,...]
//   for|parallel|vectorized|unrolled VAR in [BEGIN, END)[ KEY=VALUE]...
//     block NAME([reduce ]ITER:EXTENT = BINDING, ...)[ if PREDICATE]
//       OUT[INDEX, ...] [REDUCER]= VALUE[ from INIT]
//     if CONDITION
//       OUT[INDEX, ...] = VALUE
//
// Made for tests and dumps, safe for any bytes: types, ranks and names are checked, and length,
// nesting, sizes have caps. What the parser accepts still has to pass Verify before anything else
// looks at it.
#pragma once
#include <string_view>

#include "compiler/loop/loop.h"

namespace whet::loop {

inline constexpr size_t kMaxProgramBytes = 16 << 20;
inline constexpr int kMaxProgramDepth = 128;               // loops and conditions in one another
inline constexpr int64_t kMaxElements = int64_t{1} << 40;  // of one buffer

StatusOr<Program> Parse(std::string_view text);

}  // namespace whet::loop
