#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpElu() {
  static const OpRecord op = Unary({
      .name = "Elu",
      .types = Floats(),
      .attrs = {{"alpha", AttrType::kFloat, AttrValue(1.0)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const Expr one = Const(x->dtype, 1);
        const Expr low =
            (expr::Call(expr::Intrinsic::kExp, expr::Min(x, Const(x->dtype, 0))) - one) *
            Const(x->dtype, v.attrs->Float("alpha"));
        return expr::Select(expr::Lt(x, Const(x->dtype, 0)), low, x);
      },
      .value = [](const OpView& v, double x) -> double {
        return x < 0 ? v.attrs->Float("alpha") * std::expm1(x) : x;
      },
      .slope = [](const OpView& v, double x, double y) -> double {
        return std::max(1.0, std::fabs(v.attrs->Float("alpha")));
      },
      .ulp = 2,
      .absolute = [](const OpView& v,
                     double x) { return x < 0 ? 10 * std::fabs(v.attrs->Float("alpha")) : 0; },
      .flops_per_element = 12,
  });
  return op;
}

}  // namespace whet::ops
