// Quantized models in the form Dequantize -> float operator -> Quantize, made integer:
//   Conv(DQ(x), DQ(w)) + b       -> DQ(ConvInteger(x, w) + b'), b' = b / (x_scale * w_scale) where
//                                   that is integral; MatMul and Gemm likewise
//   Q(clip(DQ(i32 sum) + b))     -> Requantize(sum + b') with the clipping as the range of the
//   result move(DQ(x))                  -> DQ(move(x)) for pools by maximum and operators that move
//   data Q(DQ(x)), the same scale     -> x
// The sums are exact: a product whose sum could leave i32 stays a float one; what changes against
// the float form are roundings of the order of 2^-23 of a value before it is rounded to the
// integer, so results differ by one quantum at most, and only next to a tie. Sums of residuals,
// averages and everything else stay float between DQ and Q, which fuse into their neighbours'
// kernels.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

using Shape = std::vector<int64_t>;

// How far a bias may be from a multiple of the sum's scale, as a part of itself and in multiples: a
// bias that was quantized has been rounded to f32 in between.
constexpr double kBiasRelative = 1e-6;
constexpr double kBiasAbsolute = 1e-3;
// From here on every number is next to an integer by that measure.
constexpr double kBiasLimit = 0.25 / kBiasRelative;

// Sums are less than this in magnitude.
constexpr double kSumLimit = 0x1.0p31;

// A bias that was not quantized is rounded to a sum's scale that is at most this part of a quantum
// of the result: of 500 results one may round differently.
constexpr double kFinerThan = 1.0 / 256;

// What copies elements of its first input and makes none of its own.
constexpr std::string_view kMoves[] = {"BorderPad", "DepthToSpace",  "Expand", "Gather",
                                       "Reshape",   "ResizeNearest", "Slice",  "Transpose"};

// A DequantizeLinear of 8-bit integers.
struct Dequantized {
  ValueId x = kNoValue, scale = kNoValue, zero = kNoValue;
};

double F32(double v) { return static_cast<double>(static_cast<float>(v)); }

