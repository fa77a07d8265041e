#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpRound() {
  // Half to even. An input that is not exact may fall to the other side of a step that is near.
  static const OpRecord op = Unary({
      .name = "Round",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kRound, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::nearbyint(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return MovedBetween([](double t) { return std::nearbyint(t); }, x, e);
      },
      .idempotent = true,
  });
  return op;
}

}  // namespace whet::ops
