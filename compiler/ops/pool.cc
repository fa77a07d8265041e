#include "compiler/ops/pool.h"
#include "compiler/ops/emitter.h"

#include <algorithm>
#include <limits>

namespace whet::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// One canonical pool; the two last axes of `v` are the window's.
StatusOr<ValueId> EmitPool(ImportContext& c, ValueId v, bool average, const Window& w,
                           int64_t include_pad) {
  Attrs attrs = WindowAttrs(w, true);
  if (average) attrs.Set("count_include_pad", include_pad);
  return c.builder.Emit(average ? "AveragePool" : "MaxPool", {v}, std::move(attrs));
}

// (n, c, d, h, w): maxima and means, even those of parts of windows, are taken over h and w first
// and then over d.
StatusOr<ValueId> EmitPool3d(ImportContext& c, ValueId v, bool average, const WindowLists& lists,
                             int64_t include_pad) {
  const Shape x = c.builder.type(v).shape;
  auto part = [&](std::initializer_list<size_t> axes) {
    WindowLists l;
    l.ceil_mode = lists.ceil_mode;
    for (size_t a : axes) {
      l.kernel.push_back(lists.kernel[a]);
      l.strides.push_back(lists.strides[a]);
      l.dilations.push_back(lists.dilations[a]);
      l.pads.push_back(lists.pads[a]);
    }
    for (size_t a : axes) l.pads.push_back(lists.pads[a + 3]);
    return l;
  };
  auto reshape = [&](Shape shape) {
    return c.builder.Emit("Reshape", {v}, {{"shape", std::move(shape)}});
  };
  int64_t channels = 0;
  if (__builtin_mul_overflow(x[1], x[2], &channels)) return InvalidArgument("too large");
  WHET_ASSIGN_OR_RETURN(v, reshape({x[0], channels, x[3], x[4]}));
  WHET_ASSIGN_OR_RETURN(v, EmitPool(c, v, average, ToWindow(part({1, 2})), include_pad));
  const int64_t oh = c.builder.type(v).shape[2], ow = c.builder.type(v).shape[3];
  WHET_ASSIGN_OR_RETURN(v, reshape({x[0], x[1], x[2], oh * ow}));
  Window depth = ToWindow(part({0}));  // a window along w: turn it upright
  std::swap(depth.kernel[0], depth.kernel[1]);
  std::swap(depth.strides[0], depth.strides[1]);
  std::swap(depth.dilations[0], depth.dilations[1]);
  std::swap(depth.pads[0], depth.pads[1]);
  std::swap(depth.pads[2], depth.pads[3]);
  WHET_ASSIGN_OR_RETURN(v, EmitPool(c, v, average, depth, include_pad));
  return reshape({x[0], x[1], c.builder.type(v).shape[2], oh, ow});
}

Status ImportPool(ImportContext& c, bool average) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t storage_order, c.TakeInt("storage_order", 0));
  const Shape x = c.type(0).shape;
  if (x.size() < 3 || x.size() > 5)
    return Unimplemented("input of rank {} is not supported; 3 to 5 are", x.size());
  if (!c.HasAttr("kernel_shape")) return InvalidArgument("attribute 'kernel_shape' is missing");
  WHET_ASSIGN_OR_RETURN(WindowLists lists, TakeWindowLists(c, Shape(x.begin() + 2, x.end()), {}));
  int64_t include = 0;
  if (average) {
    WHET_ASSIGN_OR_RETURN(include, c.TakeInt("count_include_pad", 0));
    include = include != 0;
  }
  if (x.size() == 5) {
    if (c.Wanted(1)) return Unimplemented("indices of three spatial axes are not supported");
    WHET_ASSIGN_OR_RETURN(ValueId y, EmitPool3d(c, c.inputs[0], average, lists, include));
    c.outputs = {y};
    return OkStatus();
  }
  WHET_ASSIGN_OR_RETURN(ValueId v, ToTwoAxes(c, c.inputs[0]));
  WHET_ASSIGN_OR_RETURN(ValueId y, EmitPool(c, v, average, ToWindow(lists), include));
  c.outputs = {y};
  if (c.Wanted(1)) {
    Attrs attrs = WindowAttrs(ToWindow(lists), true);
    attrs.Set("storage_order", storage_order);
    WHET_ASSIGN_OR_RETURN(ValueId at, c.builder.Emit("MaxPoolIndices", {v}, std::move(attrs)));
    c.outputs.push_back(at);
  }
  for (ValueId& o : c.outputs) {
    if (x.size() != 3) break;
    WHET_ASSIGN_OR_RETURN(o, FromTwoAxes(c, o));
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

// ---- MaxPoolIndices: where, in the whole input, the first of the maxima stands. As in a maximum,
// a NaN is larger than any number.

StatusOr<std::vector<Buffer>> TeIndices(const OpView& v, const std::vector<Buffer>& in,
                                        te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const PoolShape s, ShapeOf(v));
  const Window& win = s.w;
  const DType t = v.in[0]->dtype;
  const double fill = IsFloat(t) ? -kInf : graph::RoundTo(t, -kInf);
  const Buffer x =
      PadSpatial(b, in[0], win.pads[0], win.pads[1], win.Used(0, s.oh), win.Used(1, s.ow), fill);
  const te::AxisSpec axes = {{"n", s.n}, {"c", s.c}, {"oh", s.oh}, {"ow", s.ow}};
  const te::AxisSpec taps = {{"kh", win.kernel[0]}, {"kw", win.kernel[1]}};
  auto row = [&](const std::vector<Expr>& i, const std::vector<Expr>& r, int d) {
    return i[2 + d] * win.strides[d] + r[d] * win.dilations[d];
  };
  auto load = [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
    return expr::Load(x, {i[0], i[1], row(i, r, 0), row(i, r, 1)});
  };
  const Buffer most = b.Reduce("pool", t, axes, taps, te::Reducer::kMax, load);
  // Padding does not count, even where it equals the maximum.
  auto inside = [&](const Expr& at, int d, int64_t extent) {
    return expr::And(expr::Le(expr::Int(win.pads[d]), at),
                     expr::Lt(at, expr::Int(win.pads[d] + extent)));
  };
  const bool columns = v.attrs->Int("storage_order") != 0;
  const Buffer first = b.Reduce("first", DType::kI64, axes, taps, te::Reducer::kMin,
                                [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                  const Expr h = row(i, r, 0), w = row(i, r, 1), x_at = load(i, r);
                                  Expr largest = expr::Eq(x_at, expr::Load(most, i));
                                  if (IsFloat(t))
                                    largest = expr::Or(largest, expr::Not(expr::Eq(x_at, x_at)));
                                  const Expr hit = expr::And(
                                      expr::And(inside(h, 0, s.h), inside(w, 1, s.iw)), largest);
                                  const Expr number = (h - win.pads[0]) * s.iw + (w - win.pads[1]);
                                  return expr::Select(hit, number, expr::Int(s.h * s.iw));
                                });
  return std::vector<Buffer>{b.Compute("index", DType::kI64, axes, [&](const std::vector<Expr>& i) {
    // Where none is hit (an element that is computed twice, differently), the first of the plane
    // stands in: an index is always inside.
    const Expr raw = expr::Load(first, i);
    const Expr number = expr::Select(expr::Lt(raw, expr::Int(s.h * s.iw)), raw, expr::Int(0));
    const Expr plane = (i[0] * s.c + i[1]) * (s.h * s.iw);
    if (!columns) return plane + number;
    return plane + expr::FloorMod(number, s.iw) * s.h + expr::FloorDiv(number, s.iw);
  })};
}

