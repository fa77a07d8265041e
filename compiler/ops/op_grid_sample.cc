// GridSample: an image read at positions that come as data, in two or three spatial axes; and
// AffineGrid, which makes such positions by a matrix product. Positions are bounded before they
// become indices, so that no number in the grid, not even NaN, reads outside of the image.
#include <algorithm>
#include <cmath>

#include "compiler/ops/emitter.h"
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

enum class GridMode { kLinear, kNearest, kCubic };
enum class GridPadding { kZeros, kBorder, kReflection };
constexpr double kGridCubic = -0.75;

struct GridSpec {
  GridMode mode = GridMode::kLinear;
  GridPadding padding = GridPadding::kZeros;
  bool align = false;
  Shape x, out;
  size_t axes = 2;
  int64_t taps() const { return mode == GridMode::kLinear ? 2 : mode == GridMode::kCubic ? 4 : 1; }
};

StatusOr<GridSpec> SpecOfGrid(const OpView& v) {
  GridSpec s;
  const std::string &mode = v.attrs->Str("mode"), &padding = v.attrs->Str("padding_mode");
  if (mode == "nearest") {
    s.mode = GridMode::kNearest;
  } else if (mode == "cubic") {
    s.mode = GridMode::kCubic;
  } else if (mode != "linear") {
    return InvalidArgument("mode '{}' is unknown; linear, nearest and cubic are known", mode);
  }
  if (padding == "border") {
    s.padding = GridPadding::kBorder;
  } else if (padding == "reflection") {
    s.padding = GridPadding::kReflection;
  } else if (padding != "zeros") {
    return InvalidArgument("padding_mode '{}' is unknown", padding);
  }
  s.align = v.attrs->Int("align_corners") != 0;
  s.x = v.in[0]->shape;
  const Shape& grid = v.in[1]->shape;
  if (s.x.size() < 4 || s.x.size() > 5 || grid.size() != s.x.size())
    return InvalidArgument("input {} and grid {}; ranks 4 and 5 are supported", ShapeText(s.x),
                           ShapeText(grid));
  s.axes = s.x.size() - 2;
  if (grid[0] != s.x[0] || grid.back() != static_cast<int64_t>(s.axes))
    return InvalidArgument("grid {} for input {}", ShapeText(grid), ShapeText(s.x));
  if (s.mode == GridMode::kCubic && s.axes != 2)
    return InvalidArgument("mode cubic needs two spatial axes");
  s.out = {s.x[0], s.x[1]};
  for (size_t d = 0; d < s.axes; ++d) {
    if (s.x[d + 2] < 1) return InvalidArgument("nothing to sample in {}", ShapeText(s.x));
    if (s.x[d + 2] > (int64_t{1} << 20)) return InvalidArgument("{} is too large", ShapeText(s.x));
    s.out.push_back(grid[d + 1]);
  }
  return s;
}

// One definition for expressions and values: `T` is Expr or double, and `Ops` does the arithmetic.
struct GridExprOps {
  DType t;
  Expr Number(double v) const { return expr::Float(v, t); }
  Expr Floor(const Expr& a) const { return expr::Call(expr::Intrinsic::kFloor, a); }
  Expr Round(const Expr& a) const { return expr::Call(expr::Intrinsic::kRound, a); }
  // NaN becomes the lower bound.
  Expr Bound(const Expr& a, double lo, double hi) const {
    const Expr up = expr::Select(expr::Lt(Number(lo), a), a, Number(lo));
    return expr::Select(expr::Lt(up, Number(hi)), up, Number(hi));
  }
  Expr Min(const Expr& a, const Expr& b) const { return expr::Min(a, b); }
};
struct GridValueOps {
  double Number(double v) const { return v; }
  double Floor(double a) const { return std::floor(a); }
  double Round(double a) const { return std::nearbyint(a); }
  double Bound(double a, double lo, double hi) const { return std::min(a > lo ? a : lo, hi); }
  double Min(double a, double b) const { return std::min(a, b); }
};

