// ScatterElements (Scatter in old models) and ScatterND. A kernel never writes at an index that
// comes as data: each output element looks through the updates that could reach it. With `none` a
// first stage finds the last update for each place (at compile time where the indices are
// constant), so that the values are copied once; the other reductions sum, multiply or compare
// under the condition that an update is meant for the place. The work is outputs x updates along
// the indexed axes.
#include <limits>

#include "compiler/ops/index.h"

namespace whet::ops {
namespace {

constexpr double kScatterInfinity = std::numeric_limits<double>::infinity();

enum class ScatterMode { kNone, kAdd, kMul, kMax, kMin };
StatusOr<ScatterMode> ScatterModeOf(const std::string& name) {
  if (name == "none") return ScatterMode::kNone;
  if (name == "add") return ScatterMode::kAdd;
  if (name == "mul") return ScatterMode::kMul;
  if (name == "max") return ScatterMode::kMax;
  if (name == "min") return ScatterMode::kMin;
  return InvalidArgument("reduction '{}' is unknown; none, add, mul, max and min are known", name);
}

// Where updates go, for both operators: update u = (place.., slice..) and the places it could
// reach.
struct ScatterShape {
  bool elements = false;
  size_t axis = 0;  // ScatterElements
  Shape data, updates;
  size_t indexed = 0;  // ScatterND: the leading dimensions of data that indices name
  size_t picked = 0;   // ScatterND: the leading dimensions of updates that enumerate indices
  ScatterMode combine = ScatterMode::kNone;
  // The reduction that looks for updates: extents of its axes.
  Shape Searched() const {
    return elements ? Shape{updates[axis]} : Shape(updates.begin(), updates.begin() + picked);
  }
  // The places that are searched for: what of `data` an update can reach and its indices tell
  // apart.
  Shape Places() const {
    if (!elements) return Shape(data.begin(), data.begin() + indexed);
    Shape s = updates;
    s[axis] = data[axis];
    return s;
  }
};

StatusOr<ScatterShape> ShapeOfScatter(const OpView& v) {
  ScatterShape s;
  s.data = v.in[0]->shape;
  s.updates = v.in[2]->shape;
  const Shape& index = v.in[1]->shape;
  WHET_RETURN_IF_ERROR(CheckIndexType(*v.in[1]));
  WHET_ASSIGN_OR_RETURN(s.combine, ScatterModeOf(v.attrs->Str("reduction")));
  if (v.in[2]->dtype != v.in[0]->dtype)
    return InvalidArgument("updates are {}, data {}", ToString(v.in[2]->dtype),
                           ToString(v.in[0]->dtype));
  if (v.in[0]->dtype == DType::kBool && s.combine != ScatterMode::kNone)
    return InvalidArgument("reduction '{}' of bool", v.attrs->Str("reduction"));
  s.elements = v.attrs->Find("axis") != nullptr;
  if (s.elements) {
    WHET_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(v.attrs->Int("axis"), v.in[0]->rank()));
    s.axis = static_cast<size_t>(axis);
    if (index != s.updates || index.size() != s.data.size())
      return InvalidArgument("indices {} and updates {} for data {}", ShapeText(index),
                             ShapeText(s.updates), ShapeText(s.data));
    for (size_t d = 0; d < index.size(); ++d) {
      if (d != s.axis && index[d] > s.data[d])
        return InvalidArgument("indices {} exceed data {} in dimension {}", ShapeText(index),
                               ShapeText(s.data), d);
    }
    return s;
  }
  if (index.empty()) return InvalidArgument("indices must have a dimension");
  if (index.back() < 1 || index.back() > v.in[0]->rank())
    return InvalidArgument("indices {} for data {}", ShapeText(index), ShapeText(s.data));
  s.picked = index.size() - 1;
  s.indexed = static_cast<size_t>(index.back());
  Shape want(index.begin(), index.end() - 1);
  want.insert(want.end(), s.data.begin() + index.back(), s.data.end());
  if (want != s.updates)
    return InvalidArgument("updates {}; indices {} of data {} need {}", ShapeText(s.updates),
                           ShapeText(index), ShapeText(s.data), ShapeText(want));
  return s;
}

te::Reducer ScatterReducer(ScatterMode c) {
  switch (c) {
    case ScatterMode::kAdd: return te::Reducer::kSum;
    case ScatterMode::kMul: return te::Reducer::kProd;
    case ScatterMode::kMin: return te::Reducer::kMin;
    case ScatterMode::kNone:
    case ScatterMode::kMax: return te::Reducer::kMax;
  }
  return te::Reducer::kMax;
}

Expr CombineUpdate(ScatterMode c, const Expr& a, const Expr& b) {
  switch (c) {
    case ScatterMode::kAdd: return a + b;
    case ScatterMode::kMul: return a * b;
    case ScatterMode::kMin: return expr::Min(a, b);
    case ScatterMode::kNone:
    case ScatterMode::kMax: return expr::Max(a, b);
  }
  return a;
}

double ScatterNeutral(ScatterMode c, DType t) {
  const double v = c == ScatterMode::kMul   ? 1
                   : c == ScatterMode::kMax ? -kScatterInfinity
                   : c == ScatterMode::kMin ? kScatterInfinity
                                            : 0;
  return IsFloat(t) ? v : graph::RoundTo(t, v);
}

// Update `r` is meant for place `i`.
Expr UpdateMatches(const ScatterShape& s, const Buffer& index, const std::vector<Expr>& i,
                   const std::vector<Expr>& r) {
  if (s.elements) {
    std::vector<Expr> at = i;
    at[s.axis] = r[0];
    return expr::Eq(LoadIndex(index, std::move(at), s.data[s.axis]), i[s.axis]);
  }
  Expr all = expr::Bool(true);
  for (size_t d = 0; d < s.indexed; ++d) {
    std::vector<Expr> at = r;
    at.push_back(expr::Int(static_cast<int64_t>(d)));
    all = expr::And(all, expr::Eq(LoadIndex(index, std::move(at), s.data[d]), i[d]));
  }
  return all;
}

// The updates reach element `i` of data at all.
Expr ReachedByUpdates(const ScatterShape& s, const std::vector<Expr>& i) {
  Expr inside = expr::Bool(true);
  for (size_t d = 0; s.elements && d < i.size(); ++d) {
    if (d != s.axis && s.updates[d] < s.data[d])
      inside = expr::And(inside, expr::Lt(i[d], expr::Int(s.updates[d])));
  }
  return inside;
}

Buffer TeReplace(const ScatterShape& s, DType t, const std::vector<Buffer>& in, te::Builder& b) {
  const Shape searched = s.Searched();
  const Buffer last =
      b.Reduce("last", DType::kI64, AxesOf(s.Places()), ReduceAxes(searched), te::Reducer::kMax,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 Expr number = expr::Int(0);
                 for (size_t d = 0; d < r.size(); ++d) number = number * searched[d] + r[d];
                 return expr::Select(UpdateMatches(s, in[1], i, r), number, expr::Int(-1));
               });
  return b.Compute("scatter", t, AxesOf(s.data), [&](const std::vector<Expr>& i) {
    const Expr inside = ReachedByUpdates(s, i);
    std::vector<Expr> place = i;
    if (!s.elements) place.resize(s.indexed);
    const Expr found = expr::Load(last, place);
    std::vector<Expr> at = i;
    if (s.elements) {
      at[s.axis] = ClampIndex(found, s.updates[s.axis]);
    } else {
      at.assign(searched.size(), expr::Int(0));
      Expr number = ClampIndex(found, Product(searched));
      for (size_t d = searched.size(); d-- > 0;) {
        at[d] = d == 0 ? number : expr::FloorMod(number, searched[d]);
        number = expr::FloorDiv(number, searched[d]);
      }
      at.insert(at.end(), i.begin() + static_cast<int64_t>(s.indexed), i.end());
    }
    const Expr keep = expr::Load(in[0], i);
    const Expr hit = expr::Select(expr::Le(expr::Int(0), found), expr::Load(in[2], at), keep);
    return expr::IsTrue(inside) ? hit : expr::Select(inside, hit, keep);
  });
}

