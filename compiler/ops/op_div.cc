#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// Integers divide towards zero; floor division does not where the signs differ. What is divided by
// 0 has no defined result in ONNX; here, as in expressions, it is 0.
Expr IntegerDiv(const Expr& a, const Expr& b) {
  const Expr zero = Const(a->dtype, 0);
  const Expr q = expr::FloorDiv(a, b);
  const Expr inexact = expr::Not(expr::Eq(q * b, a));
  const Expr differ = expr::Not(expr::Eq(expr::Lt(a, zero), expr::Lt(b, zero)));
  return expr::Select(expr::Eq(b, zero), zero, expr::Select(expr::And(inexact, differ), q + 1, q));
}

}  // namespace

const OpRecord& OpDiv() {
  static const OpRecord op = Binary({
      .name = "Div",
      .types = Numbers(),
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr {
        if (IsUnsigned(a->dtype)) return expr::FloorDiv(a, b);
        return IsFloat(a->dtype) ? a / b : IntegerDiv(a, b);
      },
      .value = [](const OpView& v, double a, double b) -> double {
        if (IsFloat(v.out[0]->dtype)) return a / b;
        if (b == 0) return 0;
        return std::trunc(a / b);
      },
      .err = [](const OpView& v, double a, double ea, double b, double eb, double y) -> double {
        const double nearest = std::fabs(b) - eb * kErrUnit;  // to the pole
        if (ea == 0 && eb == 0) return 0;
        if (!IsFloat(v.out[0]->dtype)) {
          if (b == 0 && eb == 0) return 0;
          // By whole numbers: one more where the quotient reaches the next. A divisor that may be
          // zero may be one too.
          const double moved = nearest > 0 ? (ea + std::fabs(a / b) * eb) / nearest
                                           : 2 * std::fabs(a) / kErrUnit + ea;
          return (std::floor(moved * kErrUnit) + 1) / kErrUnit;
        }
        const bool any = eb > 0 ? !(nearest > 0) : b == 0 && !(std::fabs(a) > ea * kErrUnit);
        if (any) return HUGE_VAL;
        if (!std::isfinite(y)) return 0;
        return (ea + std::fabs(y) * eb) / nearest;
      },
      .ulp = 2,
      .range =
          [](const OpView& v, int input) {
            if (!IsFloat(v.in[0]->dtype))
              return input == 1 ? graph::InputRange{1, 8} : graph::InputRange{0, 100};
            return input == 1 ? graph::InputRange{0.5, 1.5} : graph::InputRange{};
          },
  });
  return op;
}

}  // namespace whet::ops