// The position along axis d in pixels, wrapped or bounded.
template <typename T, typename Ops>
T GridPosition(const GridSpec& s, const Ops& o, size_t d, const T& g) {
  const auto n = static_cast<double>(s.x[d + 2]);
  T p = s.align ? (g + o.Number(1)) * o.Number((n - 1) / 2)
                : ((g + o.Number(1)) * o.Number(n) - o.Number(1)) * o.Number(0.5);
  if (s.mode == GridMode::kNearest) p = o.Round(p);
  const bool cubic = s.mode == GridMode::kCubic;
  if (s.padding == GridPadding::kReflection) {
    // There and back again between the outermost pixels, or their outer edges.
    const double low = s.align ? 0 : -0.5, length = s.align ? n - 1 : n;
    if (length == 0) return o.Number(0);
    const T t = p - o.Number(low);
    const T m = t - o.Number(2 * length) * o.Floor(t * o.Number(0.5 / length));
    // Taps of cubic sums turn round one by one.
    if (cubic) return o.Bound(m + o.Number(low), low, low + 2 * length);
    p = o.Min(m, o.Number(2 * length) - m) + o.Number(low);
    return o.Bound(p, low, low + length);
  }
  if (s.padding == GridPadding::kBorder && !cubic) return o.Bound(p, 0, n - 1);
  return o.Bound(p, -4, n + 3);
}

// Weight of tap k of a position at `f` in [0, 1] between the two middle taps.
template <typename T, typename Ops>
T GridWeight(const GridSpec& s, const Ops& o, int64_t k, const T& f) {
  if (s.mode == GridMode::kLinear) return k == 0 ? o.Number(1) - f : f;
  auto near = [&](const T& x) {
    return ((o.Number(kGridCubic + 2) * x - o.Number(kGridCubic + 3)) * x * x) + o.Number(1);
  };
  auto far = [&](const T& x) {
    return ((o.Number(kGridCubic) * x - o.Number(5 * kGridCubic)) * x + o.Number(8 * kGridCubic)) *
               x -
           o.Number(4 * kGridCubic);
  };
  if (k == 0) return far(f + o.Number(1));
  if (k == 1) return near(f);
  if (k == 2) return near(o.Number(1) - f);
  return far(o.Number(2) - f);
}

int64_t FirstTap(const GridSpec& s) { return s.mode == GridMode::kCubic ? -1 : 0; }

Expr GridIndex(const GridSpec& s, size_t d, const Expr& raw) {
  const int64_t n = s.x[d + 2];
  Expr k = raw;
  if (s.padding == GridPadding::kReflection && n > 1) {
    const int64_t period = s.align ? 2 * (n - 1) : 2 * n;
    const Expr m = expr::FloorMod(k, period);
    k = expr::Min(m, expr::Int(s.align ? period : period - 1) - m);
  }
  return expr::Max(expr::Min(k, expr::Int(n - 1)), expr::Int(0));
}

StatusOr<std::vector<Buffer>> TeGridSample(const OpView& v, const std::vector<Buffer>& in,
                                           te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const GridSpec s, SpecOfGrid(v));
  const DType t = v.out[0]->dtype;
  const GridExprOps ops{t};
  return std::vector<Buffer>{b.Compute("sample", t, AxesOf(s.out), [&](const std::vector<Expr>& i) {
    // Per axis and tap: index, weight, and whether it lies inside.
    std::vector<std::vector<Expr>> index(s.axes), weight(s.axes), inside(s.axes);
    for (size_t d = 0; d < s.axes; ++d) {
      std::vector<Expr> where = {i[0]};
      where.insert(where.end(), i.begin() + 2, i.end());
      // The last axis comes first in the grid.
      where.push_back(expr::Int(static_cast<int64_t>(s.axes - 1 - d)));
      const Expr p = GridPosition<Expr>(s, ops, d, expr::Load(in[1], where));
      const Expr below = s.mode == GridMode::kNearest ? p : ops.Floor(p);
      const Expr first = expr::Cast(DType::kI64, below) + FirstTap(s);
      for (int64_t k = 0; k < s.taps(); ++k) {
        const Expr at = first + k;
        index[d].push_back(GridIndex(s, d, at));
        inside[d].push_back(
            expr::And(expr::Le(expr::Int(0), at), expr::Lt(at, expr::Int(s.x[d + 2]))));
        weight[d].push_back(s.mode == GridMode::kNearest ? ops.Number(1)
                                                         : GridWeight<Expr>(s, ops, k, p - below));
      }
    }
    std::vector<Expr> at = {i[0], i[1]};
    at.resize(s.axes + 2);
    const std::function<Expr(size_t, Expr)> sum = [&](size_t d, const Expr& ok) -> Expr {
      if (d == s.axes) {
        const Expr load = expr::Load(in[0], at);
        return s.padding == GridPadding::kZeros ? expr::Select(ok, load, ops.Number(0)) : load;
      }
      Expr total;
      for (int64_t k = 0; k < s.taps(); ++k) {
        at[d + 2] = index[d][k];
        const Expr inner = sum(d + 1, expr::And(ok, inside[d][k]));
        const Expr term = s.mode == GridMode::kNearest ? inner : inner * weight[d][k];
        total = k == 0 ? term : total + term;
      }
      return total;
    };
    return sum(0, expr::Bool(true));
  })};
}

