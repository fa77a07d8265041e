// LayerNormalization and RMSNormalization. The canonical forms normalise over any set of axes, with
// a scale and a shift that broadcast to the input, so that instance and group normalisation, and
// the patterns that passes recognise, are the same record:
//   y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + shift
//   y = x / sqrt(mean(x^2) + epsilon) * scale                                (RMSNormalization)
// Half precisions are normalised in f32.
#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// Outputs 1 and 2, the mean and the reciprocal deviation, are nodes of their own, in f32 where the
// input is half precision.
Status ImportNormalization(ImportContext& c, bool centered) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, centered ? 3 : 2));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", -1));
  WHET_ASSIGN_OR_RETURN(double epsilon, c.TakeFloat("epsilon", 1e-5));
  WHET_ASSIGN_OR_RETURN(int64_t stash, c.TakeInt("stash_type", 1));
  if (stash != 1) return Unimplemented("stash_type {} is not supported; 1 (f32) is", stash);
  const int64_t rank = c.type(0).rank();
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  const std::vector<int64_t> axes = AxesFrom(axis, rank);
  Emitter e(c);
  const DType t = c.type(0).dtype;
  std::vector<ValueId> in = {c.inputs[0], e.Cast(c.inputs[1], t)};
  if (c.Has(2)) in.push_back(e.Cast(c.inputs[2], t));
  const ValueId y = e(centered ? "LayerNormalization" : "RMSNormalization", in,
                      {{"axes", axes}, {"epsilon", epsilon}});
  std::vector<ValueId> outputs = {y};
  if (c.Wanted(1) || c.Wanted(2)) {
    ValueId d = e.Cast(c.inputs[0], t == DType::kF64 ? t : DType::kF32);
    if (centered) {
      outputs.push_back(e.Reduce("ReduceMean", d, axes, true));
      d = e("Sub", {d, outputs[1]});
    }
    const ValueId variance = e.Reduce("ReduceMean", e("Mul", {d, d}), axes, true);
    const ValueId shifted = e("Add", {variance, e.Scalar(e.dtype(variance), epsilon)});
    outputs.push_back(e("Reciprocal", {e("Sqrt", {shifted})}));
  }
  return e.Finish(std::move(outputs));
}

Status InferNormalization(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  const Shape& x = v.in[0]->shape;
  const std::vector<int64_t>& axes = v.attrs->Ints("axes");
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> sorted, NormalizeAxes(axes, v.in[0]->rank()));
  if (sorted != axes) return InvalidArgument("axes {} are not sorted", ShapeText(axes));
  if (axes.empty()) return InvalidArgument("no axes to normalise over");
  for (size_t i = 1; i < v.in.size(); ++i) {
    if (v.in[i] == nullptr) return InvalidArgument("parameter {} is missing", i);
    WHET_ASSIGN_OR_RETURN(Shape both, Broadcast(v.in[i]->shape, x));
    if (both != x)
      return InvalidArgument("parameter {} of {} does not broadcast to {}", i,
                             ShapeText(v.in[i]->shape), ShapeText(x));
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, x));
  return OkStatus();
}

// Which dimensions of the input are normalised over, and how rows (the others) see the input.
struct RowLayout {
  std::vector<bool> reduced;
  Shape rows, row_strides, extents, strides;
  int64_t n = 1;  // elements of a row
};

RowLayout RowsOf(const OpView& v) {
  RowLayout l;
  const Shape& x = v.in[0]->shape;
  const Shape strides = Strides(x);
  l.reduced.assign(x.size(), false);
  for (int64_t a : v.attrs->Ints("axes")) l.reduced[static_cast<size_t>(a)] = true;
  for (size_t d = 0; d < x.size(); ++d) {
    (l.reduced[d] ? l.extents : l.rows).push_back(x[d]);
    (l.reduced[d] ? l.strides : l.row_strides).push_back(strides[d]);
  }
  l.n = Product(l.extents);
  return l;
}

