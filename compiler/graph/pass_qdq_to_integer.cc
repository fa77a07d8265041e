// Quantized models in the form Dequantize -> float operator -> Quantize, made integer:
//   Conv(DQ(x), DQ(w)) + b       -> DQ(ConvInteger(x, w) + b'), b' = b / (x_scale * w_scale) where
//                                   that is integral; MatMul and Gemm likewise
//   Q(clip(DQ(i32 sum) + b))     -> Requantize(sum + b') with the clipping as the range of the
//   result move(DQ(x))                  -> DQ(move(x)) for pools by maximum and operators that move
//   data Q(DQ(x)), the same scale     -> x
// The sums are exact; what changes against the float form are roundings of the order of 2^-23 of a
// value before it is rounded to the integer, so results differ by one quantum at most, and only
// next to a tie. Sums of residuals, averages and everything else stay float between DQ and Q, which
// fuse into their neighbours' kernels.
#include <algorithm>
#include <cmath>

#include "compiler/graph/passes.h"
#include "compiler/graph/rewriter.h"

namespace whet::graph {
namespace {

using Shape = std::vector<int64_t>;

// How far a bias may be from a multiple of the sum's scale, as a part of itself and in multiples: a
// bias that was quantized has been rounded to f32 in between.
constexpr double kBiasRelative = 1e-6;
constexpr double kBiasAbsolute = 1e-3;

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
  explicit QdqPass(Graph& g) : r_(g), b_(r_.builder()) {}
  StatusOr<bool> Run() {
    return r_.Run([this](const Node& n) { return Replace(n); });
  }

 private:
  using Replacement = StatusOr<std::optional<ValueId>>;

  const Graph& g() const { return r_.graph(); }
  ConstantPtr Const(ValueId v) const { return v == kNoValue ? nullptr : g().constant(v); }
  // By value: what is emitted moves the graph's values.
  Shape ShapeOf(ValueId v) const { return g().type(v).shape; }
  DType TypeOf(ValueId v) const { return g().type(v).dtype; }

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

