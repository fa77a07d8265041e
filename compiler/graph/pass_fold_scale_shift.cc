// y = x * k + s with constant k and s, per channel or for all: BatchNormalization with constant
// parameters (k = scale / sqrt(variance + epsilon), s = shift - mean * k), Mul, Div, Add and Sub
// with a constant. With a contraction whose weights w and bias b are constant on either side:
//   after Conv, ConvTranspose, Gemm    w' = w * k (by output channel), b' = b * k + s
//   before Conv                        w' = w * k (by input channel), b' = b + sum w * s, the
//   latter
//                                      only without padding, whose zeros have not been shifted
//   after MatMul, without a shift      w' = w * k
// and among themselves:
//   (x * a) * b = x * (a * b)     (x + a) + b = x + (a + b)     (x * a + b) * c = x * (a*c) + (b*c)
// BatchNormalization elsewhere becomes Mul and Add. Only what has no other reader is folded, in
// f64, rounded once, and only where the rounded constants can stand for the exact ones. Large
// weights that others read too are not copied.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

struct ScaleShift {
  ValueId x = kNoValue;
  // One element, or one per index of dimension `axis` of x.
  std::vector<double> k = {1}, s = {0};
  int axis = -1;
  bool scales = false, shifts = false;
  double K(size_t c) const { return k.size() == 1 ? k[0] : k[c]; }
  double S(size_t c) const { return s.size() == 1 ? s[0] : s[c]; }
};

bool IsFoldable(DType t) { return t == DType::kF32 || t == DType::kF64; }

// Of weights that others read too, as many elements are copied (64 KiB of f32).
constexpr int64_t kSmallWeights = 1 << 14;

// What f64 arithmetic made of shifts is finite as values of the type too.
bool AreShifts(DType t, const std::vector<double>& v) {
  return std::all_of(v.begin(), v.end(), [t](double d) { return std::isfinite(RoundTo(t, d)); });
}
// Nor has a factor become zero: what it multiplies may be large.
bool AreScales(DType t, const std::vector<double>& v) {
  return std::all_of(v.begin(), v.end(), [t](double d) {
    const double rounded = RoundTo(t, d);
    return std::isfinite(rounded) && (rounded != 0 || d == 0);
  });
}
bool AreRepresentable(DType t, const ScaleShift& f) {
  return AreScales(t, f.k) && AreShifts(t, f.s);
}

// The elements of a constant that broadcasts into `x` along one dimension at most.
std::optional<std::vector<double>> PerChannel(const PatternRewriter& r, ValueId c,
                                              const TensorType& x, int* axis) {
  const std::vector<int64_t>& shape = r.type(c).shape;
  if (shape.size() > x.shape.size()) return std::nullopt;
  *axis = -1;
  const size_t skip = x.shape.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (*axis >= 0 || shape[d] != x.shape[d + skip]) return std::nullopt;
    *axis = static_cast<int>(d + skip);
  }
  return r.constant(c)->Doubles();
}

std::optional<ScaleShift> FromBatchNorm(const PatternRewriter& r, const Node& n) {
  for (size_t i = 1; i < n.inputs.size(); ++i) {
    if (!r.constant(n.inputs[i])) return std::nullopt;
  }
  auto p = [&](int i) { return r.constant(n.inputs[i])->Doubles(); };
  const std::vector<double> scale = p(1), shift = p(2), mean = p(3), variance = p(4);
  ScaleShift f{n.inputs[0], {}, {}, 1, true, true};
  for (size_t c = 0; c < scale.size(); ++c) {
    f.k.push_back(scale[c] / std::sqrt(variance[c] + n.attrs.Float("epsilon")));
    f.s.push_back(shift[c] - mean[c] * f.k[c]);
  }
  return f;
}

