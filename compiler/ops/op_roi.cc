// RoiAlign and MaxRoiPool: regions of an image, given as data, pooled to a fixed size. Coordinates
// are bounded before they become indices.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ops/emitter.h"
#include "compiler/ops/index.h"

namespace whet::ops {
namespace {

constexpr double kRoiInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMaxRoiGrid = 1024;

Status CheckRois(const OpView& v, int64_t columns) {
  const Shape &x = v.in[0]->shape, &rois = v.in[1]->shape;
  if (v.in[1]->dtype != v.in[0]->dtype) return InvalidArgument("rois must have the type of x");
  if (x.size() != 4 || rois.size() != 2 || rois[1] != columns)
    return InvalidArgument("input {} and rois {}; [n,c,h,w] and [r,{}] are wanted", ShapeText(x),
                           ShapeText(rois), columns);
  if (Product(x) == 0) return InvalidArgument("nothing to pool in {}", ShapeText(x));
  const Shape& pooled = v.attrs->Ints("pooled");
  if (pooled.size() != 2 || std::any_of(pooled.begin(), pooled.end(),
                                        [](int64_t p) { return p < 1 || p > (int64_t{1} << 20); }))
    return InvalidArgument("an output of {}; [height,width] is wanted", ShapeText(pooled));
  if (!(std::fabs(v.attrs->Float("spatial_scale")) < 0x1.0p20))
    return InvalidArgument("a spatial scale of {}", v.attrs->Float("spatial_scale"));
  return OkStatus();
}

// ---- RoiAlign: in every bin a grid of samples, each interpolated between four pixels.

struct AlignSpec {
  Shape x, pooled, grid;
  bool max = false, half_pixel = true, adaptive = false;
  double scale = 1;
  int64_t rois = 0;
};

StatusOr<AlignSpec> SpecOfAlign(const OpView& v) {
  WHET_RETURN_IF_ERROR(CheckRois(v, 4));
  AlignSpec s;
  s.x = v.in[0]->shape;
  s.rois = v.in[1]->shape[0];
  s.pooled = v.attrs->Ints("pooled"), s.grid = v.attrs->Ints("grid");
  s.max = v.attrs->Str("mode") == "max";
  s.half_pixel = v.attrs->Int("half_pixel") != 0;
  s.adaptive = v.attrs->Int("adaptive") != 0;
  s.scale = v.attrs->Float("spatial_scale");
  WHET_RETURN_IF_ERROR(CheckIndexType(*v.in[2]));
  if (v.in[2]->shape != Shape{s.rois})
    return InvalidArgument("batch_indices {} for {} rois", ShapeText(v.in[2]->shape), s.rois);
  if (!s.max && v.attrs->Str("mode") != "avg")
    return InvalidArgument("mode '{}' is unknown", v.attrs->Str("mode"));
  if (s.grid.size() != 2 || s.grid[0] < 1 || s.grid[1] < 1 || s.grid[0] > kMaxRoiGrid ||
      s.grid[1] > kMaxRoiGrid)
    return InvalidArgument("a grid of {}", ShapeText(s.grid));
  return s;
}

Status ImportRoiAlign(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
  WHET_ASSIGN_OR_RETURN(std::string mode, c.TakeString("mode", "avg"));
  WHET_ASSIGN_OR_RETURN(int64_t h, c.TakeInt("output_height", 1));
  WHET_ASSIGN_OR_RETURN(int64_t w, c.TakeInt("output_width", 1));
  WHET_ASSIGN_OR_RETURN(int64_t ratio, c.TakeInt("sampling_ratio", 0));
  WHET_ASSIGN_OR_RETURN(double scale, c.TakeFloat("spatial_scale", 1));
  WHET_ASSIGN_OR_RETURN(std::string coordinates,
                        c.TakeString("coordinate_transformation_mode",
                                     c.opset >= 16 ? "half_pixel" : "output_half_pixel"));
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel")
    return InvalidArgument("coordinate_transformation_mode '{}' is unknown", coordinates);
  const bool half = coordinates == "half_pixel";
  Shape grid = {ratio, ratio};
  if (ratio <= 0) {
    // As many samples as the largest region needs: that has to be known.
    WHET_ASSIGN_OR_RETURN(std::vector<double> rois, c.ConstFloats(1, "rois with sampling_ratio 0"));
    grid = {1, 1};
    for (size_t r = 0; r + 4 <= rois.size() && h > 0 && w > 0; r += 4) {
      for (int d : {0, 1}) {
        double size = (rois[r + 3 - d] - rois[r + 1 - d]) * scale;
        if (!half) size = std::max(size, 1.0);
        const double count = std::ceil(size / static_cast<double>(d == 0 ? h : w));
        if (!(count <= kMaxRoiGrid)) return InvalidArgument("{} samples in a bin", count);
        grid[d] = std::max(grid[d], static_cast<int64_t>(count));
      }
    }
  }
  return c.Finish("RoiAlign", c.inputs,
                  {{"mode", mode},
                   {"pooled", Shape{h, w}},
                   {"grid", grid},
                   {"adaptive", int64_t{ratio <= 0}},
                   {"spatial_scale", scale},
                   {"half_pixel", int64_t{half}}});
}

StatusOr<std::vector<Buffer>> TeRoiAlign(const OpView& v, const std::vector<Buffer>& in,
                                         te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const AlignSpec s, SpecOfAlign(v));
  const DType t = v.out[0]->dtype;
  auto number = [t](double value) { return expr::Float(value, t); };
  // Per region and axis: where it begins, the extent of a bin, samples per bin.
  struct Side {
    Expr start, bin, samples;
  };
  auto side = [&](const Expr& roi, int d) {
    Side r;
    auto corner = [&](int64_t k) {
      return expr::Load(in[1], {roi, expr::Int(k)}) * number(s.scale) -
             number(s.half_pixel ? 0.5 : 0);
    };
    r.start = corner(1 - d);
    Expr size = corner(3 - d) - r.start;
    if (!s.half_pixel) size = expr::Max(size, number(1));
    r.bin = size / number(static_cast<double>(s.pooled[d]));
    r.samples = number(static_cast<double>(s.grid[d]));
    if (s.adaptive) r.samples = expr::Min(expr::Call(expr::Intrinsic::kCeil, r.bin), r.samples);
    return r;
  };
  const te::AxisSpec axes = AxesOf(v.out[0]->shape);
  const Buffer pooled = b.Reduce(
      "roi", t, axes, {{"gh", s.grid[0]}, {"gw", s.grid[1]}},
      s.max ? te::Reducer::kMax : te::Reducer::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        Expr inside = expr::Bool(true), counted = expr::Bool(true);
        Expr low[2], high[2], part[2];
        for (int d : {0, 1}) {
          const Side region = side(i[0], d);
          const auto extent = static_cast<double>(s.x[d + 2]);
          const Expr sample = expr::Cast(t, r[d]);
          const Expr p = region.start + expr::Cast(t, i[d + 2]) * region.bin +
                         (sample + number(0.5)) * region.bin / region.samples;
          if (s.adaptive) counted = expr::And(counted, expr::Lt(sample, region.samples));
          inside =
              expr::And(inside, expr::And(expr::Le(number(-1), p), expr::Le(p, number(extent))));
          // NaN is outside, and becomes 0 here.
          const Expr up = expr::Select(expr::Lt(number(0), p), p, number(0));
          const Expr bound = expr::Select(expr::Lt(up, number(extent - 1)), up, number(extent - 1));
          low[d] = ClampIndex(expr::Cast(DType::kI64, expr::Call(expr::Intrinsic::kFloor, bound)),
                              s.x[d + 2]);
          high[d] = expr::Min(low[d] + 1, expr::Int(s.x[d + 2] - 1));
          part[d] = bound - expr::Cast(t, low[d]);
        }
        const Expr n = ClampIndex(LoadIndex(in[2], {i[0]}, s.x[0]), s.x[0]);
        auto pixel = [&](const Expr& h, const Expr& w) {
          return expr::Load(in[0], {n, i[1], h, w});
        };
        const Expr ly = part[0], lx = part[1], hy = number(1) - ly, hx = number(1) - lx;
        const Expr terms[4] = {hy * hx * pixel(low[0], low[1]), hy * lx * pixel(low[0], high[1]),
                               ly * hx * pixel(high[0], low[1]), ly * lx * pixel(high[0], high[1])};
        Expr value = s.max ? expr::Max(expr::Max(terms[0], terms[1]), expr::Max(terms[2], terms[3]))
                           : (terms[0] + terms[1]) + (terms[2] + terms[3]);
        value = expr::Select(inside, value, number(0));
        return s.adaptive ? expr::Select(counted, value, number(s.max ? -kRoiInfinity : 0)) : value;
      });
  return std::vector<Buffer>{b.Compute("align", t, axes, [&](const std::vector<Expr>& i) {
    const Expr y = expr::Load(pooled, i);
    if (!s.adaptive) return s.max ? y : y / number(static_cast<double>(s.grid[0] * s.grid[1]));
    const Expr count = side(i[0], 0).samples * side(i[0], 1).samples;
    const Expr some = expr::And(expr::Lt(number(0), side(i[0], 0).samples),
                                expr::Lt(number(0), side(i[0], 1).samples));
    return expr::Select(some, s.max ? y : y / expr::Max(count, number(1)), number(0));
  })};
}

