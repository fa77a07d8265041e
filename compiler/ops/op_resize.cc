// Resize and Upsample. Nearest becomes ResizeNearest, an index per axis in whole numbers (or a
// Gather of constant indices where none fits); linear and cubic become Interpolate, sums over few
// positions of some axes with constant positions and weights; many taps (antialiasing) are a matrix
// product. What lies outside of a cropped region is selected away at the end.
#include "compiler/ops/index.h"
#include "compiler/ops/resize.h"

namespace whet::ops {
namespace {

constexpr int64_t kMaxTaps = 16;  // in one Interpolate: its sum is written out
// Positions are computed one by one here, and matrices element by element.
constexpr int64_t kMaxResizeExtent = int64_t{1} << 22;

struct ResizePlan {
  ResizeMode mode;
  std::vector<ResizeAxis> axes;  // one per dimension
  double extrapolation = 0;
};

ValueId MakeConstant(ImportContext& c, DType t, Shape shape, const std::vector<double>& values) {
  return c.builder.Constant("", graph::Constant::OfDoubles(t, std::move(shape), values));
}

StatusOr<ValueId> NearestPass(ImportContext& c, ValueId v, const ResizePlan& p,
                              const std::vector<ResizeTaps>& taps) {
  const size_t rank = p.axes.size();
  Shape sizes, num(rank, 1), offset(rank, 0), den(rank, 1);
  std::vector<size_t> tables;
  for (size_t d = 0; d < rank; ++d) {
    const ResizeAxis& a = p.axes[d];
    sizes.push_back(a.in);
    if (a.out == a.in && taps[d].IsIdentity(a.in)) continue;
    const auto line = FitLine(taps[d].index, a.in, a.scale);
    if (!line) {
      tables.push_back(d);
      continue;
    }
    sizes[d] = a.out, num[d] = line->num, offset[d] = line->offset, den[d] = line->den;
  }
  for (size_t d : tables) {
    const ValueId index = c.builder.Ints(taps[d].index);
    WHET_ASSIGN_OR_RETURN(
        v, c.builder.Emit("Gather", {v, index}, {{"axis", static_cast<int64_t>(d)}}));
    sizes[d] = p.axes[d].out;
  }
  if (sizes == c.builder.type(v).shape && num == Shape(rank, 1) && den == num &&
      offset == Shape(rank, 0))
    return v;
  return c.builder.Emit("ResizeNearest", {v},
                        {{"sizes", sizes}, {"num", num}, {"offset", offset}, {"den", den}});
}

// y = x with `axis` multiplied by a matrix [in, out].
StatusOr<ValueId> MatrixPass(ImportContext& c, ValueId v, size_t axis, const ResizeTaps& t,
                             const ResizeAxis& a) {
  const DType type = c.builder.type(v).dtype;
  if (a.in > kMaxConstant / std::max<int64_t>(a.out, 1))
    return ResourceExhausted("a matrix of {} x {} exceeds the limit of {} elements", a.in, a.out,
                             kMaxConstant);
  std::vector<double> matrix(static_cast<size_t>(a.in * a.out), 0.0);
  for (int64_t o = 0; o < a.out; ++o) {
    for (int64_t k = 0; k < t.taps; ++k) {
      const auto at = static_cast<size_t>(o * t.taps + k);
      matrix[static_cast<size_t>(t.index[at] * a.out + o)] += t.weight[at];
    }
  }
  Shape perm;
  for (size_t d = 0; d < c.builder.type(v).shape.size(); ++d)
    perm.push_back(static_cast<int64_t>(d));
  std::swap(perm[axis], perm.back());
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Transpose", {v}, {{"perm", perm}}));
  Shape shape = c.builder.type(v).shape;
  WHET_ASSIGN_OR_RETURN(
      v, c.builder.Emit("Reshape", {v}, {{"shape", Shape{Product(shape) / a.in, a.in}}}));
  WHET_ASSIGN_OR_RETURN(
      v, c.builder.Emit("MatMul", {v, MakeConstant(c, type, {a.in, a.out}, matrix)}));
  shape.back() = a.out;
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Reshape", {v}, {{"shape", shape}}));
  return c.builder.Emit("Transpose", {v}, {{"perm", perm}});
}

StatusOr<ValueId> InterpolatePass(ImportContext& c, ValueId v, const ResizePlan& p,
                                  const std::vector<ResizeTaps>& taps) {
  const DType type = c.builder.type(v).dtype;
  std::vector<ValueId> in;
  Shape axes;
  int64_t product = 1;
  auto flush = [&]() -> Status {
    if (axes.empty()) return OkStatus();
    in.insert(in.begin(), v);
    WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Interpolate", in, {{"axes", axes}}));
    in.clear();
    axes.clear();
    product = 1;
    return OkStatus();
  };
  for (size_t d = 0; d < p.axes.size(); ++d) {
    const ResizeTaps& t = taps[d];
    if (p.axes[d].out == p.axes[d].in && t.IsIdentity(p.axes[d].in)) continue;
    if (t.taps > kMaxTaps) {
      WHET_RETURN_IF_ERROR(flush());
      WHET_ASSIGN_OR_RETURN(v, MatrixPass(c, v, d, t, p.axes[d]));
      continue;
    }
    if (product * t.taps > kMaxTaps) WHET_RETURN_IF_ERROR(flush());
    const std::vector<double> index(t.index.begin(), t.index.end());
    in.push_back(MakeConstant(c, DType::kI64, {p.axes[d].out, t.taps}, index));
    in.push_back(MakeConstant(c, type, {p.axes[d].out, t.taps}, t.weight));
    axes.push_back(static_cast<int64_t>(d));
    product *= t.taps;
  }
  WHET_RETURN_IF_ERROR(flush());
  return v;
}

// Positions outside of the cropped region take the extrapolation value.
StatusOr<ValueId> ExtrapolatePass(ImportContext& c, ValueId v, const ResizePlan& p,
                                  const std::vector<ResizeTaps>& taps) {
  for (size_t d = 0; d < taps.size(); ++d) {
    if (!taps[d].any_outside) continue;
    Shape shape(taps.size(), 1);
    shape[d] = p.axes[d].out;
    const ValueId outside =
        MakeConstant(c, DType::kBool, shape,
                     std::vector<double>(taps[d].outside.begin(), taps[d].outside.end()));
    const ValueId value = MakeConstant(c, c.builder.type(v).dtype, {1}, {p.extrapolation});
    WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Where", {outside, value, v}));
  }
  return v;
}

Status EmitResize(ImportContext& c, const ResizePlan& p) {
  const DType type = c.type(0).dtype;
  Shape out;
  for (const ResizeAxis& a : p.axes) out.push_back(a.out);
  WHET_RETURN_IF_ERROR(graph::CheckShape(type, out));
  if (Product(out) > 0 && c.type(0).num_elements() == 0)
    return InvalidArgument("nothing to resize in {}", c.type(0).ToString());
  std::vector<ResizeTaps> taps;
  for (const ResizeAxis& a : p.axes) {
    if (a.out > kMaxResizeExtent)
      return ResourceExhausted("an output of {} exceeds the limit of {}", a.out, kMaxResizeExtent);
    WHET_ASSIGN_OR_RETURN(ResizeTaps t, TapsOf(p.mode, a));
    taps.push_back(std::move(t));
  }
  ValueId v = c.inputs[0];
  if (p.mode.mode == "nearest") {
    WHET_ASSIGN_OR_RETURN(v, NearestPass(c, v, p, taps));
    WHET_ASSIGN_OR_RETURN(v, ExtrapolatePass(c, v, p, taps));
  } else {
    // Other types are interpolated in f32.
    const bool direct = type == DType::kF32 || type == DType::kF64;
    if (!direct) {
      WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Cast", {v}, {{"to", std::string("f32")}}));
    }
    WHET_ASSIGN_OR_RETURN(v, InterpolatePass(c, v, p, taps));
    WHET_ASSIGN_OR_RETURN(v, ExtrapolatePass(c, v, p, taps));
    if (!direct) {
      WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Cast", {v}, {{"to", std::string(ToString(type))}}));
    }
  }
  if (v == c.inputs[0]) return c.Finish("Identity", {v});
  c.outputs = {v};
  return OkStatus();
}

// Sizes or scales of `axes` to one entry per dimension.
Status SetScales(ResizePlan& p, const std::vector<int64_t>& axes,
                 const std::vector<double>& scales) {
  if (scales.size() != axes.size())
    return InvalidArgument("{} scales for {} axes", scales.size(), axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizeAxis& a = p.axes[axes[i]];
    if (!(scales[i] > 0) || !(scales[i] * static_cast<double>(a.in) < 0x1.0p31))
      return InvalidArgument("a scale of {}", scales[i]);
    a.scale = scales[i];
    a.out = static_cast<int64_t>(std::floor(static_cast<double>(a.in) * scales[i]));
  }
  return OkStatus();
}

Status SetSizes(ResizePlan& p, const std::vector<int64_t>& axes, const std::vector<int64_t>& sizes,
                const std::string& policy) {
  if (sizes.size() != axes.size())
    return InvalidArgument("{} sizes for {} axes", sizes.size(), axes.size());
  double least = 0, most = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizeAxis& a = p.axes[axes[i]];
    if (sizes[i] < 1 || sizes[i] > (int64_t{1} << 31) || a.in < 1)
      return InvalidArgument("sizes {} of {}", ShapeText(sizes), a.in);
    a.out = sizes[i];
    a.scale = static_cast<double>(sizes[i]) / static_cast<double>(a.in);
    least = i == 0 ? a.scale : std::min(least, a.scale);
    most = std::max(most, a.scale);
  }
  if (policy == "stretch") return OkStatus();
  if (policy != "not_larger" && policy != "not_smaller")
    return InvalidArgument("keep_aspect_ratio_policy '{}' is unknown", policy);
  for (int64_t d : axes) {
    ResizeAxis& a = p.axes[d];
    a.scale = policy == "not_larger" ? least : most;
    const double out = std::floor(a.scale * static_cast<double>(a.in) + 0.5);
    if (!(out < 0x1.0p31))
      return InvalidArgument("sizes {} keeping the aspect ratio of {}", ShapeText(sizes), a.in);
    a.out = static_cast<int64_t>(out);
  }
  return OkStatus();
}

Status SetRoi(ImportContext& c, ResizePlan& p, const std::vector<int64_t>& axes) {
  WHET_ASSIGN_OR_RETURN(std::vector<double> roi, c.ConstFloats(1, "roi"));
  if (roi.size() != 2 * axes.size())
    return InvalidArgument("roi has {} elements for {} axes", roi.size(), axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const double start = roi[i], end = roi[i + axes.size()];
    if (!(std::fabs(start) < 0x1.0p31) || !(std::fabs(end) < 0x1.0p31))
      return InvalidArgument("roi from {} to {}", start, end);
    p.axes[axes[i]].roi_start = start;
    p.axes[axes[i]].roi_end = end;
  }
  return OkStatus();
}

ResizePlan PlanFor(const ImportContext& c) {
  ResizePlan p;
  for (int64_t extent : c.type(0).shape) p.axes.push_back({extent, extent, 1, 0, 1});
  return p;
}

std::vector<int64_t> AllAxes(const ResizePlan& p) {
  std::vector<int64_t> axes;
  for (size_t d = 0; d < p.axes.size(); ++d) axes.push_back(static_cast<int64_t>(d));
  return axes;
}

// Upsample, and Resize of operator set 10: scales only, counted from the first position.
Status ImportUpsample(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 2));
  ResizePlan p = PlanFor(c);
  WHET_ASSIGN_OR_RETURN(p.mode.mode, c.TakeString("mode", "nearest"));
  if (p.mode.mode == "bilinear") p.mode.mode = "linear";
  p.mode.coordinates = "asymmetric";
  p.mode.nearest = "floor";
  std::vector<double> scales;
  if (c.Has(1)) {
    WHET_ASSIGN_OR_RETURN(scales, c.ConstFloats(1, "scales"));
  } else if (c.HasAttr("height_scale") || c.HasAttr("width_scale")) {  // operator set 1
    WHET_ASSIGN_OR_RETURN(double h, c.TakeFloat("height_scale", 1));
    WHET_ASSIGN_OR_RETURN(double w, c.TakeFloat("width_scale", 1));
    scales = {1, 1, h, w};
  } else {
    WHET_ASSIGN_OR_RETURN(scales, c.TakeFloats("scales", {}));
  }
  WHET_RETURN_IF_ERROR(SetScales(p, AllAxes(p), scales));
  return EmitResize(c, p);
}