std::optional<ScaleShift> AsScaleShift(const PatternRewriter& r, const Node& n) {
  if (!IsFoldable(r.type(n.outputs[0]).dtype)) return std::nullopt;
  const DType type = r.type(n.outputs[0]).dtype;
  if (n.op->name == "BatchNormalization") {
    auto f = FromBatchNorm(r, n);
    if (f && !AreRepresentable(type, *f)) return std::nullopt;
    return f;
  }
  const bool mul = n.op->name == "Mul", div = n.op->name == "Div", add = n.op->name == "Add",
             sub = n.op->name == "Sub";
  if (!mul && !div && !add && !sub) return std::nullopt;
  const auto split = SplitConstant(r, n);
  if (!split || (split->constant_first && (div || sub)) ||
      r.type(split->x).shape != r.type(n.outputs[0]).shape)
    return std::nullopt;
  ScaleShift f;
  f.x = split->x;
  auto values = PerChannel(r, split->constant, r.type(f.x), &f.axis);
  if (!values) return std::nullopt;
  for (double& v : *values) v = div ? 1 / v : sub ? -v : v;
  f.scales = mul || div;
  f.shifts = !f.scales;
  (f.scales ? f.k : f.s) = *std::move(values);
  if (!AreRepresentable(type, f)) return std::nullopt;
  return f;
}

// Element i of a weight tensor belongs to this index of the dimension that is scaled.
using ChannelOf = std::function<size_t(size_t)>;

// None where they are no values of the type, or would be a copy of large ones.
std::optional<ValueId> Scaled(PatternRewriter& r, ValueId w, const ScaleShift& f,
                              const ChannelOf& channel) {
  if (!f.scales) return w;
  const TensorType type = r.type(w);
  if (!r.Alone(w) && type.num_elements() > kSmallWeights) return std::nullopt;
  // Of a weight that is next to zero, training left nothing that matters.
  const double tiny = type.dtype == DType::kF32 ? 0x1.0p-126 : 0x1.0p-1022;
  std::vector<double> values = r.constant(w)->Doubles();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool counts = std::fabs(values[i]) >= tiny;
    values[i] *= f.K(channel(i));
    if (!counts) values[i] = RoundTo(type.dtype, values[i]);
  }
  if (!AreScales(type.dtype, values)) return std::nullopt;
  return r.Constant(r.graph().values[w].name + "_scaled", type.dtype, type.shape, values);
}

// b * k + s; kNoValue when there is neither, none where it is no value of the type.
std::optional<ValueId> FoldedBias(PatternRewriter& r, ValueId w, ValueId bias, int64_t channels,
                                  const ScaleShift& f) {
  if (bias == kNoValue && !f.shifts) return kNoValue;
  std::vector<double> b = bias != kNoValue ? r.constant(bias)->Doubles()
                                           : std::vector<double>(static_cast<size_t>(channels), 0);
  for (size_t c = 0; c < b.size(); ++c) b[c] = b[c] * f.K(c) + f.S(c);
  if (!AreShifts(r.type(w).dtype, b)) return std::nullopt;
  return r.Constant(r.graph().values[w].name + "_bias", r.type(w).dtype, {channels}, b);
}

// What of a contraction's node is needed to fold into it; by value, since new nodes move old ones.
struct Contraction {
  std::string op, label;
  Attrs attrs;
  ValueId x = kNoValue, w = kNoValue, bias = kNoValue;
};

std::optional<Contraction> ContractionAt(const PatternRewriter& r, ValueId v) {
  const Node* n = r.Producer(v);
  if (n == nullptr || !r.Alone(v)) return std::nullopt;
  Contraction c{n->op->name, n->label, n->attrs, n->inputs[0], kNoValue, kNoValue};
  if (c.op != "Conv" && c.op != "ConvTranspose" && c.op != "Gemm" && c.op != "MatMul")
    return std::nullopt;
  c.w = n->inputs[1];
  if (n->inputs.size() > 2) c.bias = n->inputs[2];
  if (!r.constant(c.w) || !IsFoldable(r.type(c.w).dtype)) return std::nullopt;
  if (c.bias != kNoValue && !r.constant(c.bias)) return std::nullopt;
  return c;
}

