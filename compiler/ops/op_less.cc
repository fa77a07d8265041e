#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpLess() {
  static const OpRecord op = Binary({
      .name = "Less",
      .types = Numbers(),
      .compare = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Lt(a, b); },
      .value = [](const OpView& v, double a, double b) -> double { return a < b; },
  });
  return op;
}

}  // namespace whet::ops
