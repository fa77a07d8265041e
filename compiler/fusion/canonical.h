// From a set of nodes of a graph to a workload in canonical form. Internal to compiler/fusion.
#pragma once
#include <vector>

#include "compiler/fusion/workload.h"
#include "compiler/graph/graph.h"

namespace whet::fusion {

struct Canonical {
  Workload workload;
  std::vector<graph::ValueId> inputs;  // values of the graph, in the workload's order
};

// `nodes` in execution order; `outputs` are the values that others read. Two groups that compute
// the same, whatever their names, operand order of commutative operators, or place in the model,
// give equal texts.
Canonical Canonicalize(const graph::Graph& g, const std::vector<int>& nodes,
                       const std::vector<graph::ValueId>& outputs);

}  // namespace whet::fusion
