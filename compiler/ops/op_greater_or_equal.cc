#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpGreaterOrEqual() {
  static const OpRecord op = Binary({
      .name = "GreaterOrEqual",
      .types = Numbers(),
      .compare = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Le(b, a); },
      .value = [](const OpView& v, double a, double b) -> double { return a >= b; },
  });
  return op;
}

}  // namespace whet::ops
