// One walk over a graph that replaces nodes: the nodes are emitted again in order, and where
// `replace` names another value for a node's result, later nodes and outputs read that one instead.
// What is no longer read stays for remove-dead-nodes. For passes; lives on their stack.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "compiler/graph/builder.h"

namespace whet::graph {

class Rewriter {
 public:
  explicit Rewriter(Graph& g);

  // Called for each node with one output, its inputs resolved; emits what it needs with builder().
  using Replace = std::function<StatusOr<std::optional<ValueId>>(const Node&)>;
  StatusOr<bool> Run(const Replace& replace);

  GraphBuilder& builder() { return builder_; }
  const Graph& graph() const { return g_; }
  // The node emitted so far that computes `v`; null for inputs and constants.
  const Node* Producer(ValueId v);
  // Readers of the value in the original graph; a replacement counts those of what it replaces.
  int Uses(ValueId v) const { return uses_[v]; }

 private:
  Graph& g_;
  GraphBuilder builder_;
  std::vector<int> uses_;
  std::vector<int> producer_;
  size_t registered_ = 0;
};

}  // namespace whet::graph
