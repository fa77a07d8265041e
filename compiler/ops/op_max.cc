#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpMax() {
  static const OpRecord op = [] {
    OpRecord r = Binary({
        .name = "Max",
        .types = Numbers(),
        .commutative = true,
        .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Max(a, b); },
        .value = [](const OpView& v, double a, double b) -> double {
          return std::isnan(a) || a > b ? a : b;
        },
    });
    r.import = [](ImportContext& c) { return ImportChain(c, "Max"); };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