int64_t CountOf(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

class QdqPass {
 public:
  explicit QdqPass(Graph& g) : r_(g) {}
  StatusOr<bool> Run() {
    return r_.Run([this](PatternRewriter& r, Node& n) {
      const Replacement y = n.outputs.size() == 1 ? Replace(n) : std::nullopt;
      return y && r.ReplaceBy(n, *y);
    });
  }

 private:
  // What is read instead of the output of a node.
  using Replacement = std::optional<ValueId>;

  ConstantPtr Const(ValueId v) const { return v == kNoValue ? nullptr : r_.constant(v); }
  // By value: what is emitted moves the graph's values.
  Shape ShapeOf(ValueId v) const { return r_.type(v).shape; }
  DType TypeOf(ValueId v) const { return r_.type(v).dtype; }

  Replacement Replace(const Node& n) {
    const std::string& op = n.op->name;
    if (op == "Conv") return Contraction(n);
    if (op == "MatMul") return Contraction(n);
    if (op == "Gemm") return Gemm(n);
    if (op == "QuantizeLinear") return Quantize(n);
    if (op == "Concat") return Concat(n);
    if (op == "MaxPool" || op == "Pad" ||
        std::find(std::begin(kMoves), std::end(kMoves), op) != std::end(kMoves))
      return Move(n);
    return std::nullopt;
  }

  std::optional<Dequantized> Dequantize(ValueId v) const {
    const Node* p = r_.Producer(v, "DequantizeLinear");
    if (p == nullptr) return std::nullopt;
    const DType t = TypeOf(p->inputs[0]);
    const bool eight = t == DType::kU8 || t == DType::kI8;
    if (!eight || TypeOf(v) != DType::kF32 || !Const(p->inputs[1])) return std::nullopt;
    Dequantized d{p->inputs[0], p->inputs[1], p->inputs.size() > 2 ? p->inputs[2] : kNoValue};
    // A zero point of zero says nothing.
    if (const ConstantPtr zero = Const(d.zero); zero && zero->AllEqual(0)) d.zero = kNoValue;
    return d;
  }

  bool PerTensor(const Dequantized& d) const {
    return CountOf(ShapeOf(d.scale)) == 1 && (d.zero == kNoValue || CountOf(ShapeOf(d.zero)) == 1);
  }

  // The scale of an operand whose only dimension that varies is `axis`, as a vector; empty: none.
  std::vector<double> ScaleAlong(const Dequantized& d, int64_t axis) const {
    Shape s = ShapeOf(d.scale);
    const Shape x = ShapeOf(d.x);
    s.insert(s.begin(), x.size() - s.size(), 1);
    for (int64_t i = 0; i < static_cast<int64_t>(s.size()); ++i) {
      if (i != axis && s[i] != 1) return {};
    }
    return Const(d.scale)->Doubles();
  }

  // ---- contractions

  // The largest |v - zero|, by the values of a constant and by the type of anything else.
  double Reach(ValueId v, ValueId zero) const {
    const double least = TypeOf(v) == DType::kU8 ? 0 : -128;
    std::vector<double> ends = {least, least + 255}, zeros = {0};
    auto extremes = [](const std::vector<double>& of) {
      const auto [lo, hi] = std::minmax_element(of.begin(), of.end());
      return std::vector<double>{*lo, *hi};
    };
    if (const ConstantPtr c = Const(v); c && c->num_elements() > 0) ends = extremes(c->Doubles());
    if (zero != kNoValue) zeros = {least, least + 255};
    if (const ConstantPtr c = Const(zero); c && c->num_elements() > 0)
      zeros = extremes(c->Doubles());
    double most = 0;
    for (double e : ends) {
      for (double z : zeros) most = std::max(most, std::fabs(e - z));
    }
    return most;
  }

  // What a sum of `terms` products cannot exceed.
  double Bound(const Dequantized& x, const Dequantized& w, int64_t terms) const {
    return static_cast<double>(terms) * Reach(x.x, x.zero) * Reach(w.x, w.zero);
  }
  // What this pass knows of a sum, or what the operands say of one that the model has itself.
  double BoundOf(ValueId sum) const {
    if (const auto it = bounds_.find(sum); it != bounds_.end()) return it->second;
    const Node* n = r_.Producer(sum);
    const bool conv = n != nullptr && n->op->name == "ConvInteger";
    if (!conv && (n == nullptr || n->op->name != "MatMulInteger")) return kSumLimit;
    const auto zero = [&](size_t i) { return i < n->inputs.size() ? n->inputs[i] : kNoValue; };
    const Shape w = ShapeOf(n->inputs[1]);
    const int64_t terms = conv ? CountOf(w) / w[0] : ShapeOf(n->inputs[0]).back();
    return static_cast<double>(terms) * Reach(n->inputs[0], zero(2)) * Reach(n->inputs[1], zero(3));
  }

  Replacement EmitInteger(std::string_view op, const Dequantized& x, const Dequantized& w,
                          double bound, Attrs attrs) {
    std::vector<ValueId> in = {x.x, w.x};
    ValueId x_zero = x.zero;
    if (x_zero == kNoValue && w.zero != kNoValue)
      x_zero = r_.Constant("zero", TypeOf(x.x), {}, {0});
    if (x_zero != kNoValue) {
      const Replacement scalar = r_.Emit("Reshape", {x_zero}, {{"shape", Shape{}}});
      if (!scalar) return std::nullopt;
      in.push_back(*scalar);
    }
    if (w.zero != kNoValue) in.push_back(w.zero);
    const Replacement sum = r_.Emit(op, std::move(in), std::move(attrs));
    if (sum) bounds_[*sum] = bound;
    return sum;
  }

  // A sum and integers along its channels.
  Replacement EmitBiased(ValueId sum, const Shape& shape, const std::vector<double>& bias) {
    const double bound = BoundOf(sum) + LargestOf(bias);
    const ValueId c = r_.Constant("bias", DType::kI32, shape, bias);
    const Replacement y = r_.Emit("Add", {sum, c});
    if (y) bounds_[*y] = bound;
    return y;
  }

  static double LargestOf(const std::vector<double>& v) {
    double most = 0;
    for (double d : v) most = std::max(most, std::fabs(d));
    return most;
  }

  // A bias that is a constant, or dequantized from constants.
  struct Bias {
    std::vector<double> values;  // empty: neither
    // What it was dequantized from: i32 without a zero point, and one scale or as many.
    std::vector<double> integers, scale;
    double ScaleAt(size_t i) const { return scale[scale.size() == 1 ? 0 : i]; }
  };
  Bias BiasOf(ValueId bias) const {
    if (const ConstantPtr c = Const(bias)) return {c->Doubles(), {}, {}};
    const Node* p = r_.Producer(bias, "DequantizeLinear");
    if (p == nullptr) return {};
    const ConstantPtr q = Const(p->inputs[0]), s = Const(p->inputs[1]);
    if (!q || !s ||
        (p->inputs.size() > 2 && !(Const(p->inputs[2]) && Const(p->inputs[2])->AllEqual(0))))
      return {};
    Bias b{q->Doubles(), {}, s->Doubles()};
    if (b.scale.size() != 1 && b.scale.size() != b.values.size()) return {};
    if (q->dtype() == DType::kI32) b.integers = b.values;
    for (size_t i = 0; i < b.values.size(); ++i) b.values[i] *= b.ScaleAt(i);
    return b;
  }

  // b / scale where that is integral.
  std::optional<std::vector<double>> IntegerBias(const Bias& bias,
                                                 const std::vector<double>& scale) {
    std::vector<double> q;
    for (size_t i = 0; i < bias.values.size(); ++i) {
      const double s = scale[scale.size() == 1 ? 0 : i];
      // Its own integers, where they are multiples of the same scale.
      if (!bias.integers.empty() &&
          std::fabs(bias.ScaleAt(i) - s) <= kBiasRelative * std::fabs(s)) {
        q.push_back(bias.integers[i]);
        continue;
      }
      const double exact = bias.values[i] / s;
      const double whole = std::nearbyint(exact);
      const bool close =
          std::fabs(exact - whole) <= kBiasAbsolute + kBiasRelative * std::fabs(exact);
      if (!close || std::fabs(exact) > kBiasLimit) return std::nullopt;
      q.push_back(whole);
    }
    return q;
  }

  // scale * (sum + bias): `shape` is how a vector along the channels broadcasts to the sum.
  Replacement Finish(ValueId sum, const std::vector<double>& scale, const Shape& shape,
                     ValueId bias) {
    const Shape of_scale = scale.size() == 1 ? Shape{} : shape;
    const Bias b = bias == kNoValue ? Bias() : BiasOf(bias);
    // A vector along the channels; Gemm also takes what broadcasts in another way.
    const bool per_channel = bias != kNoValue && ShapeOf(bias) == Shape{CountOf(shape)};
    auto q = per_channel && !b.values.empty() ? IntegerBias(b, scale) : std::nullopt;
    if (q && !(BoundOf(sum) + LargestOf(*q) < kSumLimit)) q.reset();
    if (q) {
      const Replacement biased = EmitBiased(sum, shape, *q);
      if (!biased) return std::nullopt;
      sum = *biased;
    }
    const Replacement y =
        r_.Emit("DequantizeLinear", {sum, r_.Constant("scale", DType::kF32, of_scale, scale)});
    if (!y || bias == kNoValue || q) return y;
    if (per_channel && !b.values.empty()) {
      bias = r_.Constant("bias", DType::kF32, shape, b.values);
    } else if (per_channel) {
      const Replacement along = r_.Emit("Reshape", {bias}, {{"shape", shape}});
      if (!along) return std::nullopt;
      bias = *along;
    }
    return r_.Emit("Add", {*y, bias});
  }

  // The scale of a product, F32(x_scale * w_scale) * alpha; empty: no vector along `axis` of the
  // weights, or none that means anything.
  std::vector<double> ScaleOf(const Dequantized& x, const Dequantized& w, int64_t axis,
                              double alpha) const {
    std::vector<double> scale = ScaleAlong(w, axis);
    const double x_scale = Const(x.scale)->Doubles()[0];
    for (double& s : scale) {
      s = F32(F32(s * x_scale) * alpha);
      if (!std::isfinite(s)) return {};
    }
    return scale;
  }

  Replacement Contraction(const Node& n) {
    const auto x = Dequantize(n.inputs[0]), w = Dequantize(n.inputs[1]);
    if (!x || !w || !PerTensor(*x)) return std::nullopt;
    const bool conv = n.op->name == "Conv";
    const Shape weights = ShapeOf(w->x);
    const int64_t rank = static_cast<int64_t>(weights.size()), axis = conv ? 0 : rank - 1;
    const std::vector<double> scale = ScaleOf(*x, *w, axis, 1);
    if (scale.empty()) return std::nullopt;
    const int64_t terms = conv ? weights[1] * weights[2] * weights[3] : ShapeOf(x->x).back();
    const double bound = Bound(*x, *w, terms);
    if (!(bound < kSumLimit)) return std::nullopt;
    const ValueId bias = n.inputs.size() > 2 ? n.inputs[2] : kNoValue;
    const Replacement sum =
        EmitInteger(conv ? "ConvInteger" : "MatMulInteger", *x, *w, bound, n.attrs);
    const Shape shape = conv ? Shape{weights[0], 1, 1} : Shape{weights.back()};
    return sum ? Finish(*sum, scale, shape, bias) : std::nullopt;
  }

  Replacement Gemm(const Node& n) {
    const auto x = Dequantize(n.inputs[0]);
    auto w = Dequantize(n.inputs[1]);
    if (!x || !w || !PerTensor(*x) || n.attrs.Int("transA") != 0 || n.attrs.Float("beta") != 1)
      return std::nullopt;
    const bool transposed = n.attrs.Int("transB") != 0;
    const std::vector<double> scale = ScaleOf(*x, *w, transposed ? 0 : 1, n.attrs.Float("alpha"));
    const double bound = Bound(*x, *w, ShapeOf(x->x)[1]);
    if (scale.empty() || !(bound < kSumLimit)) return std::nullopt;
    if (transposed) {
      const Replacement turned = r_.Emit("Transpose", {w->x}, {{"perm", Shape{1, 0}}});
      if (!turned) return std::nullopt;
      w->x = *turned;
      if (w->zero != kNoValue && CountOf(ShapeOf(w->zero)) > 1) {
        const Replacement zero =
            r_.Emit("Reshape", {w->zero}, {{"shape", Shape{CountOf(ShapeOf(w->zero))}}});
        if (!zero) return std::nullopt;
        w->zero = *zero;
      }
    }
    const Shape columns = {ShapeOf(w->x)[1]};
    const ValueId bias = n.inputs.size() > 2 ? n.inputs[2] : kNoValue;
    const Replacement sum = EmitInteger("MatMulInteger", *x, *w, bound, {});
    return sum ? Finish(*sum, scale, columns, bias) : std::nullopt;
  }

  // ---- to integers

  Replacement Quantize(const Node& n) {
    const ConstantPtr s = Const(n.inputs[1]), z = Const(n.inputs[2]);
    if (!s || !z || TypeOf(n.inputs[0]) != DType::kF32) return std::nullopt;
    const DType t = z->dtype();
    const double lowest = t == DType::kU8 ? 0 : -128, highest = t == DType::kU8 ? 255 : 127;
    double lo = lowest, hi = highest;
    ValueId v = n.inputs[0];
    const double quantum = s->num_elements() == 1 ? s->Doubles()[0] : 0;
    const bool one = z->num_elements() == 1 && quantum > 0 && std::isnormal(quantum);
    // Quantization is monotone where the scale is positive: clipping before it is clipping after
    // it, at the quantized bounds.
    while (one && r_.Alone(v)) {
      const Node* p = r_.Producer(v);
      if (p == nullptr) break;
      const bool relu = p->op->name == "Relu";
      if (!relu && p->op->name != "Clip") break;
      const double from = relu ? 0 : p->attrs.Float("min");
      const double to = relu ? INFINITY : p->attrs.Float("max");
      auto quantized = [&](double bound) {
        const double q = std::nearbyint(F32(F32(bound) / quantum)) + z->Doubles()[0];
        return std::clamp(q, lo, hi);
      };
      if (std::isnan(from) || std::isnan(to)) break;
      const double low = quantized(from), high = quantized(to);
      lo = std::min(low, high), hi = high;
      v = p->inputs[0];
    }
    const std::optional<Sum> biased = one ? BiasedSum(v, quantum) : std::nullopt;
    if (biased) {
      const Replacement sum = EmitBiased(biased->value, biased->shape, biased->bias);
      return sum ? Requantize(*sum, biased->scale, n, lo, hi) : std::nullopt;
    }
    const Node* p = r_.Producer(v, "DequantizeLinear");
    if (p == nullptr) return std::nullopt;
    const bool sum = TypeOf(p->inputs[0]) == DType::kI32 && p->inputs.size() == 2;
    if (sum && r_.Alone(v) && IsFiniteOver(p->inputs[1], s->Doubles()))
      return Requantize(p->inputs[0], p->inputs[1], n, lo, hi);
    const bool same = v == n.inputs[0] && TypeOf(p->inputs[0]) == t && p->inputs.size() == 3 &&
                      Equal(p->inputs[1], n.inputs[1]) && Equal(p->inputs[2], n.inputs[2]);
    return same && one ? Replacement(p->inputs[0]) : std::nullopt;
  }

  // A constant scale that is finite, also in multiples of another one: else results that are no
  // numbers would become others.
  bool IsFiniteOver(ValueId scale, const std::vector<double>& quanta) const {
    const ConstantPtr s = Const(scale);
    if (!s) return false;
    for (double d : s->Doubles()) {
      for (double q : quanta) {
        if (!std::isfinite(F32(d / q))) return false;
      }
    }
    return true;
  }

  Replacement Requantize(ValueId sum, ValueId scale, const Node& quantize, double lo, double hi) {
    const Replacement multiplier = r_.Emit("Div", {scale, quantize.inputs[1]});
    if (!multiplier) return std::nullopt;
    return r_.Emit("Requantize", {sum, *multiplier, quantize.inputs[2]},
                   {{"lo", static_cast<int64_t>(lo)}, {"hi", static_cast<int64_t>(hi)}});
  }

  struct Sum {
    ValueId value = kNoValue, scale = kNoValue;
    Shape shape;
    std::vector<double> bias;
  };

  // scale * sum + bias as scale * (sum + bias'), with the bias rounded to the scale of the sum:
  // that is fine enough where the sum is much finer than what it is quantized to.
  std::optional<Sum> BiasedSum(ValueId v, double quantum) const {
    const Node* add = r_.Producer(v, "Add");
    if (add == nullptr || !r_.Alone(v)) return std::nullopt;
    for (int side : {0, 1}) {
      const ValueId y = add->inputs[side], bias = add->inputs[1 - side];
      const Node* d = r_.Producer(y, "DequantizeLinear");
      if (d == nullptr || d->inputs.size() != 2 || TypeOf(d->inputs[0]) != DType::kI32 ||
          !r_.Alone(y) || ShapeOf(y) != ShapeOf(v) || !IsFiniteOver(d->inputs[1], {quantum}))
        continue;
      const ConstantPtr scale = Const(d->inputs[1]);
      const std::vector<double> b = BiasOf(bias).values;
      if (b.empty()) continue;
      const std::vector<double> unit = scale->Doubles();
      if (unit.size() != 1 && ShapeOf(bias) != scale->shape()) continue;
      std::vector<double> q;
      for (size_t i = 0; i < b.size(); ++i) {
        const double u = unit[unit.size() == 1 ? 0 : i];
        q.push_back(std::nearbyint(b[i] / u));
        if (!(std::fabs(u) <= kFinerThan * quantum) || !std::isfinite(q.back()))
          return std::nullopt;
      }
      if (!(BoundOf(d->inputs[0]) + LargestOf(q) < kSumLimit)) return std::nullopt;
      return Sum{d->inputs[0], d->inputs[1], ShapeOf(bias), std::move(q)};
    }
    return std::nullopt;
  }

  bool Equal(ValueId p, ValueId q) const {
    if (p == q) return true;
    const ConstantPtr c = Const(p), d = Const(q);
    return c && d && c->dtype() == d->dtype() && c->bytes() == d->bytes();
  }

  // ---- data movement

  bool Takes(const Node& n, DType t) const {
    const std::vector<DType>& types = n.op->types;
    return types.empty() || std::find(types.begin(), types.end(), t) != types.end();
  }

  Replacement Rescaled(ValueId moved, ValueId scale, ValueId zero) {
    std::vector<ValueId> in = {moved, scale};
    if (zero != kNoValue) in.push_back(zero);
    return r_.Emit("DequantizeLinear", std::move(in));
  }

  Replacement Move(const Node& n) {
    const auto d = Dequantize(n.inputs[0]);
    if (!d || !Takes(n, TypeOf(d->x))) return std::nullopt;
    if (!PerTensor(*d)) return MovePerChannel(n, *d);
    Attrs attrs = n.attrs;
    const double scale = Const(d->scale)->Doubles()[0];
    if (n.op->name == "MaxPool" && !(scale > 0 && std::isfinite(scale))) return std::nullopt;
    if (n.op->name == "Pad") {
      // Only a value that has an integer of its own.
      const ConstantPtr zero = Const(d->zero);
      if (d->zero != kNoValue && !zero) return std::nullopt;
      const double value = attrs.Float("value");
      if (value != 0) return std::nullopt;
      attrs.Set("value", zero ? zero->Doubles()[0] : 0.0);
    }
    std::vector<ValueId> in = n.inputs;
    in[0] = d->x;
    const Replacement moved = r_.Emit(n.op->name, std::move(in), attrs);
    return moved ? Rescaled(*moved, d->scale, d->zero) : std::nullopt;
  }

  // Weights with a scale per channel on their way to the operator that multiplies them: the scale
  // is moved as they are.
  Replacement MovePerChannel(const Node& n, const Dequantized& d) {
    if (!Const(d.x)) return std::nullopt;
    const Shape x = ShapeOf(d.x);
    const bool turn = n.op->name == "Transpose";
    if (!turn && n.op->name != "Reshape") return std::nullopt;
    const Shape to = ShapeOf(n.outputs[0]);
    std::vector<ValueId> in = {d.scale, d.zero};
    for (ValueId& v : in) {
      if (v == kNoValue) continue;
      Shape s = ShapeOf(v);
      if (CountOf(s) == 1) continue;
      s.insert(s.begin(), x.size() - s.size(), 1);
      if (!turn) {
        // Only along the first dimension, which has to stay.
        if (s[0] != CountOf(s) || to.empty() || to[0] != s[0]) return std::nullopt;
        s.assign(to.size(), 1);
        s[0] = to[0];
      }
      Replacement along = r_.Emit("Reshape", {v}, {{"shape", s}});
      if (along && turn) along = r_.Emit("Transpose", {*along}, n.attrs);
      if (!along) return std::nullopt;
      v = *along;
    }
    const Replacement moved = r_.Emit(n.op->name, {d.x}, n.attrs);
    return moved ? Rescaled(*moved, in[0], in[1]) : std::nullopt;
  }

  Replacement Concat(const Node& n) {
    std::vector<ValueId> in;
    std::optional<Dequantized> first;
    for (ValueId v : n.inputs) {
      const auto d = Dequantize(v);
      if (!d || !PerTensor(*d) || !Takes(n, TypeOf(d->x))) return std::nullopt;
      if (!first) first = d;
      const bool zeros =
          d->zero == first->zero ||
          (d->zero != kNoValue && first->zero != kNoValue && Equal(d->zero, first->zero));
      if (TypeOf(d->x) != TypeOf(first->x) || !Equal(d->scale, first->scale) || !zeros)
        return std::nullopt;
      in.push_back(d->x);
    }
    if (!first) return std::nullopt;
    const Replacement moved = r_.Emit("Concat", std::move(in), n.attrs);
    return moved ? Rescaled(*moved, first->scale, first->zero) : std::nullopt;
  }

  PatternRewriter r_;
  // What sums that this pass has made cannot exceed.
  std::unordered_map<ValueId, double> bounds_;
};

}  // namespace

StatusOr<bool> QdqToInteger(Graph& g) { return QdqPass(g).Run(); }

}  // namespace whet::graph
