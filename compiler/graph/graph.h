// The graph of a model: values and the nodes that compute them, in execution order. A value is a
// graph input, a constant, or the output of one node; its index is its identity within one graph.
// Graph outputs keep the model's names however passes rename or merge the values behind them.
//
// A graph is plain data, owned by whoever holds it, copied freely (constants are shared); not for
// concurrent writing. Invariants (Verify): nodes come after the producers of their inputs, types
// agree with the records' inference, names of values are unique, view nodes really are views.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/graph/constant.h"
#include "compiler/graph/op.h"

namespace whet::graph {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an absent optional input

struct Value {
  std::string name;  // the model's, or one derived from it by a pass
  TensorType type;
  ConstantPtr constant;  // null unless a constant
};

struct Node {
  const OpRecord* op = nullptr;  // null marks a node for removal by Compact
  Attrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string label;  // the model's own name(s) of what this computes, joined by '+'
  bool view = false;  // the output is the same bytes as input 0: nothing to run
};

struct GraphOutput {
  std::string name;
  ValueId value = kNoValue;
};

struct Graph {
  std::string name;
  const OpCatalog* catalog = nullptr;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;
  std::vector<GraphOutput> outputs;

  ValueId AddValue(std::string_view wanted_name, TensorType type, ConstantPtr constant = nullptr);
  ValueId AddConstant(std::string_view wanted_name, ConstantPtr constant);
  void Rename(ValueId v, std::string_view wanted_name);  // made unique like a new value's
  const TensorType& type(ValueId v) const { return values[v].type; }
  const ConstantPtr& constant(ValueId v) const { return values[v].constant; }

  OpView View(const Node& n) const;  // borrowed from the graph: valid until values change
  // Per value: index of the node that computes it, or -1.
  std::vector<int> Producers() const;
  // Per value: the nodes that read it, in order, once each.
  std::vector<std::vector<int>> Users() const;
  bool IsOutput(ValueId v) const;
  // Every reader of `from`, graph outputs included, reads `to` instead.
  void ReplaceUses(ValueId from, ValueId to);
  // Drops removed nodes and values that nothing refers to; renumbers values. Returns whether
  // anything went.
  bool Compact();

 private:
  std::string TakeName(std::string_view wanted);
  std::unordered_map<std::string, int> taken_;  // names given out; rebuilt by Compact
};

Status Verify(const Graph& g);

// Text form. Constants of up to 16 elements are written out; larger ones as `@hash`, which Parse
// looks up in `constants`.
std::string ToString(const Graph& g);
StatusOr<Graph> ParseGraph(std::string_view text, const OpCatalog& catalog,
                           const std::vector<ConstantPtr>& constants = {});

// True when `out` can share the bytes of `in`, seen through the operator: element (i) of out is
// where the layouts put it.
bool IsPhysicalView(const OpView& v);

}  // namespace whet::graph
