#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpAnd() {
  static const OpRecord op = Binary({
      .name = "And",
      .types = {DType::kBool},
      .commutative = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::And(a, b); },
      .value = [](const OpView& v, double a, double b) -> double { return a != 0 && b != 0; },
  });
  return op;
}

}  // namespace whet::ops