Status ReferenceRoiAlign(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const AlignSpec s, SpecOfAlign(v));
  const RefTensor &x = *in[0], &rois = *in[1];
  RefTensor& y = out[0];
  const double unit = Roundoff(y.dtype);
  if (want_err) y.err.resize(y.value.size());
  int64_t to = 0;
  for (int64_t r = 0; r < s.rois; ++r) {
    double start[2], bin[2], moved = 0;
    int64_t samples[2];
    for (int d : {0, 1}) {
      const double a = rois.value[r * 4 + 1 - d] * s.scale, b = rois.value[r * 4 + 3 - d] * s.scale;
      start[d] = a - (s.half_pixel ? 0.5 : 0);
      const double size = s.half_pixel ? b - a : std::max(b - a, 1.0);
      bin[d] = size / static_cast<double>(s.pooled[d]);
      samples[d] = s.grid[d];
      if (s.adaptive)
        samples[d] = static_cast<int64_t>(  // of NaN none
            std::fmin(std::fmax(std::ceil(bin[d]), 0), static_cast<double>(s.grid[d])));
      moved += unit * 8 * (std::fabs(a) + std::fabs(b) + 1) +
               std::fabs(s.scale) * (rois.ErrAt(r * 4 + 1 - d) + rois.ErrAt(r * 4 + 3 - d));
    }
    const int64_t n = ClampedValue(*in[2], r, s.x[0]);
    const int64_t count = samples[0] * samples[1];
    for (int64_t c = 0; c < s.x[1]; ++c) {
      const int64_t plane = (n * s.x[1] + c) * s.x[2] * s.x[3];
      for (int64_t ph = 0; ph < s.pooled[0]; ++ph) {
        for (int64_t pw = 0; pw < s.pooled[1]; ++pw, ++to) {
          double sum = 0, most = -kRoiInfinity, magnitude = 0, error = 0, reach = 0;
          for (int64_t k = 0; k < count; ++k) {
            const int64_t at[2] = {k / samples[1], k % samples[1]}, p[2] = {ph, pw};
            double part[2];
            int64_t low[2], high[2];
            bool inside = true;
            for (int d : {0, 1}) {
              const auto extent = static_cast<double>(s.x[d + 2]);
              const double q =
                  start[d] + static_cast<double>(p[d]) * bin[d] +
                  (static_cast<double>(at[d]) + 0.5) * bin[d] / static_cast<double>(samples[d]);
              inside = inside && q >= -1 && q <= extent;
              const double bound = std::min(q > 0 ? q : 0.0, extent - 1);
              low[d] = static_cast<int64_t>(std::floor(bound));
              high[d] = std::min(low[d] + 1, s.x[d + 2] - 1);
              part[d] = bound - static_cast<double>(low[d]);
            }
            double best = -kRoiInfinity, total = 0;
            for (int corner = 0; corner < 4; ++corner) {
              const bool down = corner >= 2, right = corner % 2 == 1;
              const int64_t from =
                  plane + (down ? high[0] : low[0]) * s.x[3] + (right ? high[1] : low[1]);
              const double w = (down ? part[0] : 1 - part[0]) * (right ? part[1] : 1 - part[1]);
              best = Larger(best, w * x.value[from]);
              total += w * x.value[from];
              magnitude += std::fabs(w * x.value[from]);
              error += w * x.ErrAt(from);
              reach = std::max(reach, std::fabs(x.value[from]));
            }
            sum += inside ? total : 0;
            most = Larger(most, inside ? best : 0);
          }
          y.value[to] = count == 0 ? 0 : s.max ? most : sum / static_cast<double>(count);
          if (!want_err) continue;
          const double share = s.max || count == 0 ? 1 : static_cast<double>(count);
          y.err[to] = (error + unit * (static_cast<double>(count) + 8) * magnitude) / share +
                      4 * moved * reach;
        }
      }
    }
  }
  return OkStatus();
}

