// A sum over a 3x3 window that slides by one element, as a block shows it: what `winograd` rewrites
// and its rule looks for. Pure functions.
#pragma once
#include <vector>

#include "compiler/loop/loop.h"

namespace whet::schedule {

// The block's value is data * weight. Numbers are those of the block's iteration variables.
struct WindowSum {
  expr::Expr data, weight;
  // Spatial iterations, and the reduced ones of extent 3 whose sums with them `data` reads at.
  int row = -1, column = -1, row_tap = -1, column_tap = -1;
  std::vector<int> images;    // the other spatial iterations of `data`, or of neither factor
  std::vector<int> filters;   // spatial iterations of `weight` alone
  std::vector<int> channels;  // the other reduced ones
};

// FailedPrecondition, in words, where the block is none.
StatusOr<WindowSum> FindWindowSum(const loop::BlockNode& b);

// `data` with the position row + row_tap at `row` and column + column_tap at `column`.
expr::Expr DataAt(const loop::BlockNode& b, const WindowSum& sum, const expr::Expr& row,
                  const expr::Expr& column);

}  // namespace whet::schedule
