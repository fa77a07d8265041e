#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpNeg() {
  // -0.0 - x, not 0 - x: the negative of +0 is -0.
  static const OpRecord op = Unary({
      .name = "Neg",
      .types = Numbers(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return Const(x->dtype, IsFloat(x->dtype) ? -0.0 : 0) - x;
      },
      .value = [](const OpView& v, double x) -> double { return -x; },
  });
  return op;
}

}  // namespace whet::ops
