// The frame that pattern passes are written in: one sweep over the nodes in execution order, in
// which a node may turn itself into another one, have new nodes put in front of it, or be replaced
// by a value. What a pattern leaves without readers is removed at the end, so a pattern never has
// to delete what it matched. Lives on the stack of a pass; one thread.
//
// A pattern cannot fail, since the model it looks at is valid as it is: what the catalog refuses,
// and what would not be the value it replaces, is no match and changes nothing.
//
// A pattern looks upwards, at nodes that were visited before and are final. Uses are counted as
// they are at each moment: a node reads its inputs as long as something reads its outputs.
#pragma once
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace whet::graph {

class PatternRewriter {
 public:
  explicit PatternRewriter(Graph& g);

  Graph& graph() { return g_; }
  const Graph& graph() const { return g_; }
  const TensorType& type(ValueId v) const { return g_.type(v); }
  const ConstantPtr& constant(ValueId v) const { return g_.constant(v); }

  // The node that computes `v`, or null for inputs and constants. Valid until the next Emit.
  const Node* Producer(ValueId v) const;
  // The same when it is an `op`, else null.
  const Node* Producer(ValueId v, std::string_view op) const;
  // One node reads `v`, once, and it is no output of the graph.
  bool Alone(ValueId v) const { return uses_[v] == 1; }
  // The value of all elements of a constant that has few of them (a scalar, whatever its shape).
  std::optional<double> Scalar(ValueId v) const;

  // Puts a node in front of the one being visited, whose label it gets; its single output, named
  // after the label unless a name is given, or the constant that it is. None when the catalog
  // refuses the node.
  std::optional<ValueId> Emit(std::string_view op, std::vector<ValueId> inputs, Attrs attrs = {},
                              std::string_view name = {});
  ValueId Constant(std::string_view name, DType t, std::vector<int64_t> shape,
                   const std::vector<double>& values);
  ValueId Constant(std::string_view name, ConstantPtr c);
  // Makes `n` an `op`, keeping its outputs. False, and nothing is changed, when the catalog refuses
  // that or the outputs would have other types.
  bool Become(Node& n, std::string_view op, std::vector<ValueId> inputs, Attrs attrs = {});
  // All that read the only output of `n` read `v` instead; `n` goes. False, and nothing is changed,
  // when `v` is of another type.
  bool ReplaceBy(Node& n, ValueId v);

  // Calls `f` for every node that is read; it returns whether it changed anything.
  using Pattern = std::function<bool(PatternRewriter&, Node&)>;
  StatusOr<bool> Run(const Pattern& f);

 private:
  void Append(Node n);
  void Grow();
  bool IsRead(const Node& n) const;
  // One reading of each of `values` more or less, and of what computes them when that begins or
  // ceases to be read.
  void Count(std::vector<ValueId> values, int by);

  Graph& g_;
  std::string label_;  // of the node being visited
  std::vector<Node> done_;
  std::vector<int> producer_;  // per value: index into done_, or -1
  std::vector<int> uses_;      // per value; an output of the graph counts two
  std::vector<ValueId> same_;  // per value: what it was replaced by, or itself
  bool emitted_ = false;
};

// An operator of two operands one of which is constant.
struct WithConstant {
  ValueId x = kNoValue;
  ValueId constant = kNoValue;
  bool constant_first = false;
};
std::optional<WithConstant> SplitConstant(const PatternRewriter& r, const Node& n);

// "a+b" of two labels, each once.
std::string JoinLabels(const std::string& a, const std::string& b);

}  // namespace whet::graph
