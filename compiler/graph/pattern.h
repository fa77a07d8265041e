// The frame that pattern passes are written in: one sweep over the nodes in execution order, in
// which a node may turn itself into another one, have new nodes put in front of it, or be replaced
// by a value. What a pattern leaves without readers is removed at the end, so a pattern never has
// to delete what it matched. Lives on the stack of a pass; one thread.
//
// A pattern looks upwards, at nodes that were visited before and are final. Uses are counted as
// readers of the original graph plus those of new nodes; they only shrink to what is true when dead
// nodes go, so `Alone` may say no where one more sweep would say yes, never the reverse.
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
  const OpRecord* Find(std::string_view op) const { return g_.catalog->Find(op); }

  // The node that computes `v`, or null for inputs and constants. Valid until the next Emit.
  const Node* Producer(ValueId v) const;
  // The same when it is an `op`, else null.
  const Node* Producer(ValueId v, std::string_view op) const;
  // One node reads `v`, once, and it is no output of the graph.
  bool Alone(ValueId v) const { return uses_[v] == 1; }
  // The value of all elements of a constant that has few of them (a scalar, whatever its shape).
  std::optional<double> Scalar(ValueId v) const;

  // Puts a node in front of the one being visited; its single output, named after the label unless
  // a name is given.
  StatusOr<ValueId> Emit(std::string_view op, std::vector<ValueId> inputs, Attrs attrs,
                         std::string label, std::string_view name = {});
  ValueId Constant(std::string_view name, DType t, std::vector<int64_t> shape,
                   const std::vector<double>& values);
  // Makes `n` an `op`, keeping its outputs, whose types must stay what they are.
  Status Become(Node& n, std::string_view op, std::vector<ValueId> inputs, Attrs attrs = {});
  // All that read the output of `n` read `v` instead; `n` goes.
  void ReplaceBy(Node& n, ValueId v);

  // Calls `f` for every node; it returns whether it changed anything.
  using Pattern = std::function<StatusOr<bool>(PatternRewriter&, Node&)>;
  StatusOr<bool> Run(const Pattern& f);

 private:
  void Append(Node n);
  void Grow();

  Graph& g_;
  std::vector<Node> done_;
  std::vector<int> producer_;  // per value: index into done_, or -1
  std::vector<int> uses_;      // per value; an output of the graph counts two
  std::vector<ValueId> same_;  // per value: what it was replaced by, or itself
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
