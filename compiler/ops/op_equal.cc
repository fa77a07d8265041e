#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpEqual() {
  static const OpRecord op = Binary({
      .name = "Equal",
      .types = AllTypes(),
      .commutative = true,
      .compare = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Eq(a, b); },
      .value = [](const OpView& v, double a, double b) -> double { return a == b; },
  });
  return op;
}

}  // namespace whet::ops
