#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpSoftplus() {
  static const OpRecord op = Unary({
      .name = "Softplus",
      .types = Floats(),
      .te = [](const OpView& v,
               const Expr& x) -> Expr {  // max(x, 0) + log(1 + exp(-|x|)): no overflow for large x.
        const Expr one = Const(x->dtype, 1), zero = Const(x->dtype, 0);
        const Expr e = expr::Call(expr::Intrinsic::kExp,
                                  Const(x->dtype, -0.0) - expr::Call(expr::Intrinsic::kAbs, x));
        return expr::Max(x, zero) + expr::Call(expr::Intrinsic::kLog, one + e);
      },
      .value = [](const OpView& v, double x) -> double {
        return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
      },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return e / (1 + std::exp(-(x + e)));
      },
      .ulp = 10,
      .absolute = [](const OpView&, double) { return 2.0; },
      .flops_per_element = 24,
  });
  return op;
}

}  // namespace whet::ops