Buffer TeCombine(const ScatterShape& s, DType t, const std::vector<Buffer>& in, te::Builder& b) {
  Shape reached = s.data;
  if (s.elements) reached = s.Places();
  const Expr neutral = Const(t, ScatterNeutral(s.combine, t));
  const Buffer sum =
      b.Reduce("updates", t, AxesOf(reached), ReduceAxes(s.Searched()), ScatterReducer(s.combine),
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 std::vector<Expr> at = i;
                 if (s.elements) {
                   at[s.axis] = r[0];
                 } else {
                   at = r;
                   at.insert(at.end(), i.begin() + static_cast<int64_t>(s.indexed), i.end());
                 }
                 return expr::Select(UpdateMatches(s, in[1], i, r), expr::Load(in[2], at), neutral);
               });
  return b.Compute("scatter", t, AxesOf(s.data), [&](const std::vector<Expr>& i) {
    const Expr inside = ReachedByUpdates(s, i), keep = expr::Load(in[0], i);
    const Expr both = CombineUpdate(s.combine, keep, expr::Load(sum, i));
    return expr::IsTrue(inside) ? both : expr::Select(inside, both, keep);
  });
}

StatusOr<std::vector<Buffer>> TeScatter(const OpView& v, const std::vector<Buffer>& in,
                                        te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const ScatterShape s, ShapeOfScatter(v));
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{s.combine == ScatterMode::kNone ? TeReplace(s, t, in, b)
                                                             : TeCombine(s, t, in, b)};
}

