#include <algorithm>

#include "compiler/ops/conv2d.h"
#include "compiler/ops/conv3d.h"
#include "compiler/ops/emitter.h"
#include "compiler/ops/quantized.h"
#include "compiler/ops/window.h"

namespace whet::ops {
namespace {

Status ImportConv(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  const Shape x = c.type(0).shape, w = c.type(1).shape;
  if (x.size() < 3 || x.size() > 5)
    return Unimplemented("input of rank {} is not supported; 3 to 5 are", x.size());
  if (w.size() != x.size())
    return InvalidArgument("weights {} for input {}", ShapeText(w), ShapeText(x));
  WHET_ASSIGN_OR_RETURN(WindowLists lists, TakeWindowLists(c, Shape(x.begin() + 2, x.end()),
                                                           Shape(w.begin() + 2, w.end())));
  WHET_ASSIGN_OR_RETURN(int64_t group, c.TakeInt("group", 1));
  c.inputs.resize(3, graph::kNoValue);
  ValueId y = graph::kNoValue;
  if (x.size() == 5) {
    WHET_ASSIGN_OR_RETURN(y, EmitConv3d(c, c.inputs[0], c.inputs[1], c.inputs[2], lists, group));
  } else {
    WHET_ASSIGN_OR_RETURN(ValueId v, ToTwoAxes(c, c.inputs[0]));
    WHET_ASSIGN_OR_RETURN(ValueId k, ToTwoAxes(c, c.inputs[1]));
    WHET_ASSIGN_OR_RETURN(
        y, EmitConv2d(c, v, k, c.inputs[2], WindowAttrs(ToWindow(lists), false), group));
    if (x.size() == 3) {
      WHET_ASSIGN_OR_RETURN(y, FromTwoAxes(c, y));
    }
  }
  c.outputs = {y};
  return OkStatus();
}

struct ConvShape {
  Window w;
  int64_t n, ic, h, iw, oc, group, icg, ocg, oh, ow;
  bool depthwise() const { return group > 1 && group == ic && group == oc; }
};

te::AxisSpec ConvAxes(const ConvShape& s) {
  return {{"n", s.n}, {s.depthwise() ? "c" : "oc", s.oc}, {"oh", s.oh}, {"ow", s.ow}};
}

StatusOr<ConvShape> ShapeOfConv(const OpView& v) {
  const Shape &x = v.in[0]->shape, &w = v.in[1]->shape;
  if (x.size() != 4 || w.size() != 4)
    return InvalidArgument("input {} and weights {} must have rank 4", ShapeText(x), ShapeText(w));
  ConvShape s;
  WHET_ASSIGN_OR_RETURN(s.w, WindowOf(*v.attrs, {w[2], w[3]}));
  s.n = x[0], s.ic = x[1], s.h = x[2], s.iw = x[3], s.oc = w[0];
  s.group = v.attrs->Int("group");
  if (s.group < 1 || s.ic % s.group != 0 || s.oc % s.group != 0) {
    return InvalidArgument("{} groups do not divide {} input and {} output channels", s.group, s.ic,
                           s.oc);
  }
  s.icg = s.ic / s.group;
  s.ocg = s.oc / s.group;
  if (w[1] != s.icg)
    return InvalidArgument("weights {} need {} input channels per group, the input has {}",
                           ShapeText(w), w[1], s.icg);
  WHET_ASSIGN_OR_RETURN(s.oh, s.w.OutExtent(0, s.h));
  WHET_ASSIGN_OR_RETURN(s.ow, s.w.OutExtent(1, s.iw));
  return s;
}

Status InferConv(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  WHET_ASSIGN_OR_RETURN(ConvShape s, ShapeOfConv(v));
  if (v.in.size() > 2 && v.in[2] != nullptr && v.in[2]->shape != Shape{s.oc}) {
    return InvalidArgument("bias {} for {} output channels", ShapeText(v.in[2]->shape), s.oc);
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, {s.n, s.oc, s.oh, s.ow}));
  return OkStatus();
}

using ProductFn = Expr (*)(const Expr&, const Expr&);

// The sum of a convolution over `x`, padded already: stage "conv" or "dwconv".
Buffer ConvSum(const ConvShape& s, DType t, const Buffer& x, const Buffer& w, te::Builder& b,
               ProductFn product) {
  const Window& win = s.w;
  auto at = [&](const std::vector<Expr>& i, const Expr& channel, const Expr& kh, const Expr& kw) {
    return expr::Load(x, {i[0], channel, i[2] * win.strides[0] + kh * win.dilations[0],
                          i[3] * win.strides[1] + kw * win.dilations[1]});
  };
  if (s.depthwise()) {
    return b.Reduce("dwconv", t, ConvAxes(s), {{"kh", win.kernel[0]}, {"kw", win.kernel[1]}},
                    te::Reducer::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                      return product(at(i, i[1], r[0], r[1]),
                                     expr::Load(w, {i[1], expr::Int(0), r[0], r[1]}));
                    });
  }
  return b.Reduce(
      "conv", t, ConvAxes(s), {{"ic", s.icg}, {"kh", win.kernel[0]}, {"kw", win.kernel[1]}},
      te::Reducer::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr channel = s.group == 1 ? r[0] : expr::FloorDiv(i[1], s.ocg) * s.icg + r[0];
        return product(at(i, channel, r[1], r[2]), expr::Load(w, {i[1], r[0], r[1], r[2]}));
      });
}

