// ConvTranspose, as a convolution: with stride s, output positions of one phase (o mod s) see every
// s-th tap of the kernel, and all phases see the same input positions. So the phases are output
// channels of a convolution with stride 1 and a kernel of ceil(K / s), and DepthToSpace lays them
// side by side and crops to the wanted size. It has the schedules, the fusion and the layout of any
// convolution. Where K is no multiple of s some taps are zeros. Three spatial axes put zeros
// between the inputs instead.
#include <algorithm>

#include "compiler/ops/conv2d.h"
#include "compiler/ops/conv3d.h"
#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

constexpr int64_t kMaxTransposed = int64_t{1} << 40;  // extents: their sums stay in 64 bits

struct TransposedConv {
  WindowLists w;  // pads resolved
  Shape out;      // spatial extents of the result
  int64_t group = 1;
  int64_t Span(size_t d) const { return (w.kernel[d] - 1) * w.dilations[d] + 1; }
};

StatusOr<TransposedConv> TakeTransposed(ImportContext& c, const Shape& x, const Shape& w) {
  const size_t n = x.size() - 2;
  TransposedConv t;
  // SAME is about the output here: it is resolved below.
  WHET_ASSIGN_OR_RETURN(std::string auto_pad, c.TakeString("auto_pad", "NOTSET"));
  WHET_ASSIGN_OR_RETURN(
      t.w, TakeWindowLists(c, Shape(x.begin() + 2, x.end()), Shape(w.begin() + 2, w.end())));
  WHET_ASSIGN_OR_RETURN(Shape extra, c.TakeInts("output_padding", Shape(n, 0)));
  WHET_ASSIGN_OR_RETURN(Shape wanted, c.TakeInts("output_shape", {}));
  WHET_ASSIGN_OR_RETURN(t.group, c.TakeInt("group", 1));
  if (extra.size() != n) return InvalidArgument("output_padding {}", ShapeText(extra));
  // Full shapes are met as well as spatial ones.
  if (wanted.size() == n + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != n)
    return InvalidArgument("output_shape {} for {} spatial axes", ShapeText(wanted), n);
  const bool upper = auto_pad == "SAME_UPPER", same = upper || auto_pad == "SAME_LOWER";
  if (!same && auto_pad != "NOTSET" && auto_pad != "VALID" && !auto_pad.empty())
    return InvalidArgument("auto_pad '{}' is unknown", auto_pad);
  for (size_t d = 0; d < n; ++d) {
    if (extra[d] < 0 || extra[d] > (int64_t{1} << 31))
      return InvalidArgument("output_padding {}", ShapeText(extra));
    int64_t full = 0;
    if (x[d + 2] < 1 || __builtin_mul_overflow(x[d + 2] - 1, t.w.strides[d], &full) ||
        __builtin_add_overflow(full, t.Span(d) + extra[d], &full) || full > kMaxTransposed)
      return InvalidArgument("input {} with strides {}", ShapeText(x), ShapeText(t.w.strides));
    int64_t out = full - t.w.pads[d] - t.w.pads[d + n];
    if (same || !wanted.empty()) {
      out = wanted.empty() ? x[d + 2] * t.w.strides[d] : wanted[d];
      const int64_t total = std::max<int64_t>(full - out, 0);
      t.w.pads[d] = upper ? total / 2 : total - total / 2;
      t.w.pads[d + n] = total - t.w.pads[d];
    }
    if (out < 1 || out > kMaxTransposed)
      return InvalidArgument("an output of {} along axis {}", out, d + 2);
    t.out.push_back(out);
  }
  return t;
}

class TransposedWriter {
 public:
  TransposedWriter(ImportContext& c, const TransposedConv& t) : c_(c), t_(t) {}

