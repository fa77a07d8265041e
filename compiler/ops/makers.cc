#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// "LeakyRelu" -> "leaky_relu": what stages are called.
std::string StageName(const std::string& op) {
  std::string s;
  for (size_t i = 0; i < op.size(); ++i) {
    const bool upper = op[i] >= 'A' && op[i] <= 'Z';
    if (upper && i > 0 && !(op[i - 1] >= 'A' && op[i - 1] <= 'Z')) s += '_';
    s += static_cast<char>(upper ? op[i] - 'A' + 'a' : op[i]);
  }
  return s;
}

Expr Wide(const Expr& x) { return IsHalf(x->dtype) ? expr::Cast(DType::kF32, x) : x; }
Expr Narrow(const Expr& x, DType to) { return IsHalf(to) ? expr::Cast(to, x) : x; }

// 64-bit integers of which doubles hold only neighbours.
bool BeyondDoubles(const RefTensor& t) {
  if (!IsWord(t.dtype)) return false;
  return !t.ints.empty() || std::any_of(t.value.begin(), t.value.end(),
                                        [](double v) { return std::fabs(v) >= 0x1.0p53; });
}

// The exact element, from the operator's expression over constants, which folds. Only for values
// beyond doubles: elsewhere the reference stays independent of expressions.
void SetFolded(RefTensor& y, int64_t i, const Expr& e) {
  if (e->kind != expr::Kind::kInt) return;
  if (y.dtype == DType::kBool) {
    y.value[static_cast<size_t>(i)] = static_cast<double>(e->int_value);
  } else {
    SetWord(y, i, e->int_value);
  }
}

// How far y = f(x) may move when x does by at most `e`; kUndecided where rounding makes a number of
// it, or of a number an infinity or NaN.
double MovedUnary(const UnarySpec& s, const OpView& v, double x, double y, double e) {
  const double low = s.value(v, x - e), high = s.value(v, x + e);
  auto stays = [y](double t) { return t == y || (std::isnan(t) && std::isnan(y)); };
  if (!std::isfinite(y)) return stays(low) && stays(high) ? 0 : graph::kUndecided;
  if (std::isnan(low) || std::isnan(high)) return graph::kUndecided;
  const double moved = s.moved ? s.moved(v, x, y, e) : s.slope ? e * s.slope(v, x, y) : e;
  return moved == HUGE_VAL ? graph::kUndecided : moved;
}

// The error of a binary function, own rounding excluded.
double MovedBinary(const BinarySpec& s, const OpView& v, double a, double ea, double b, double eb,
                   double y) {
  if (std::isnan(y) && ((std::isnan(a) && ea == 0) || (std::isnan(b) && eb == 0))) return 0;
  const double e = s.err ? s.err(v, a, ea, b, eb, y) : std::max(ea, eb);
  if (std::isfinite(y)) return e;
  return std::isinf(e) || std::isinf(ea) || std::isinf(eb) ? graph::kUndecided : 0;
}

Status UnaryReference(const UnarySpec& s, const OpView& v, Inputs in, Outputs out, bool want_err) {
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const double roundoff = Roundoff(y.dtype), unit = roundoff * s.ulp;
  const bool err = want_err && (unit > 0 || s.absolute || !x.err.empty());
  if (err) y.err.resize(y.value.size());
  for (size_t i = 0; i < y.value.size(); ++i) {
    y.value[i] = Wrap(y.dtype, s.value(v, x.value[i]));
    if (!err) continue;
    double own = unit > 0 && std::isfinite(y.value[i]) ? unit * std::fabs(y.value[i]) : 0;
    if (s.absolute) own += roundoff * s.absolute(v, x.value[i]);
    const double input = x.err.empty() ? 0 : x.err[i];
    if (input > 0) own += MovedUnary(s, v, x.value[i], y.value[i], input * kErrUnit) / kErrUnit;
    y.err[i] = own;
  }
  if (BeyondDoubles(x) || BeyondDoubles(y)) {
    for (int64_t i = 0; i < y.size(); ++i)
      SetFolded(y, i, s.te(v, expr::Int(WordAt(x, i), x.dtype)));
  }
  return OkStatus();
}

