#include "compiler/graph/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace whet::graph {
namespace {

// From here on a number rounds to an infinity.
double OverflowOf(DType t) {
  switch (t) {
    case DType::kF16: return 65520;
    case DType::kBF16: return 0x1.ffp127;
    case DType::kF32: return 0x1.ffffffp127;
    default: return HUGE_VAL;
  }
}

// What rounding errs by where the results are so small that it no longer shrinks with them: the
// distance of f16's smallest numbers, which are computed with; kernels flush those of the others to
// zero.
double SmallestError(DType t) {
  switch (t) {
    case DType::kF16: return 0x1.0p-24;
    case DType::kF64: return 0x1.0p-1020;
    default: return IsFloat(t) ? 0x1.0p-124 : 0;
  }
}

// What is the same for all operators at the ends of the range of a floating type. A number too
// large for it is an infinity, which is exact, as NaN is, unless rounding decides that; one that
// rounding may make an infinity admits anything.
void AtTheEndsOfTheRange(std::span<const RefTensor* const> in, RefTensor& t) {
  if (!IsFloat(t.dtype) && t.err.empty()) return;
  const bool unknown_input = std::any_of(in.begin(), in.end(), [](const RefTensor* x) {
    return x && std::find(x->err.begin(), x->err.end(), HUGE_VAL) != x->err.end();
  });
  const double overflow = OverflowOf(t.dtype), smallest = SmallestError(t.dtype) / kErrUnit;
  for (size_t i = 0; i < t.value.size(); ++i) {
    double& v = t.value[i];
    const double size = std::fabs(v);
    if (t.err.empty()) {
      if (size >= overflow) v = std::copysign(HUGE_VAL, v);
      continue;
    }
    double& e = t.err[i];
    if (!std::isfinite(v)) {
      e = e == kUndecided || (unknown_input && !std::isfinite(e)) ? HUGE_VAL : 0;
      continue;
    }
    // Zero times an infinite error: nothing is known.
    if (std::isnan(e) || e == kUndecided) e = HUGE_VAL;
    if (e > 0) e += smallest;
    if (size - e * kErrUnit >= overflow) {
      v = std::copysign(HUGE_VAL, v);
      e = 0;
    } else if (size + e * kErrUnit >= overflow) {
      e = HUGE_VAL;
    }
  }
}

}  // namespace

double ToleranceAt(const RefTensor& t, int64_t i) { return t.ErrAt(i) * kErrUnit; }

StatusOr<std::vector<RefTensor>> EvaluateOp(const OpView& v, std::span<const RefTensor* const> in,
                                            bool want_err) {
  if (!v.op->reference) return Unimplemented("{} has no reference evaluation", v.op->name);
  std::vector<RefTensor> out(v.out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t n = v.out[i]->num_elements();
    if (n > kMaxReferenceElements) {
      return ResourceExhausted(
          "{} of {} elements exceeds the limit of 2^27 for reference evaluation",
          v.out[i]->ToString(), n);
    }
    out[i].dtype = v.out[i]->dtype;
    out[i].shape = v.out[i]->shape;
    out[i].value.assign(static_cast<size_t>(n), 0.0);
  }
  WHET_RETURN_IF_ERROR(v.op->reference(v, in, out, want_err));
  for (RefTensor& t : out) AtTheEndsOfTheRange(in, t);
  if (v.op->view != ViewRole::kNone) out[0].terms = in[0]->terms;
  if (v.op->view == ViewRole::kReshape && in[0]->ints.size() == out[0].value.size())
    out[0].ints = in[0]->ints;
  return out;
}

RefTensor ToRef(const Constant& c) {
  RefTensor r{c.dtype(), c.shape(), c.Doubles(), {}};
  const bool words = c.dtype() == DType::kI64 || c.dtype() == DType::kU64;
  const bool exact = !words || std::all_of(r.value.begin(), r.value.end(),
                                           [](double v) { return std::fabs(v) < 0x1.0p53; });
  if (!exact) r.ints = c.Words();
  return r;
}

StatusOr<std::vector<ConstantPtr>> EvaluateConstantNode(const Graph& g, const Node& n,
                                                        const std::vector<TensorType>& out) {
  std::vector<const TensorType*> types;
  std::vector<RefTensor> values(n.inputs.size());
  std::vector<const RefTensor*> in(n.inputs.size(), nullptr);
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const ValueId v = n.inputs[i];
    types.push_back(v == kNoValue ? nullptr : &g.type(v));
    if (v == kNoValue) continue;
    values[i] = ToRef(*g.constant(v));
    in[i] = &values[i];
  }
  WHET_ASSIGN_OR_RETURN(std::vector<RefTensor> result,
                        EvaluateOp(ViewOf(*n.op, n.attrs, types, out), in, false));
  std::vector<ConstantPtr> constants;
  for (const RefTensor& r : result)
    constants.push_back(r.ints.empty() ? Constant::OfDoubles(r.dtype, r.shape, r.value)
                                       : Constant::OfWords(r.dtype, r.shape, r.ints));
  return constants;
}

StatusOr<Evaluation> EvaluateModel(const Graph& g, std::vector<RefTensor> inputs,
                                   const EvaluateOptions& options) {
  if (inputs.size() != g.inputs.size())
    return InvalidArgument("{} inputs, the graph has {}", inputs.size(), g.inputs.size());
  Evaluation e;
  e.values.resize(g.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& t = g.type(g.inputs[i]);
    if (inputs[i].shape != t.shape || inputs[i].size() != t.num_elements()) {
      return InvalidArgument("input '{}' is [{}], not {}", g.values[g.inputs[i]].name,
                             fmt::join(inputs[i].shape, ","), t.ToString());
    }
    e.values[g.inputs[i]] = std::move(inputs[i]);
  }
  std::vector<int> last(g.values.size(), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    for (ValueId v : g.nodes[i].inputs) {
      if (v != kNoValue) last[v] = static_cast<int>(i);
    }
  }
  for (const GraphOutput& o : g.outputs) {
    last[o.value] = static_cast<int>(g.nodes.size());
    if (g.constant(o.value)) e.values[o.value] = ToRef(*g.constant(o.value));
  }
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    std::vector<const RefTensor*> in;
    for (ValueId v : n.inputs) {
      if (v != kNoValue && g.constant(v) && e.values[v].value.empty())
        e.values[v] = ToRef(*g.constant(v));
      in.push_back(v == kNoValue ? nullptr : &e.values[v]);
    }
    auto out = EvaluateOp(g.View(n), in, options.want_err);
    if (!out.ok())
      return Annotate(out.status(), fmt::format("node '{}' ({})", n.label, n.op->name));
    for (size_t k = 0; k < out->size(); ++k) e.values[n.outputs[k]] = std::move((*out)[k]);
    for (ValueId v : n.inputs) {
      const bool keep =
          v == kNoValue || last[v] != static_cast<int>(i) || (options.keep_all && !g.constant(v));
      if (!keep) e.values[v] = {};
    }
  }
  return e;
}

}  // namespace whet::graph
