#include "compiler/graph/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/evaluate.h"

namespace whet::graph {
namespace {

// Shape arithmetic is folded while the graph is built; heavier folding is left to the pass, which
// can be switched off.
constexpr int64_t kFoldAtOnce = 4096;

// Weights of 8 bits stay what they are until the pass that multiplies integers has looked at them.
bool Dequantizes(const std::vector<const TensorType*>& in, const std::vector<TensorType>& out) {
  const bool narrow =
      !in.empty() && in[0] != nullptr && (in[0]->dtype == DType::kI8 || in[0]->dtype == DType::kU8);
  return narrow && IsFloat(out[0].dtype);
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

StatusOr<std::vector<ValueId>> GraphBuilder::EmitAll(std::string_view op,
                                                     std::vector<ValueId> inputs, Attrs attrs) {
  Node n;
  n.op = g_.catalog->Find(op);
  if (n.op == nullptr) return Unimplemented("operator {} is not supported", op);
  n.label = label_;
  WHET_ASSIGN_OR_RETURN(n.attrs, FillAttrs(*n.op, std::move(attrs)));
  while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
  std::vector<const TensorType*> types;
  bool constant = true;
  for (ValueId v : inputs) {
    types.push_back(v == kNoValue ? nullptr : &g_.type(v));
    constant &= v == kNoValue || g_.constant(v) != nullptr;
  }
  WHET_ASSIGN_OR_RETURN(std::vector<TensorType> out, InferTypes(*n.op, n.attrs, types));
  n.inputs = std::move(inputs);
  const bool small = std::all_of(
      out.begin(), out.end(), [](const TensorType& t) { return t.num_elements() <= kFoldAtOnce; });
  if (constant && small && !Dequantizes(types, out) && n.op->reference && !n.inputs.empty()) {
    WHET_ASSIGN_OR_RETURN(std::vector<ConstantPtr> folded, EvaluateConstantNode(g_, n, out));
    std::vector<ValueId> ids;
    for (ConstantPtr& c : folded) ids.push_back(g_.AddConstant(label_, std::move(c)));
    return ids;
  }
  for (TensorType& t : out) n.outputs.push_back(g_.AddValue(label_, std::move(t)));
  g_.nodes.push_back(std::move(n));
  return g_.nodes.back().outputs;
}

}  // namespace whet::graph
