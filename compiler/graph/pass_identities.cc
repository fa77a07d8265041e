// id(x) -> x, by the records' `is_identity`; f(f(x)) -> f(x) for idempotent f;
// Transpose(Transpose(x)) -> Transpose(x), Reshape(Reshape(x)) -> Reshape(x).
#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

// Replaces what two of a kind compute by one; the first stays for its other readers.
bool MergePair(Graph& g, Node& n, const Node& first) {
  if (first.op != n.op) return false;
  const bool idempotent = n.op->idempotent && n.attrs == first.attrs;
  if (idempotent) {
    n.inputs[0] = first.inputs[0];
    return true;
  }
  switch (n.op->view) {
    case ViewRole::kNone: return false;
    case ViewRole::kReshape:
      // The outer one says the shape; only what is between goes.
      n.inputs[0] = first.inputs[0];
      return true;
    case ViewRole::kTranspose: {
      const std::vector<int64_t>& outer = n.attrs.Ints("perm");
      const std::vector<int64_t>& inner = first.attrs.Ints("perm");
      std::vector<int64_t> perm;
      for (int64_t p : outer) perm.push_back(inner[p]);
      n.attrs.Set("perm", perm);
      n.inputs[0] = first.inputs[0];
      return true;
    }
  }
  return false;
}

}  // namespace

StatusOr<bool> RemoveIdentities(Graph& g) {
  bool changed = false;
  const std::vector<int> producers = g.Producers();
  // What each value is replaced by; resolved while going forwards, so that a run of any length
  // costs one step per node.
  std::vector<ValueId> same(g.values.size());
  for (size_t i = 0; i < same.size(); ++i) same[i] = static_cast<ValueId>(i);
  for (Node& n : g.nodes) {
    for (ValueId& v : n.inputs) v = v == kNoValue ? v : same[v];
    if (n.inputs.empty() || n.inputs[0] == kNoValue) continue;
    while (producers[n.inputs[0]] >= 0 && MergePair(g, n, g.nodes[producers[n.inputs[0]]]))
      changed = true;
    if (!n.op->is_identity || !n.op->is_identity(g.View(n))) continue;
    same[n.outputs[0]] = n.inputs[0];
    n.op = nullptr;
    changed = true;
  }
  for (GraphOutput& o : g.outputs) o.value = same[o.value];
  g.Compact();
  return changed;
}

}  // namespace whet::graph
