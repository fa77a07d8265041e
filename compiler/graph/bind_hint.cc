#include "compiler/graph/bind_hint.h"

#include <fmt/ranges.h>

namespace whet::graph {
namespace {

constexpr int64_t kMostTyped = 16;  // elements

}  // namespace

std::string BindHint(const Graph& g, ValueId v) {
  if (v < 0 || g.constant(v) != nullptr) return "";
  std::vector<bool> behind(g.values.size());
  behind[v] = true;
  // Nodes are in execution order.
  for (auto n = g.nodes.rbegin(); n != g.nodes.rend(); ++n) {
    bool reached = false;
    for (ValueId out : n->outputs) reached = reached || behind[out];
    for (ValueId in : n->inputs) {
      if (reached && in >= 0) behind[in] = true;
    }
  }
  std::vector<std::string> names;
  for (ValueId in : g.inputs) {
    if (!behind[in]) continue;
    if (g.type(in).num_elements() > kMostTyped) return "";
    names.push_back(g.values[in].name);
  }
  if (names.empty()) return "";
  const bool one = names.size() == 1;
  return fmt::format("; --bind NAME=VALUE makes input{} '{}' {}", one ? "" : "s",
                     fmt::join(names, "', '"), one ? "a constant" : "constants");
}

}  // namespace whet::graph
