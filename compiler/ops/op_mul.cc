#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpMul() {
  static const OpRecord op = Binary({
      .name = "Mul",
      .types = Numbers(),
      .commutative = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return a * b; },
      .value = [](const OpView& v, double a, double b) -> double { return a * b; },
      .err = [](const OpView& v, double a, double ea, double b, double eb, double y) -> double {
        // An infinite factor with one that rounding may bring to zero.
        auto crosses = [](double x, double e) { return e > 0 && !(std::fabs(x) > e * kErrUnit); };
        if (!std::isfinite(y)) return crosses(a, ea) || crosses(b, eb) ? HUGE_VAL : 0;
        return (eb > 0 ? std::fabs(a) * eb : 0) +
               (ea > 0 ? (std::fabs(b) + eb * kErrUnit) * ea : 0);
      },
      .ulp = 1,
  });
  return op;
}

}  // namespace whet::ops
