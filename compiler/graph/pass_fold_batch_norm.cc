// BatchNormalization with constant parameters, y = (x - mean) * k + shift with k = scale /
// sqrt(variance + epsilon):
//   after a convolution with constant weights that nothing else reads:  w' = w * k, b' = (b - mean)
//   * k + shift elsewhere:                                                         y = x * k +
//   (shift - mean * k)
#include <fmt/format.h>

#include <cmath>

#include "compiler/graph/builder.h"
#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

struct ScaleShift {
  std::vector<double> k, shift;  // y = x * k + shift, per channel
};

bool ConstantParameters(const Graph& g, const Node& n) {
  for (size_t i = 1; i < n.inputs.size(); ++i) {
    if (!g.constant(n.inputs[i])) return false;
  }
  return true;
}

ScaleShift Parameters(const Graph& g, const Node& n) {
  auto p = [&](int i) { return g.constant(n.inputs[i])->Doubles(); };
  const std::vector<double> scale = p(1), shift = p(2), mean = p(3), variance = p(4);
  ScaleShift s;
  for (size_t c = 0; c < scale.size(); ++c) {
    s.k.push_back(scale[c] / std::sqrt(variance[c] + n.attrs.Float("epsilon")));
    s.shift.push_back(shift[c] - mean[c] * s.k[c]);
  }
  return s;
}

bool FoldIntoConv(Graph& g, const Node& bn, Node& conv, const ScaleShift& s) {
  const ConstantPtr w = g.constant(conv.inputs[1]);
  const bool has_bias = conv.inputs.size() > 2;
  if (!w || (has_bias && !g.constant(conv.inputs[2]))) return false;
  std::vector<double> weights = w->Doubles();
  const size_t per = s.k.empty() ? 0 : weights.size() / s.k.size();
  for (size_t i = 0; i < weights.size(); ++i) weights[i] *= s.k[i / per];
  std::vector<double> bias =
      has_bias ? g.constant(conv.inputs[2])->Doubles() : std::vector<double>(s.k.size(), 0);
  for (size_t c = 0; c < bias.size(); ++c) bias[c] = bias[c] * s.k[c] + s.shift[c];
  const std::string name = g.values[conv.inputs[1]].name;
  const std::vector<int64_t> channels = {static_cast<int64_t>(bias.size())};
  // New constants: other nodes may read the old ones.
  conv.inputs[1] =
      g.AddConstant(name + "_bn", Constant::OfDoubles(w->dtype(), w->shape(), weights));
  conv.inputs.resize(3);
  conv.inputs[2] =
      g.AddConstant(name + "_bn_bias", Constant::OfDoubles(w->dtype(), channels, bias));
  conv.label += "+" + bn.label;
  conv.outputs[0] = bn.outputs[0];  // the convolution's own result has no other reader
  return true;
}

}  // namespace

StatusOr<bool> FoldBatchNorm(Graph& g) {
  bool changed = false;
  const OpRecord* bn = g.catalog->Find("BatchNormalization");
  const OpRecord* conv = g.catalog->Find("Conv");
  const OpRecord* mul = g.catalog->Find("Mul");
  const OpRecord* add = g.catalog->Find("Add");
  const std::vector<int> producers = g.Producers();
  const std::vector<std::vector<int>> users = g.Users();
  std::vector<Node> rebuilt;
  for (Node& n : g.nodes) {
    if (n.op != bn || !ConstantParameters(g, n)) continue;
    const ScaleShift s = Parameters(g, n);
    const ValueId x = n.inputs[0], y = n.outputs[0];
    const int producer = x < static_cast<ValueId>(producers.size()) ? producers[x] : -1;
    const bool alone = producer >= 0 && users[x].size() == 1 && !g.IsOutput(x);
    changed = true;
    if (alone && g.nodes[producer].op == conv && FoldIntoConv(g, n, g.nodes[producer], s)) {
      n.op = nullptr;
      continue;
    }
    std::vector<int64_t> shape(g.type(x).shape.size() - 1, 1);
    shape[0] = g.type(x).shape[1];
    const DType t = g.type(x).dtype;
    const ValueId k = g.AddConstant(n.label + "_scale", Constant::OfDoubles(t, shape, s.k));
    const ValueId shift = g.AddConstant(n.label + "_shift", Constant::OfDoubles(t, shape, s.shift));
    const ValueId scaled = g.AddValue(n.label + "_scaled", g.type(x));
    // The node becomes the addition; the product goes in front of it below.
    n.op = add;
    n.attrs = {};
    n.inputs = {scaled, shift};
    n.outputs = {y};
    rebuilt.push_back({mul, {}, {x, k}, {scaled}, n.label});
  }
  if (!rebuilt.empty()) {
    std::vector<Node> nodes;
    size_t next = 0;
    for (Node& n : g.nodes) {
      if (next < rebuilt.size() && !n.inputs.empty() && n.inputs[0] == rebuilt[next].outputs[0])
        nodes.push_back(std::move(rebuilt[next++]));
      nodes.push_back(std::move(n));
    }
    g.nodes = std::move(nodes);
  }
  g.Compact();
  return changed;
}

}  // namespace whet::graph
