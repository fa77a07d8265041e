// MaxUnpool: a scatter into zeros.
#include "compiler/ops/window.h"

namespace whet::ops {
namespace {

// Indices count within the output that the pool's attributes imply; with `output_shape` they still
// do, and a larger output is the implied one with zeros around the end.
Status ImportMaxUnpool(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  const Shape x = c.type(0).shape;
  if (x.size() < 3 || c.type(1).shape != x)
    return InvalidArgument("input {} with indices {}", ShapeText(x), ShapeText(c.type(1).shape));
  if (!c.HasAttr("kernel_shape")) return InvalidArgument("attribute 'kernel_shape' is missing");
  WHET_ASSIGN_OR_RETURN(WindowLists w, TakeWindowLists(c, Shape(x.begin() + 2, x.end()), {}));
  const size_t n = x.size() - 2;
  Shape out = {x[0], x[1]};
  for (size_t d = 0; d < n; ++d) {
    int64_t extent = 0;
    if (x[d + 2] < 1 || __builtin_mul_overflow(x[d + 2] - 1, w.strides[d], &extent) ||
        __builtin_add_overflow(extent, w.kernel[d] - w.pads[d] - w.pads[d + n], &extent))
      return InvalidArgument("input {} with strides {}", ShapeText(x), ShapeText(w.strides));
    out.push_back(extent);
  }
  Shape wanted = out;
  if (c.Has(2)) {
    WHET_ASSIGN_OR_RETURN(wanted, c.ConstInts(2, "output_shape"));
  }
  WHET_RETURN_IF_ERROR(graph::CheckShape(c.type(0).dtype, wanted));
  if (wanted.size() != x.size())
    return InvalidArgument("output_shape {} for {}", ShapeText(wanted), ShapeText(x));
  const bool larger = wanted != out;
  for (size_t d = 0; larger && d < out.size(); ++d) {
    if (wanted[d] < out[d])
      return InvalidArgument("output_shape {} is smaller than {}", ShapeText(wanted),
                             ShapeText(out));
  }
  WHET_RETURN_IF_ERROR(graph::CheckShape(c.type(0).dtype, out));
  const int64_t size = Product(out), updates = Product(x);
  const ValueId zero = c.builder.Constant(
      "", graph::Constant::OfDoubles(c.type(0).dtype, {1}, std::vector<double>{0}));
  WHET_ASSIGN_OR_RETURN(ValueId zeros, c.builder.Emit("Expand", {zero}, {{"shape", Shape{size}}}));
  WHET_ASSIGN_OR_RETURN(ValueId index,
                        c.builder.Emit("Reshape", {c.inputs[1]}, {{"shape", Shape{updates}}}));
  WHET_ASSIGN_OR_RETURN(ValueId values,
                        c.builder.Emit("Reshape", {c.inputs[0]}, {{"shape", Shape{updates}}}));
  WHET_ASSIGN_OR_RETURN(
      ValueId v, c.builder.Emit("ScatterElements", {zeros, index, values}, {{"axis", int64_t{0}}}));
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Reshape", {v}, {{"shape", out}}));
  if (larger) {
    Shape pads(2 * out.size(), 0);
    for (size_t d = 0; d < out.size(); ++d) pads[d + out.size()] = wanted[d] - out[d];
    WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Pad", {v}, {{"pads", pads}}));
  }
  c.outputs = {v};
  return OkStatus();
}

}  // namespace

const OpRecord& OpMaxUnpool() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "MaxUnpool";
    r.note = "work grows with outputs x inputs";
    r.import = ImportMaxUnpool;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