// Stages: "sum" and "mean" of a row, "squares", "deviation" (its reciprocal), and "norm".
StatusOr<std::vector<Buffer>> TeNormalization(const OpView& v, const std::vector<Buffer>& in,
                                              te::Builder& b, bool centered) {
  const RowLayout l = RowsOf(v);
  const DType t = v.out[0]->dtype, wide = t == DType::kF64 ? t : DType::kF32;
  const te::AxisSpec full = AxesOf(v.out[0]->shape), along = ReduceAxes(l.extents);
  te::AxisSpec rows;
  for (size_t d = 0; d < full.size(); ++d) {
    if (!l.reduced[d]) rows.push_back(full[d]);
  }
  auto wider = [&](const Expr& e) { return e->dtype == wide ? e : expr::Cast(wide, e); };
  auto row_of = [&](const std::vector<Expr>& i) {
    std::vector<Expr> row;
    for (size_t d = 0; d < i.size(); ++d) {
      if (!l.reduced[d]) row.push_back(i[d]);
    }
    return row;
  };
  auto element = [&](const std::vector<Expr>& row, const std::vector<Expr>& r) {
    std::vector<Expr> at;
    size_t next_row = 0, next_reduce = 0;
    for (bool reduced : l.reduced) at.push_back(reduced ? r[next_reduce++] : row[next_row++]);
    return wider(expr::Load(in[0], at));
  };
  const Expr count = Const(wide, static_cast<double>(l.n));
  Buffer mean;
  if (centered) {
    const Buffer sum = b.Reduce("sum", wide, rows, along, te::Reducer::kSum, element);
    mean = b.Compute("mean", wide, rows,
                     [&](const std::vector<Expr>& i) { return expr::Load(sum, i) / count; });
  }
  const Buffer squares = b.Reduce("squares", wide, rows, along, te::Reducer::kSum,
                                  [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                    Expr d = element(i, r);
                                    if (centered) d = d - expr::Load(mean, i);
                                    return d * d;
                                  });
  const Buffer deviation = b.Compute("deviation", wide, rows, [&](const std::vector<Expr>& i) {
    const Expr shifted = expr::Load(squares, i) / count + Const(wide, v.attrs->Float("epsilon"));
    return Const(wide, 1) / expr::Call(expr::Intrinsic::kSqrt, shifted);
  });
  return std::vector<Buffer>{b.Compute("norm", t, full, [&](const std::vector<Expr>& i) {
    Expr y = wider(expr::Load(in[0], i));
    if (centered) y = y - expr::Load(mean, row_of(i));
    y = y * expr::Load(deviation, row_of(i));
    if (in.size() > 1) y = y * wider(LoadBroadcast(in[1], i));
    if (in.size() > 2) y = y + wider(LoadBroadcast(in[2], i));
    return t == wide ? y : expr::Cast(t, y);
  })};
}

// What one row is normalised with, and how far each may be off.
struct RowStatistics {
  double mean = 0, mean_err = 0;
  double scale = 0;     // 1 / sqrt(variance + epsilon)
  double relative = 0;  // relative error of `scale`
};

// Sums of n terms in any order: n units of the sum of magnitudes. The error of the mean enters the
// variance through sum(2 |d| e) / n, and the root halves a relative error.
RowStatistics StatisticsOf(const RowLayout& l, const RefTensor& x, int64_t base, double epsilon,
                           bool centered, double unit) {
  RowStatistics s;
  const auto n = static_cast<double>(l.n);
  if (centered) {
    double magnitude = 0;
    ForEachStrided(l.extents, l.strides, base, [&](int64_t, int64_t at) {
      s.mean += x.value[at] / n;
      magnitude += std::fabs(x.value[at]);
      s.mean_err += x.ErrAt(at) / n;
    });
    s.mean_err += unit * (magnitude + std::fabs(s.mean));
  }
  double variance = 0, error = 0;
  ForEachStrided(l.extents, l.strides, base, [&](int64_t, int64_t at) {
    const double d = x.value[at] - s.mean;
    const double e = x.ErrAt(at) + s.mean_err + unit * std::fabs(d);
    variance += d * d / n;
    error += e * (2 * std::fabs(d) + e * kErrUnit) / n;
  });
  s.scale = 1 / std::sqrt(variance + epsilon);
  s.relative = 0.5 * (error + unit * (n + 2) * variance) / std::max(variance + epsilon, 0x1.0p-60) +
               3 * unit;
  return s;
}