// Stages: "pad" where the input is padded; the sum; "bias" of its own, so that schedules treat it
// as an epilogue.
StatusOr<std::vector<Buffer>> TeConv(const OpView& v, const std::vector<Buffer>& in,
                                     te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const ConvShape s, ShapeOfConv(v));
  const Window& win = s.w;
  const DType t = v.out[0]->dtype;
  const Buffer x =
      PadSpatial(b, in[0], win.pads[0], win.pads[1], win.Used(0, s.oh), win.Used(1, s.ow), 0);
  Buffer y = ConvSum(s, t, x, in[1], b, [](const Expr& p, const Expr& q) { return p * q; });
  if (in.size() > 2) {
    y = b.Compute("bias", t, ConvAxes(s), [&](const std::vector<Expr>& i) {
      return expr::Load(y, i) + expr::Load(in[2], {i[1]});
    });
  }
  return std::vector<Buffer>{y};
}

// out[n, oc, oh, ow] += sum x * w. The innermost loop runs along output rows: contiguous for
// stride 1.
template <typename T>
void ConvAdd(const ConvShape& s, const T* x, const T* w, T* out) {
  const Window& win = s.w;
  const int64_t kh_n = win.kernel[0], kw_n = win.kernel[1], stride = win.strides[1];
  // Per kernel column: the outputs whose tap lies inside of the row.
  std::vector<int64_t> begin(kw_n), end(kw_n);
  for (int64_t kw = 0; kw < kw_n; ++kw) {
    const int64_t shift = kw * win.dilations[1] - win.pads[1];
    begin[kw] = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    end[kw] = shift >= s.iw ? 0 : std::min(s.ow, (s.iw - 1 - shift) / stride + 1);
  }
  const bool pointwise =
      kh_n == 1 && kw_n == 1 && stride == 1 && win.strides[0] == 1 && s.oh == s.h && s.ow == s.iw;
  for (int64_t n = 0; n < s.n; ++n) {
    if (pointwise) {
      const int64_t area = s.h * s.iw;
      for (int64_t g = 0; g < s.group; ++g) {
        MatMulAdd(s.ocg, area, s.icg, w + g * s.ocg * s.icg, x + (n * s.ic + g * s.icg) * area,
                  out + (n * s.oc + g * s.ocg) * area);
      }
      continue;
    }
    for (int64_t oc = 0; oc < s.oc; ++oc) {
      T* plane = out + (n * s.oc + oc) * s.oh * s.ow;
      for (int64_t ic = 0; ic < s.icg; ++ic) {
        const T* image = x + (n * s.ic + oc / s.ocg * s.icg + ic) * s.h * s.iw;
        const T* kernel = w + (oc * s.icg + ic) * kh_n * kw_n;
        for (int64_t oh = 0; oh < s.oh; ++oh) {
          int64_t kh, kh_end;
          win.Taps(0, oh, s.h, &kh, &kh_end);
          for (; kh < kh_end; ++kh) {
            const T* line =
                image + (oh * win.strides[0] - win.pads[0] + kh * win.dilations[0]) * s.iw;
            T* row = plane + oh * s.ow;
            for (int64_t kw = 0; kw < kw_n; ++kw) {
              const T f = kernel[kh * kw_n + kw];
              const T* from = line + kw * win.dilations[1] - win.pads[1];
              for (int64_t ow = begin[kw]; ow < end[kw]; ++ow) row[ow] += f * from[ow * stride];
            }
          }
        }
      }
    }
  }
}