  // Two spatial axes.
  StatusOr<ValueId> Planar(ValueId x, ValueId w, ValueId bias) {
    const Shape in = c_.builder.type(x).shape, weights = c_.builder.type(w).shape;
    const int64_t sh = t_.w.strides[0], sw = t_.w.strides[1], per = weights[1], g = t_.group;
    const Shape taps = {(t_.Span(0) + sh - 1) / sh, (t_.Span(1) + sw - 1) / sw};
    WHET_ASSIGN_OR_RETURN(w, Spread(w, {taps[0] * sh, taps[1] * sw}));
    // (g, ic, oc, th, sh, tw, sw), taps backwards -> (g * sh * sw * oc, ic, th, tw).
    WHET_ASSIGN_OR_RETURN(
        w, Reshaped(c_.builder, w, {g, weights[0] / g, per, taps[0], sh, taps[1], sw}));
    WHET_ASSIGN_OR_RETURN(w, Backwards(w, {3, 5}));
    WHET_ASSIGN_OR_RETURN(
        w, c_.builder.Emit("Transpose", {w}, {{"perm", Shape{0, 4, 6, 2, 1, 3, 5}}}));
    WHET_ASSIGN_OR_RETURN(
        w, Reshaped(c_.builder, w, {g * sh * sw * per, weights[0] / g, taps[0], taps[1]}));
    // Only the phases' positions that the result shows.
    Window window;
    Shape starts;
    for (int d : {0, 1}) {
      const int64_t s = t_.w.strides[d], pad = t_.w.pads[d];
      const int64_t first = std::min(pad / s, taps[d] - 1);
      const int64_t count = (pad + t_.out[d] - 1) / s - first + 1;
      window.kernel[d] = taps[d];
      window.pads[d] = taps[d] - 1 - first;
      window.pads[d + 2] = std::max<int64_t>(count - in[d + 2] - window.pads[d] + taps[d] - 1, 0);
      starts.push_back(pad - first * s);
    }
    if (bias != graph::kNoValue) {
      WHET_ASSIGN_OR_RETURN(bias, Reshaped(c_.builder, bias, {g, 1, per}));
      WHET_ASSIGN_OR_RETURN(bias,
                            c_.builder.Emit("Expand", {bias}, {{"shape", Shape{g, sh * sw, per}}}));
      WHET_ASSIGN_OR_RETURN(bias, Reshaped(c_.builder, bias, {g * sh * sw * per}));
    }
    WHET_ASSIGN_OR_RETURN(ValueId y, EmitConv2d(c_, x, w, bias, WindowAttrs(window, false), g));
    if (sh == 1 && sw == 1 && starts == Shape{0, 0} &&
        c_.builder.type(y).shape == Shape{in[0], g * per, t_.out[0], t_.out[1]})
      return y;
    return c_.builder.Emit(
        "DepthToSpace", {y},
        {{"block", Shape{sh, sw}}, {"groups", g}, {"starts", starts}, {"sizes", t_.out}});
  }