// Into what computes f.x.
bool FoldBackwards(PatternRewriter& r, Node& n, const ScaleShift& f) {
  const auto c = ContractionAt(r, f.x);
  if (!c) return false;
  const std::vector<int64_t> w = r.type(c->w).shape;
  const int rank = r.type(f.x).rank();
  ChannelOf channel;
  int64_t channels = 0;
  if (c->op == "Conv") {
    channels = w[0];
    const auto per = static_cast<size_t>(w[1] * w[2] * w[3]);
    channel = [per](size_t i) { return i / per; };
  } else if (c->op == "ConvTranspose") {
    const int64_t group = c->attrs.Int("group");
    channels = w[1] * group;
    const auto window = static_cast<size_t>(w[2] * w[3]), out = static_cast<size_t>(w[1]),
               in = static_cast<size_t>(w[0] / group);
    channel = [=](size_t i) { return i / (window * out * in) * out + i / window % out; };
  } else {
    const bool transposed = c->op == "Gemm" && c->attrs.Int("transB") != 0;
    if (w.size() != 2) return false;
    channels = w[transposed ? 0 : 1];
    const auto columns = static_cast<size_t>(w[1]);
    channel = [=](size_t i) { return transposed ? i / columns : i % columns; };
    if (c->op == "MatMul" && f.shifts) return false;
    if (c->op == "Gemm" && (c->attrs.Float("alpha") != 1 || c->attrs.Float("beta") != 1))
      return false;
  }
  const bool by_last = c->op == "Gemm" || c->op == "MatMul";
  if (f.axis >= 0 && f.axis != (by_last ? rank - 1 : 1)) return false;
  if (c->bias != kNoValue && r.type(c->bias).shape != std::vector<int64_t>{channels}) return false;
  const auto scaled = Scaled(r, c->w, f, channel);
  const auto bias = FoldedBias(r, c->w, c->bias, channels, f);
  if (!scaled || !bias) return false;
  std::vector<ValueId> inputs = {c->x, *scaled};
  if (*bias != kNoValue) inputs.push_back(*bias);
  if (!r.Become(n, c->op, std::move(inputs), c->attrs)) return false;
  n.label = JoinLabels(c->label, n.label);
  return true;
}

bool HasNoPadding(const std::vector<int64_t>& v) {
  for (int64_t p : v) {
    if (p != 0) return false;
  }
  return true;
}

// A convolution takes in what is done to its input.
bool FoldForwards(PatternRewriter& r, Node& n) {
  const Node* before = r.Producer(n.inputs[0]);
  if (before == nullptr || !r.Alone(n.inputs[0]) || !r.constant(n.inputs[1])) return false;
  const ValueId bias = n.inputs.size() > 2 ? n.inputs[2] : kNoValue;
  if (bias != kNoValue && !r.constant(bias)) return false;
  const auto f = AsScaleShift(r, *before);
  if (!f || f->axis > 1 || f->axis == 0) return false;
  if (f->shifts && !HasNoPadding(n.attrs.Ints("pads"))) return false;
  const std::string label = before->label;
  const ValueId w = n.inputs[1];
  const std::vector<int64_t> shape = r.type(w).shape;
  const int64_t group = n.attrs.Int("group");
  const auto window = static_cast<size_t>(shape[2] * shape[3]), in = static_cast<size_t>(shape[1]),
             per_group = static_cast<size_t>(shape[0] / group);
  const ChannelOf channel = [=](size_t i) {
    return i / (window * in * per_group) * in + i / window % in;
  };
  std::vector<ValueId> inputs = n.inputs;
  const auto scaled = Scaled(r, w, *f, channel);
  if (!scaled) return false;
  if (f->shifts) {
    const std::vector<double> values = r.constant(w)->Doubles();
    std::vector<double> b = bias != kNoValue ? r.constant(bias)->Doubles()
                                             : std::vector<double>(static_cast<size_t>(shape[0]));
    for (size_t i = 0; i < values.size(); ++i) b[i / (window * in)] += values[i] * f->S(channel(i));
    if (!AreShifts(r.type(w).dtype, b)) return false;
    inputs.resize(3);
    inputs[2] = r.Constant(r.graph().values[w].name + "_bias", r.type(w).dtype, {shape[0]}, b);
  }
  inputs[1] = *scaled;
  inputs[0] = f->x;
  if (!r.Become(n, "Conv", std::move(inputs), n.attrs)) return false;
  n.label = JoinLabels(label, n.label);
  return true;
}

