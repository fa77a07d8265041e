// ArgMax and ArgMin: the index of the first, or last, extreme element along an axis. As in a
// maximum, a NaN is more extreme than any number.
#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

Status ImportArg(ImportContext& c, const std::string& name) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
  WHET_ASSIGN_OR_RETURN(int64_t keepdims, c.TakeInt("keepdims", 1));
  WHET_ASSIGN_OR_RETURN(int64_t last, c.TakeInt("select_last_index", 0));
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  return c.Finish(
      name, {c.inputs[0]},
      {{"axis", axis}, {"keepdims", int64_t{keepdims != 0}}, {"last", int64_t{last != 0}}});
}

Status InferArg(const OpView& v, std::vector<TensorType>* out) {
  const int64_t axis = v.attrs->Int("axis");
  Shape shape = v.in[0]->shape;
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, shape.size());
  if (shape[static_cast<size_t>(axis)] == 0)
    return InvalidArgument("dimension {} of {} has no elements", axis, ShapeText(shape));
  if (v.attrs->Int("keepdims") != 0) {
    shape[static_cast<size_t>(axis)] = 1;
  } else {
    shape.erase(shape.begin() + axis);
  }
  out->push_back(TensorType::Of(DType::kI64, std::move(shape)));
  return OkStatus();
}

// Stages: "extreme" of the row, then "index", the least or greatest position of an element equal to
// it. Where none is (an element that is computed twice, differently), an end of the row stands in:
// an index is always inside.
StatusOr<std::vector<Buffer>> TeArg(const OpView& v, const std::vector<Buffer>& in, te::Builder& b,
                                    bool largest) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const bool keep = v.attrs->Int("keepdims") != 0, last = v.attrs->Int("last") != 0;
  const int64_t n = in[0]->shape[axis];
  const te::AxisSpec spec = AxesOf(v.out[0]->shape), along = {{"k", n}};
  auto element = [&](std::vector<Expr> i, const Expr& k) {
    if (keep) {
      i[axis] = k;
    } else {
      i.insert(i.begin() + static_cast<std::ptrdiff_t>(axis), k);
    }
    return expr::Load(in[0], i);
  };
  const Buffer extreme = b.Reduce(
      "extreme", in[0]->dtype, spec, along, largest ? te::Reducer::kMax : te::Reducer::kMin,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return element(i, r[0]); });
  return std::vector<Buffer>{
      b.Reduce("index", DType::kI64, spec, along, last ? te::Reducer::kMax : te::Reducer::kMin,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr x = element(i, r[0]);
                 Expr found = expr::Eq(x, expr::Load(extreme, i));
                 if (IsFloat(x->dtype)) found = expr::Or(found, expr::Not(expr::Eq(x, x)));
                 return expr::Select(found, r[0], expr::Int(last ? 0 : n - 1));
               })};
}

Status ReferenceArg(const OpView& v, Inputs in, Outputs out, bool want_err, bool largest) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const bool last = v.attrs->Int("last") != 0;
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const int64_t n = x.shape[axis], inner = Product(x.shape, axis + 1);
  const bool err = want_err && !x.err.empty();
  if (err) y.err.assign(y.value.size(), 0);
  for (int64_t row = 0; row < y.size(); ++row) {
    const int64_t base = row / inner * n * inner + row % inner;
    int64_t best = 0;
    for (int64_t k = 1; k < n; ++k) {
      const int64_t at = base + k * inner, best_at = base + best * inner;
      const bool nan = std::isnan(x.value[at]), best_nan = std::isnan(x.value[best_at]);
      const bool less = LessAt(x, at, best_at), more = LessAt(x, best_at, at);
      const bool same = nan == best_nan && !less && !more;
      const bool better = !best_nan && (nan || (largest ? more : less));
      if (better || (last && same)) best = k;
    }
    y.value[row] = static_cast<double>(best);
    // Inputs that rounding may bring into the other order admit any index.
    for (int64_t k = 0; err && k < n; ++k) {
      const int64_t at = base + k * inner, top = base + best * inner;
      const double gap = std::fabs(x.value[at] - x.value[top]);
      if (k != best && gap <= kErrUnit * (x.err[at] + x.err[top]) && x.err[at] + x.err[top] > 0)
        y.err[row] = static_cast<double>(n) * 0x1.0p24;
    }
  }
  return OkStatus();
}

OpRecord Arg(const std::string& name, bool largest) {
  OpRecord r;
  r.name = name;
  r.kind = FusionKind::kReduction;
  r.input_names = {"x"};
  r.types = Numbers();
  r.attrs = {{"axis", AttrType::kInt, std::nullopt},
             {"keepdims", AttrType::kInt, AttrValue(int64_t{1})},
             {"last", AttrType::kInt, AttrValue(int64_t{0})}};
  r.import = [name](ImportContext& c) { return ImportArg(c, name); };
  r.infer = InferArg;
  r.te = [largest](const OpView& v, const std::vector<Buffer>& in, te::Builder& b) {
    return TeArg(v, in, b, largest);
  };
  r.reference = [largest](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return ReferenceArg(v, in, out, want_err, largest);
  };
  r.flops = [](const OpView& v) { return 2 * v.in[0]->num_elements(); };
  return r;
}

}  // namespace

const OpRecord& OpArgMax() {
  static const OpRecord op = Arg("ArgMax", true);
  return op;
}

const OpRecord& OpArgMin() {
  static const OpRecord op = Arg("ArgMin", false);
  return op;
}

}  // namespace whet::ops
