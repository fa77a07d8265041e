#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpMin() {
  static const OpRecord op = [] {
    OpRecord r = Binary({
        .name = "Min",
        .types = Numbers(),
        .commutative = true,
        .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr { return expr::Min(a, b); },
        .value = [](const OpView& v, double a, double b) -> double {
          return std::isnan(a) || a < b ? a : b;
        },
    });
    r.import = [](ImportContext& c) { return ImportChain(c, "Min"); };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
