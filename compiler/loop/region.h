// Access regions: which part of a buffer a statement touches while some loops vary and the others
// stay fixed. The base of compute_at, reverse_compute_at and buffer compaction.
#pragma once
#include <vector>

#include "compiler/expr/simplify.h"
#include "compiler/loop/loop.h"

namespace whet::loop {

struct DimRange {
  expr::Expr lo;       // in the fixed loops' variables
  int64_t extent = 1;  // elements from lo on
};

// The loops around an access: those in `inner` vary (with their ranges), all others are fixed;
// `all` has the ranges of every loop, for what has to be bounded as a whole.
struct LoopRanges {
  expr::Bounds inner;
  expr::Bounds all;
  void AddFixed(const ForNode& f) { all.Set(f.var, {f.begin, f.begin + f.extent - 1}); }
  void AddInner(const ForNode& f) {
    AddFixed(f);
    inner.Set(f.var, {f.begin, f.begin + f.extent - 1});
  }
};

// Range of one index; falls back to the range over all loops, then to [0, dim).
DimRange RangeOf(const expr::Expr& index, const LoopRanges& loops, int64_t dim);
// The smallest range that provably covers both; [0, dim) when their distance is not a constant.
DimRange Union(const DimRange& a, const DimRange& b, const LoopRanges& loops, int64_t dim);

}  // namespace whet::loop
