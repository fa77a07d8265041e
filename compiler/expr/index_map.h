// An index map takes logical indices to physical ones: (n, c, h, w) -> (n, h, w, c). One
// abstraction for edge layouts, packing, NCHWc and register tiles. Physical extents are the maps'
// ranges over the logical shape; a map like c -> (c // 16, c % 16) over 24 channels has 32 physical
// ones: the rest is padding. Text form: "(a, b) -> (b, a // 4, a % 4)"; parse(print(x)) == x.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/expr/expr.h"

namespace whet::expr {

struct IndexMap {
  std::vector<Var> vars;
  std::vector<Expr> out;

  static StatusOr<IndexMap> Parse(std::string_view text);
  static IndexMap Identity(int rank);
  static IndexMap Permutation(const std::vector<int>& order);  // out[i] = vars[order[i]]
  std::string ToString() const;
  bool IsIdentity() const;
  // When the map only permutes: order with out[i] = vars[order[i]]; else empty.
  std::vector<int> AsPermutation() const;
  std::vector<Expr> Apply(const std::vector<Expr>& indices) const;
  std::vector<int64_t> ApplyToShape(const std::vector<int64_t>& shape) const;
};

}  // namespace whet::expr
