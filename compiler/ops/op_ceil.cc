#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpCeil() {
  // An input that is not exact may fall to the other side of a step that is near.
  static const OpRecord op = Unary({
      .name = "Ceil",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kCeil, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::ceil(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return MovedBetween([](double t) { return std::ceil(t); }, x, e);
      },
      .idempotent = true,
  });
  return op;
}

}  // namespace whet::ops