// Combines one update into element `to`; `magnitude` counts what additions may round at.
void ApplyUpdate(ScatterMode c, double u, double u_err, double unit, double* value, double* err) {
  const double a = *value;
  switch (c) {
    case ScatterMode::kNone: *value = u, *err = u_err; break;
    case ScatterMode::kAdd: *value = a + u, *err += u_err; break;
    case ScatterMode::kMul:
      *err = *err * std::fabs(u) + u_err * std::fabs(a) + unit * std::fabs(a * u);
      *value = a * u;
      break;
    case ScatterMode::kMax:
      *value = std::isnan(u) || u > a ? u : a, *err = std::max(*err, u_err);
      break;
    case ScatterMode::kMin:
      *value = std::isnan(u) || u < a ? u : a, *err = std::max(*err, u_err);
      break;
  }
}

// Of integers, modulo the size of their type.
int64_t UpdatedWord(ScatterMode c, DType t, int64_t a, int64_t u) {
  const auto p = static_cast<uint64_t>(a), q = static_cast<uint64_t>(u);
  const bool less = t == DType::kU64 ? q < p : u < a;
  switch (c) {
    case ScatterMode::kNone: return u;
    case ScatterMode::kAdd: return expr::WrapInt(static_cast<int64_t>(p + q), t);
    case ScatterMode::kMul: return expr::WrapInt(static_cast<int64_t>(p * q), t);
    case ScatterMode::kMin: return less ? u : a;
    case ScatterMode::kMax: return less ? a : u;
  }
  return a;
}

Status ReferenceScatter(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const ScatterShape s, ShapeOfScatter(v));
  const RefTensor &index = *in[1], &updates = *in[2];
  RefTensor& y = out[0];
  const double unit = Roundoff(y.dtype);
  y.value = in[0]->value;
  y.ints = in[0]->ints;
  if (!updates.ints.empty()) EnsureWords(y);
  std::vector<double> err(y.value.size(), 0.0), magnitude(y.value.size(), 0.0), count = magnitude;
  if (!in[0]->err.empty()) err = in[0]->err;
  const Shape strides = Strides(s.data);
  std::vector<bool> reached(y.value.size());  // by an inexact index
  auto apply = [&](int64_t to, int64_t from) {
    if (s.combine == ScatterMode::kAdd)
      magnitude[to] += std::fabs(updates.value[from]), ++count[to];
    const bool integer = !IsFloat(y.dtype);
    const int64_t word =
        integer ? UpdatedWord(s.combine, y.dtype, WordAt(y, to), WordAt(updates, from)) : 0;
    ApplyUpdate(s.combine, updates.value[from], updates.ErrAt(from), unit, &y.value[to], &err[to]);
    if (integer) SetWord(y, to, word);
  };
  if (s.elements) {
    Shape to = strides;
    to[s.axis] = 0;
    ForEachStrided(s.updates, to, 0, [&](int64_t from, int64_t base) {
      const int64_t k = IndexValue(index, from, s.data[s.axis]);
      if (k >= 0 && k < s.data[s.axis]) apply(base + k * strides[s.axis], from);
      for (int64_t j = 0; index.ErrAt(from) > 0 && j < s.data[s.axis]; ++j)
        reached[base + j * strides[s.axis]] = true;
    });
  } else {
    const auto k = static_cast<int64_t>(s.indexed);
    const int64_t slice = Product(s.data, s.indexed);
    for (int64_t p = 0; p < index.size() / k; ++p) {
      int64_t base = 0;
      bool inside = true;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t at = IndexValue(index, p * k + j, s.data[j]);
        inside = inside && at >= 0 && at < s.data[j];
        if (index.ErrAt(p * k + j) > 0) reached.assign(reached.size(), true);
        if (inside) base += at * strides[j];
      }
      for (int64_t i = 0; inside && i < slice; ++i) apply(base + i, p * slice + i);
    }
  }
  const bool inexact =
      unit > 0 && (s.combine == ScatterMode::kAdd || s.combine == ScatterMode::kMul);
  if (!want_err || (!inexact && in[0]->err.empty() && updates.err.empty() && index.err.empty()))
    return OkStatus();
  for (size_t i = 0; i < err.size(); ++i)
    err[i] +=
        unit * (count[i] + 1) * (magnitude[i] + (count[i] > 0 ? std::fabs(in[0]->value[i]) : 0));
  for (size_t i = 0; i < err.size(); ++i) {
    if (reached[i]) err[i] = graph::kUndecided;
  }
  y.err = std::move(err);
  return OkStatus();
}

