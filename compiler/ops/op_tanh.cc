#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpTanh() {
  static const OpRecord op = Unary({
      .name = "Tanh",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kTanh, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::tanh(x); },
      // Steepest at 0.
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double least = std::tanh(std::max(std::fabs(x) - e, 0.0));
        return e * (1 - least) * (1 + least);
      },
      .ulp = 8,
      .flops_per_element = 10,
  });
  return op;
}

}  // namespace whet::ops