// ---- MaxRoiPool: the largest pixel of each bin, bins counted in whole pixels.

struct RoiPoolSpec {
  Shape x, pooled;
  double scale = 1;
  int64_t rois = 0;
};

StatusOr<RoiPoolSpec> SpecOfRoiPool(const OpView& v) {
  WHET_RETURN_IF_ERROR(CheckRois(v, 5));
  return RoiPoolSpec{v.in[0]->shape, v.attrs->Ints("pooled"), v.attrs->Float("spatial_scale"),
                     v.in[1]->shape[0]};
}

Status ImportMaxRoiPool(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> pooled, c.TakeInts("pooled_shape", {}));
  WHET_ASSIGN_OR_RETURN(double scale, c.TakeFloat("spatial_scale", 1));
  return c.Finish("MaxRoiPool", c.inputs, {{"pooled", pooled}, {"spatial_scale", scale}});
}

StatusOr<std::vector<Buffer>> TeMaxRoiPool(const OpView& v, const std::vector<Buffer>& in,
                                           te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const RoiPoolSpec s, SpecOfRoiPool(v));
  const DType t = v.out[0]->dtype;
  const double bound = 0x1.0p30;
  auto column = [&](const Expr& roi, int64_t k, double scale) {
    const Expr p = expr::Load(in[1], {roi, expr::Int(k)}) * expr::Float(scale, t);
    const Expr up = expr::Select(expr::Lt(expr::Float(-bound, t), p), p, expr::Float(-bound, t));
    const Expr safe = expr::Select(expr::Lt(up, expr::Float(bound, t)), up, expr::Float(bound, t));
    return expr::Cast(DType::kI64, expr::Call(expr::Intrinsic::kFloor, safe + expr::Float(0.5, t)));
  };
  const te::AxisSpec axes = AxesOf(v.out[0]->shape);
  // Along h or w: the first pixel of a bin and the one after its last.
  auto bin = [&](const std::vector<Expr>& i, int d) {
    const Expr start = column(i[0], 2 - d, s.scale), end = column(i[0], 4 - d, s.scale);
    const Expr size = expr::Max(end - start + 1, expr::Int(1));
    return std::pair(
        expr::FloorDiv(i[d + 2] * size, s.pooled[d]) + start,
        expr::FloorDiv((i[d + 2] + 1) * size + (s.pooled[d] - 1), s.pooled[d]) + start);
  };
  const Buffer most = b.Reduce(
      "roi", t, axes, {{"row", s.x[2]}, {"column", s.x[3]}}, te::Reducer::kMax,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        Expr inside = expr::Bool(true);
        for (int d : {0, 1}) {
          const auto [first, last] = bin(i, d);
          inside = expr::And(inside, expr::And(expr::Le(first, r[d]), expr::Lt(r[d], last)));
        }
        const Expr n = ClampIndex(column(i[0], 0, 1), s.x[0]);
        return expr::Select(inside, expr::Load(in[0], {n, i[1], r[0], r[1]}),
                            expr::Float(-kRoiInfinity, t));
      });
  // An empty bin is 0.
  return std::vector<Buffer>{b.Compute("pool", t, axes, [&](const std::vector<Expr>& i) {
    Expr some = expr::Bool(true);
    for (int d : {0, 1}) {
      const auto [first, last] = bin(i, d);
      some = expr::And(
          some, expr::Lt(expr::Max(first, expr::Int(0)), expr::Min(last, expr::Int(s.x[d + 2]))));
    }
    return expr::Select(some, expr::Load(most, i), expr::Float(0, t));
  })};
}

