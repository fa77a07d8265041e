// What holds of a program between any two primitives, checked after each: a primitive that would
// break one of these is refused, whatever it did. Kept in one place because most of them can be
// broken by several primitives.
//   - loop and block names are unique: a trace refers to them
//   - a buffer's writers come before its readers
//   - a vectorized loop is innermost, a parallel one outermost; neither is reduced over, but the
//     lanes of a vector may be combined into one element by a reduction that has started before;
//     what their iterations write outside of themselves is otherwise different elements
//   - a reduction's first step comes first for every element, and every step once
//   - expressions, nests and buffers have bounded sizes: a trace may come from a peer
// Pure functions.
#pragma once
#include "compiler/loop/loop.h"

namespace whet::schedule {

Status CheckInvariants(const loop::Program& p);

// Whether the values of `indices` tell those of all `unknown` variables, when every other variable
// is known: then two different iterations never give the same indices. Ranges of all variables are
// in `bounds`. False also when in doubt.
bool Determine(const std::vector<expr::Expr>& indices, const std::vector<expr::Var>& unknown,
               const expr::Bounds& bounds);

// Whether no element is written twice by the loops of `site` from `first_loop` on, the reduced ones
// standing still.
bool OncePerElement(const loop::BlockSite& site, size_t first_loop);

// Whether no iteration of a block's own axes, the reduced ones too, is run twice.
bool OncePerIteration(const loop::BlockSite& site);

// Whether a reduction over `loop` alone can run on a vector whose lanes are combined at the end: it
// has no first step any more (decompose_reduction), and no condition tells lanes apart.
bool CombinesLanes(const loop::BlockSite& site, const loop::ForNode* loop);

// Whether each element of the program's only output is written once. Then the output may have the
// bytes of an input of which each element goes into the element at the same place alone: whatever
// is loaded from there is loaded before that place is written. False also when in doubt.
bool WritesOutputOnce(const loop::Program& p);

}  // namespace whet::schedule
