#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

double SignOf(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

}  // namespace

const OpRecord& OpSign() {
  static const OpRecord op = Unary({
      .name = "Sign",
      .types = Numbers(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const DType t = x->dtype;
        return expr::Select(expr::Lt(Const(t, 0), x), Const(t, 1),
                            expr::Select(expr::Lt(x, Const(t, 0)), Const(t, -1), x));
      },
      .value = [](const OpView& v, double x) -> double { return SignOf(x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        return MovedBetween(SignOf, x, e);
      },
  });
  return op;
}

}  // namespace whet::ops