  std::optional<Dequantized> Dequantize(ValueId v) {
    const Node* p = r_.Producer(v);
    if (p == nullptr || p->op->name != "DequantizeLinear") return std::nullopt;
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

  ValueId F32Constant(Shape shape, const std::vector<double>& v) {
    return b_.Constant("scale", Constant::OfDoubles(DType::kF32, std::move(shape), v));
  }

  // ---- contractions

  StatusOr<ValueId> EmitInteger(std::string_view op, const Dequantized& x, const Dequantized& w,
                                Attrs attrs) {
    std::vector<ValueId> in = {x.x, w.x};
    ValueId x_zero = x.zero;
    if (x_zero == kNoValue && w.zero != kNoValue)
      x_zero = b_.Constant("zero", Constant::OfDoubles(TypeOf(x.x), {}, std::vector<double>{0}));
    if (x_zero != kNoValue) {
      WHET_ASSIGN_OR_RETURN(x_zero, b_.Emit("Reshape", {x_zero}, {{"shape", Shape{}}}));
      in.push_back(x_zero);
    }
    if (w.zero != kNoValue) in.push_back(w.zero);
    return b_.Emit(op, std::move(in), std::move(attrs));
  }

  // The value of a bias, whether it is a constant or dequantized from constants; empty: neither.
  std::vector<double> BiasOf(ValueId bias) {
    if (const ConstantPtr c = Const(bias)) return c->Doubles();
    const Node* p = r_.Producer(bias);
    if (p == nullptr || p->op->name != "DequantizeLinear") return {};
    const ConstantPtr q = Const(p->inputs[0]), s = Const(p->inputs[1]);
    if (!q || !s ||
        (p->inputs.size() > 2 && !(Const(p->inputs[2]) && Const(p->inputs[2])->AllEqual(0))))
      return {};
    std::vector<double> v = q->Doubles();
    const std::vector<double> scale = s->Doubles();
    if (scale.size() != 1 && scale.size() != v.size()) return {};
    for (size_t i = 0; i < v.size(); ++i) v[i] *= scale[scale.size() == 1 ? 0 : i];
    return v;
  }

  // b / scale where that is integral.
  std::optional<std::vector<double>> IntegerBias(const std::vector<double>& bias,
                                                 const std::vector<double>& scale) {
    std::vector<double> q;
    for (size_t i = 0; i < bias.size(); ++i) {
      const double exact = bias[i] / scale[scale.size() == 1 ? 0 : i];
      const double whole = std::nearbyint(exact);
      const bool close =
          std::fabs(exact - whole) <= kBiasAbsolute + kBiasRelative * std::fabs(exact);
      if (!close || std::fabs(whole) >= 0x1.0p31) return std::nullopt;
      q.push_back(whole);
    }
    return q;
  }

  // scale * (sum + bias): `shape` is how a vector along the channels broadcasts to the sum.
  StatusOr<ValueId> Finish(ValueId sum, const std::vector<double>& scale, const Shape& shape,
                           ValueId bias) {
    const Shape of_scale = scale.size() == 1 ? Shape{} : shape;
    const std::vector<double> b = bias == kNoValue ? std::vector<double>() : BiasOf(bias);
    // A vector along the channels; Gemm also takes what broadcasts in another way.
    const bool per_channel = bias != kNoValue && ShapeOf(bias) == Shape{CountOf(shape)};
    const auto q = per_channel && !b.empty() ? IntegerBias(b, scale) : std::nullopt;
    if (q) {
      const ValueId c = b_.Constant("bias", Constant::OfDoubles(DType::kI32, shape, *q));
      WHET_ASSIGN_OR_RETURN(sum, b_.Emit("Add", {sum, c}));
    }
    WHET_ASSIGN_OR_RETURN(ValueId y,
                          b_.Emit("DequantizeLinear", {sum, F32Constant(of_scale, scale)}));
    if (bias == kNoValue || q) return y;
    if (per_channel) {
      WHET_ASSIGN_OR_RETURN(bias, b_.Emit("Reshape", {bias}, {{"shape", shape}}));
    }
    return b_.Emit("Add", {y, bias});
  }

  Replacement Contraction(const Node& n) {
    const auto x = Dequantize(n.inputs[0]), w = Dequantize(n.inputs[1]);
    if (!x || !w || !PerTensor(*x)) return std::nullopt;
    const bool conv = n.op->name == "Conv";
    const Shape weights = ShapeOf(w->x);
    const int64_t axis = conv ? 0 : static_cast<int64_t>(weights.size()) - 1;
    std::vector<double> scale = ScaleAlong(*w, axis);
    if (scale.empty()) return std::nullopt;
    const double x_scale = Const(x->scale)->Doubles()[0];
    for (double& s : scale) s = F32(s * x_scale);
    WHET_ASSIGN_OR_RETURN(const ValueId sum,
                          EmitInteger(conv ? "ConvInteger" : "MatMulInteger", *x, *w, n.attrs));
    const Shape shape = conv ? Shape{weights[0], 1, 1} : Shape{weights.back()};
    const ValueId bias = n.inputs.size() > 2 ? n.inputs[2] : kNoValue;
    WHET_ASSIGN_OR_RETURN(const ValueId y, Finish(sum, scale, shape, bias));
    return std::optional<ValueId>(y);
  }

  Replacement Gemm(const Node& n) {
    const auto x = Dequantize(n.inputs[0]);
    auto w = Dequantize(n.inputs[1]);
    if (!x || !w || !PerTensor(*x) || n.attrs.Int("transA") != 0 || n.attrs.Float("beta") != 1)
      return std::nullopt;
    const bool transposed = n.attrs.Int("transB") != 0;
    std::vector<double> scale = ScaleAlong(*w, transposed ? 0 : 1);
    if (scale.empty()) return std::nullopt;
    const double x_scale = Const(x->scale)->Doubles()[0];
    for (double& s : scale) s = F32(F32(s * x_scale) * n.attrs.Float("alpha"));
    if (transposed) {
      const Attrs turn = {{"perm", Shape{1, 0}}};
      WHET_ASSIGN_OR_RETURN(w->x, b_.Emit("Transpose", {w->x}, turn));
      if (w->zero != kNoValue && CountOf(ShapeOf(w->zero)) > 1) {
        WHET_ASSIGN_OR_RETURN(
            w->zero, b_.Emit("Reshape", {w->zero}, {{"shape", Shape{CountOf(ShapeOf(w->zero))}}}));
      }
    }
    const Shape columns = {ShapeOf(w->x)[1]};
    WHET_ASSIGN_OR_RETURN(const ValueId sum, EmitInteger("MatMulInteger", *x, *w, {}));
    const ValueId bias = n.inputs.size() > 2 ? n.inputs[2] : kNoValue;
    WHET_ASSIGN_OR_RETURN(const ValueId y, Finish(sum, scale, columns, bias));
    return std::optional<ValueId>(y);
  }

  // ---- to integers

  Replacement Quantize(const Node& n) {
    const ConstantPtr s = Const(n.inputs[1]), z = Const(n.inputs[2]);
    if (!s || !z || TypeOf(n.inputs[0]) != DType::kF32) return std::nullopt;
    const DType t = z->dtype();
    const double lowest = t == DType::kU8 ? 0 : -128, highest = t == DType::kU8 ? 255 : 127;
    double lo = lowest, hi = highest;
    ValueId v = n.inputs[0];
    const bool one = s->num_elements() == 1 && z->num_elements() == 1 && s->Doubles()[0] > 0 &&
                     std::isnormal(s->Doubles()[0]);
    // Quantization is monotone where the scale is positive: clipping before it is clipping after
    // it, at the quantized bounds.
    while (one && r_.Uses(v) == 1) {
      const Node* p = r_.Producer(v);
      if (p == nullptr) break;
      const bool relu = p->op->name == "Relu";
      if (!relu && p->op->name != "Clip") break;
      const double from = relu ? 0 : p->attrs.Float("min");
      const double to = relu ? INFINITY : p->attrs.Float("max");
      auto quantized = [&](double bound) {
        const double q = std::nearbyint(F32(F32(bound) / s->Doubles()[0])) + z->Doubles()[0];
        return std::clamp(q, lo, hi);
      };
      if (std::isnan(from) || std::isnan(to)) break;
      const double low = quantized(from), high = quantized(to);
      lo = std::min(low, high), hi = high;
      v = p->inputs[0];
    }
    const std::optional<Sum> biased = one ? BiasedSum(v, s->Doubles()[0]) : std::nullopt;
    if (biased) {
      const ValueId c = b_.Constant("bias", biased->bias);
      WHET_ASSIGN_OR_RETURN(const ValueId sum, b_.Emit("Add", {biased->value, c}));
      return Requantize(sum, biased->scale, n, lo, hi);
    }
    const Node* p = r_.Producer(v);
    if (p == nullptr || p->op->name != "DequantizeLinear") return std::nullopt;
    const bool sum = TypeOf(p->inputs[0]) == DType::kI32 && p->inputs.size() == 2;
    if (sum && r_.Uses(v) == 1 && Const(p->inputs[1]))
      return Requantize(p->inputs[0], p->inputs[1], n, lo, hi);
    const bool same = v == n.inputs[0] && TypeOf(p->inputs[0]) == t && p->inputs.size() == 3 &&
                      Equal(p->inputs[1], n.inputs[1]) && Equal(p->inputs[2], n.inputs[2]);
    if (same && one) return std::optional<ValueId>(p->inputs[0]);
    return std::nullopt;
  }

  Replacement Requantize(ValueId sum, ValueId scale, const Node& quantize, double lo, double hi) {
    WHET_ASSIGN_OR_RETURN(const ValueId multiplier, b_.Emit("Div", {scale, quantize.inputs[1]}));
    WHET_ASSIGN_OR_RETURN(
        const ValueId y,
        b_.Emit("Requantize", {sum, multiplier, quantize.inputs[2]},
                {{"lo", static_cast<int64_t>(lo)}, {"hi", static_cast<int64_t>(hi)}}));
    return std::optional<ValueId>(y);
  }

  struct Sum {
    ValueId value = kNoValue, scale = kNoValue;
    ConstantPtr bias;
  };

  // scale * sum + bias as scale * (sum + bias'), with the bias rounded to the scale of the sum:
  // that is fine enough where the sum is much finer than what it is quantized to.
  std::optional<Sum> BiasedSum(ValueId v, double quantum) {
    const Node* add = r_.Producer(v);
    if (add == nullptr || add->op->name != "Add" || r_.Uses(v) != 1) return std::nullopt;
    for (int side : {0, 1}) {
      const ValueId y = add->inputs[side], bias = add->inputs[1 - side];
      const Node* d = r_.Producer(y);
      if (d == nullptr || d->op->name != "DequantizeLinear" || d->inputs.size() != 2 ||
          TypeOf(d->inputs[0]) != DType::kI32 || r_.Uses(y) > 1 || ShapeOf(y) != ShapeOf(v))
        continue;
      const ConstantPtr scale = Const(d->inputs[1]);
      const std::vector<double> b = BiasOf(bias);
      if (!scale || b.empty()) continue;
      const std::vector<double> unit = scale->Doubles();
      if (unit.size() != 1 && ShapeOf(bias) != scale->shape()) continue;
      std::vector<double> q;
      for (size_t i = 0; i < b.size(); ++i) {
        const double u = unit[unit.size() == 1 ? 0 : i];
        q.push_back(std::nearbyint(b[i] / u));
        if (!(std::fabs(u) <= kFinerThan * quantum) || !(std::fabs(q.back()) < 0x1.0p30))
          return std::nullopt;
      }
      return Sum{d->inputs[0], d->inputs[1], Constant::OfDoubles(DType::kI32, ShapeOf(bias), q)};
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

  StatusOr<ValueId> Rescaled(ValueId moved, ValueId scale, ValueId zero) {
    std::vector<ValueId> in = {moved, scale};
    if (zero != kNoValue) in.push_back(zero);
    return b_.Emit("DequantizeLinear", std::move(in));
  }

  Replacement Move(const Node& n) {
    const auto d = Dequantize(n.inputs[0]);
    if (!d || !Takes(n, TypeOf(d->x))) return std::nullopt;
    if (!PerTensor(*d)) return MovePerChannel(n, *d);
    Attrs attrs = n.attrs;
    const double scale = Const(d->scale)->Doubles()[0];
    if (n.op->name == "MaxPool" && !(scale > 0)) return std::nullopt;
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
    WHET_ASSIGN_OR_RETURN(const ValueId moved, b_.Emit(n.op->name, std::move(in), attrs));
    WHET_ASSIGN_OR_RETURN(const ValueId y, Rescaled(moved, d->scale, d->zero));
    return std::optional<ValueId>(y);
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
      WHET_ASSIGN_OR_RETURN(v, b_.Emit("Reshape", {v}, {{"shape", s}}));
      if (turn) {
        WHET_ASSIGN_OR_RETURN(v, b_.Emit("Transpose", {v}, n.attrs));
      }
    }
    WHET_ASSIGN_OR_RETURN(const ValueId moved, b_.Emit(n.op->name, {d.x}, n.attrs));
    WHET_ASSIGN_OR_RETURN(const ValueId y, Rescaled(moved, in[0], in[1]));
    return std::optional<ValueId>(y);
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
    WHET_ASSIGN_OR_RETURN(const ValueId moved, b_.Emit("Concat", std::move(in), n.attrs));
    WHET_ASSIGN_OR_RETURN(const ValueId y, Rescaled(moved, first->scale, first->zero));
    return std::optional<ValueId>(y);
  }

  Rewriter r_;
  GraphBuilder& b_;
};

}  // namespace

StatusOr<bool> QdqToInteger(Graph& g) { return QdqPass(g).Run(); }

}  // namespace whet::graph
