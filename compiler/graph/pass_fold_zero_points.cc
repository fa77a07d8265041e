// Moves zero points out of integer sums with constant weights, so that operands are multiplied as
// they are stored (u8 or i8 by i8 where possible):
//   sum((x - p) * (w - q)) = sum(x * w') - p * sum(w'),  w' = w - q
// Where w' leaves i8, as that of u8 weights with a q far from 128 does, many channels keep i8 and
// share a sum over x:
//   sum((x - p) * (w - q)) = sum((x - p) * v) - r * sum(x - p),  v = w - 128, r = q - 128
// A padded convolution keeps a p other than 0: with x - p its padding is 0, which is left out of
// the sum, and only images before the first activation have such a p. With a constant p the
// correction is a constant, which joins a bias that follows; with a computed one (dynamic
// quantization) it is a product per channel.
//
// All of it is arithmetic modulo 2^32, as the sums are.
#include <algorithm>

#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

using Shape = std::vector<int64_t>;

// As many channels are worth a sum over x.
constexpr int64_t kManyChannels = 16;

struct Weights {
  ValueId value = kNoValue;   // w', or v
  std::vector<int64_t> sums;  // of w', per channel
  std::vector<int64_t> rest;  // r, for each channel; empty: 0
};

bool AllWithin(const std::vector<int64_t>& v, int64_t lo, int64_t hi) {
  return std::all_of(v.begin(), v.end(), [&](int64_t d) { return lo <= d && d <= hi; });
}

int64_t ToI32(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }
// Of numbers that fit i32.
int64_t Product(int64_t a, int64_t b) { return ToI32(a * b); }

class ZeroPointPass {
 public:
  explicit ZeroPointPass(Graph& g) : r_(g) {}
  StatusOr<bool> Run() {
    return r_.Run([this](PatternRewriter& r, Node& n) {
      const Replacement y = Replace(n);
      return y && r.ReplaceBy(n, *y);
    });
  }

 private:
  // What is read instead of the output of a node.
  using Replacement = std::optional<ValueId>;
  const ConstantPtr& Const(ValueId v) const { return r_.constant(v); }

  Replacement Replace(const Node& n) {
    if (n.op->name == "ConvInteger" || n.op->name == "MatMulInteger") return Contraction(n);
    if (n.op->name == "Add") return JoinConstants(n);
    return std::nullopt;
  }

  ValueId Integers(std::string_view name, DType t, const Shape& shape,
                   const std::vector<int64_t>& v) {
    return r_.Constant(name, t, shape, std::vector<double>(v.begin(), v.end()));
  }

  // w - q as the narrowest type, and its sums. Convolutions have channels in dimension 0, matrices
  // in the last one.
  std::optional<Weights> Fold(const Node& n, bool conv) {
    const ConstantPtr w = Const(n.inputs[1]);
    if (!w) return std::nullopt;
    const Shape& shape = w->shape();
    // One matrix, so that its sums are a vector.
    if (w->num_elements() == 0 || (!conv && shape.size() != 2)) return std::nullopt;
    const int64_t channels = conv ? shape[0] : shape[1];
    const int64_t others = channels == 0 ? 0 : w->num_elements() / channels;
    auto channel = [&](size_t i) {
      return static_cast<size_t>(conv ? static_cast<int64_t>(i) / others
                                      : static_cast<int64_t>(i) % channels);
    };
    Weights result{n.inputs[1], std::vector<int64_t>(static_cast<size_t>(channels), 0), {}};
    std::vector<int64_t> v = w->Ints();
    if (n.inputs.size() > 3) {
      const ConstantPtr zero = Const(n.inputs[3]);
      if (!zero || !IsPerChannel(*zero, conv, channels)) return std::nullopt;
      std::vector<int64_t> q = zero->Ints();
      q.resize(static_cast<size_t>(channels), q[0]);
      for (size_t i = 0; i < v.size(); ++i) v[i] = ToI32(v[i] - q[channel(i)]);
      const bool fits = AllWithin(v, -128, 127);
      if (!fits && w->dtype() != DType::kI32 && channels >= kManyChannels && SumsInputs(n, conv)) {
        const int64_t middle = w->dtype() == DType::kU8 ? 128 : 0;
        std::vector<int64_t> stored = w->Ints();
        for (int64_t& i : stored) i -= middle;
        for (int64_t i : q) result.rest.push_back(i - middle);
        result.value = middle == 0 ? n.inputs[1] : Integers("weights", DType::kI8, shape, stored);
      } else if (!zero->AllEqual(0)) {
        result.value = Integers("weights", fits ? DType::kI8 : DType::kI32, shape, v);
      }
    }
    for (size_t i = 0; i < v.size(); ++i)
      result.sums[channel(i)] = ToI32(result.sums[channel(i)] + v[i]);
    return result;
  }

  // One number, or one per channel.
  static bool IsPerChannel(const Constant& zero, bool conv, int64_t channels) {
    if (zero.num_elements() == 1) return true;
    Shape s = zero.shape();
    if (zero.num_elements() != channels) return false;
    return conv ? s.size() == 4 && s[0] == channels : s.back() == channels;
  }

  // ---- the sum over x

  bool SumsInputs(const Node& n, bool conv) const {
    return conv ? n.attrs.Int("group") == 1 && n.attrs.Int("pad_value") == 0
                : r_.type(n.inputs[0]).rank() >= 2;
  }

