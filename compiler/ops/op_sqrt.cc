#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpSqrt() {
  static const OpRecord op = Unary({
      .name = "Sqrt",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kSqrt, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::sqrt(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return x >= e ? e / (y + std::sqrt(x - e)) : std::max(y, std::sqrt(x + e) - y);
      },
      .ulp = 2,
      .range = [](const OpView&, int) { return graph::InputRange{0, 2}; },
  });
  return op;
}

}  // namespace whet::ops