Status ImportResize(ImportContext& c) {
  if (c.opset < 11) return ImportUpsample(c);
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 4));
  ResizePlan p = PlanFor(c);
  WHET_ASSIGN_OR_RETURN(p.mode.mode, c.TakeString("mode", "nearest"));
  WHET_ASSIGN_OR_RETURN(p.mode.coordinates,
                        c.TakeString("coordinate_transformation_mode", "half_pixel"));
  WHET_ASSIGN_OR_RETURN(p.mode.nearest, c.TakeString("nearest_mode", "round_prefer_floor"));
  WHET_ASSIGN_OR_RETURN(p.mode.cubic_a, c.TakeFloat("cubic_coeff_a", -0.75));
  WHET_ASSIGN_OR_RETURN(int64_t exclude, c.TakeInt("exclude_outside", 0));
  WHET_ASSIGN_OR_RETURN(int64_t antialias, c.TakeInt("antialias", 0));
  WHET_ASSIGN_OR_RETURN(p.extrapolation, c.TakeFloat("extrapolation_value", 0));
  WHET_ASSIGN_OR_RETURN(std::string policy, c.TakeString("keep_aspect_ratio_policy", "stretch"));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.TakeInts("axes", AllAxes(p)));
  p.mode.exclude_outside = exclude != 0;
  p.mode.antialias = antialias != 0;
  for (int64_t& a : axes) {
    WHET_ASSIGN_OR_RETURN(a, NormalizeAxis(a, c.type(0).rank()));
  }
  if (p.mode.coordinates == "tf_crop_and_resize") WHET_RETURN_IF_ERROR(SetRoi(c, p, axes));
  // An empty tensor stands for an input that is left out.
  if (c.Has(2) && c.type(2).num_elements() > 0) {
    WHET_ASSIGN_OR_RETURN(std::vector<double> scales, c.ConstFloats(2, "scales"));
    WHET_RETURN_IF_ERROR(SetScales(p, axes, scales));
  } else if (c.Has(3)) {
    WHET_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, c.ConstInts(3, "sizes"));
    WHET_RETURN_IF_ERROR(SetSizes(p, axes, sizes, policy));
  } else {
    return InvalidArgument("neither scales nor sizes are given");
  }
  return EmitResize(c, p);
}

