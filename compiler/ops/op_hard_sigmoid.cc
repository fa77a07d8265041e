#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpHardSigmoid() {
  static const OpRecord op = Unary({
      .name = "HardSigmoid",
      .types = Floats(),
      .attrs = {{"alpha", AttrType::kFloat, AttrValue(0.2)},
                {"beta", AttrType::kFloat, AttrValue(0.5)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const DType t = x->dtype;
        const Expr y = x * Const(t, v.attrs->Float("alpha")) + Const(t, v.attrs->Float("beta"));
        return expr::Min(expr::Max(y, Const(t, 0)), Const(t, 1));
      },
      .value = [](const OpView& v, double x) -> double {
        return std::isnan(x)
                   ? x
                   : std::clamp(v.attrs->Float("alpha") * x + v.attrs->Float("beta"), 0.0, 1.0);
      },
      .slope = [](const OpView& v, double x, double y) -> double {
        return std::fabs(v.attrs->Float("alpha"));
      },
      .ulp = 8,
      .absolute = [](const OpView& v,
                     double) { return 2 * (1 + std::fabs(v.attrs->Float("beta"))); },
      .flops_per_element = 4,
  });
  return op;
}

}  // namespace whet::ops
