#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpRound() {
  // Half to even. An input that is not exact may fall to the other side of a step: its bound
  // becomes a whole step.
  static const OpRecord op = Unary({
      .name = "Round",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kRound, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::nearbyint(x); },
      .slope = [](const OpView& v, double x, double y) -> double { return 0x1.0p24; },
      .idempotent = true,
  });
  return op;
}

}  // namespace whet::ops
