#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpErf() {
  static const OpRecord op = Unary({
      .name = "Erf",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kErf, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::erf(x); },
      // Steepest at 0.
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double nearest = std::max(std::fabs(x) - e, 0.0);
        return e * 1.1283791670955126 * std::exp(-nearest * nearest);
      },
      .ulp = 8,
      .flops_per_element = 10,
  });
  return op;
}

}  // namespace whet::ops