Status ReferenceConv(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const ConvShape s, ShapeOfConv(v));
  RefTensor& y = out[0];
  const auto terms = static_cast<double>(s.icg * s.w.kernel[0] * s.w.kernel[1]);
  Bilinear(*in[0], *in[1], terms, y, want_err,
           [&](const auto* x, const auto* w, auto* o) { ConvAdd(s, x, w, o); });
  if (in.size() < 3) return OkStatus();
  const int64_t area = s.oh * s.ow;
  for (int64_t p = 0; p < s.n * s.oc; ++p) {
    const double bias = in[2]->value[p % s.oc], bias_err = in[2]->ErrAt(p % s.oc);
    for (int64_t i = p * area; i < (p + 1) * area; ++i) {
      y.value[i] += bias;
      // The bias may be where accumulation starts, so each of the additions may round at its size.
      if (!y.err.empty())
        y.err[i] += bias_err + terms * Roundoff(y.dtype) * std::fabs(bias) +
                    Roundoff(y.dtype) * std::fabs(y.value[i]);
    }
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpConv() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Conv";
    r.kind = FusionKind::kOutFusable;
    r.layout = LayoutRole::kChannelsLast;
    r.min_inputs = 2;
    r.max_inputs = 3;
    r.input_names = {"x", "w", "b"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"group", AttrType::kInt, AttrValue(int64_t{1})},
               {"strides", AttrType::kInts, AttrValue(Shape{1, 1})},
               {"dilations", AttrType::kInts, AttrValue(Shape{1, 1})},
               {"pads", AttrType::kInts, AttrValue(Shape{0, 0, 0, 0})}};
    r.note =
        "one to three spatial axes; three as two, with the depths of a window side by side as "
        "channels; infinities and NaN of the input reach outputs of neighbouring groups, and of "
        "neighbouring 3x3 windows";
    r.import = InF32(ImportConv);
    r.infer = InferConv;
    r.te = TeConv;
    r.reference = ReferenceConv;
    r.flops = [](const OpView& v) {
      const Shape& w = v.in[1]->shape;
      const int64_t per = graph::FlopsProduct({2, w[1], w[2], w[3]}) + (v.in.size() > 2 ? 1 : 0);
      return graph::FlopsProduct({v.out[0]->num_elements(), per});
    };
    // Weights scaled so that outputs are about as large as inputs, whatever the number of terms.
    r.range = [](const OpView& v, int input) {
      const Shape& w = v.in[1]->shape;
      const double s =
          input == 1
              ? std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(w[1] * w[2] * w[3], 1)))
              : 1;
      return graph::InputRange{-s, s};
    };
    return r;
  }();
  return op;
}

// ---- integers

