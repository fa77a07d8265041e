#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpFloor() {
  // An input that is not exact may fall to the other side of a step that is near.
  static const OpRecord op = Unary({
      .name = "Floor",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Call(expr::Intrinsic::kFloor, x);
      },
      .value = [](const OpView& v, double x) -> double { return std::floor(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return MovedBetween([](double t) { return std::floor(t); }, x, e);
      },
      .idempotent = true,
  });
  return op;
}

}  // namespace whet::ops