// Calls f(h, w) for the places of a window that are inside of the input, in order.
template <typename F>
void ForEachPlace(const PoolShape& s, int64_t oh, int64_t ow, const F& f) {
  const Window& w = s.w;
  int64_t h0, h1, w0, w1;
  w.Taps(0, oh, s.h, &h0, &h1);
  w.Taps(1, ow, s.iw, &w0, &w1);
  for (int64_t kh = h0; kh < h1; ++kh) {
    for (int64_t kw = w0; kw < w1; ++kw)
      f(oh * w.strides[0] - w.pads[0] + kh * w.dilations[0],
        ow * w.strides[1] - w.pads[1] + kw * w.dilations[1]);
  }
}

Status ReferenceIndices(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const PoolShape s, ShapeOf(v));
  const RefTensor& x = *in[0];
  const bool columns = v.attrs->Int("storage_order") != 0;
  const bool err = want_err && !x.err.empty();
  if (err) out[0].err.assign(out[0].value.size(), 0);
  for (int64_t to = 0; to < out[0].size(); ++to) {
    const int64_t plane = to / (s.oh * s.ow) * s.h * s.iw;
    const int64_t oh = to / s.ow % s.oh, ow = to % s.ow;
    int64_t best = -1;
    ForEachPlace(s, oh, ow, [&](int64_t h, int64_t w) {
      const int64_t at = plane + h * s.iw + w;
      const double p = x.value[at], most = best < 0 ? 0 : x.value[best];
      if (best < 0 || p > most || (std::isnan(p) && !std::isnan(most))) best = at;
    });
    if (best < 0) best = plane;  // a window of padding only, as kernels have it
    // Inputs that rounding may bring into the other order admit any index.
    if (err) {
      ForEachPlace(s, oh, ow, [&](int64_t h, int64_t w) {
        const int64_t at = plane + h * s.iw + w;
        const double both = x.err[at] + x.err[best];
        if (at != best && both > 0 && x.value[best] - x.value[at] <= both * kErrUnit)
          out[0].err[to] = static_cast<double>(s.h * s.iw) / kErrUnit;
      });
    }
    const int64_t h = (best - plane) / s.iw, w = (best - plane) % s.iw;
    out[0].value[to] = static_cast<double>(plane + (columns ? w * s.h + h : h * s.iw + w));
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
  r.note = "one to three spatial axes";
  r.import = [average](ImportContext& c) { return ImportPool(c, average); };
  if (average) r.import = InF32(r.import);
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
    return graph::FlopsProduct(
        {v.out[0]->num_elements(), graph::FlopsProduct(v.attrs->Ints("kernel"))});
  };
  r.is_identity = IsUnitWindow;
  return r;
}

OpRecord PoolIndices() {
  OpRecord r = Pool("MaxPoolIndices", false);
  r.kind = FusionKind::kOpaque;
  r.layout = LayoutRole::kRowMajor;
  r.importable = false;
  r.attrs.push_back({"storage_order", AttrType::kInt, AttrValue(int64_t{0})});
  r.import = nullptr;
  r.note.clear();
  r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
    WHET_ASSIGN_OR_RETURN(PoolShape s, ShapeOf(v));
    out->push_back(TensorType::Of(DType::kI64, {s.n, s.c, s.oh, s.ow}));
    return OkStatus();
  };
  r.te = TeIndices;
  r.reference = ReferenceIndices;
  r.is_identity = nullptr;
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
  if (average) r.import = InF32(r.import);
  return r;
}

}  // namespace whet::ops
