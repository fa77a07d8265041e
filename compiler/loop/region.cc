#include "compiler/loop/region.h"

#include <algorithm>

namespace whet::loop {
namespace {

bool MentionsInner(const expr::Expr& e, const expr::Bounds& inner) {
  bool found = false;
  expr::Visit(
      e, [&](const expr::ExprNode& n) { found |= n.kind == expr::Kind::kVar && inner.Find(&n); });
  return found;
}

}  // namespace

DimRange RangeOf(const expr::Expr& index, const LoopRanges& loops, int64_t dim) {
  const expr::Linear l = expr::ToLinear(expr::Simplify(index, loops.all));
  expr::Linear fixed, varying;
  fixed.constant = l.constant;
  for (const auto& [atom, c] : l.terms) {
    (MentionsInner(atom, loops.inner) ? varying : fixed).terms.emplace_back(atom, c);
  }
  auto range = loops.all.Of(varying.ToExpr());
  if (!range) return {expr::Int(0), dim};
  fixed.constant += range->lo;
  DimRange r{fixed.ToExpr(), range->hi - range->lo + 1};
  if (r.extent >= dim && loops.all.Of(r.lo)) return {expr::Int(0), dim};
  return r;
}

DimRange Union(const DimRange& a, const DimRange& b, const LoopRanges& loops, int64_t dim) {
  const expr::Linear d = expr::Add(expr::ToLinear(b.lo), expr::ToLinear(a.lo), -1);
  if (!d.terms.empty()) return {expr::Int(0), dim};
  const int64_t lo = std::min<int64_t>(0, d.constant);
  const int64_t hi = std::max(a.extent, d.constant + b.extent);
  return {expr::Simplify(a.lo + lo, loops.all), hi - lo};
}

}  // namespace whet::loop
