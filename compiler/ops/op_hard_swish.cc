#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpHardSwish() {
  static const OpRecord op = Unary({
      .name = "HardSwish",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const DType t = x->dtype;
        const Expr gate =
            expr::Min(expr::Max(x * Const(t, 1.0 / 6) + Const(t, 0.5), Const(t, 0)), Const(t, 1));
        return x * gate;
      },
      .value = [](const OpView& v, double x) -> double {
        return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
      },
      .slope = [](const OpView& v, double x, double y) -> double { return 1 + std::fabs(x) / 3; },
      .ulp = 8,
      .absolute = [](const OpView&, double x) { return std::fabs(x) < 4 ? 2 * std::fabs(x) : 0; },
      .flops_per_element = 5,
  });
  return op;
}

}  // namespace whet::ops
