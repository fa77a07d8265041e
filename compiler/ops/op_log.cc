#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpLog() {
  static const OpRecord op = Unary({
      .name = "Log",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kLog, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::log(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return e < x ? -std::log1p(-e / x) : HUGE_VAL;
      },
      .ulp = 8,
      .range = [](const OpView&, int) { return graph::InputRange{0.125, 2}; },
      .flops_per_element = 10,
  });
  return op;
}

}  // namespace whet::ops
