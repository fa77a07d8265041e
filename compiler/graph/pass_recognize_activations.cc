// Activations that exporters write out, as the operators they are:
//   Min(Max(x, a), b), Max(Min(x, b), a)                    -> Clip(x, a, b)
//   Clip(x + b, 0, h) / h   (or * 1/h)                      -> HardSigmoid(x), alpha 1/h, beta b/h
//   Clip(x * a + b, 0, 1)                                   -> HardSigmoid(x)
//   x * HardSigmoid(x, 1/6, 1/2), x * Clip(x + 3, 0, 6) / 6 -> HardSwish(x)
//   Relu(x) - a * Relu(-x), Max(x, 0) + a * Min(x, 0)       -> PRelu(x, a)
//   x * 0.5 * (1 + Erf(x / sqrt 2)), in any order           -> Gelu(x), where the catalog has it
//   Pow(x, 2) -> x * x;  x * 1, x / 1, x + 0, x - 0, Pow(x, 1) -> x
// Constants may be off by what their decimal text loses (kClose).
#include <cmath>

#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

constexpr double kClose = 3e-7;
bool Near(double a, double b) { return std::fabs(a - b) <= kClose * std::fabs(b); }

// An operator with one scalar constant operand.
struct ScalarOp {
  ValueId x = kNoValue;
  double c = 0;
  bool constant_first = false;
};
std::optional<ScalarOp> SplitScalar(const PatternRewriter& r, const Node* n, std::string_view op) {
  if (n == nullptr || n->op->name != op) return std::nullopt;
  const auto split = SplitConstant(r, *n);
  if (!split || r.type(split->x).shape != r.type(n->outputs[0]).shape) return std::nullopt;
  const auto c = r.Scalar(split->constant);
  if (!c) return std::nullopt;
  return ScalarOp{split->x, *c, split->constant_first};
}

// v == x * c, or x / (1 / c).
std::optional<ScalarOp> AsScaled(const PatternRewriter& r, const Node* n) {
  if (auto m = SplitScalar(r, n, "Mul")) return m;
  auto d = SplitScalar(r, n, "Div");
  if (!d || d->constant_first || d->c == 0) return std::nullopt;
  d->c = 1 / d->c;
  return d;
}

std::optional<ScalarOp> AsShifted(const PatternRewriter& r, const Node* n) {
  if (auto a = SplitScalar(r, n, "Add")) return a;
  auto s = SplitScalar(r, n, "Sub");
  if (!s || s->constant_first) return std::nullopt;
  s->c = -s->c;
  return s;
}

bool MinMaxToClip(PatternRewriter& r, Node& n) {
  const bool min_outside = n.op->name == "Min";
  const auto outer = SplitScalar(r, &n, min_outside ? "Min" : "Max");
  if (!outer) return false;
  const Node* inside = r.Producer(outer->x);
  const auto inner = SplitScalar(r, inside, min_outside ? "Max" : "Min");
  if (!inner || !IsFloat(r.type(inner->x).dtype)) return false;
  const double low = min_outside ? inner->c : outer->c, high = min_outside ? outer->c : inner->c;
  if (!(low <= high)) return false;
  return r.Become(n, "Clip", {inner->x}, {{"min", low}, {"max", high}});
}

struct ClipOf {
  ValueId x = kNoValue;
  double low = 0, high = 0;
};
std::optional<ClipOf> AsClip(const Node* n) {
  if (n == nullptr || n->op->name != "Clip") return std::nullopt;
  return ClipOf{n->inputs[0], n->attrs.Float("min"), n->attrs.Float("max")};
}

// Clip(x + b, 0, h) of `v`: x, b and h.
struct Ramp {
  ValueId x = kNoValue;
  double b = 0, h = 0;
};
std::optional<Ramp> AsRamp(const PatternRewriter& r, ValueId v) {
  const auto clip = AsClip(r.Producer(v));
  if (!clip || clip->low != 0 || !(clip->high > 0) || !std::isfinite(clip->high))
    return std::nullopt;
  const auto shifted = AsShifted(r, r.Producer(clip->x));
  if (!shifted) return std::nullopt;
  return Ramp{shifted->x, shifted->c, clip->high};
}

