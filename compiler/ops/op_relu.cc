#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpRelu() {
  static const OpRecord op = Unary({
      .name = "Relu",
      .types = Numbers(),
      .te = [](const OpView& v, const Expr& x) -> Expr { return expr::Max(x, Const(x->dtype, 0)); },
      .value = [](const OpView& v, double x) -> double { return x > 0 || std::isnan(x) ? x : 0; },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return x < 0 ? std::max(x + e, 0.0) : e;
      },
      .idempotent = true,
  });
  return op;
}

}  // namespace whet::ops