// ---- ResizeNearest

Status InferNearest(const OpView& v, std::vector<TensorType>* out) {
  const Shape &sizes = v.attrs->Ints("sizes"), &num = v.attrs->Ints("num"),
              &offset = v.attrs->Ints("offset"), &den = v.attrs->Ints("den");
  const Shape& x = v.in[0]->shape;
  if (sizes.size() != x.size() || num.size() != x.size() || offset.size() != x.size() ||
      den.size() != x.size())
    return InvalidArgument("sizes, num, offset and den must have {} entries each", x.size());
  WHET_RETURN_IF_ERROR(graph::CheckShape(v.in[0]->dtype, sizes));
  constexpr int64_t kMost = int64_t{1} << 31;
  for (size_t d = 0; d < x.size(); ++d) {
    int64_t last = 0;
    if (num[d] < 0 || num[d] > kMost || den[d] < 1 || den[d] > kMost ||
        offset[d] < -(kMost * kMost / 8) || offset[d] > kMost * kMost / 8 ||
        __builtin_mul_overflow(sizes[d], num[d], &last) ||
        __builtin_add_overflow(last, offset[d], &last) || (x[d] == 0 && sizes[d] > 0))
      return InvalidArgument("({} * i + {}) // {} along dimension {}", num[d], offset[d], den[d],
                             d);
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, sizes));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeNearest(const OpView& v, const std::vector<Buffer>& in,
                                        te::Builder& b) {
  const Shape &num = v.attrs->Ints("num"), &offset = v.attrs->Ints("offset"),
              &den = v.attrs->Ints("den"), &out = v.out[0]->shape;
  return std::vector<Buffer>{
      b.Compute("resize", v.out[0]->dtype, AxesOf(out), [&](const std::vector<Expr>& i) {
        std::vector<Expr> at;
        for (size_t d = 0; d < i.size(); ++d) {
          const int64_t extent = in[0]->shape[d];
          Expr k = i[d] * num[d] + offset[d];
          if (den[d] > 1) k = expr::FloorDiv(k, den[d]);
          const int64_t first = expr::FloorDivInt(offset[d], den[d]);
          const int64_t last = expr::FloorDivInt((out[d] - 1) * num[d] + offset[d], den[d]);
          if (last >= extent) k = expr::Min(k, expr::Int(extent - 1));
          if (first < 0) k = expr::Max(k, expr::Int(0));
          at.push_back(k);
        }
        return expr::Load(in[0], at);
      })};
}

