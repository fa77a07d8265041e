#include "compiler/ops/pool.h"

#include <algorithm>
#include <limits>

namespace whet::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Status ImportPool(ImportContext& c, bool average) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  if (c.Wanted(1)) return Unimplemented("the output of indices is not supported");
  WHET_ASSIGN_OR_RETURN(int64_t storage_order, c.TakeInt("storage_order", 0));
  static_cast<void>(storage_order);  // only the indices, which are refused, depend on it
  const Shape x = c.type(0).shape;
  if (x.size() < 3 || x.size() > 4)
    return Unimplemented("input of rank {} is not supported; 3 and 4 are", x.size());
  if (!c.HasAttr("kernel_shape")) return InvalidArgument("attribute 'kernel_shape' is missing");
  WHET_ASSIGN_OR_RETURN(Window window, TakeWindow(c, Shape(x.begin() + 2, x.end()), {}));
  Attrs attrs = WindowAttrs(window, true);
  if (average) {
    WHET_ASSIGN_OR_RETURN(int64_t include, c.TakeInt("count_include_pad", 0));
    attrs.Set("count_include_pad", int64_t{include != 0});
  }
  WHET_ASSIGN_OR_RETURN(c.inputs[0], ToTwoAxes(c, c.inputs[0]));
  WHET_RETURN_IF_ERROR(
      c.Finish(average ? "AveragePool" : "MaxPool", {c.inputs[0]}, std::move(attrs)));
  if (x.size() == 3) {
    WHET_ASSIGN_OR_RETURN(c.outputs[0], FromTwoAxes(c, c.outputs[0]));
  }
  return OkStatus();
}

struct PoolShape {
  Window w;
  int64_t n, c, h, iw, oh, ow;
};

StatusOr<PoolShape> ShapeOf(const OpView& v) {
  const Shape& x = v.in[0]->shape;
  if (x.size() != 4) return InvalidArgument("input {} must have rank 4", ShapeText(x));
  PoolShape s;
  WHET_ASSIGN_OR_RETURN(s.w, WindowOf(*v.attrs, v.attrs->Ints("kernel")));
  // A window wholly in the padding would have no value.
  for (int d : {0, 1, 2, 3}) {
    if (s.w.pads[d] >= s.w.Span(d % 2))
      return InvalidArgument("pad {} is not smaller than the kernel {}", s.w.pads[d],
                             s.w.Span(d % 2));
  }
  s.n = x[0], s.c = x[1], s.h = x[2], s.iw = x[3];
  WHET_ASSIGN_OR_RETURN(s.oh, s.w.OutExtent(0, s.h));
  WHET_ASSIGN_OR_RETURN(s.ow, s.w.OutExtent(1, s.iw));
  return s;
}

// How many taps window `o` of axis d divides by: those inside of the input, or of the padded input.
Expr CountExpr(const Window& w, int d, int64_t in, const Expr& o, bool include_pad) {
  const int64_t dilation = w.dilations[d];
  auto ceil_div = [dilation](const Expr& a) {
    return dilation == 1 ? a : expr::FloorDiv(a + (dilation - 1), dilation);
  };
  const Expr start = o * w.strides[d] - w.pads[d];
  const Expr end = expr::Int(include_pad ? in + w.pads[d + 2] : in);
  const Expr last = expr::Min(ceil_div(end - start), expr::Int(w.kernel[d]));
  if (include_pad) return last;
  return last - expr::Max(ceil_div(expr::Int(0) - start), expr::Int(0));
}

bool CountVaries(const Window& w, int d, int64_t in, int64_t out, bool include_pad) {
  const int64_t used = w.Used(d, out) - w.pads[d];
  return include_pad ? used > in + w.pads[d + 2] : used > in || w.pads[d] > 0;
}

StatusOr<std::vector<Buffer>> Te(const OpView& v, const std::vector<Buffer>& in, te::Builder& b,
                                 bool average) {
  WHET_ASSIGN_OR_RETURN(const PoolShape s, ShapeOf(v));
  const Window& win = s.w;
  const DType t = v.out[0]->dtype;
  const double fill = average ? 0 : IsFloat(t) ? -kInf : graph::RoundTo(t, -kInf);
  const Buffer x =
      PadSpatial(b, in[0], win.pads[0], win.pads[1], win.Used(0, s.oh), win.Used(1, s.ow), fill);
  const te::AxisSpec axes = {{"n", s.n}, {"c", s.c}, {"oh", s.oh}, {"ow", s.ow}};
  Buffer y =
      b.Reduce("pool", t, axes, {{"kh", win.kernel[0]}, {"kw", win.kernel[1]}},
               average ? te::Reducer::kSum : te::Reducer::kMax,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 return expr::Load(x, {i[0], i[1], i[2] * win.strides[0] + r[0] * win.dilations[0],
                                       i[3] * win.strides[1] + r[1] * win.dilations[1]});
               });
  if (!average) return std::vector<Buffer>{y};
  const bool include = v.attrs->Int("count_include_pad") != 0;
  const bool varies =
      CountVaries(win, 0, s.h, s.oh, include) || CountVaries(win, 1, s.iw, s.ow, include);
  return std::vector<Buffer>{b.Compute("avg", t, axes, [&](const std::vector<Expr>& i) {
    if (!varies)
      return expr::Load(y, i) / Const(t, static_cast<double>(win.kernel[0] * win.kernel[1]));
    const Expr count =
        CountExpr(win, 0, s.h, i[2], include) * CountExpr(win, 1, s.iw, i[3], include);
    return expr::Load(y, i) / expr::Cast(t, count);
  })};
}

