#include "compiler/graph/structure.h"

#include <fmt/format.h>

#include <map>

namespace whet::graph {

Fingerprint StructureOf(const Graph& g) {
  std::string text = "whet-structure 1\n";
  std::map<ValueId, int> number;  // in order of first mention
  auto mention = [&](ValueId v) {
    if (v == kNoValue) return std::string("-");
    const auto [it, fresh] = number.try_emplace(v, static_cast<int>(number.size()));
    if (!fresh) return std::to_string(it->second);
    const TensorType& t = g.type(v);
    return fmt::format("{}:{}{}", it->second, g.constant(v) ? "const " : "",
                       TensorType::Of(t.dtype, t.shape).ToString());
  };
  for (ValueId v : g.inputs) text += "input " + mention(v) + "\n";
  for (const Node& n : g.nodes) {
    text += fmt::format("{}.{}", n.op->name, n.op->version);
    for (ValueId v : n.inputs) text += " " + mention(v);
    text += " ->";
    for (ValueId v : n.outputs) text += " " + mention(v);
    text += " " + n.attrs.ToString() + "\n";
  }
  for (const GraphOutput& o : g.outputs) text += "output " + mention(o.value) + "\n";
  return FingerprintOf(text);
}

}  // namespace whet::graph