Status ReferenceNearest(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const Shape &num = v.attrs->Ints("num"), &offset = v.attrs->Ints("offset"),
              &den = v.attrs->Ints("den");
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const Shape strides = Strides(x.shape);
  std::vector<Shape> from(y.shape.size());  // per axis: the input offset of each position
  for (size_t d = 0; d < from.size(); ++d) {
    for (int64_t i = 0; i < y.shape[d]; ++i) {
      const int64_t k = expr::FloorDivInt(i * num[d] + offset[d], den[d]);
      from[d].push_back(std::clamp<int64_t>(k, 0, x.shape[d] - 1) * strides[d]);
    }
  }
  PrepareCopy(x, y, want_err);
  ForEachIndex(y.shape, [&](int64_t i, const Shape& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += from[d][index[d]];
    CopyElement(x, at, y, i);
  });
  return OkStatus();
}

// ---- Interpolate: inputs x and, per axis, positions i64[out, taps] and weights [out, taps].

Status InferInterpolate(const OpView& v, std::vector<TensorType>* out) {
  const Shape& axes = v.attrs->Ints("axes");
  Shape shape = v.in[0]->shape;
  WHET_RETURN_IF_ERROR(NormalizeAxes(axes, v.in[0]->rank()).status());
  if (v.in.size() != 1 + 2 * axes.size())
    return InvalidArgument("{} inputs for {} axes", v.in.size(), axes.size());
  int64_t product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const TensorType &index = *v.in[1 + 2 * i], &weight = *v.in[2 + 2 * i];
    if (axes[i] < 0) return InvalidArgument("axis {} is negative", axes[i]);
    if (index.rank() != 2 || index.dtype != DType::kI64 || weight.shape != index.shape ||
        weight.dtype != v.in[0]->dtype)
      return InvalidArgument("positions {} and weights {}", index.ToString(), weight.ToString());
    if (index.shape[1] < 1 || index.shape[1] > kMaxTaps || (product *= index.shape[1]) > kMaxTaps)
      return InvalidArgument("more than {} taps", kMaxTaps);
    if (shape[axes[i]] < 1) return InvalidArgument("nothing to interpolate along axis {}", axes[i]);
    shape[axes[i]] = index.shape[0];
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

// The sum over the taps of axes[a..], nested so that an inner sum is made once.
Expr SumTaps(const Shape& axes, const std::vector<Buffer>& in, const std::vector<Expr>& i, size_t a,
             std::vector<Expr>& at) {
  if (a == axes.size()) return expr::Load(in[0], at);
  const Buffer &index = in[1 + 2 * a], &weight = in[2 + 2 * a];
  const Expr o = i[axes[a]];
  Expr sum;
  for (int64_t k = 0; k < index->shape[1]; ++k) {
    at[axes[a]] = ClampIndex(expr::Load(index, {o, expr::Int(k)}), in[0]->shape[axes[a]]);
    const Expr term = SumTaps(axes, in, i, a + 1, at) * expr::Load(weight, {o, expr::Int(k)});
    sum = k == 0 ? term : sum + term;
  }
  return sum;
}

StatusOr<std::vector<Buffer>> TeInterpolate(const OpView& v, const std::vector<Buffer>& in,
                                            te::Builder& b) {
  const Shape& axes = v.attrs->Ints("axes");
  return std::vector<Buffer>{b.Compute("interpolate", v.out[0]->dtype, AxesOf(v.out[0]->shape),
                                       [&](const std::vector<Expr>& i) {
                                         std::vector<Expr> at = i;
                                         return SumTaps(axes, in, i, 0, at);
                                       })};
}

int64_t TapsOfView(const OpView& v) {
  int64_t taps = 1;
  for (size_t i = 1; i < v.in.size(); i += 2) taps *= v.in[i]->shape[1];
  return taps;
}

Status ReferenceInterpolate(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const Shape& axes = v.attrs->Ints("axes");
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const double unit = Roundoff(y.dtype) * static_cast<double>(TapsOfView(v) + 2);
  if (want_err) y.err.resize(y.value.size());
  const Shape strides = Strides(x.shape);
  Shape outer = strides;
  for (int64_t a : axes) outer[a] = 0;
  ForEachIndex(y.shape, [&](int64_t i, const Shape& index) {
    int64_t base = 0;
    for (size_t d = 0; d < index.size(); ++d) base += index[d] * outer[d];
    double value = 0, magnitude = 0, error = 0;
    const std::function<void(size_t, int64_t, double)> sum = [&](size_t a, int64_t at, double w) {
      if (a == axes.size()) {
        value += w * x.value[at];
        magnitude += std::fabs(w * x.value[at]);
        error += std::fabs(w) * x.ErrAt(at);
        return;
      }
      const int64_t taps = in[1 + 2 * a]->shape[1], o = index[axes[a]];
      for (int64_t k = 0; k < taps; ++k) {
        const int64_t p =
            std::clamp<int64_t>(WordAt(*in[1 + 2 * a], o * taps + k), 0, x.shape[axes[a]] - 1);
        sum(a + 1, at + p * strides[axes[a]], w * in[2 + 2 * a]->value[o * taps + k]);
      }
    };
    sum(0, base, 1);
    y.value[i] = value;
    if (want_err) y.err[i] = error + unit * magnitude;
  });
  return OkStatus();
}

}  // namespace