Status BinaryReference(const BinarySpec& s, const OpView& v, Inputs in, Outputs out,
                       bool want_err) {
  const RefTensor &a = *in[0], &b = *in[1];
  RefTensor& y = out[0];
  const double unit = Roundoff(y.dtype) * s.ulp;
  const bool err = want_err && ((unit > 0 && !s.compare) || !a.err.empty() || !b.err.empty());
  if (err) y.err.resize(y.value.size());
  const Shape sb = BroadcastStrides(b.shape, y.shape);
  bool exact = true;  // what doubles hold, before it wraps around
  std::vector<int64_t> from_b(y.value.size());
  ForEachStrided(y.shape, sb, 0, [&](int64_t i, int64_t at) { from_b[i] = at; });
  ForEachStrided(y.shape, BroadcastStrides(a.shape, y.shape), 0, [&](int64_t i, int64_t at) {
    const double p = a.value[at], q = b.value[from_b[i]];
    const double value = s.value(v, p, q);
    exact = exact && (IsFloat(y.dtype) || std::fabs(value) < 0x1.0p53);
    y.value[i] = Wrap(y.dtype, value);
    if (!err) return;
    const double ea = a.ErrAt(at), eb = b.ErrAt(from_b[i]);
    if (s.compare) {  // numbers that rounding may bring into another order admit both answers
      const double both = ea + eb;
      const bool either = both > 0 && (std::isinf(both) || std::fabs(p - q) <= both * kErrUnit);
      y.err[i] = either ? 1 / kErrUnit : 0;
      return;
    }
    y.err[i] = MovedBinary(s, v, p, ea, q, eb, y.value[i]);
    if (unit == 0 || !std::isfinite(y.value[i])) return;
    y.err[i] += unit * std::fabs(y.value[i]);
    if (s.adds) y.err[i] += unit * (a.terms * std::fabs(q) + b.terms * std::fabs(p));
  });
  if (s.adds) y.terms = std::max(a.terms, b.terms);
  if (!exact || BeyondDoubles(a) || BeyondDoubles(b)) {
    ForEachStrided(y.shape, BroadcastStrides(a.shape, y.shape), 0, [&](int64_t i, int64_t at) {
      SetFolded(
          y, i,
          s.te(v, expr::Int(WordAt(a, at), a.dtype), expr::Int(WordAt(b, from_b[i]), b.dtype)));
    });
  }
  return OkStatus();
}

}  // namespace

OpRecord Unary(UnarySpec spec) {
  OpRecord r;
  r.name = spec.name;
  r.version = spec.version;
  r.kind = FusionKind::kElementwise;
  r.layout = LayoutRole::kFollows;
  r.input_names = {"x"};
  r.attrs = spec.attrs;
  r.types = spec.types;
  r.idempotent = spec.idempotent;
  r.import = spec.import;
  r.is_identity = spec.is_identity;
  r.range = spec.range;
  r.infer = [check = spec.check](const OpView& v, std::vector<TensorType>* out) {
    out->push_back(TensorType::Of(v.in[0]->dtype, v.in[0]->shape));
    return check ? check(v) : OkStatus();
  };
  r.te = [te = spec.te, stage = StageName(spec.name)](
             const OpView& v, const std::vector<Buffer>& in,
             te::Builder& b) -> StatusOr<std::vector<Buffer>> {
    return std::vector<Buffer>{
        b.Compute(stage, v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
          return Narrow(te(v, Wide(expr::Load(in[0], i))), v.out[0]->dtype);
        })};
  };
  r.flops = [per = spec.flops_per_element](const OpView& v) {
    return per * v.out[0]->num_elements();
  };
  r.reference = [spec = std::move(spec)](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return UnaryReference(spec, v, in, out, want_err);
  };
  return r;
}