Status ReferenceMaxRoiPool(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const RoiPoolSpec s, SpecOfRoiPool(v));
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const bool err = want_err && !x.err.empty();
  if (err) y.err.resize(y.value.size());
  auto column = [&](int64_t roi, int64_t k, double scale) {
    const double p = in[1]->value[roi * 5 + k] * scale;
    return static_cast<int64_t>(
        std::floor(std::min(p > -0x1.0p30 ? p : -0x1.0p30, 0x1.0p30) + 0.5));
  };
  int64_t to = 0;
  for (int64_t r = 0; r < s.rois; ++r) {
    const int64_t n = std::clamp<int64_t>(column(r, 0, 1), 0, s.x[0] - 1);
    for (int64_t c = 0; c < s.x[1]; ++c) {
      for (int64_t ph = 0; ph < s.pooled[0]; ++ph) {
        for (int64_t pw = 0; pw < s.pooled[1]; ++pw, ++to) {
          int64_t first[2], last[2];
          for (int d : {0, 1}) {
            const int64_t p = d == 0 ? ph : pw, start = column(r, 2 - d, s.scale);
            const int64_t size = std::max<int64_t>(column(r, 4 - d, s.scale) - start + 1, 1);
            first[d] = std::clamp<int64_t>(p * size / s.pooled[d] + start, 0, s.x[d + 2]);
            last[d] = std::clamp<int64_t>(((p + 1) * size + s.pooled[d] - 1) / s.pooled[d] + start,
                                          0, s.x[d + 2]);
          }
          double most = -kRoiInfinity, bound = 0;
          for (int64_t h = first[0]; h < last[0]; ++h) {
            for (int64_t w = first[1]; w < last[1]; ++w) {
              const int64_t from = ((n * s.x[1] + c) * s.x[2] + h) * s.x[3] + w;
              most = Larger(most, x.value[from]);
              bound = std::max(bound, x.ErrAt(from));
            }
          }
          const bool empty = first[0] >= last[0] || first[1] >= last[1];
          y.value[to] = empty ? 0 : most;
          if (err) y.err[to] = bound;
        }
      }
    }
  }
  return OkStatus();
}

