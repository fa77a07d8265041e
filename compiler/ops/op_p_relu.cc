#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// The slope broadcasts into x, never the other way; operator sets before 7 give one slope per
// channel (dimension 1).
Status ImportPRelu(ImportContext& c) {
  c.Ignore("consumed_inputs");
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  const Shape x = c.type(0).shape, slope = c.type(1).shape;
  if (c.opset < 7 && slope.size() == 1 && slope[0] > 1 && x.size() >= 2) {
    Shape shape(x.size() - 1, 1);
    shape[0] = slope[0];
    WHET_ASSIGN_OR_RETURN(c.inputs[1],
                          c.builder.Emit("Reshape", {c.inputs[1]}, {{"shape", shape}}));
  }
  return c.Finish("PRelu", c.inputs);
}

}  // namespace

const OpRecord& OpPRelu() {
  static const OpRecord op = [] {
    OpRecord r = Binary({
        .name = "PRelu",
        .types = Numbers(),
        .te = [](const OpView& v, const Expr& x, const Expr& slope) -> Expr {
          return expr::Select(expr::Lt(x, Const(x->dtype, 0)), x * slope, x);
        },
        .value = [](const OpView& v, double x, double slope) -> double {
          return x < 0 ? x * slope : x;
        },
        .err = [](const OpView& v, double x, double ex, double slope, double es,
                  double y) -> double {
          return ex * std::max(1.0, std::fabs(slope)) +
                 (x <= ex * kErrUnit ? std::fabs(x) * es : 0);
        },
        .ulp = 1,
    });
    r.input_names = {"x", "slope"};
    r.import = ImportPRelu;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