OpRecord Scattering(const std::string& name) {
  OpRecord r;
  r.name = name;
  r.kind = FusionKind::kOpaque;
  r.min_inputs = r.max_inputs = 3;
  r.input_names = {"x", "indices", "updates"};
  r.attrs = {{"reduction", AttrType::kString, AttrValue(std::string("none"))}};
  r.note = "work grows with outputs x updates; indices outside of the data are ignored";
  r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
    WHET_ASSIGN_OR_RETURN(ScatterShape s, ShapeOfScatter(v));
    out->push_back(TensorType::Of(v.in[0]->dtype, s.data));
    return OkStatus();
  };
  r.te = TeScatter;
  r.reference = ReferenceScatter;
  r.flops = [](const OpView& v) -> int64_t {
    auto s = ShapeOfScatter(v);
    if (!s.ok()) return 0;
    return graph::FlopsProduct(
        {s->combine == ScatterMode::kNone ? Product(s->Places()) : Product(s->data),
         Product(s->Searched())});
  };
  r.reference_flops = [](const OpView&) { return int64_t{0}; };  // one visit of each element
  return r;
}

Status ImportScatter(ImportContext& c, const std::string& name, bool elements) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
  WHET_ASSIGN_OR_RETURN(std::string reduction, c.TakeString("reduction", "none"));
  Attrs attrs{{"reduction", reduction}};
  if (elements) {
    WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
    WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
    attrs.Set("axis", axis);
  }
  // Nothing to write.
  if (c.type(1).num_elements() == 0 || c.type(2).num_elements() == 0)
    return c.Finish("Identity", {c.inputs[0]});
  return c.Finish(name, c.inputs, std::move(attrs));
}

}  // namespace

const OpRecord& OpScatterElements() {
  static const OpRecord op = [] {
    OpRecord r = Scattering("ScatterElements");
    r.attrs.push_back({"axis", AttrType::kInt, AttrValue(int64_t{0})});
    r.import = [](ImportContext& c) { return ImportScatter(c, "ScatterElements", true); };
    r.range = [](const OpView& v, int input) {
      if (input != 1) return graph::InputRange{};
      return graph::InputRange{0, static_cast<double>(v.in[0]->shape[v.attrs->Int("axis")])};
    };
    return r;
  }();
  return op;
}

const OpRecord& OpScatter() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Scatter";
    r.import = [](ImportContext& c) { return ImportScatter(c, "ScatterElements", true); };
    return r;
  }();
  return op;
}

const OpRecord& OpScatterND() {
  static const OpRecord op = [] {
    OpRecord r = Scattering("ScatterND");
    r.import = [](ImportContext& c) { return ImportScatter(c, "ScatterND", false); };
    r.range = [](const OpView& v, int input) {
      if (input != 1) return graph::InputRange{};
      const Shape& x = v.in[0]->shape;
      return graph::InputRange{
          0, static_cast<double>(*std::min_element(x.begin(), x.begin() + v.in[1]->shape.back()))};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