graph::InputRange RoiRange(const OpView& v, int input) {
  if (input == 0) return {};
  const Shape& x = v.in[0]->shape;
  if (input == 2) return {0, static_cast<double>(x[0])};
  const double scale = std::max(std::fabs(v.attrs->Float("spatial_scale")), 0x1.0p-20);
  return {0, static_cast<double>(std::min(x[2], x[3]) - 1) / scale};
}

}  // namespace

const OpRecord& OpRoiAlign() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "RoiAlign";
    r.kind = FusionKind::kOpaque;
    r.min_inputs = r.max_inputs = 3;
    r.input_names = {"x", "rois", "batch"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"mode", AttrType::kString, AttrValue(std::string("avg"))},
               {"pooled", AttrType::kInts, std::nullopt},
               {"grid", AttrType::kInts, std::nullopt},
               {"adaptive", AttrType::kInt, AttrValue(int64_t{0})},
               {"spatial_scale", AttrType::kFloat, AttrValue(1.0)},
               {"half_pixel", AttrType::kInt, AttrValue(int64_t{1})}};
    r.note = "sampling_ratio 0 needs rois known at compile time";
    r.import = InF32(ImportRoiAlign);
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_ASSIGN_OR_RETURN(AlignSpec s, SpecOfAlign(v));
      out->push_back(TensorType::Of(v.in[0]->dtype, {s.rois, s.x[1], s.pooled[0], s.pooled[1]}));
      return OkStatus();
    };
    r.te = TeRoiAlign;
    r.reference = ReferenceRoiAlign;
    r.flops = [](const OpView& v) {
      return graph::FlopsProduct(
          {12, v.out[0]->num_elements(), graph::FlopsProduct(v.attrs->Ints("grid"))});
    };
    r.range = RoiRange;
    return r;
  }();
  return op;
}

const OpRecord& OpMaxRoiPool() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "MaxRoiPool";
    r.kind = FusionKind::kOpaque;
    r.min_inputs = r.max_inputs = 2;
    r.input_names = {"x", "rois"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"pooled", AttrType::kInts, std::nullopt},
               {"spatial_scale", AttrType::kFloat, AttrValue(1.0)}};
    r.note = "work grows with outputs x pixels";
    r.import = InF32(ImportMaxRoiPool);
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_ASSIGN_OR_RETURN(RoiPoolSpec s, SpecOfRoiPool(v));
      out->push_back(TensorType::Of(v.in[0]->dtype, {s.rois, s.x[1], s.pooled[0], s.pooled[1]}));
      return OkStatus();
    };
    r.te = TeMaxRoiPool;
    r.reference = ReferenceMaxRoiPool;
    r.flops = [](const OpView& v) {
      const Shape& x = v.in[0]->shape;
      return graph::FlopsProduct({v.out[0]->num_elements(), x[2], x[3]});
    };
    r.range = RoiRange;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