bool ToHardSigmoid(PatternRewriter& r, Node& n) {
  if (!IsFloat(r.type(n.outputs[0]).dtype)) return false;
  if (const auto scaled = AsScaled(r, &n)) {
    const auto ramp = AsRamp(r, scaled->x);
    if (!ramp || !Near(scaled->c * ramp->h, 1)) return false;
    return r.Become(n, "HardSigmoid", {ramp->x},
                    {{"alpha", 1 / ramp->h}, {"beta", ramp->b / ramp->h}});
  }
  if (n.op->name != "Clip") return false;
  const auto ramp = n.attrs.Float("min") == 0 && n.attrs.Float("max") == 1
                        ? AsShifted(r, r.Producer(n.inputs[0]))
                        : std::nullopt;
  const auto scaled = ramp ? AsScaled(r, r.Producer(ramp->x)) : std::nullopt;
  if (!scaled) return false;
  return r.Become(n, "HardSigmoid", {scaled->x}, {{"alpha", scaled->c}, {"beta", ramp->c}});
}

bool ToHardSwish(PatternRewriter& r, Node& n) {
  if (!IsFloat(r.type(n.outputs[0]).dtype)) return false;
  // x * HardSigmoid(x)
  if (n.op->name == "Mul") {
    for (int i : {0, 1}) {
      const Node* gate = r.Producer(n.inputs[1 - i], "HardSigmoid");
      if (gate == nullptr || gate->inputs[0] != n.inputs[i]) continue;
      if (!Near(gate->attrs.Float("alpha"), 1.0 / 6) || !Near(gate->attrs.Float("beta"), 0.5))
        continue;
      return r.Become(n, "HardSwish", {n.inputs[i]});
    }
  }
  // (x * Clip(x + 3, 0, 6)) / 6
  const auto scaled = AsScaled(r, &n);
  if (!scaled || !Near(scaled->c, 1.0 / 6)) return false;
  const Node* product = r.Producer(scaled->x, "Mul");
  if (product == nullptr) return false;
  for (int i : {0, 1}) {
    const auto ramp = AsRamp(r, product->inputs[1 - i]);
    if (!ramp || ramp->x != product->inputs[i] || ramp->b != 3 || ramp->h != 6) continue;
    return r.Become(n, "HardSwish", {ramp->x});
  }
  return false;
}

// Relu(x) or Max(x, 0), or the Min likewise.
ValueId HalfOf(const PatternRewriter& r, ValueId v, bool positive) {
  if (positive) {
    if (const Node* relu = r.Producer(v, "Relu")) return relu->inputs[0];
  }
  const auto half = SplitScalar(r, r.Producer(v), positive ? "Max" : "Min");
  return half && half->c == 0 ? half->x : kNoValue;
}

// a * Min(x, 0), or (-a) * Relu(-x): x, and the constant with its sign.
struct NegativeHalf {
  ValueId x = kNoValue, slope = kNoValue;
  bool negated = false;
};
std::optional<NegativeHalf> AsNegativeHalf(const PatternRewriter& r, ValueId v) {
  const Node* mul = r.Producer(v, "Mul");
  const auto split = mul ? SplitConstant(r, *mul) : std::nullopt;
  if (!split || r.type(split->x).shape != r.type(v).shape) return std::nullopt;
  if (const ValueId x = HalfOf(r, split->x, false); x != kNoValue)
    return NegativeHalf{x, split->constant, false};
  const ValueId negative = HalfOf(r, split->x, true);
  const Node* neg = r.Producer(negative, "Neg");
  if (neg != nullptr) return NegativeHalf{neg->inputs[0], split->constant, true};
  const auto minus = AsScaled(r, r.Producer(negative));
  if (!minus || minus->c != -1) return std::nullopt;
  return NegativeHalf{minus->x, split->constant, true};
}

