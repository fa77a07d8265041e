// Indices that come as data (Gather, Scatter): never trusted. Negative ones count from the end;
// what is still outside is clamped where something is read and matches nothing where something is
// written, in the expressions as in the references. Used by records only.
#pragma once
#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

inline Status CheckIndexType(const TensorType& t) {
  if (t.dtype == DType::kI64 || t.dtype == DType::kI32) return OkStatus();
  return InvalidArgument("indices are {}; they must be i32 or i64", ToString(t.dtype));
}

// The element of `indices` at `at` as i64, counted from the end where negative; may be outside.
inline Expr LoadIndex(const Buffer& indices, std::vector<Expr> at, int64_t extent) {
  Expr k = expr::Load(indices, std::move(at));
  if (k->dtype != DType::kI64) k = expr::Cast(DType::kI64, k);
  return expr::Select(expr::Lt(k, expr::Int(0)), k + extent, k);
}
inline Expr ClampIndex(const Expr& k, int64_t extent) {
  return expr::Max(expr::Min(k, expr::Int(extent - 1)), expr::Int(0));
}

// The same of element `i` of a value.
inline int64_t IndexValue(const RefTensor& indices, int64_t i, int64_t extent) {
  const int64_t k = WordAt(indices, i);
  return k < 0 ? k + extent : k;
}
inline int64_t ClampedValue(const RefTensor& indices, int64_t i, int64_t extent) {
  return std::clamp<int64_t>(IndexValue(indices, i, extent), 0, extent - 1);
}

}  // namespace whet::ops
