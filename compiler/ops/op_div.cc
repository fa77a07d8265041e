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
      .err = [](double a, double ea, double b, double eb, double y) -> double {
        const double nearest = std::fabs(b) - eb * kErrUnit;  // to the pole
        if (ea == 0 && eb == 0) return 0;
        return nearest > 0 ? (ea + std::fabs(y) * eb) / nearest : HUGE_VAL;
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