namespace {

Attrs ConvIntegerAttrs(const Window& window, int64_t group) {
  Attrs attrs = WindowAttrs(window, false);
  attrs.Set("group", group);
  return attrs;
}

// A convolution of c.inputs (x, w, x_zero, w_zero), the last two of which may be left out; also
// QLinearConv's. The result has the rank of x.
StatusOr<ValueId> EmitConvInteger(ImportContext& c, std::vector<ValueId> in) {
  graph::GraphBuilder& b = c.builder;
  const Shape x = b.type(in[0]).shape, w = b.type(in[1]).shape;
  if (x.size() < 3 || x.size() > 4)
    return Unimplemented("input of rank {} is not supported; 3 and 4 are", x.size());
  if (w.size() != x.size())
    return InvalidArgument("weights {} for input {}", ShapeText(w), ShapeText(x));
  WHET_ASSIGN_OR_RETURN(
      Window window, TakeWindow(c, Shape(x.begin() + 2, x.end()), Shape(w.begin() + 2, w.end())));
  WHET_ASSIGN_OR_RETURN(int64_t group, c.TakeInt("group", 1));
  while (!in.empty() && in.back() == graph::kNoValue) in.pop_back();
  if (in.size() > 3 && in[2] == graph::kNoValue) in[2] = NoZeroPoint(c, b.type(in[0]).dtype);
  if (in.size() > 2) {
    WHET_ASSIGN_OR_RETURN(in[2], AsScalar(c, in[2], "zero point of the input"));
  }
  if (in.size() > 3) {
    const Shape zero = b.type(in[3]).shape;
    if (Product(zero) != 1 && zero != Shape{w[0]})
      return InvalidArgument("zero point {} of weights {}", ShapeText(zero), ShapeText(w));
    WHET_ASSIGN_OR_RETURN(
        in[3], Reshaped(c.builder, in[3], Product(zero) == 1 ? Shape{} : Shape{w[0], 1, 1, 1}));
  }
  WHET_ASSIGN_OR_RETURN(in[0], ToTwoAxes(c, in[0]));
  WHET_ASSIGN_OR_RETURN(in[1], ToTwoAxes(c, in[1]));
  return b.Emit("ConvInteger", std::move(in), ConvIntegerAttrs(window, group));
}

Status ImportConvInteger(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 4));
  const bool one_axis = c.type(0).rank() == 3;
  WHET_ASSIGN_OR_RETURN(ValueId y, EmitConvInteger(c, c.inputs));
  if (one_axis) {
    WHET_ASSIGN_OR_RETURN(y, FromTwoAxes(c, y));
  }
  c.outputs = {y};
  return OkStatus();
}

// x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias.
Status ImportQLinearConv(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(8, 9));
  const bool one_axis = c.type(0).rank() == 3;
  const std::vector<ValueId> in = c.inputs;
  const int64_t channels = c.type(3).rank() > 0 ? c.type(3).shape[0] : 0;
  const Shape per_channel = {channels, 1, 1};
  WHET_ASSIGN_OR_RETURN(ValueId sum, EmitConvInteger(c, {in[0], in[3], in[2], in[5]}));
  if (c.Has(8)) {
    if (c.type(8).dtype != DType::kI32 || c.type(8).shape != Shape{channels})
      return InvalidArgument("bias {} for {} output channels", c.type(8).ToString(), channels);
    WHET_ASSIGN_OR_RETURN(const ValueId bias, Reshaped(c.builder, in[8], per_channel));
    WHET_ASSIGN_OR_RETURN(sum, c.builder.Emit("Add", {sum, bias}));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId x_scale, AsScalar(c, in[1], "scale of the input"));
  WHET_ASSIGN_OR_RETURN(const ValueId y_scale, AsScalar(c, in[6], "scale of the output"));
  WHET_ASSIGN_OR_RETURN(const ValueId y_zero, AsScalar(c, in[7], "zero point of the output"));
  ValueId w_scale = in[4];
  if (Product(c.type(4).shape) == 1) {
    WHET_ASSIGN_OR_RETURN(w_scale, AsScalar(c, w_scale, "scale of the weights"));
  } else if (c.type(4).shape == Shape{channels}) {
    WHET_ASSIGN_OR_RETURN(w_scale, Reshaped(c.builder, w_scale, per_channel));
  } else {
    return InvalidArgument("scale {} for {} output channels", ShapeText(c.type(4).shape), channels);
  }
  WHET_ASSIGN_OR_RETURN(ValueId y, EmitRequantize(c, sum, x_scale, w_scale, y_scale, y_zero));
  if (one_axis) {
    WHET_ASSIGN_OR_RETURN(y, FromTwoAxes(c, y));
  }
  c.outputs = {y};
  return OkStatus();
}

