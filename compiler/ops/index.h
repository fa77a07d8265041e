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

// Before elements are picked by `index`: makes room for the errors that one of it makes.
inline void PreparePick(const RefTensor& x, const RefTensor& index, RefTensor& y, bool want_err) {
  PrepareCopy(x, y, want_err);
  if (want_err && !index.err.empty()) y.err.resize(y.value.size());
}
// The places along a dimension that an index may name, clamped: `first` to `last`.
struct Reach {
  int64_t first = 0, last = 0;
};
inline Reach ReachOf(const RefTensor& indices, int64_t i, int64_t extent) {
  const int64_t at = ClampedValue(indices, i, extent);
  const double e = indices.ErrAt(i) * kErrUnit, k = indices.value[static_cast<size_t>(i)];
  if (e == 0) return {at, at};
  const auto end = static_cast<double>(extent);
  // One that may be negative may count from the end.
  if (!(k - e >= 0)) return {0, extent - 1};
  return {static_cast<int64_t>(std::min(k - e, end - 1)),
          static_cast<int64_t>(std::min(k + e, end - 1))};
}
// y[i] = x[base + at * stride] for the place an index names; others it may name are admitted.
inline void Pick(const RefTensor& x, int64_t base, int64_t stride, int64_t at, const Reach& reach,
                 RefTensor& y, int64_t i) {
  CopyElement(x, base + at * stride, y, i);
  for (int64_t k = reach.first; reach.first != reach.last && k <= reach.last; ++k)
    AdmitElement(x, base + k * stride, y, i);
}

}  // namespace whet::ops