struct GridPoint {
  double position[3], error[3];
};

// The value at a point, and a bound on what positions and arithmetic of the type leave.
class GridSampler {
 public:
  GridSampler(const GridSpec& s, const RefTensor& x, double unit)
      : s_(s), x_(x), unit_(unit), strides_(Strides(s.x)) {}

  void Sample(int64_t plane, const GridPoint& p, double* value, double* err) const {
    double magnitude = 0, error = 0, reach = 0;
    *value = Sum(0, plane * strides_[1], p, 1, &magnitude, &error, &reach);
    // Per unit of the position a value changes by a few times the largest that is near.
    double moved = 0;
    for (size_t d = 0; d < s_.axes; ++d) moved += p.error[d];
    *err = error + unit_ * 40 * magnitude + moved * reach * (s_.mode == GridMode::kCubic ? 12 : 4);
    if (s_.mode == GridMode::kNearest) *err = moved > 0 ? moved * 0x1.0p25 : error;
  }

 private:
  double Sum(size_t d, int64_t base, const GridPoint& p, double w, double* magnitude, double* error,
             double* reach) const {
    if (d == s_.axes) {
      const double v = x_.value[base];
      *magnitude += std::fabs(w * v);
      *error += std::fabs(w) * x_.ErrAt(base);
      *reach = std::max(*reach, std::fabs(v));
      return w * v;
    }
    const bool nearest = s_.mode == GridMode::kNearest;
    const double below = nearest ? p.position[d] : std::floor(p.position[d]);
    double total = 0;
    for (int64_t k = 0; k < s_.taps(); ++k) {
      int64_t at = static_cast<int64_t>(below) + FirstTap(s_) + k;
      const int64_t n = s_.x[d + 2];
      if (s_.padding == GridPadding::kZeros && (at < 0 || at >= n)) continue;
      if (s_.padding == GridPadding::kReflection && n > 1) {
        const int64_t period = s_.align ? 2 * (n - 1) : 2 * n;
        const int64_t m = (at % period + period) % period;
        at = std::min(m, (s_.align ? period : period - 1) - m);
      }
      at = std::clamp<int64_t>(at, 0, n - 1);
      const double weight =
          nearest ? 1 : GridWeight<double>(s_, GridValueOps{}, k, p.position[d] - below);
      total += Sum(d + 1, base + at * strides_[d + 2], p, w * weight, magnitude, error, reach);
    }
    return total;
  }

  const GridSpec& s_;
  const RefTensor& x_;
  const double unit_;
  const Shape strides_;
};

Status ReferenceGridSample(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const GridSpec s, SpecOfGrid(v));
  RefTensor& y = out[0];
  const double unit = Roundoff(y.dtype), relative = unit * kErrUnit;
  if (want_err) y.err.resize(y.value.size());
  const GridSampler sampler(s, *in[0], unit);
  const int64_t points = Product(s.out, 2);
  for (int64_t n = 0; n < s.x[0]; ++n) {
    for (int64_t q = 0; q < points; ++q) {
      GridPoint p;
      for (size_t d = 0; d < s.axes; ++d) {
        const auto axes = static_cast<int64_t>(s.axes);
        const int64_t at = (n * points + q) * axes + axes - 1 - static_cast<int64_t>(d);
        const double g = in[1]->value[at], extent = static_cast<double>(s.x[d + 2]);
        p.position[d] = GridPosition<double>(s, GridValueOps{}, d, g);
        // In units of 2^-24, as errors are.
        p.error[d] = (8 * unit * (std::fabs(g) + 2) + in[1]->ErrAt(at)) * extent;
        if (s.mode == GridMode::kNearest) {
          // Rounding forgives the error of the position unless it is near to the middle.
          const double exact = s.align ? (g + 1) / 2 * (extent - 1) : ((g + 1) * extent - 1) / 2;
          const double margin = std::fabs(exact - std::floor(exact) - 0.5);
          if (margin >
              8 * relative * (std::fabs(g) + 2) * extent + in[1]->ErrAt(at) * kErrUnit * extent)
            p.error[d] = 0;
        }
      }
      for (int64_t c = 0; c < s.x[1]; ++c) {
        const int64_t to = (n * s.x[1] + c) * points + q;
        double err = 0;
        sampler.Sample(n * s.x[1] + c, p, &y.value[to], &err);
        if (want_err) y.err[to] = err;
      }
    }
  }
  return OkStatus();
}