// The shape of a per-channel constant that broadcasts into rank `rank`.
std::vector<int64_t> ChannelShape(size_t elements, int axis, int rank) {
  if (elements == 1) return {};
  std::vector<int64_t> shape(static_cast<size_t>(rank - axis), 1);
  shape[0] = static_cast<int64_t>(elements);
  return shape;
}

bool WriteMulAdd(PatternRewriter& r, Node& n, const ScaleShift& f) {
  const TensorType type = r.type(f.x);
  if (!AreRepresentable(type.dtype, f)) return false;
  const ValueId k = r.Constant(n.label + "_scale", type.dtype,
                               ChannelShape(f.k.size(), f.axis, type.rank()), f.k);
  const ValueId s = r.Constant(n.label + "_shift", type.dtype,
                               ChannelShape(f.s.size(), f.axis, type.rank()), f.s);
  const auto scaled = r.Emit("Mul", {f.x, k}, {}, n.label + "_scaled");
  return scaled && r.Become(n, "Add", {*scaled, s});
}

// `second` after `first`, with x of the first.
std::optional<ScaleShift> Compose(const ScaleShift& first, const ScaleShift& second) {
  if (first.axis >= 0 && second.axis >= 0 && first.axis != second.axis) return std::nullopt;
  ScaleShift f{first.x,
               {},
               {},
               std::max(first.axis, second.axis),
               first.scales || second.scales,
               first.shifts || second.shifts};
  const size_t nk = std::max(first.k.size(), second.k.size());
  const size_t ns = std::max({first.s.size(), second.s.size(), f.shifts ? second.k.size() : 1});
  for (size_t c = 0; c < nk; ++c) f.k.push_back(first.K(c) * second.K(c));
  for (size_t c = 0; c < ns; ++c) f.s.push_back(first.S(c) * second.K(c) + second.S(c));
  return f;
}

bool MergeScaleShift(PatternRewriter& r, Node& n, const ScaleShift& second) {
  const Node* before = r.Producer(second.x);
  if (before == nullptr || !r.Alone(second.x)) return false;
  const auto first = AsScaleShift(r, *before);
  if (!first) return false;
  auto both = Compose(*first, second);
  if (!both) return false;
  if (both->scales && both->shifts) {
    // Only where the multiplication goes into one that is there already.
    const Node* above = r.Producer(first->x);
    if (!first->shifts || first->scales || !second.scales || above == nullptr ||
        !r.Alone(first->x) || above->op->name != "Mul")
      return false;
    const auto zeroth = AsScaleShift(r, *above);
    if (!zeroth) return false;
    both = Compose(*zeroth, *both);
    if (!both) return false;
    return WriteMulAdd(r, n, *both);
  }
  const TensorType type = r.type(both->x);
  if (!AreRepresentable(type.dtype, *both)) return false;
  const std::vector<double>& values = both->scales ? both->k : both->s;
  const ValueId c = r.Constant(n.label + (both->scales ? "_scale" : "_shift"), type.dtype,
                               ChannelShape(values.size(), both->axis, type.rank()), values);
  return r.Become(n, both->scales ? "Mul" : "Add", {both->x, c});
}

bool FoldScaleShiftNode(PatternRewriter& r, Node& n) {
  if (n.op->name == "Conv") {
    bool changed = false;
    while (true) {
      if (!FoldForwards(r, n)) return changed;
      changed = true;
    }
  }
  const auto f = AsScaleShift(r, n);
  if (!f) return false;
  if (FoldBackwards(r, n, *f)) return true;
  if (n.op->name == "BatchNormalization") return WriteMulAdd(r, n, *f);
  return MergeScaleShift(r, n, *f);
}

}  // namespace

StatusOr<bool> FoldScaleShift(Graph& g) { return PatternRewriter(g).Run(FoldScaleShiftNode); }

}  // namespace whet::graph
