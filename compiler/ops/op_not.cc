#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpNot() {
  static const OpRecord op = Unary({
      .name = "Not",
      .types = {DType::kBool},
      .te = [](const OpView& v, const Expr& x) -> Expr { return expr::Not(x); },
      .value = [](const OpView& v, double x) -> double { return x == 0; },
  });
  return op;
}

}  // namespace whet::ops
