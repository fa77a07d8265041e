#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpLeakyRelu() {
  static const OpRecord op = Unary({
      .name = "LeakyRelu",
      .types = Floats(),
      .attrs = {{"alpha", AttrType::kFloat, AttrValue(0.01)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Select(expr::Lt(x, Const(x->dtype, 0)),
                            x * Const(x->dtype, v.attrs->Float("alpha")), x);
      },
      .value = [](const OpView& v, double x) -> double {
        return x < 0 ? x * v.attrs->Float("alpha") : x;
      },
      .slope = [](const OpView& v, double x, double y) -> double {
        return std::max(1.0, std::fabs(v.attrs->Float("alpha")));
      },
      .ulp = 2,
      .flops_per_element = 2,
  });
  return op;
}

}  // namespace whet::ops
