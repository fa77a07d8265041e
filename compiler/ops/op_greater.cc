#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpGreater() {
  static const OpRecord op = Binary({
      .name = "Greater",
      .types = Numbers(),
      .compare = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Lt(b, a); },
      .value = [](const OpView& v, double a, double b) -> double { return a > b; },
  });
  return op;
}

}  // namespace whet::ops
