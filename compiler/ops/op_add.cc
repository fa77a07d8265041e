#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpAdd() {
  static const OpRecord op = Binary({
      .name = "Add",
      .types = Numbers(),
      .commutative = true,
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return a + b; },
      .value = [](const OpView& v, double a, double b) -> double { return a + b; },
      .err = [](const OpView& v, double a, double ea, double b, double eb, double y) -> double {
        return ea + eb;
      },
      .ulp = 1,
      .adds = true,
  });
  return op;
}

}  // namespace whet::ops