bool ToPRelu(PatternRewriter& r, Node& n) {
  const bool sub = n.op->name == "Sub";
  if (!sub && n.op->name != "Add") return false;
  for (int i : {0, 1}) {
    if (sub && i == 1) break;
    const ValueId x = HalfOf(r, n.inputs[i], true);
    const auto low = x == kNoValue ? std::nullopt : AsNegativeHalf(r, n.inputs[1 - i]);
    if (!low || low->x != x || !IsFloat(r.type(x).dtype)) continue;
    ValueId slope = low->slope;
    if (low->negated != sub) {
      std::vector<double> values = r.constant(slope)->Doubles();
      for (double& v : values) v = -v;
      const TensorType t = r.type(slope);
      slope = r.Constant(n.label + "_slope", t.dtype, t.shape, values);
    }
    return r.Become(n, "PRelu", {x, slope});
  }
  return false;
}

// The factors of a product, scalars multiplied into `c`.
void Factors(const PatternRewriter& r, ValueId v, int depth, double* c, std::vector<ValueId>* out) {
  const Node* n = r.Producer(v);
  if (const auto scaled = AsScaled(r, n)) {
    *c *= scaled->c;
    return Factors(r, scaled->x, depth, c, out);
  }
  if (n != nullptr && n->op->name == "Mul" && depth > 0) {
    Factors(r, n->inputs[0], depth - 1, c, out);
    Factors(r, n->inputs[1], depth - 1, c, out);
    return;
  }
  out->push_back(v);
}

bool ToGelu(PatternRewriter& r, Node& n) {
  if (n.op->name != "Mul") return false;
  double c = 1;
  std::vector<ValueId> factors;
  if (const auto scaled = AsScaled(r, &n)) {
    c = scaled->c;
    Factors(r, scaled->x, 1, &c, &factors);
  } else {
    Factors(r, n.inputs[0], 1, &c, &factors);
    Factors(r, n.inputs[1], 1, &c, &factors);
  }
  if (factors.size() != 2 || !Near(c, 0.5)) return false;
  for (int i : {0, 1}) {
    const auto shifted = AsShifted(r, r.Producer(factors[1 - i]));
    const Node* erf = shifted && shifted->c == 1 ? r.Producer(shifted->x, "Erf") : nullptr;
    const auto scaled = erf ? AsScaled(r, r.Producer(erf->inputs[0])) : std::nullopt;
    if (!scaled || scaled->x != factors[i] || !Near(scaled->c, std::sqrt(0.5))) continue;
    if (r.type(factors[i]).shape != r.type(n.outputs[0]).shape) continue;
    return r.Become(n, "Gelu", {factors[i]});
  }
  return false;
}

bool SimplifyArithmetic(PatternRewriter& r, Node& n) {
  const auto scaled = AsScaled(r, &n);
  const auto shifted = AsShifted(r, &n);
  const auto power = SplitScalar(r, &n, "Pow");
  if ((scaled && scaled->c == 1) || (shifted && shifted->c == 0) ||
      (power && !power->constant_first && power->c == 1)) {
    return r.ReplaceBy(n, scaled ? scaled->x : shifted ? shifted->x : power->x);
  }
  if (power && !power->constant_first && power->c == 2) {
    return r.Become(n, "Mul", {power->x, power->x});
  }
  return false;
}

bool RecognizeActivation(PatternRewriter& r, Node& n) {
  for (auto pattern :
       {SimplifyArithmetic, MinMaxToClip, ToHardSigmoid, ToHardSwish, ToPRelu, ToGelu}) {
    if (pattern(r, n)) return true;
  }
  return false;
}

}  // namespace

StatusOr<bool> RecognizeActivations(Graph& g) {
  return PatternRewriter(g).Run(RecognizeActivation);
}

}  // namespace whet::graph
