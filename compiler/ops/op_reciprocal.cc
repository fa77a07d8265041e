#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReciprocal() {
  static const OpRecord op = Unary({
      .name = "Reciprocal",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr { return Const(x->dtype, 1) / x; },
      .value = [](const OpView& v, double x) -> double { return 1 / x; },
      .slope = [](const OpView& v, double x, double y) -> double { return y * y; },
      .ulp = 2,
      .range = [](const OpView&, int) { return graph::InputRange{0.5, 1.5}; },
  });
  return op;
}

}  // namespace whet::ops
