#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpXor() {
  static const OpRecord op = Binary({
      .name = "Xor",
      .types = {DType::kBool},
      .commutative = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr {
        return expr::Not(expr::Eq(a, b));
      },
      .value = [](const OpView& v, double a, double b) -> double { return (a != 0) != (b != 0); },
  });
  return op;
}

}  // namespace whet::ops