  // Three spatial axes: zeros between the inputs, then a convolution with the kernel turned round.
  StatusOr<ValueId> Spatial(ValueId x, ValueId w, ValueId bias) {
    const Shape in = c_.builder.type(x).shape, weights = c_.builder.type(w).shape;
    const int64_t g = t_.group, per = weights[1];
    Shape spread = {in[0], in[1]}, window(3, 1);
    for (size_t d = 0; d < 3; ++d) spread.push_back((in[d + 2] - 1) * t_.w.strides[d] + 1);
    WHET_ASSIGN_OR_RETURN(x, Interleave(x, t_.w.strides));
    WHET_ASSIGN_OR_RETURN(x, Crop(x, Shape(5, 0), spread));
    // Position o of the full result reads from o - (span - 1) on; pads crop it. An extent that goes
    // beyond it reads zeros.
    Shape pads(10, 0), starts(5, 0), sizes = spread;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t before = t_.Span(d) - 1 - t_.w.pads[d];
      const int64_t after = t_.out[d] + t_.Span(d) - 1 - before - spread[d + 2];
      pads[d + 2] = std::max<int64_t>(before, 0);
      pads[d + 7] = std::max<int64_t>(after, 0);
      starts[d + 2] = std::max<int64_t>(-before, 0);
      sizes[d + 2] -= starts[d + 2] + std::max<int64_t>(-after, 0);
      if (sizes[d + 2] < 0) return InvalidArgument("pads {} crop everything", ShapeText(t_.w.pads));
    }
    WHET_ASSIGN_OR_RETURN(x, Crop(x, starts, sizes));
    WHET_ASSIGN_OR_RETURN(x, c_.builder.Emit("Pad", {x}, {{"pads", pads}}));
    // (g * ic, oc, ...) -> (g * oc, ic, ...)
    const Shape kernel(weights.begin() + 2, weights.end());
    WHET_ASSIGN_OR_RETURN(
        w, Reshaped(c_.builder, w, {g, weights[0] / g, per, kernel[0], kernel[1], kernel[2]}));
    WHET_ASSIGN_OR_RETURN(w, Backwards(w, {3, 4, 5}));
    WHET_ASSIGN_OR_RETURN(w,
                          c_.builder.Emit("Transpose", {w}, {{"perm", Shape{0, 2, 1, 3, 4, 5}}}));
    WHET_ASSIGN_OR_RETURN(
        w, Reshaped(c_.builder, w, {g * per, weights[0] / g, kernel[0], kernel[1], kernel[2]}));
    WindowLists plain{kernel, Shape(3, 1), t_.w.dilations, Shape(6, 0), false};
    return EmitConv3d(c_, x, w, bias, plain, g);
  }

 private:
  StatusOr<ValueId> Crop(ValueId v, Shape starts, Shape sizes) {
    const Shape steps(sizes.size(), 1);
    return c_.builder.Emit("Slice", {v}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
  }
  StatusOr<ValueId> Backwards(ValueId v, const std::vector<size_t>& axes) {
    const Shape sizes = c_.builder.type(v).shape;
    Shape starts(sizes.size(), 0), steps(sizes.size(), 1);
    for (size_t a : axes) {
      if (sizes[a] < 2) continue;
      starts[a] = sizes[a] - 1;
      steps[a] = -1;
    }
    return c_.builder.Emit("Slice", {v}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
  }
  // Each spatial position p of the last axes moves to p * step; zeros between and after.
  StatusOr<ValueId> Interleave(ValueId v, const Shape& step) {
    const Shape in = c_.builder.type(v).shape;
    Shape apart(in.begin(), in.begin() + 2), together = apart;
    for (size_t d = 0; d < step.size(); ++d) {
      apart.push_back(in[d + 2]);
      apart.push_back(1);
      together.push_back(in[d + 2] * step[d]);
    }
    Shape pads(2 * apart.size(), 0);
    for (size_t d = 0; d < step.size(); ++d) pads[apart.size() + 3 + 2 * d] = step[d] - 1;
    WHET_ASSIGN_OR_RETURN(v, Reshaped(c_.builder, v, apart));
    WHET_ASSIGN_OR_RETURN(v, c_.builder.Emit("Pad", {v}, {{"pads", pads}}));
    return Reshaped(c_.builder, v, together);
  }
  // Weights with their dilation as zeros, extended by zeros to `extents`.
  StatusOr<ValueId> Spread(ValueId w, const Shape& extents) {
    if (t_.w.dilations != Shape{1, 1}) {
      WHET_ASSIGN_OR_RETURN(w, Interleave(w, t_.w.dilations));
    }
    Shape sizes = c_.builder.type(w).shape;
    Shape pads(8, 0);
    for (size_t d = 0; d < 2; ++d) {
      sizes[d + 2] = std::min(sizes[d + 2], t_.Span(d));
      pads[d + 6] = extents[d] - sizes[d + 2];
    }
    WHET_ASSIGN_OR_RETURN(w, Crop(w, Shape(4, 0), sizes));
    return c_.builder.Emit("Pad", {w}, {{"pads", pads}});
  }

  ImportContext& c_;
  const TransposedConv& t_;
};

Status ImportConvTranspose(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  const Shape x = c.type(0).shape, w = c.type(1).shape;
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size())
    return Unimplemented("input {} and weights {}; ranks 3 to 5 are supported", ShapeText(x),
                         ShapeText(w));
  WHET_ASSIGN_OR_RETURN(TransposedConv t, TakeTransposed(c, x, w));
  if (t.group < 1 || x[1] % t.group != 0 || w[0] != x[1])
    return InvalidArgument("{} groups, input {}, weights {}", t.group, ShapeText(x), ShapeText(w));
  const ValueId bias = c.Has(2) ? c.inputs[2] : graph::kNoValue;
  if (bias != graph::kNoValue && c.type(2).shape != Shape{t.group * w[1]})
    return InvalidArgument("bias {} for {} output channels", ShapeText(c.type(2).shape),
                           t.group * w[1]);
  ValueId y = graph::kNoValue;
  if (x.size() == 5) {
    WHET_ASSIGN_OR_RETURN(y, TransposedWriter(c, t).Spatial(c.inputs[0], c.inputs[1], bias));
  } else if (x.size() == 4) {
    WHET_ASSIGN_OR_RETURN(y, TransposedWriter(c, t).Planar(c.inputs[0], c.inputs[1], bias));
  } else {
    const Window window = ToWindow(t.w);
    t.w.kernel = Shape(window.kernel.begin(), window.kernel.end());
    t.w.strides = Shape(window.strides.begin(), window.strides.end());
    t.w.dilations = Shape(window.dilations.begin(), window.dilations.end());
    t.w.pads = Shape(window.pads.begin(), window.pads.end());
    t.out.insert(t.out.begin(), 1);
    WHET_ASSIGN_OR_RETURN(ValueId v, ToTwoAxes(c, c.inputs[0]));
    WHET_ASSIGN_OR_RETURN(ValueId k, ToTwoAxes(c, c.inputs[1]));
    WHET_ASSIGN_OR_RETURN(y, TransposedWriter(c, t).Planar(v, k, bias));
    WHET_ASSIGN_OR_RETURN(y, FromTwoAxes(c, y));
  }
  c.outputs = {y};
  return OkStatus();
}

}  // namespace

const OpRecord& OpConvTranspose() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "ConvTranspose";
    r.note =
        "one to three spatial axes; infinities and NaN of the input reach outputs whose taps are "
        "padding";
    r.import = InF32(ImportConvTranspose);
    return r;
  }();
  return op;
}

}  // namespace whet::ops
