#include <algorithm>
#include <limits>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Constant bounds become attributes; others a chain of Max and Min.
Status ImportClip(ImportContext& c) {
  c.Ignore("consumed_inputs");
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, c.opset >= 11 ? 3 : 1));
  WHET_ASSIGN_OR_RETURN(double lo, c.TakeFloat("min", -kInf));
  WHET_ASSIGN_OR_RETURN(double hi, c.TakeFloat("max", kInf));
  ValueId x = c.inputs[0];
  for (int i : {1, 2}) {
    if (!c.Has(i)) continue;
    if (c.IsConst(i)) {
      WHET_ASSIGN_OR_RETURN(std::vector<double> bound, c.ConstFloats(i, i == 1 ? "min" : "max"));
      if (bound.size() != 1)
        return InvalidArgument("bound {} has {} elements, not 1", i == 1 ? "min" : "max",
                               bound.size());
      (i == 1 ? lo : hi) = bound[0];
    } else {
      WHET_ASSIGN_OR_RETURN(x, c.builder.Emit(i == 1 ? "Max" : "Min", {x, c.inputs[i]}));
    }
  }
  if (lo == -kInf && hi == kInf && x != c.inputs[0]) {
    c.outputs = {x};
    return OkStatus();
  }
  return c.Finish("Clip", {x}, {{"min", lo}, {"max", hi}});
}

// Bounds within the element type, so that an integer constant exists for each.
double Bound(DType t, double v) { return IsFloat(t) ? v : graph::RoundTo(t, v); }

}  // namespace

const OpRecord& OpClip() {
  static const OpRecord op = Unary({
      .name = "Clip",
      .types = Numbers(),
      .attrs = {{"min", AttrType::kFloat, AttrValue(-kInf)},
                {"max", AttrType::kFloat, AttrValue(kInf)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const double lo = v.attrs->Float("min"), hi = v.attrs->Float("max");
        Expr y = x;
        if (lo > -kInf) y = expr::Max(y, Const(x->dtype, Bound(x->dtype, lo)));
        if (hi < kInf) y = expr::Min(y, Const(x->dtype, Bound(x->dtype, hi)));
        return y;
      },
      .value = [](const OpView& v, double x) -> double {
        return std::isnan(x) ? x
                             : std::min(std::max(x, v.attrs->Float("min")), v.attrs->Float("max"));
      },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double below = v.attrs->Float("min") - x, above = x - v.attrs->Float("max");
        return std::max(0.0, e - std::max({below, above, 0.0}));
      },
      .import = ImportClip,
      .is_identity =
          [](const OpView& v) {
            return v.attrs->Float("min") == -kInf && v.attrs->Float("max") == kInf;
          },
      .flops_per_element = 2,
  });
  return op;
}

}  // namespace whet::ops
