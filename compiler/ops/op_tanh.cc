#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpTanh() {
  static const OpRecord op = Unary({
      .name = "Tanh",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kTanh, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::tanh(x); },
      .slope = [](const OpView& v, double x, double y) -> double { return 1 - y * y; },
      .ulp = 8,
      .flops_per_element = 10,
  });
  return op;
}

}  // namespace whet::ops
