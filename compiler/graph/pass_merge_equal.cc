// Nodes with equal operator, attributes and inputs compute the same: the later ones go. Constants
// with equal type and bytes are one.
#include <fmt/format.h>

#include <unordered_map>

#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

std::string KeyOf(const Node& n) {
  std::string key = n.op->name + n.attrs.ToString();
  for (ValueId v : n.inputs) key += fmt::format(" {}", v);
  return key;
}

bool MergeConstants(Graph& g) {
  std::unordered_map<std::string, ValueId> first;
  std::vector<ValueId> same(g.values.size());
  bool changed = false;
  for (size_t i = 0; i < g.values.size(); ++i) {
    same[i] = static_cast<ValueId>(i);
    if (!g.values[i].constant) continue;
    auto [it, fresh] = first.emplace(g.values[i].constant->hash().Hex(), static_cast<ValueId>(i));
    same[i] = it->second;
  }
  for (Node& n : g.nodes) {
    for (ValueId& v : n.inputs) {
      if (v == kNoValue || same[v] == v) continue;
      v = same[v];
      changed = true;
    }
  }
  return changed;
}

}  // namespace

StatusOr<bool> MergeEqualNodes(Graph& g) {
  bool changed = MergeConstants(g);
  std::unordered_map<std::string, int> first;
  // One value can replace many: look replacements up instead of rewriting the graph for each.
  std::vector<ValueId> same(g.values.size());
  for (size_t i = 0; i < same.size(); ++i) same[i] = static_cast<ValueId>(i);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    Node& n = g.nodes[i];
    for (ValueId& v : n.inputs) v = v == kNoValue ? v : same[v];
    auto [it, fresh] = first.emplace(KeyOf(n), static_cast<int>(i));
    if (fresh) continue;
    for (size_t k = 0; k < n.outputs.size(); ++k)
      same[n.outputs[k]] = g.nodes[it->second].outputs[k];
    n.op = nullptr;
    changed = true;
  }
  for (GraphOutput& o : g.outputs) o.value = same[o.value];
  g.Compact();
  return changed;
}

}  // namespace whet::graph
