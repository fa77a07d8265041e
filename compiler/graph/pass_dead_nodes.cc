// Nodes none of whose results is read, and values that nothing refers to.
#include "compiler/graph/passes.h"

namespace whet::graph {

StatusOr<bool> RemoveDeadNodes(Graph& g) {
  std::vector<bool> live(g.values.size(), false);
  for (const GraphOutput& o : g.outputs) live[o.value] = true;
  // Backwards: readers come after producers.
  for (size_t i = g.nodes.size(); i-- > 0;) {
    Node& n = g.nodes[i];
    bool needed = false;
    for (ValueId v : n.outputs) needed |= live[v];
    if (!needed) {
      n.op = nullptr;
      continue;
    }
    for (ValueId v : n.inputs) {
      if (v != kNoValue) live[v] = true;
    }
  }
  return g.Compact();
}

}  // namespace whet::graph