OpRecord Binary(BinarySpec spec) {
  OpRecord r;
  r.name = spec.name;
  r.version = spec.version;
  r.kind = FusionKind::kBroadcast;
  r.layout = LayoutRole::kFollows;
  r.min_inputs = r.max_inputs = 2;
  r.input_names = {"a", "b"};
  r.attrs = spec.attrs;
  r.types = spec.types;
  r.commutative = spec.commutative;
  r.import = ImportBinary;
  r.range = spec.range;
  r.infer = [compare = spec.compare, check = spec.check](const OpView& v,
                                                         std::vector<TensorType>* out) -> Status {
    WHET_RETURN_IF_ERROR(SameTypes(v));
    WHET_ASSIGN_OR_RETURN(Shape shape, Broadcast(v.in[0]->shape, v.in[1]->shape));
    out->push_back(TensorType::Of(compare ? DType::kBool : v.in[0]->dtype, std::move(shape)));
    return check ? check(v) : OkStatus();
  };
  r.te = [te = spec.te, stage = StageName(spec.name)](
             const OpView& v, const std::vector<Buffer>& in,
             te::Builder& b) -> StatusOr<std::vector<Buffer>> {
    return std::vector<Buffer>{
        b.Compute(stage, v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
          return Narrow(te(v, Wide(LoadBroadcast(in[0], i)), Wide(LoadBroadcast(in[1], i))),
                        v.out[0]->dtype);
        })};
  };
  r.reference = [spec = std::move(spec)](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return BinaryReference(spec, v, in, out, want_err);
  };
  return r;
}

Status ImportPlain(ImportContext& c) {
  c.Ignore("consumed_inputs");  // a hint of the first operator sets, without meaning for the result
  return c.Finish(c.op_type, c.inputs, c.TakeAll());
}

Status ImportBinary(ImportContext& c) {
  c.Ignore("consumed_inputs");
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  if (c.opset < 7) {
    WHET_ASSIGN_OR_RETURN(int64_t broadcast, c.TakeInt("broadcast", 0));
    const bool has_axis = c.HasAttr("axis");
    WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
    const int64_t rank = c.type(0).rank(), rank_b = c.type(1).rank();
    if (broadcast == 0 && c.type(0).shape != c.type(1).shape)
      return InvalidArgument("operands differ in shape without broadcast=1");
    if (broadcast != 0 && has_axis) {
      WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
      if (axis + rank_b > rank)
        return InvalidArgument("axis {} leaves no room for rank {} in rank {}", axis, rank_b, rank);
      Shape shape = c.type(1).shape;
      shape.resize(static_cast<size_t>(rank - axis), 1);
      WHET_ASSIGN_OR_RETURN(c.inputs[1],
                            c.builder.Emit("Reshape", {c.inputs[1]}, {{"shape", shape}}));
    }
  }
  return c.Finish(c.op_type, c.inputs, c.TakeAll());
}

Status ImportChain(ImportContext& c, const std::string& op) {
  c.Ignore("consumed_inputs");
  WHET_RETURN_IF_ERROR(c.NeedInputs(1));
  ValueId v = c.inputs[0];
  for (int i = 1; i < c.num_inputs(); ++i) {
    WHET_RETURN_IF_ERROR(c.NeedInputs(i + 1));
    WHET_ASSIGN_OR_RETURN(v, c.builder.Emit(op, {v, c.inputs[i]}));
  }
  if (c.num_inputs() == 1) return c.Finish("Identity", {v});
  c.outputs = {v};
  return OkStatus();
}

namespace {

// Half precisions accumulate in f32, integers take the mean with a division that truncates, and
// truth values are ordered as 0 and 1.
Status ImportReduce(ImportContext& c, const ReduceSpec& spec) {
  WHET_ASSIGN_OR_RETURN(ReduceAxesOf how, TakeReduceAxes(c, spec.axes_input_since));
  if (how.axes.empty()) return c.Finish("Identity", {c.inputs[0]});
  const DType t = c.type(0).dtype;
  Emitter e(c);
  const bool ordered = spec.reducer == te::Reducer::kMax || spec.reducer == te::Reducer::kMin;
  const bool half = !ordered && (t == DType::kF16 || t == DType::kBF16);
  const bool integer_mean = spec.mean && !IsFloat(t);
  const DType inner = half ? DType::kF32 : ordered && t == DType::kBool ? DType::kU8 : t;
  const std::string op = integer_mean ? "ReduceSum" : spec.name;
  ValueId v = e.Cast(c.inputs[0], inner);
  const bool everything = how.axes.size() == c.type(0).shape.size();
  if (everything && spec.reducer == te::Reducer::kSum &&
      c.type(0).num_elements() >= Emitter::kLongSum) {
    v = e.ReduceAll(op, v);
    if (how.keepdims) v = e.Reshape(v, Shape(how.axes.size(), 1));
  } else {
    v = e.Reduce(op, v, how.axes, how.keepdims);
  }
  if (integer_mean) {
    double count = 1;
    for (int64_t a : how.axes) count *= static_cast<double>(c.type(0).shape[a]);
    v = e("Div", {v, e.Scalar(t, std::max(count, 1.0))});
  }
  return e.Finish({e.Cast(v, t)});
}

Status InferReduce(const OpView& v, std::vector<TensorType>* out) {
  const std::vector<int64_t>& axes = v.attrs->Ints("axes");
  const Shape& in = v.in[0]->shape;
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> sorted, NormalizeAxes(axes, v.in[0]->rank()));
  if (sorted != axes) return InvalidArgument("axes {} are not sorted", ShapeText(axes));
  Shape shape;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!reduced) shape.push_back(in[i]);
    if (reduced && v.attrs->Int("keepdims") != 0) shape.push_back(1);
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