  // sum(x), or sum(x - p) with the padding of a convolution, over what a channel is summed over.
  Replacement SumOfInputs(const Node& n, bool conv, ValueId p) {
    Replacement x = r_.Emit("Cast", {n.inputs[0]}, {{"to", std::string("i32")}});
    if (x && p != kNoValue) {
      const Replacement zero = r_.Emit("Cast", {p}, {{"to", std::string("i32")}});
      x = zero ? r_.Emit("Sub", {*x, *zero}) : std::nullopt;
    }
    if (!x) return std::nullopt;
    const int64_t axis = conv ? 1 : r_.type(*x).rank() - 1;
    x = r_.Emit("ReduceSum", {*x}, {{"axes", Shape{axis}}, {"keepdims", int64_t{1}}});
    if (!x || !conv) return x;
    Shape window = r_.type(n.inputs[1]).shape;
    window[0] = window[1] = 1;
    const ValueId ones =
        r_.Constant("ones", DType::kI8, window,
                    std::vector<double>(static_cast<size_t>(window[2] * window[3]), 1));
    return r_.Emit("ConvInteger", {*x, ones}, n.attrs);
  }

  // y - r * sum over x
  Replacement WithRest(const Node& n, bool conv, const Weights& w, ValueId p, ValueId y) {
    if (w.rest.empty()) return y;
    Replacement sum = SumOfInputs(n, conv, p);
    if (!sum) return std::nullopt;
    const bool one =
        std::all_of(w.rest.begin(), w.rest.end(), [&](int64_t r) { return r == w.rest[0]; });
    const Shape shape = one ? Shape{} : ChannelShape(conv, w);
    std::vector<int64_t> r = w.rest;
    if (one) r.resize(1);
    sum = r_.Emit("Mul", {*sum, I32(shape, r, -1)});
    return sum ? r_.Emit("Add", {y, *sum}) : std::nullopt;
  }

  // ---- the rest

  static Shape ChannelShape(bool conv, const Weights& w) {
    const auto channels = static_cast<int64_t>(w.sums.size());
    return conv ? Shape{channels, 1, 1} : Shape{channels};
  }

  ValueId I32(const Shape& shape, const std::vector<int64_t>& v, int64_t times) {
    std::vector<int64_t> scaled;
    for (int64_t d : v) scaled.push_back(Product(d, times));
    return Integers("zero_correction", DType::kI32, shape, scaled);
  }

  Replacement Contraction(const Node& n) {
    if (n.inputs.size() <= 2) return std::nullopt;
    const bool conv = n.op->name == "ConvInteger";
    const std::optional<Weights> w = Fold(n, conv);
    if (!w) return std::nullopt;
    const TensorType zero_type = r_.type(n.inputs[2]);
    const bool padded =
        conv && std::any_of(n.attrs.Ints("pads").begin(), n.attrs.Ints("pads").end(),
                            [](int64_t p) { return p != 0; });
    const ConstantPtr zero = Const(n.inputs[2]);
    if (zero_type.num_elements() != 1 || (padded && !(zero && zero->AllEqual(0)))) {
      // The sum keeps the zero point of x; that of w is folded all the same.
      if (n.inputs.size() <= 3) return std::nullopt;
      const Replacement y = r_.Emit(n.op->name, {n.inputs[0], w->value, n.inputs[2]}, n.attrs);
      return y ? WithRest(n, conv, *w, n.inputs[2], *y) : std::nullopt;
    }
    const int64_t p = zero ? zero->Ints()[0] : 0;
    Replacement y = r_.Emit(n.op->name, {n.inputs[0], w->value}, n.attrs);
    // The sums of w' account for p in both.
    if (y) y = WithRest(n, conv, *w, kNoValue, *y);
    if (!y || (zero && p == 0)) return y;
    const Shape shape = ChannelShape(conv, *w);
    if (zero) return r_.Emit("Add", {*y, I32(shape, w->sums, -p)});
    Replacement q = r_.Emit("Reshape", {n.inputs[2]}, {{"shape", Shape{}}});
    if (q) q = r_.Emit("Cast", {*q}, {{"to", std::string("i32")}});
    if (q) q = r_.Emit("Mul", {I32(shape, w->sums, -1), *q});
    return q ? r_.Emit("Add", {*y, *q}) : std::nullopt;
  }

  // (x + c) + d = x + (c + d): integers only, where it is exact.
  Replacement JoinConstants(const Node& n) {
    const ConstantPtr d = Const(n.inputs[1]);
    const Node* first = r_.Producer(n.inputs[0], "Add");
    if (!d || d->dtype() != DType::kI32 || first == nullptr || !r_.Alone(n.inputs[0]))
      return std::nullopt;
    const ConstantPtr c = Const(first->inputs[1]);
    if (!c || c->shape() != d->shape()) return std::nullopt;
    std::vector<int64_t> sum = c->Ints();
    const std::vector<int64_t> more = d->Ints();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = ToI32(sum[i] + more[i]);
    const ValueId x = first->inputs[0];
    return r_.Emit("Add", {x, Integers("bias", DType::kI32, c->shape(), sum)});
  }

  PatternRewriter r_;
};

}  // namespace

StatusOr<bool> FoldZeroPoints(Graph& g) { return ZeroPointPass(g).Run(); }

}  // namespace whet::graph