// One window of the image at x; taps of both axes are those inside.
void PoolWindow(const PoolShape& s, const RefTensor& x, int64_t plane, int64_t oh, int64_t ow,
                bool average, bool include, double* value, double* err) {
  const Window& w = s.w;
  int64_t h0, h1, w0, w1;
  w.Taps(0, oh, s.h, &h0, &h1);
  w.Taps(1, ow, s.iw, &w0, &w1);
  double acc = average ? 0 : -kInf, magnitude = 0, bound = 0;
  for (int64_t kh = h0; kh < h1; ++kh) {
    const int64_t row = plane * s.h + oh * w.strides[0] - w.pads[0] + kh * w.dilations[0];
    for (int64_t kw = w0; kw < w1; ++kw) {
      const int64_t at = row * s.iw + ow * w.strides[1] - w.pads[1] + kw * w.dilations[1];
      const double p = x.value[at];
      if (average) {
        acc += p;
        magnitude += std::fabs(p);
        bound += x.ErrAt(at);
      } else {
        acc = p > acc || std::isnan(p) ? p : acc;
        bound = std::max(bound, x.ErrAt(at));
      }
    }
  }
  *value = acc;
  *err = bound;
  if (!average) return;
  auto with_pads = [&](int d, int64_t o, int64_t in) {
    const int64_t room = in + w.pads[d] + w.pads[d + 2] - o * w.strides[d];
    return std::min(w.kernel[d], (room + w.dilations[d] - 1) / w.dilations[d]);
  };
  const int64_t count =
      include ? with_pads(0, oh, s.h) * with_pads(1, ow, s.iw) : (h1 - h0) * (w1 - w0);
  *value = acc / static_cast<double>(count);
  const auto terms = static_cast<double>((h1 - h0) * (w1 - w0));
  *err = (bound + Roundoff(x.dtype) * terms * magnitude) / static_cast<double>(count) +
         2 * Roundoff(x.dtype) * std::fabs(*value);
}

Status Reference(const OpView& v, Inputs in, Outputs out, bool want_err, bool average) {
  WHET_ASSIGN_OR_RETURN(const PoolShape s, ShapeOf(v));
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const bool include = average && v.attrs->Int("count_include_pad") != 0;
  const bool err = want_err && (average || !x.err.empty());
  if (err) y.err.resize(y.value.size());
  int64_t to = 0;
  for (int64_t plane = 0; plane < s.n * s.c; ++plane) {
    for (int64_t oh = 0; oh < s.oh; ++oh) {
      for (int64_t ow = 0; ow < s.ow; ++ow, ++to) {
        double bound = 0;
        PoolWindow(s, x, plane, oh, ow, average, include, &y.value[to], &bound);
        if (err) y.err[to] = bound;
      }
    }
  }
  return OkStatus();
}

bool IsUnitWindow(const OpView& v) {
  auto w = WindowOf(*v.attrs, v.attrs->Ints("kernel"));
  return w.ok() && w->kernel == std::array<int64_t, 2>{1, 1} &&
         w->strides == std::array<int64_t, 2>{1, 1} && w->pads == std::array<int64_t, 4>{};
}

}  // namespace

OpRecord Pool(const std::string& name, bool average) {
  OpRecord r;
  r.name = name;
  r.kind = FusionKind::kOutFusable;
  r.layout = LayoutRole::kChannelsLast;
  r.input_names = {"x"};
  r.types = average ? std::vector<DType>{DType::kF32, DType::kF64} : Numbers();
  r.attrs = {{"kernel", AttrType::kInts, std::nullopt},
             {"strides", AttrType::kInts, AttrValue(Shape{1, 1})},
             {"dilations", AttrType::kInts, AttrValue(Shape{1, 1})},
             {"pads", AttrType::kInts, AttrValue(Shape{0, 0, 0, 0})},
             {"ceil_mode", AttrType::kInt, AttrValue(int64_t{0})}};
  if (average) r.attrs.push_back({"count_include_pad", AttrType::kInt, AttrValue(int64_t{0})});
  r.note = "one or two spatial axes";
  r.import = [average](ImportContext& c) { return ImportPool(c, average); };
  r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
    WHET_ASSIGN_OR_RETURN(PoolShape s, ShapeOf(v));
    out->push_back(TensorType::Of(v.in[0]->dtype, {s.n, s.c, s.oh, s.ow}));
    return OkStatus();
  };
  r.te = [average](const OpView& v, const std::vector<Buffer>& in, te::Builder& b) {
    return Te(v, in, b, average);
  };
  r.reference = [average](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return Reference(v, in, out, want_err, average);
  };
  r.flops = [](const OpView& v) {
    return v.out[0]->num_elements() * Product(v.attrs->Ints("kernel"));
  };
  r.is_identity = IsUnitWindow;
  return r;
}

OpRecord GlobalPool(const std::string& name, bool average) {
  OpRecord r;
  r.name = name;
  r.note = "any number of spatial axes";
  r.import = [average](ImportContext& c) -> Status {
    WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
    const Shape x = c.type(0).shape;
    if (x.size() < 3) return InvalidArgument("input of rank {} has no spatial axes", x.size());
    if (x.size() == 4) {
      Window w;
      w.kernel = {x[2], x[3]};
      Attrs attrs = WindowAttrs(w, true);
      return c.Finish(average ? "AveragePool" : "MaxPool", {c.inputs[0]}, std::move(attrs));
    }
    std::vector<int64_t> axes;
    for (size_t d = 2; d < x.size(); ++d) axes.push_back(static_cast<int64_t>(d));
    return c.Finish(average ? "ReduceMean" : "ReduceMax", {c.inputs[0]},
                    {{"axes", axes}, {"keepdims", int64_t{1}}});
  };
  return r;
}

}  // namespace whet::ops