const OpRecord& OpResize() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Resize";
    r.note = "scales, sizes and roi known at compile time";
    r.import = ImportResize;
    return r;
  }();
  return op;
}

const OpRecord& OpUpsample() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Upsample";
    r.note = "scales known at compile time";
    r.import = ImportUpsample;
    return r;
  }();
  return op;
}

const OpRecord& OpResizeNearest() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "ResizeNearest";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.importable = false;
    r.input_names = {"x"};
    for (const char* name : {"sizes", "num", "offset", "den"})
      r.attrs.push_back({name, AttrType::kInts, std::nullopt});
    r.infer = InferNearest;
    r.te = TeNearest;
    r.reference = ReferenceNearest;
    r.flops = [](const OpView&) { return int64_t{0}; };
    return r;
  }();
  return op;
}

const OpRecord& OpInterpolate() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Interpolate";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.importable = false;
    r.min_inputs = 3;
    r.max_inputs = 1 + 2 * graph::kMaxRank;
    r.input_names = {"x", "position", "weight", "position", "weight", "position", "weight"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"axes", AttrType::kInts, std::nullopt}};
    r.infer = InferInterpolate;
    r.te = TeInterpolate;
    r.reference = ReferenceInterpolate;
    r.flops = [](const OpView& v) { return 2 * TapsOfView(v) * v.out[0]->num_elements(); };
    r.range = [](const OpView& v, int input) {
      if (input == 0 || input % 2 == 0) return graph::InputRange{};
      const Shape& axes = v.attrs->Ints("axes");
      return graph::InputRange{
          0, static_cast<double>(v.in[0]->shape[axes[static_cast<size_t>(input - 1) / 2]])};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