Status InferConvInteger(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(CheckIntegerOperands(v));
  WHET_ASSIGN_OR_RETURN(ConvShape s, ShapeOfConv(v));
  if (v.in.size() > 2 && v.in[2]->num_elements() != 1)
    return InvalidArgument("zero point {} of the input must have one element",
                           ShapeText(v.in[2]->shape));
  const int64_t pad = v.attrs->Int("pad_value");
  const double lo = v.in[0]->dtype == DType::kU8 ? 0 : -128,
               hi = v.in[0]->dtype == DType::kU8 ? 255 : 127;
  if (pad < lo || pad > hi)
    return InvalidArgument("pad_value {} is outside of {}", pad, ToString(v.in[0]->dtype));
  if (pad != 0 && v.in.size() > 2)
    return InvalidArgument("pad_value {} beside a zero point, which is what padding holds", pad);
  out->push_back(TensorType::Of(DType::kI32, {s.n, s.oc, s.oh, s.ow}));
  return OkStatus();
}

// Stages: "center" for an operand with a zero point, "pad", and the sum.
StatusOr<std::vector<Buffer>> TeConvInteger(const OpView& v, const std::vector<Buffer>& in,
                                            te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const ConvShape s, ShapeOfConv(v));
  const Window& win = s.w;
  const Buffer w = Centered(v, in, 1, b);
  const Buffer x = PadSpatial(b, Centered(v, in, 0, b), win.pads[0], win.pads[1], win.Used(0, s.oh),
                              win.Used(1, s.ow), static_cast<double>(v.attrs->Int("pad_value")));
  return std::vector<Buffer>{ConvSum(s, DType::kI32, x, w, b, IntegerProduct)};
}

// Padding that holds p is zero once p is subtracted everywhere: sum(x * w) = sum((x - p) * w) +
// p * sum(w).
Status ReferenceConvInteger(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const ConvShape s, ShapeOfConv(v));
  RefTensor& y = out[0];
  RefTensor x = Centered(in, 0);
  const RefTensor w = Centered(in, 1);
  const auto pad = static_cast<double>(v.attrs->Int("pad_value"));
  // Differences of i32 need not be i32: they are 64-bit words here.
  x.dtype = DType::kI64;
  for (double& d : x.value) d -= pad;
  Bilinear(x, w, static_cast<double>(Product(w.shape, 1)), y, want_err,
           [&](const auto* p, const auto* q, auto* o) { ConvAdd(s, p, q, o); });
  if (pad != 0) {
    const int64_t taps = Product(w.shape, 1), area = s.oh * s.ow;
    for (int64_t p = 0; p < s.n * s.oc; ++p) {
      double sum = 0;
      for (int64_t k = 0; k < taps; ++k) sum += w.value[p % s.oc * taps + k];
      for (int64_t i = p * area; i < (p + 1) * area; ++i)
        y.value[i] = Wrap(y.dtype, y.value[i] + pad * sum);
    }
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpConvInteger() {
  static const OpRecord op = [] {
    OpRecord r = OpConv();
    r.name = "ConvInteger";
    r.note = "one or two spatial axes";
    r.max_inputs = 4;
    r.input_names = {"x", "w", "x_zero", "w_zero"};
    r.types = IntegerOperands();
    r.attrs.push_back({"pad_value", AttrType::kInt, AttrValue(int64_t{0})});
    r.import = ImportConvInteger;
    r.infer = InferConvInteger;
    r.te = TeConvInteger;
    r.reference = ReferenceConvInteger;
    r.flops = [](const OpView& v) {
      const Shape& w = v.in[1]->shape;
      return graph::FlopsProduct({v.out[0]->num_elements(), 2, w[1], w[2], w[3]});
    };
    r.range = IntegerRange;
    return r;
  }();
  return op;
}

const OpRecord& OpQLinearConv() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "QLinearConv";
    r.note = "one or two spatial axes";
    r.import = ImportQLinearConv;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
