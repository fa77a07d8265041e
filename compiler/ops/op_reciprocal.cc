#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReciprocal() {
  static const OpRecord op = Unary({
      .name = "Reciprocal",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr { return Const(x->dtype, 1) / x; },
      .value = [](const OpView& v, double x) -> double { return 1 / x; },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double nearest = std::fabs(x) - e;  // to the pole
        return nearest > 0 ? std::fabs(y) * e / nearest : HUGE_VAL;
      },
      .ulp = 2,
      .range = [](const OpView&, int) { return graph::InputRange{0.5, 1.5}; },
  });
  return op;
}

}  // namespace whet::ops
