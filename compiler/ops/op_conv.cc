#include <algorithm>

#include "compiler/ops/window.h"

namespace whet::ops {
namespace {

Status ImportConv(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  const Shape x = c.type(0).shape, w = c.type(1).shape;
  if (x.size() < 3 || x.size() > 4)
    return Unimplemented("input of rank {} is not supported; 3 and 4 are", x.size());
  if (w.size() != x.size())
    return InvalidArgument("weights {} for input {}", ShapeText(w), ShapeText(x));
  WHET_ASSIGN_OR_RETURN(
      Window window, TakeWindow(c, Shape(x.begin() + 2, x.end()), Shape(w.begin() + 2, w.end())));
  Attrs attrs = WindowAttrs(window, false);
  WHET_ASSIGN_OR_RETURN(int64_t group, c.TakeInt("group", 1));
  attrs.Set("group", group);
  WHET_ASSIGN_OR_RETURN(c.inputs[0], ToTwoAxes(c, c.inputs[0]));
  WHET_ASSIGN_OR_RETURN(c.inputs[1], ToTwoAxes(c, c.inputs[1]));
  WHET_RETURN_IF_ERROR(c.Finish("Conv", c.inputs, std::move(attrs)));
  if (x.size() == 3) {
    WHET_ASSIGN_OR_RETURN(c.outputs[0], FromTwoAxes(c, c.outputs[0]));
  }
  return OkStatus();
}

struct ConvShape {
  Window w;
  int64_t n, ic, h, iw, oc, group, icg, ocg, oh, ow;
  bool depthwise() const { return group > 1 && group == ic && group == oc; }
};

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

// Stages: "pad" where the input is padded; "conv" or "dwconv"; "bias" of its own, so that schedules
// treat it as an epilogue.
StatusOr<std::vector<Buffer>> TeConv(const OpView& v, const std::vector<Buffer>& in,
                                     te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const ConvShape s, ShapeOfConv(v));
  const Window& win = s.w;
  const DType t = v.out[0]->dtype;
  const Buffer x =
      PadSpatial(b, in[0], win.pads[0], win.pads[1], win.Used(0, s.oh), win.Used(1, s.ow), 0);
  const Buffer& w = in[1];
  auto at = [&](const std::vector<Expr>& i, const Expr& channel, const Expr& kh, const Expr& kw) {
    return expr::Load(x, {i[0], channel, i[2] * win.strides[0] + kh * win.dilations[0],
                          i[3] * win.strides[1] + kw * win.dilations[1]});
  };
  const bool dw = s.depthwise();
  const te::AxisSpec axes = {{"n", s.n}, {dw ? "c" : "oc", s.oc}, {"oh", s.oh}, {"ow", s.ow}};
  Buffer y;
  if (dw) {
    y = b.Reduce("dwconv", t, axes, {{"kh", win.kernel[0]}, {"kw", win.kernel[1]}},
                 te::Reducer::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                   return at(i, i[1], r[0], r[1]) * expr::Load(w, {i[1], expr::Int(0), r[0], r[1]});
                 });
  } else {
    y = b.Reduce("conv", t, axes, {{"ic", s.icg}, {"kh", win.kernel[0]}, {"kw", win.kernel[1]}},
                 te::Reducer::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                   const Expr channel =
                       s.group == 1 ? r[0] : expr::FloorDiv(i[1], s.ocg) * s.icg + r[0];
                   return at(i, channel, r[1], r[2]) * expr::Load(w, {i[1], r[0], r[1], r[2]});
                 });
  }
  if (in.size() > 2) {
    y = b.Compute("bias", t, axes, [&](const std::vector<Expr>& i) {
      return expr::Load(y, i) + expr::Load(in[2], {i[1]});
    });
  }
  return std::vector<Buffer>{y};
}

// out[n, oc, oh, ow] += sum x * w. The innermost loop runs along output rows: contiguous for
// stride 1.
void ConvAdd(const ConvShape& s, const double* x, const double* w, double* out) {
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
      double* plane = out + (n * s.oc + oc) * s.oh * s.ow;
      for (int64_t ic = 0; ic < s.icg; ++ic) {
        const double* image = x + (n * s.ic + oc / s.ocg * s.icg + ic) * s.h * s.iw;
        const double* kernel = w + (oc * s.icg + ic) * kh_n * kw_n;
        for (int64_t oh = 0; oh < s.oh; ++oh) {
          int64_t kh, kh_end;
          win.Taps(0, oh, s.h, &kh, &kh_end);
          for (; kh < kh_end; ++kh) {
            const double* line =
                image + (oh * win.strides[0] - win.pads[0] + kh * win.dilations[0]) * s.iw;
            double* row = plane + oh * s.ow;
            for (int64_t kw = 0; kw < kw_n; ++kw) {
              const double f = kernel[kh * kw_n + kw];
              const double* from = line + kw * win.dilations[1] - win.pads[1];
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
           [&](const double* x, const double* w, double* o) { ConvAdd(s, x, w, o); });
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
    r.note = "one or two spatial axes";
    r.import = ImportConv;
    r.infer = InferConv;
    r.te = TeConv;
    r.reference = ReferenceConv;
    r.flops = [](const OpView& v) {
      const Shape& w = v.in[1]->shape;
      const int64_t per = 2 * w[1] * w[2] * w[3] + (v.in.size() > 2 ? 1 : 0);
      return v.out[0]->num_elements() * per;
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

}  // namespace whet::ops
