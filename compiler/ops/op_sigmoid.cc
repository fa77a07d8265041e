#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpSigmoid() {
  static const OpRecord op = Unary({
      .name = "Sigmoid",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const Expr one = Const(x->dtype, 1);
        return one / (one + expr::Call(expr::Intrinsic::kExp, Const(x->dtype, -0.0) - x));
      },
      .value = [](const OpView& v, double x) -> double { return 1 / (1 + std::exp(-x)); },
      // Steepest at 0.
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double most = 1 / (1 + std::exp(std::max(std::fabs(x) - e, 0.0)));
        return e * most * (1 - most);
      },
      .ulp = 12,
      .flops_per_element = 12,
  });
  return op;
}

}  // namespace whet::ops
