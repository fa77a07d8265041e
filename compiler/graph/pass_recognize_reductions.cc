// Reductions that exporters write out, as the operators they are; means keep their axes:
//   e = Exp(x - ReduceMax(x)), e / ReduceSum(e), over one axis       -> Softmax(x)
//   d = x - Mean(x), d / Sqrt(Mean(d * d) + epsilon)                 -> LayerNormalization(x)
//   x / Sqrt(Mean(x * x) + epsilon)                                  -> RMSNormalization(x)
//   either, times and (the first) plus a constant that follows       -> its scale and shift
//   ReduceMean(x) over height and width                              -> AveragePool(x) of all
// Multiplying by the Reciprocal is dividing.
#include <algorithm>
#include <cmath>

#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

// The reduction of `x` that keeps its axes and computes `v`; null when it is none.
const Node* KeptReduction(const PatternRewriter& r, ValueId v, std::string_view op, ValueId x) {
  const Node* n = r.Producer(v, op);
  const bool matches = n != nullptr && n->inputs[0] == x && n->attrs.Int("keepdims") != 0 &&
                       !n->attrs.Ints("axes").empty();
  return matches ? n : nullptr;
}

bool ToSoftmax(PatternRewriter& r, Node& n) {
  if (n.op->name != "Div") return false;
  const ValueId e = n.inputs[0];
  const Node* exp = r.Producer(e, "Exp");
  const Node* sub = exp ? r.Producer(exp->inputs[0], "Sub") : nullptr;
  if (sub == nullptr) return false;
  const ValueId x = sub->inputs[0];
  const Node* top = KeptReduction(r, sub->inputs[1], "ReduceMax", x);
  const Node* sum = KeptReduction(r, n.inputs[1], "ReduceSum", e);
  if (top == nullptr || sum == nullptr) return false;
  const std::vector<int64_t> axes = top->attrs.Ints("axes");
  if (axes.size() != 1 || sum->attrs.Ints("axes") != axes) return false;
  return r.Become(n, "Softmax", {x}, {{"axis", axes[0]}});
}

// d / Sqrt(Mean(d * d) + epsilon) of `n`.
struct Normalized {
  ValueId d = kNoValue;
  std::vector<int64_t> axes;
  double epsilon = 0;
};
std::optional<Normalized> AsNormalized(const PatternRewriter& r, const Node& n) {
  Normalized result;
  ValueId deviation = kNoValue;
  if (n.op->name == "Div") {
    result.d = n.inputs[0];
    deviation = n.inputs[1];
  } else if (n.op->name == "Mul") {
    for (int i : {0, 1}) {
      const Node* reciprocal = r.Producer(n.inputs[1 - i], "Reciprocal");
      if (reciprocal == nullptr) continue;
      result.d = n.inputs[i];
      deviation = reciprocal->inputs[0];
    }
  }
  const Node* root = r.Producer(deviation, "Sqrt");
  const Node* add = root ? r.Producer(root->inputs[0], "Add") : nullptr;
  const auto split = add ? SplitConstant(r, *add) : std::nullopt;
  const auto epsilon = split ? r.Scalar(split->constant) : std::nullopt;
  const Node* mean = epsilon ? r.Producer(split->x, "ReduceMean") : nullptr;
  const Node* square = mean ? r.Producer(mean->inputs[0]) : nullptr;
  if (square == nullptr || !(*epsilon >= 0) || mean->attrs.Int("keepdims") == 0)
    return std::nullopt;
  const bool power = square->op->name == "Pow" && r.Scalar(square->inputs[1]) == 2.0;
  const bool product = square->op->name == "Mul" && square->inputs[0] == square->inputs[1];
  if ((!power && !product) || square->inputs[0] != result.d) return std::nullopt;
  result.axes = mean->attrs.Ints("axes");
  result.epsilon = *epsilon;
  return result;
}

bool IsSingleOrDouble(DType t) { return t == DType::kF32 || t == DType::kF64; }

bool ToNormalization(PatternRewriter& r, Node& n) {
  const auto f = AsNormalized(r, n);
  if (!f || !IsSingleOrDouble(r.type(f->d).dtype) || f->axes.empty() ||
      r.type(f->d).shape != r.type(n.outputs[0]).shape)
    return false;
  const Attrs attrs = {{"axes", f->axes}, {"epsilon", f->epsilon}};
  const Node* sub = r.Producer(f->d, "Sub");
  const Node* mean = sub ? KeptReduction(r, sub->inputs[1], "ReduceMean", sub->inputs[0]) : nullptr;
  if (mean != nullptr && mean->attrs.Ints("axes") == f->axes) {
    return r.Become(n, "LayerNormalization", {sub->inputs[0]}, attrs);
  }
  return r.Become(n, "RMSNormalization", {f->d}, attrs);
}

// A scale or shift that follows a normalisation becomes its parameter.
bool TakeParameter(PatternRewriter& r, Node& n) {
  const bool mul = n.op->name == "Mul", add = n.op->name == "Add";
  const auto split = mul || add ? SplitConstant(r, n) : std::nullopt;
  const Node* norm = split && r.Alone(split->x) ? r.Producer(split->x) : nullptr;
  if (norm == nullptr || r.type(split->x).shape != r.type(n.outputs[0]).shape ||
      !IsSingleOrDouble(r.type(split->x).dtype))
    return false;
  const bool layer = norm->op->name == "LayerNormalization";
  if (!layer && norm->op->name != "RMSNormalization") return false;
  std::vector<ValueId> inputs = norm->inputs;
  if (mul ? inputs.size() != 1 : !layer || inputs.size() > 2) return false;
  const Attrs attrs = norm->attrs;
  const std::string label = norm->label, op = norm->op->name;
  if (add && inputs.size() == 1)
    inputs.push_back(r.Constant(n.label + "_one", r.type(split->x).dtype, {}, {1}));
  inputs.push_back(split->constant);
  if (!r.Become(n, op, std::move(inputs), attrs)) return false;
  n.label = JoinLabels(label, n.label);
  return true;
}

bool ToPool(PatternRewriter& r, Node& n) {
  if (n.op->name != "ReduceMean" || n.attrs.Ints("axes") != std::vector<int64_t>{2, 3} ||
      r.type(n.inputs[0]).rank() != 4 || !IsSingleOrDouble(r.type(n.inputs[0]).dtype))
    return false;
  const ValueId x = n.inputs[0];
  const std::vector<int64_t>& shape = r.type(x).shape;
  const Attrs attrs = {{"kernel", std::vector<int64_t>{shape[2], shape[3]}}};
  if (shape[2] < 1 || shape[3] < 1) return false;
  if (n.attrs.Int("keepdims") != 0) {
    return r.Become(n, "AveragePool", {x}, attrs);
  }
  const auto y = r.Emit("AveragePool", {x}, attrs);
  return y && r.Become(n, "Reshape", {*y}, {{"shape", r.type(n.outputs[0]).shape}});
}

bool RecognizeReduction(PatternRewriter& r, Node& n) {
  for (auto pattern : {ToSoftmax, ToNormalization, TakeParameter, ToPool}) {
    if (pattern(r, n)) return true;
  }
  return false;
}

}  // namespace

StatusOr<bool> RecognizeReductions(Graph& g) { return PatternRewriter(g).Run(RecognizeReduction); }

}  // namespace whet::graph
