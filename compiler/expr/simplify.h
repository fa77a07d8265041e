// Integer algebra for index expressions: canonical linear forms, bounds, and a simplifier that uses
// both. It proves what tiling needs: (o*4 + i) // 4 == o and (o*4 + i) % 4 == i for 0 <= i < 4,
// comparisons by interval, and the cancellation of a region's start from an index inside it.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "compiler/expr/expr.h"

namespace whet::expr {

struct Interval {  // inclusive
  int64_t lo = 0;
  int64_t hi = 0;
  bool single() const { return lo == hi; }
};

// Ranges of variables (by identity). Small: a loop nest's depth.
class Bounds {
 public:
  void Set(const Var& v, Interval range);
  const Interval* Find(const ExprNode* v) const;
  // The range of an integer expression; nullopt where an unknown variable or a load makes it
  // unbounded.
  std::optional<Interval> Of(const Expr& e) const;
  // true/false when the condition is decided by the ranges alone.
  std::optional<bool> Decide(const Expr& cond) const;

 private:
  std::vector<std::pair<const ExprNode*, Interval>> ranges_;
};

// constant + sum of coefficient * atom; atoms are variables or non-linear subexpressions, in
// structural order.
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;  // coefficients are not 0
  Expr ToExpr(DType type = DType::kI64) const;  // `type`: of the constant, when there is no term
  int64_t CoefficientOf(const Var& v) const;
};
Linear ToLinear(const Expr& e);
Linear Add(const Linear& a, const Linear& b, int64_t scale_b = 1);
// c*n * (x // n) + c * (x % n) becomes c * x.
Linear JoinDivMod(const Linear& l);

Expr Simplify(const Expr& e, const Bounds& bounds);
// The same, and quotients of tiled sums: (o*32 + i) // 64 == o // 2 for 0 <= i < 32. Only after
// scheduling: an initial program's digest depends on how far it is simplified.
Expr SimplifyLowered(const Expr& e, const Bounds& bounds);

}  // namespace whet::expr