// Strides of the input as seen from the output's indices, and the reduced extents with their
// strides.
struct ReduceLayout {
  Shape out_strides;
  Shape extents;
  Shape strides;
};

ReduceLayout LayoutOf(const OpView& v) {
  const std::vector<int64_t>& axes = v.attrs->Ints("axes");
  const Shape& in = v.in[0]->shape;
  const Shape strides = Strides(in);
  ReduceLayout l;
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) {
      l.out_strides.push_back(strides[i]);
      continue;
    }
    l.extents.push_back(in[i]);
    l.strides.push_back(strides[i]);
    if (v.attrs->Int("keepdims") != 0) l.out_strides.push_back(0);
  }
  return l;
}

// Of integers, modulo the size of their type.
void ReduceWords(te::Reducer reducer, const ReduceLayout& l, const RefTensor& x, RefTensor& y) {
  ForEachStrided(y.shape, l.out_strides, 0, [&](int64_t i, int64_t base) {
    const bool product = reducer == te::Reducer::kProd;
    const bool sum = reducer == te::Reducer::kSum || reducer == te::Reducer::kNone;
    uint64_t acc = product ? 1 : 0;
    bool first = true;
    ForEachStrided(l.extents, l.strides, base, [&](int64_t, int64_t at) {
      const int64_t word = WordAt(x, at);
      const auto bits = static_cast<uint64_t>(word);
      if (product || sum) {
        acc = product ? acc * bits : acc + bits;
      } else {
        const bool less = x.dtype == DType::kU64 ? bits < acc : word < static_cast<int64_t>(acc);
        if (first || (bits != acc && less == (reducer == te::Reducer::kMin))) acc = bits;
      }
      first = false;
    });
    // Of no elements a maximum is what the other form has.
    if (product || sum || !first) SetWord(y, i, expr::WrapInt(static_cast<int64_t>(acc), y.dtype));
  });
}

Status ReduceReference(const ReduceSpec& s, const OpView& v, Inputs in, Outputs out,
                       bool want_err) {
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const ReduceLayout l = LayoutOf(v);
  const auto n = static_cast<double>(Product(l.extents));
  const bool sums = s.reducer == te::Reducer::kSum;
  const double unit = sums || s.reducer == te::Reducer::kProd ? Roundoff(y.dtype) : 0;
  const bool err = want_err && (unit > 0 || !x.err.empty());
  if (err) y.err.resize(y.value.size());
  bool exact = IsFloat(x.dtype) || s.mean || x.ints.empty();
  ForEachStrided(y.shape, l.out_strides, 0, [&](int64_t i, int64_t base) {
    // Of no elements: what the type has for an infinity.
    double acc = graph::RoundTo(y.dtype, te::Identity(s.reducer)), bound = 0, magnitude = 0;
    ForEachStrided(l.extents, l.strides, base, [&](int64_t, int64_t at) {
      const double p = x.value[at], e = x.ErrAt(at);
      switch (s.reducer) {
        case te::Reducer::kNone:
        case te::Reducer::kSum:
          acc += p;
          magnitude += std::fabs(p);
          bound += e;
          break;
        case te::Reducer::kProd:
          bound = bound * (std::fabs(p) + e * kErrUnit) + e * std::fabs(acc);
          acc *= p;
          // Integers: the largest on the way, which may be zero later.
          magnitude = IsFloat(y.dtype) ? std::fabs(acc) : std::max(magnitude, std::fabs(acc));
          break;
        case te::Reducer::kMax:
        case te::Reducer::kMin:
          acc = std::isnan(p) || (s.reducer == te::Reducer::kMax ? p > acc : p < acc) ? p : acc;
          bound = std::max(bound, e);
          break;
      }
    });
    y.value[i] = s.mean ? acc / n : acc;
    if (!IsFloat(y.dtype)) {
      exact = exact && (s.mean || !(magnitude >= 0x1.0p53));
      y.value[i] = Wrap(y.dtype, std::trunc(y.value[i]));
    }
    if (err)
      y.err[i] = (bound + unit * n * magnitude) / (s.mean ? n : 1) +
                 (s.mean ? unit * std::fabs(y.value[i]) : 0);
  });
  if (sums && !s.mean) y.terms = n;
  if (!exact) ReduceWords(s.reducer, l, x, y);
  return OkStatus();
}

