#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpAbs() {
  static const OpRecord op = Unary({
      .name = "Abs",
      .types = Numbers(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        if (IsUnsigned(x->dtype)) return x;
        return IsFloat(x->dtype) ? expr::Call(expr::Intrinsic::kAbs, x)
                                 : expr::Max(x, Const(x->dtype, 0) - x);
      },
      .value = [](const OpView& v, double x) -> double { return std::fabs(x); },
      .idempotent = true,
  });
  return op;
}

}  // namespace whet::ops
