#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpExp() {
  static const OpRecord op = Unary({
      .name = "Exp",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kExp, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::exp(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return y * std::expm1(e);
      },
      .ulp = 8,
      .flops_per_element = 10,
  });
  return op;
}

}  // namespace whet::ops