StatusOr<std::vector<Buffer>> ReduceTe(const ReduceSpec& s, const OpView& v,
                                       const std::vector<Buffer>& in, te::Builder& b) {
  const std::vector<int64_t>& axes = v.attrs->Ints("axes");
  const bool keep = v.attrs->Int("keepdims") != 0;
  const ReduceLayout l = LayoutOf(v);
  const te::AxisSpec spec = AxesOf(v.out[0]->shape);
  const DType t = v.out[0]->dtype;
  auto load = [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
    std::vector<Expr> at;
    size_t next_out = 0, next_reduce = 0;
    for (size_t d = 0; d < in[0]->shape.size(); ++d) {
      const bool reduced =
          std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
      at.push_back(reduced ? r[next_reduce++] : i[next_out]);
      if (!reduced || keep) ++next_out;
    }
    return expr::Load(in[0], at);
  };
  if (l.extents.empty()) {
    return std::vector<Buffer>{
        b.Compute("reduce", t, spec, [&](const std::vector<Expr>& i) { return load(i, {}); })};
  }
  Buffer r = b.Reduce("reduce", t, spec, ReduceAxes(l.extents), s.reducer, load);
  if (s.mean) {
    const auto n = static_cast<double>(Product(l.extents));
    r = b.Compute("mean", t, spec,
                  [&](const std::vector<Expr>& i) { return expr::Load(r, i) / Const(t, n); });
  }
  return std::vector<Buffer>{r};
}

}  // namespace

StatusOr<ReduceAxesOf> TakeReduceAxes(ImportContext& c, int axes_input_since) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, c.opset >= axes_input_since ? 2 : 1));
  ReduceAxesOf how;
  WHET_ASSIGN_OR_RETURN(int64_t keepdims, c.TakeInt("keepdims", 1));
  how.keepdims = keepdims != 0;
  bool all = false;
  if (c.opset >= axes_input_since) {
    WHET_ASSIGN_OR_RETURN(int64_t noop, c.TakeInt("noop_with_empty_axes", 0));
    if (c.Has(1)) {
      WHET_ASSIGN_OR_RETURN(how.axes, c.ConstInts(1, "axes"));
    }
    all = how.axes.empty() && noop == 0;
  } else {
    all = !c.HasAttr("axes");
    WHET_ASSIGN_OR_RETURN(how.axes, c.TakeInts("axes", {}));
  }
  const int64_t rank = c.type(0).rank();
  for (int64_t i = 0; all && i < rank; ++i) how.axes.push_back(i);
  WHET_ASSIGN_OR_RETURN(how.axes, NormalizeAxes(how.axes, rank));
  return how;
}

OpRecord Reduce(ReduceSpec spec) {
  OpRecord r;
  r.name = spec.name;
  r.kind = FusionKind::kReduction;
  r.input_names = {"x"};
  r.types = spec.types;
  r.attrs = {{"axes", AttrType::kInts, std::nullopt},
             {"keepdims", AttrType::kInt, AttrValue(int64_t{1})}};
  r.import = [spec](ImportContext& c) { return ImportReduce(c, spec); };
  r.infer = InferReduce;
  r.te = [spec](const OpView& v, const std::vector<Buffer>& in, te::Builder& b) {
    return ReduceTe(spec, v, in, b);
  };
  r.reference = [spec](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return ReduceReference(spec, v, in, out, want_err);
  };
  r.flops = [](const OpView& v) { return v.in[0]->num_elements(); };
  r.is_identity = [](const OpView& v) { return v.attrs->Ints("axes").empty(); };
  return r;
}

}  // namespace whet::ops
