// Moves zero points out of integer sums with constant weights, so that operands are multiplied as
// they are stored (u8 or i8 by i8 where possible):
//   sum((x - p) * (w - q)) = sum(x * w') - p * sum(w'),  w' = w - q
// A padded convolution keeps a p other than 0: with x - p its padding is 0, which is left out of
// the sum, and only images before the first activation have such a p. With a constant p the
// correction is a constant, which joins a bias that follows; with a computed one (dynamic
// quantization) it is a product per channel.
#include <algorithm>

#include "compiler/graph/passes.h"
#include "compiler/graph/rewriter.h"

namespace whet::graph {
namespace {

using Shape = std::vector<int64_t>;

struct Weights {
  ValueId value = kNoValue;  // w'
  std::vector<double> sums;  // of w', per channel
};

bool AllWithin(const std::vector<double>& v, double lo, double hi) {
  return std::all_of(v.begin(), v.end(), [&](double d) { return lo <= d && d <= hi; });
}

int64_t ToI32(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }

class ZeroPointPass {
 public:
  explicit ZeroPointPass(Graph& g) : r_(g), b_(r_.builder()) {}
  StatusOr<bool> Run() {
    return r_.Run([this](const Node& n) { return Replace(n); });
  }

 private:
  using Replacement = StatusOr<std::optional<ValueId>>;
  ConstantPtr Const(ValueId v) const { return r_.graph().constant(v); }

  Replacement Replace(const Node& n) {
    if (n.op->name == "ConvInteger" || n.op->name == "MatMulInteger") return Contraction(n);
    if (n.op->name == "Add") return JoinConstants(n);
    return std::nullopt;
  }

  // w - q as the narrowest type, and its sums. Convolutions have channels in dimension 0, matrices
  // in the last one.
  std::optional<Weights> Fold(const Node& n, bool conv) {
    const ConstantPtr w = Const(n.inputs[1]);
    if (!w) return std::nullopt;
    const Shape& shape = w->shape();
    // One matrix, so that its sums are a vector.
    if (!conv && shape.size() != 2) return std::nullopt;
    const int64_t channels = conv ? shape[0] : shape[1];
    const int64_t others = channels == 0 ? 0 : w->num_elements() / channels;
    auto channel = [&](size_t i) {
      return conv ? static_cast<int64_t>(i) / others : static_cast<int64_t>(i) % channels;
    };
    Weights result{n.inputs[1], std::vector<double>(static_cast<size_t>(channels), 0)};
    std::vector<double> v = w->Doubles();
    if (n.inputs.size() > 3) {
      const ConstantPtr zero = Const(n.inputs[3]);
      if (!zero) return std::nullopt;
      const std::vector<double> q = zero->Doubles();
      if (q.size() != 1 && static_cast<int64_t>(q.size()) != channels) return std::nullopt;
      for (size_t i = 0; i < v.size(); ++i) v[i] -= q[q.size() == 1 ? 0 : channel(i)];
      if (!zero->AllEqual(0)) {
        const DType t = AllWithin(v, -128, 127) ? DType::kI8 : DType::kI32;
        result.value = b_.Constant("weights", Constant::OfDoubles(t, shape, v));
      }
    }
    for (size_t i = 0; i < v.size(); ++i) result.sums[channel(i)] += v[i];
    return result;
  }

  ValueId I32(const Shape& shape, const std::vector<double>& v, int64_t times) {
    std::vector<double> scaled;
    for (double d : v)
      scaled.push_back(static_cast<double>(ToI32(static_cast<int64_t>(d) * times)));
    return b_.Constant("zero_correction", Constant::OfDoubles(DType::kI32, shape, scaled));
  }

  Replacement Contraction(const Node& n) {
    if (n.inputs.size() <= 2) return std::nullopt;
    const bool conv = n.op->name == "ConvInteger";
    const std::optional<Weights> w = Fold(n, conv);
    if (!w) return std::nullopt;
    const TensorType zero_type = r_.graph().type(n.inputs[2]);
    const bool padded =
        conv && std::any_of(n.attrs.Ints("pads").begin(), n.attrs.Ints("pads").end(),
                            [](int64_t p) { return p != 0; });
    const ConstantPtr zero = Const(n.inputs[2]);
    if (zero_type.num_elements() != 1 || (padded && !(zero && zero->AllEqual(0)))) {
      // The sum keeps the zero point of x; that of w is folded all the same.
      if (n.inputs.size() <= 3) return std::nullopt;
      WHET_ASSIGN_OR_RETURN(const ValueId y,
                            b_.Emit(n.op->name, {n.inputs[0], w->value, n.inputs[2]}, n.attrs));
      return std::optional<ValueId>(y);
    }
    const int64_t p = zero ? zero->Ints()[0] : 0;
    WHET_ASSIGN_OR_RETURN(ValueId y, b_.Emit(n.op->name, {n.inputs[0], w->value}, n.attrs));
    const auto channels = static_cast<int64_t>(w->sums.size());
    const Shape shape = conv ? Shape{channels, 1, 1} : Shape{channels};
    if (zero && p != 0) {
      WHET_ASSIGN_OR_RETURN(y, b_.Emit("Add", {y, I32(shape, w->sums, -p)}));
    } else if (!zero) {
      WHET_ASSIGN_OR_RETURN(ValueId q, b_.Emit("Reshape", {n.inputs[2]}, {{"shape", Shape{}}}));
      WHET_ASSIGN_OR_RETURN(q, b_.Emit("Cast", {q}, {{"to", std::string("i32")}}));
      WHET_ASSIGN_OR_RETURN(q, b_.Emit("Mul", {I32(shape, w->sums, -1), q}));
      WHET_ASSIGN_OR_RETURN(y, b_.Emit("Add", {y, q}));
    }
    return std::optional<ValueId>(y);
  }

  // (x + c) + d = x + (c + d): integers only, where it is exact.
  Replacement JoinConstants(const Node& n) {
    const ConstantPtr d = Const(n.inputs[1]);
    const Node* first = r_.Producer(n.inputs[0]);
    if (!d || d->dtype() != DType::kI32 || first == nullptr || first->op != n.op ||
        r_.Uses(n.inputs[0]) != 1)
      return std::nullopt;
    const ConstantPtr c = Const(first->inputs[1]);
    if (!c || c->shape() != d->shape()) return std::nullopt;
    std::vector<double> sum;
    const std::vector<int64_t> p = c->Ints(), q = d->Ints();
    for (size_t i = 0; i < p.size(); ++i) sum.push_back(static_cast<double>(ToI32(p[i] + q[i])));
    const ValueId x = first->inputs[0];
    const ValueId joined = b_.Constant("bias", Constant::OfDoubles(DType::kI32, c->shape(), sum));
    WHET_ASSIGN_OR_RETURN(const ValueId y, b_.Emit("Add", {x, joined}));
    return std::optional<ValueId>(y);
  }

  Rewriter r_;
  GraphBuilder& b_;
};

}  // namespace

StatusOr<bool> FoldZeroPoints(Graph& g) { return ZeroPointPass(g).Run(); }

}  // namespace whet::graph
