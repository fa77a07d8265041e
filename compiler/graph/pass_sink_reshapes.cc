// Moves reshapes behind element-wise operators, so that these reach the epilogue of what computes
// their operand and reshapes meet and cancel:
//   f(R(x)) = R(f(x))        f(R(x), R(y)) = R(f(x, y))        x and y of one shape
//   f(R(x), c) = R(f(x, c))  c a single number, or a vector along the last dimension, which stayed
// Only reshapes that have no other reader.
#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

const Node* ReshapeOf(const PatternRewriter& r, ValueId v) {
  const Node* n = r.Producer(v);
  return n != nullptr && n->op->view == ViewRole::kReshape && n->op->name == "Reshape" && r.Alone(v)
             ? n
             : nullptr;
}

// `c` broadcasts into `x` as it did into the reshaped value of shape `to`.
bool KeepsMeaning(const TensorType& c, const std::vector<int64_t>& from,
                  const std::vector<int64_t>& to) {
  if (c.num_elements() == 1) return c.shape.size() <= from.size();
  return c.shape.size() == 1 && !from.empty() && !to.empty() && from.back() == to.back() &&
         c.shape[0] == to.back();
}

bool SinkReshape(PatternRewriter& r, Node& n) {
  if (n.outputs.size() != 1) return false;
  const bool unary = n.op->kind == FusionKind::kElementwise && n.inputs.size() == 1;
  if (!unary && !(n.op->kind == FusionKind::kBroadcast && n.op->attrs.empty())) return false;
  const std::vector<int64_t> to = r.type(n.outputs[0]).shape;
  std::vector<int64_t> from;
  bool any = false;
  std::vector<ValueId> inputs;
  for (ValueId v : n.inputs) {
    if (v == kNoValue) return false;
    inputs.push_back(v);
    if (r.constant(v)) continue;
    const Node* reshape = ReshapeOf(r, v);
    if (reshape == nullptr || r.type(v).shape != to) return false;
    inputs.back() = reshape->inputs[0];
    const std::vector<int64_t>& shape = r.type(inputs.back()).shape;
    if (any && shape != from) return false;
    from = shape;
    any = true;
  }
  if (!any) return false;
  for (ValueId v : n.inputs) {
    if (r.constant(v) && !KeepsMeaning(r.type(v), from, to)) return false;
  }
  const auto y = r.Emit(n.op->name, std::move(inputs), n.attrs);
  return y && r.Become(n, "Reshape", {*y}, {{"shape", to}});
}

}  // namespace

StatusOr<bool> SinkReshapes(Graph& g) { return PatternRewriter(g).Run(SinkReshape); }

}  // namespace whet::graph
