#include "compiler/graph/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/graph/evaluate.h"

namespace whet::graph {
namespace {

// Shape arithmetic is folded while the graph is built; heavier folding is left to the pass, which
// can be switched off.
constexpr int64_t kFoldAtOnce = 4096;
// What a node that needs to know a value may ask for.
constexpr int64_t kFoldOnDemand = int64_t{1} << 22;
// What one node may take (EvaluationCost), whoever asks for it, and all together: a loop that is
// unrolled may have the same heavy product in each iteration. What is beyond is left to the pass.
constexpr int64_t kMaxFoldCost = int64_t{1} << 26;
constexpr int64_t kMaxFolding = int64_t{1} << 32;

ConstantPtr Empty(const TensorType& t) { return graph::Constant::OfDoubles(t.dtype, t.shape, {}); }

// Weights of 8 bits and biases of 32 stay what they are until the pass that multiplies integers has
// looked at them.
bool Dequantizes(const OpRecord& op, const std::vector<const TensorType*>& in,
                 const std::vector<TensorType>& out) {
  if (in.empty() || in[0] == nullptr || !IsFloat(out[0].dtype)) return false;
  const DType t = in[0]->dtype;
  return t == DType::kI8 || t == DType::kU8 || (t == DType::kI32 && op.name == "DequantizeLinear");
}

}  // namespace

ValueId GraphBuilder::Input(std::string_view name, TensorType type) {
  const ValueId v = g_.AddValue(name, std::move(type));
  g_.inputs.push_back(v);
  return v;
}

ValueId GraphBuilder::Constant(std::string_view name, ConstantPtr c) {
  return g_.AddConstant(name, std::move(c));
}

ValueId GraphBuilder::Ints(const std::vector<int64_t>& values) {
  return g_.AddConstant(label_ + "_ints",
                        Constant::OfInts({static_cast<int64_t>(values.size())}, values));
}

void GraphBuilder::Output(std::string_view name, ValueId v) {
  g_.outputs.push_back({std::string(name), v});
}

StatusOr<ValueId> GraphBuilder::Emit(std::string_view op, std::vector<ValueId> inputs,
                                     Attrs attrs) {
  WHET_ASSIGN_OR_RETURN(std::vector<ValueId> out, EmitAll(op, std::move(inputs), std::move(attrs)));
  WHET_CHECK(out.size() == 1, "{} has {} outputs", op, out.size());
  return out[0];
}

StatusOr<NewNode> MakeNode(Graph& g, std::string_view op, std::vector<ValueId> inputs, Attrs attrs,
                           std::string label, int64_t most) {
  NewNode made;
  Node& n = made.node;
  n.op = g.catalog->Find(op);
  if (n.op == nullptr) return Unimplemented("operator {} is not supported", op);
  n.label = std::move(label);
  WHET_ASSIGN_OR_RETURN(n.attrs, FillAttrs(*n.op, std::move(attrs)));
  while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
  n.inputs = std::move(inputs);
  std::vector<const TensorType*> types;
  for (ValueId v : n.inputs) types.push_back(v == kNoValue ? nullptr : &g.type(v));
  WHET_ASSIGN_OR_RETURN(made.types, InferTypes(*n.op, n.attrs, types));
  const std::vector<TensorType>& out = made.types;
  if (std::all_of(out.begin(), out.end(),
                  [](const TensorType& t) { return t.num_elements() == 0; })) {
    for (const TensorType& t : out) made.results.push_back(Empty(t));
    return made;
  }
  const bool small = std::all_of(
      out.begin(), out.end(), [](const TensorType& t) { return t.num_elements() <= kFoldAtOnce; });
  const bool foldable =
      small && !Dequantizes(*n.op, types, out) && n.op->reference && !n.inputs.empty();
  const int64_t cost = foldable ? EvaluationCost(ViewOf(*n.op, n.attrs, types, out)) : 0;
  bool constant = true;
  for (ValueId& v : n.inputs) {
    if (v == kNoValue) continue;
    if (g.constant(v) == nullptr && g.type(v).num_elements() == 0)
      v = g.AddConstant(n.label, Empty(g.type(v)));
    constant &= g.constant(v) != nullptr;
  }
  if (constant && foldable && cost <= std::min(most, kMaxFoldCost)) {
    WHET_ASSIGN_OR_RETURN(made.results, EvaluateConstantNode(g, n, out));
    made.cost = cost;
  }
  return made;
}

StatusOr<std::vector<ValueId>> GraphBuilder::EmitAll(std::string_view op,
                                                     std::vector<ValueId> inputs, Attrs attrs) {
  WHET_ASSIGN_OR_RETURN(NewNode made, MakeNode(g_, op, std::move(inputs), std::move(attrs), label_,
                                               kMaxFolding - folding_));
  folding_ += made.cost;
  if (made.results.size() == made.types.size()) {
    std::vector<ValueId> ids;
    for (ConstantPtr& c : made.results) ids.push_back(g_.AddConstant(label_, std::move(c)));
    return ids;
  }
  Node& n = made.node;
  const bool known =
      std::all_of(n.inputs.begin(), n.inputs.end(), [this](ValueId v) { return Known(v); });
  for (TensorType& t : made.types) n.outputs.push_back(g_.AddValue(label_, std::move(t)));
  if (known && n.op->reference && !n.inputs.empty()) {
    for (ValueId v : n.outputs) put_off_.emplace(v, static_cast<int>(g_.nodes.size()));
  }
  g_.nodes.push_back(std::move(n));
  return g_.nodes.back().outputs;
}

// The nodes that have to be evaluated for `v`, in execution order.
std::vector<int> GraphBuilder::PutOffBehind(ValueId v) const {
  std::vector<ValueId> todo = {v};
  std::set<int> nodes;
  while (!todo.empty()) {
    auto it = put_off_.find(todo.back());
    todo.pop_back();
    if (it == put_off_.end() || !nodes.insert(it->second).second) continue;
    for (ValueId in : g_.nodes[it->second].inputs) todo.push_back(in);
  }
  return {nodes.begin(), nodes.end()};
}

bool GraphBuilder::TryFold(ValueId v) {
  if (v < 0) return false;
  for (int i : PutOffBehind(v)) {
    Node& n = g_.nodes[i];
    std::vector<TensorType> types;
    int64_t elements = 0;
    for (ValueId out : n.outputs) {
      types.push_back(g_.type(out));
      elements += types.back().num_elements();
      put_off_.erase(out);
    }
    const bool ready = std::all_of(n.inputs.begin(), n.inputs.end(), [this](ValueId in) {
      return in == kNoValue || g_.constant(in) != nullptr;
    });
    if (!ready || elements > kFoldOnDemand) return false;
    std::vector<const TensorType*> in;
    for (ValueId i : n.inputs) in.push_back(i == kNoValue ? nullptr : &g_.type(i));
    const int64_t cost = EvaluationCost(ViewOf(*n.op, n.attrs, in, types));
    if (cost > std::min(kMaxFoldCost, kMaxFolding - folding_)) return false;
    folding_ += cost;
    auto folded = EvaluateConstantNode(g_, n, types);
    if (!folded.ok()) return false;
    for (size_t k = 0; k < folded->size(); ++k)
      g_.values[n.outputs[k]].constant = std::move((*folded)[k]);
    n = {};
  }
  return g_.constant(v) != nullptr;
}

}  // namespace whet::graph
