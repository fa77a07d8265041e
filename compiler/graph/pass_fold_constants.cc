// f(constants) -> constant, through the operator's own reference.
#include <algorithm>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

// A result may be this large, or twice what it is computed from: a small file must not fold into
// gigabytes, yet weights of any size may be reshaped or converted.
constexpr int64_t kMaxGrowth = int64_t{1} << 22;
// What all nodes together may take (EvaluationCost), about a minute: the others stay and run.
constexpr int64_t kMaxCost = int64_t{1} << 36;

bool Worthwhile(const Graph& g, const Node& n, int64_t* left) {
  if (!n.op->reference || n.inputs.empty()) return false;
  int64_t in = 0, out = 0;
  for (ValueId v : n.inputs) {
    if (v == kNoValue) continue;
    if (!g.constant(v)) return false;
    in += g.type(v).num_elements();
  }
  for (ValueId v : n.outputs) out += g.type(v).num_elements();
  if (out > std::min(std::max(kMaxGrowth, 2 * in), kMaxReferenceElements)) return false;
  const int64_t cost = EvaluationCost(g.View(n));
  if (cost > *left) return false;
  *left -= cost;
  return true;
}

}  // namespace

StatusOr<bool> FoldConstants(Graph& g) {
  bool changed = false;
  int64_t left = kMaxCost;
  for (Node& n : g.nodes) {
    if (!Worthwhile(g, n, &left)) continue;
    std::vector<TensorType> types;
    for (ValueId v : n.outputs) types.push_back(g.type(v));
    WHET_ASSIGN_OR_RETURN(std::vector<ConstantPtr> folded, EvaluateConstantNode(g, n, types));
    // The values keep their names and readers; only the node goes.
    for (size_t i = 0; i < folded.size(); ++i)
      g.values[n.outputs[i]].constant = std::move(folded[i]);
    n.op = nullptr;
    changed = true;
  }
  g.Compact();
  return changed;
}

}  // namespace whet::graph