Status ImportGridSample(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(std::string mode, c.TakeString("mode", "linear"));
  WHET_ASSIGN_OR_RETURN(std::string padding, c.TakeString("padding_mode", "zeros"));
  WHET_ASSIGN_OR_RETURN(int64_t align, c.TakeInt("align_corners", 0));
  if (mode == "bilinear") mode = "linear";  // before operator set 20
  if (mode == "bicubic") mode = "cubic";
  return c.Finish(
      "GridSample", c.inputs,
      {{"mode", mode}, {"padding_mode", padding}, {"align_corners", int64_t{align != 0}}});
}

// theta (n, 2, 3) or (n, 3, 4) times the positions of all pixels, with a 1 at the end.
Status ImportAffineGrid(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(int64_t align, c.TakeInt("align_corners", 0));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> size, c.ConstInts(1, "size"));
  const TensorType theta = c.type(0);
  if (size.size() < 4 || size.size() > 5)
    return InvalidArgument("size {} must have 4 or 5 elements", ShapeText(size));
  const auto axes = static_cast<int64_t>(size.size()) - 2;
  if (theta.shape != Shape{size[0], axes, axes + 1})
    return InvalidArgument("theta {} for size {}", ShapeText(theta.shape), ShapeText(size));
  const Shape extents(size.begin() + 2, size.end());
  Shape result = {size[0]};
  result.insert(result.end(), extents.begin(), extents.end());
  result.push_back(axes);
  WHET_RETURN_IF_ERROR(graph::CheckShape(theta.dtype, result));
  const int64_t points = Product(extents);
  if (points > kMaxConstant / (axes + 1))
    return ResourceExhausted("{} positions exceed the limit of {}", points,
                             kMaxConstant / (axes + 1));
  std::vector<double> base;
  ForEachIndex(extents, [&](int64_t, const Shape& index) {
    for (size_t d = extents.size(); d-- > 0;) {  // the last axis first
      const auto n = static_cast<double>(extents[d]), i = static_cast<double>(index[d]);
      if (align != 0) {
        base.push_back(extents[d] == 1 ? 0 : -1 + 2 * i / (n - 1));
      } else {
        base.push_back((2 * i + 1) / n - 1);
      }
    }
    base.push_back(1);
  });
  const ValueId positions =
      c.builder.Constant("", graph::Constant::OfDoubles(theta.dtype, {1, points, axes + 1}, base));
  WHET_ASSIGN_OR_RETURN(ValueId turned,
                        c.builder.Emit("Transpose", {c.inputs[0]}, {{"perm", Shape{0, 2, 1}}}));
  WHET_ASSIGN_OR_RETURN(ValueId y, c.builder.Emit("MatMul", {positions, turned}));
  return c.Finish("Reshape", {y}, {{"shape", result}});
}

}  // namespace

const OpRecord& OpGridSample() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "GridSample";
    r.kind = FusionKind::kOpaque;
    r.min_inputs = r.max_inputs = 2;
    r.input_names = {"x", "grid"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"mode", AttrType::kString, AttrValue(std::string("linear"))},
               {"padding_mode", AttrType::kString, AttrValue(std::string("zeros"))},
               {"align_corners", AttrType::kInt, AttrValue(int64_t{0})}};
    r.import = InF32(ImportGridSample);
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_RETURN_IF_ERROR(SameTypes(v));
      WHET_ASSIGN_OR_RETURN(GridSpec s, SpecOfGrid(v));
      out->push_back(TensorType::Of(v.in[0]->dtype, s.out));
      return OkStatus();
    };
    r.te = TeGridSample;
    r.reference = ReferenceGridSample;
    r.flops = [](const OpView& v) -> int64_t {
      auto s = SpecOfGrid(v);
      if (!s.ok()) return 0;
      int64_t taps = 1;
      for (size_t d = 0; d < s->axes; ++d) taps *= s->taps();
      return (2 * taps + 10) * Product(s->out);
    };
    r.range = [](const OpView&, int input) {
      return input == 0 ? graph::InputRange{} : graph::InputRange{-1.25, 1.25};
    };
    return r;
  }();
  return op;
}

const OpRecord& OpAffineGrid() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "AffineGrid";
    r.note = "the size known at compile time";
    r.import = InF32(ImportAffineGrid);
    return r;
  }();
  return op;
}

}  // namespace whet::ops
