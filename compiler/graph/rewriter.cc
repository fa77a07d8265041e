#include "compiler/graph/rewriter.h"

#include <utility>

namespace whet::graph {

Rewriter::Rewriter(Graph& g) : g_(g), builder_(g), uses_(g.values.size(), 0) {
  for (const Node& n : g.nodes) {
    for (ValueId v : n.inputs) {
      if (v != kNoValue) ++uses_[v];
    }
  }
  for (const GraphOutput& o : g.outputs) ++uses_[o.value];
}

const Node* Rewriter::Producer(ValueId v) {
  for (; registered_ < g_.nodes.size(); ++registered_) {
    for (ValueId o : g_.nodes[registered_].outputs) {
      producer_.resize(g_.values.size(), -1);
      producer_[o] = static_cast<int>(registered_);
    }
  }
  const bool known = v >= 0 && v < static_cast<ValueId>(producer_.size()) && producer_[v] >= 0;
  return known ? &g_.nodes[producer_[v]] : nullptr;
}

StatusOr<bool> Rewriter::Run(const Replace& replace) {
  bool changed = false;
  const std::vector<Node> nodes = std::exchange(g_.nodes, {});
  std::vector<ValueId> same(g_.values.size());
  for (size_t i = 0; i < same.size(); ++i) same[i] = static_cast<ValueId>(i);
  for (Node n : nodes) {
    for (ValueId& v : n.inputs) v = v == kNoValue ? v : same[v];
    if (n.outputs.size() == 1) {
      builder_.SetLabel(n.label);
      WHET_ASSIGN_OR_RETURN(const std::optional<ValueId> by, replace(n));
      uses_.resize(g_.values.size(), 0);
      if (by) {
        same[n.outputs[0]] = *by;
        uses_[*by] += uses_[n.outputs[0]];
        changed = true;
        continue;
      }
    }
    g_.nodes.push_back(std::move(n));
  }
  for (GraphOutput& o : g_.outputs) o.value = same[o.value];
  if (changed) g_.Compact();
  return changed;
}

}  // namespace whet::graph