Status ReferenceNormalization(const OpView& v, Inputs in, Outputs out, bool want_err,
                              bool centered) {
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const RowLayout l = RowsOf(v);
  // Statistics of half precisions are f32; the result is rounded to the element type.
  const double unit = Roundoff(y.dtype == DType::kF64 ? y.dtype : DType::kF32),
               last = Roundoff(y.dtype);
  std::vector<int64_t> parameters[2];
  for (size_t p = 0; p + 1 < in.size(); ++p) {
    parameters[p].resize(y.value.size());
    ForEachStrided(y.shape, BroadcastStrides(in[p + 1]->shape, y.shape), 0,
                   [&](int64_t i, int64_t at) { parameters[p][i] = at; });
  }
  if (want_err) y.err.resize(y.value.size());
  ForEachStrided(l.rows, l.row_strides, 0, [&](int64_t, int64_t base) {
    const RowStatistics s = StatisticsOf(l, x, base, v.attrs->Float("epsilon"), centered, unit);
    ForEachStrided(l.extents, l.strides, base, [&](int64_t, int64_t at) {
      const double d = x.value[at] - s.mean, normal = d * s.scale;
      double scale = 1, scale_err = 0, shift = 0, shift_err = 0;
      if (in.size() > 1) {
        scale = in[1]->value[parameters[0][at]];
        scale_err = in[1]->ErrAt(parameters[0][at]);
      }
      if (in.size() > 2) {
        shift = in[2]->value[parameters[1][at]];
        shift_err = in[2]->ErrAt(parameters[1][at]);
      }
      y.value[at] = normal * scale + shift;
      if (!want_err) return;
      const double e = x.ErrAt(at) + s.mean_err + unit * std::fabs(d);
      y.err[at] = std::fabs(s.scale * scale) * e +
                  std::fabs(normal * scale) * (s.relative + 3 * unit) +
                  std::fabs(normal) * scale_err + shift_err + unit * std::fabs(shift) +
                  (last + unit) * std::fabs(y.value[at]);
    });
  });
  return OkStatus();
}

OpRecord Normalization(const std::string& name, bool centered) {
  OpRecord r;
  r.name = name;
  r.kind = FusionKind::kReduction;
  r.layout = LayoutRole::kFollows;
  r.max_inputs = centered ? 3 : 2;
  r.input_names = {"x", "scale", "shift"};
  r.types = Floats();
  r.attrs = {{"axes", AttrType::kInts, std::nullopt},
             {"epsilon", AttrType::kFloat, AttrValue(1e-5)}};
  r.note = centered ? "statistics in f32 or wider; two passes over a row: mean, then variance"
                    : "statistics in f32 or wider";
  r.import = [centered](ImportContext& c) { return ImportNormalization(c, centered); };
  r.infer = InferNormalization;
  r.te = [centered](const OpView& v, const std::vector<Buffer>& in, te::Builder& b) {
    return TeNormalization(v, in, b, centered);
  };
  r.reference = [centered](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return ReferenceNormalization(v, in, out, want_err, centered);
  };
  r.flops = [centered](const OpView& v) { return (centered ? 8 : 5) * v.out[0]->num_elements(); };
  return r;
}

}  // namespace

const OpRecord& OpLayerNormalization() {
  static const OpRecord op = Normalization("LayerNormalization", true);
  return op;
}

const OpRecord& OpRMSNormalization() {
  static const OpRecord op = Normalization("RMSNormalization", false);
  return op;
}

// The name that some exporters gave RMSNormalization before it was in an operator set.
const OpRecord& OpSimplifiedLayerNormalization() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "SimplifiedLayerNormalization";
    r.import = [](ImportContext& c) { return ImportNormalization(c, false); };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
