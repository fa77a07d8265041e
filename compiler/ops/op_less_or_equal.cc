#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpLessOrEqual() {
  static const OpRecord op = Binary({
      .name = "LessOrEqual",
      .types = Numbers(),
      .compare = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Le(a, b); },
      .value = [](const OpView& v, double a, double b) -> double { return a <= b; },
  });
  return op;
}

}  // namespace whet::ops
