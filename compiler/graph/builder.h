// Appends nodes to a graph: looks the record up, fills attributes in, infers types, and folds what
// is constant and small at once, so that the shape arithmetic of a model is known while the nodes
// after it are being built. A tensor without elements is a constant, whatever it is made of:
// nothing has to run for it. Heavy folding is left to the pass, and what all folding takes is
// limited. Importers, operator records (decomposition) and tests build graphs through it. Borrows
// the graph; one thread.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/graph/graph.h"

namespace whet::graph {

// A node that is not in the graph yet.
struct NewNode {
  Node node;  // without outputs
  std::vector<TensorType> types;
  // Its outputs, where they are known at once: constants that are small, and tensors without
  // elements. Else empty, and the node has to be appended.
  std::vector<ConstantPtr> results;
  int64_t cost = 0;  // what they took (EvaluationCost)
};
// Looks the record up, fills the attributes in, infers types and folds what is constant, small and
// takes at most `most`. What the catalog refuses is an error, and leaves the graph as it was.
StatusOr<NewNode> MakeNode(Graph& g, std::string_view op, std::vector<ValueId> inputs, Attrs attrs,
                           std::string label, int64_t most = INT64_MAX);

class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& g) : g_(g) {}

  ValueId Input(std::string_view name, TensorType type);
  ValueId Constant(std::string_view name, ConstantPtr c);
  ValueId Ints(const std::vector<int64_t>& values);  // a one-dimensional i64 constant
  void Output(std::string_view name, ValueId v);
  // What following nodes are labelled and their values named after.
  void SetLabel(std::string label) { label_ = std::move(label); }
  const std::string& label() const { return label_; }

  // The single output of the new node (or the constant it folded to).
  StatusOr<ValueId> Emit(std::string_view op, std::vector<ValueId> inputs, Attrs attrs = {});
  StatusOr<std::vector<ValueId>> EmitAll(std::string_view op, std::vector<ValueId> inputs,
                                         Attrs attrs = {});

  // Whether `v` is a constant. What is computed from constants alone, but was put off because it is
  // large, is evaluated now; the nodes behind it are left for Graph::Compact to drop.
  bool TryFold(ValueId v);

  const Graph& graph() const { return g_; }
  const TensorType& type(ValueId v) const { return g_.type(v); }

 private:
  bool Known(ValueId v) const {
    return v == kNoValue || g_.constant(v) != nullptr || put_off_.count(v) > 0;
  }
  std::vector<int> PutOffBehind(ValueId v) const;

  Graph& g_;
  std::string label_;
  // Outputs of nodes that are computed from constants alone, and the nodes.
  std::unordered_map<ValueId, int> put_off_;
  int64_t folding_ = 0;  // what has been spent on folding
};

}  // namespace whet::graph
