#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpSqrt() {
  static const OpRecord op = Unary({
      .name = "Sqrt",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kSqrt, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::sqrt(x); },
      .slope = [](const OpView& v, double x, double y) -> double {
        return y > 0 ? 0.5 / y : std::sqrt(0x1.0p24);
      },
      .ulp = 2,
      .range = [](const OpView&, int) { return graph::InputRange{0, 2}; },
  });
  return op;
}

}  // namespace whet::ops
