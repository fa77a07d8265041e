// LpPool: the mean of |x|^p, padded by zeros, times the size of the window, and its p-th root.
#include <algorithm>

#include "compiler/ops/emitter.h"
#include "compiler/ops/window.h"

namespace whet::ops {
namespace {

StatusOr<ValueId> PoolScalar(ImportContext& c, const char* op, ValueId v, double value) {
  return c.builder.Emit(op, {v, Emitter(c).Scalar(c.builder.type(v).dtype, value)});
}

Status ImportLpPool(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(double p, c.TakeFloat("p", 2));
  if (!(p > 0)) return InvalidArgument("p is {}", p);
  const Shape x = c.type(0).shape;
  if (x.size() < 3 || x.size() > 4)
    return Unimplemented("input of rank {} is not supported; 3 and 4 are", x.size());
  if (!c.HasAttr("kernel_shape")) return InvalidArgument("attribute 'kernel_shape' is missing");
  WHET_ASSIGN_OR_RETURN(WindowLists lists, TakeWindowLists(c, Shape(x.begin() + 2, x.end()), {}));
  Window w = ToWindow(lists);
  WHET_ASSIGN_OR_RETURN(ValueId v, ToTwoAxes(c, c.inputs[0]));
  // Whole windows only, by padding: each mean is then of the whole kernel.
  const Shape in = c.builder.type(v).shape;
  for (int d : {0, 1}) {
    WHET_ASSIGN_OR_RETURN(int64_t out, w.OutExtent(d, in[d + 2]));
    w.pads[d + 2] = std::max<int64_t>(w.Used(d, out) - in[d + 2] - w.pads[d], w.pads[d + 2]);
  }
  w.ceil_mode = false;
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Abs", {v}));
  if (p != 1) {
    WHET_ASSIGN_OR_RETURN(v, p == 2 ? c.builder.Emit("Mul", {v, v}) : PoolScalar(c, "Pow", v, p));
  }
  Attrs attrs = WindowAttrs(w, true);
  attrs.Set("count_include_pad", int64_t{1});
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("AveragePool", {v}, std::move(attrs)));
  WHET_ASSIGN_OR_RETURN(v, PoolScalar(c, "Mul", v, static_cast<double>(w.kernel[0] * w.kernel[1])));
  if (p != 1) {
    WHET_ASSIGN_OR_RETURN(v, p == 2 ? c.builder.Emit("Sqrt", {v}) : PoolScalar(c, "Pow", v, 1 / p));
  }
  if (x.size() == 3) {
    WHET_ASSIGN_OR_RETURN(v, FromTwoAxes(c, v));
  }
  c.outputs = {v};
  return OkStatus();
}

}  // namespace

const OpRecord& OpLpPool() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "LpPool";
    r.note = "one or two spatial axes";
    r.import = InF32(ImportLpPool);
    return r;
  }();
  return op;
}

}  // namespace whet::ops
