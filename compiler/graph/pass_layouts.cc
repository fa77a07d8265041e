// Physical layouts of values, forwards: convolutions and pools write channels-last, operators that
// follow take it on, transposes turn it around so that they cost nothing where the result is
// row-major or channels-last. Inputs and outputs of the graph are row-major, as callers have them.
// Convolution inputs that are not channels-last are copied, except images of few channels, which a
// convolution reads just as well.
#include <algorithm>
#include <map>

#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

constexpr int64_t kFewChannels = 4;

bool IsChannelsLast(const TensorType& t) {
  return t.rank() == 4 && t.Order() == std::vector<int>{0, 2, 3, 1};
}

// The layout that makes a transpose a view, if that is row-major or channels-last; else row-major.
expr::IndexMap ThroughTranspose(const TensorType& in, const TensorType& out,
                                const std::vector<int64_t>& perm) {
  std::vector<int> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int>(i);
  TensorType candidate = TensorType::Of(out.dtype, out.shape);
  std::vector<int> order;
  for (int d : in.Order()) order.push_back(inverse[d]);
  if (order.empty()) return candidate.layout;
  candidate.layout = expr::IndexMap::Permutation(order);
  // Unit extents may stand anywhere: compare what matters.
  TensorType row_major = TensorType::Of(out.dtype, out.shape), channels_last = row_major;
  if (SignificantOrder(candidate) == SignificantOrder(row_major)) return row_major.layout;
  if (out.rank() != 4) return row_major.layout;
  channels_last.layout = ChannelsLast();
  return SignificantOrder(candidate) == SignificantOrder(channels_last) ? channels_last.layout
                                                                        : row_major.layout;
}

expr::IndexMap ChooseLayout(const Graph& g, const Node& n, const TensorType& out) {
  const expr::IndexMap row_major = expr::IndexMap::Identity(out.rank());
  if (n.op->view == ViewRole::kTranspose)
    return ThroughTranspose(g.type(n.inputs[0]), out, n.attrs.Ints("perm"));
  switch (n.op->layout) {
    case LayoutRole::kRowMajor: return row_major;
    case LayoutRole::kChannelsLast: return out.rank() == 4 ? ChannelsLast() : row_major;
    case LayoutRole::kFollows:
      if (out.rank() != 4) return row_major;
      for (ValueId v : n.inputs) {
        // An operand that is repeated into the result has little say.
        if (v != kNoValue && IsChannelsLast(g.type(v)) &&
            2 * g.type(v).num_elements() >= out.num_elements())
          return ChannelsLast();
      }
      return row_major;
  }
  return row_major;
}

Node Copy(Graph& g, ValueId from, ValueId to, std::string label) {
  Node n;
  n.op = g.catalog->Find("Identity");
  n.inputs = {from};
  n.outputs = {to};
  n.label = std::move(label);
  return n;
}

}  // namespace

StatusOr<bool> AssignLayouts(Graph& g) {
  bool changed = false;
  std::vector<Node> nodes;
  std::map<ValueId, ValueId> copies;  // of values that several convolutions read
  for (Node& n : g.nodes) {
    if (n.op->layout == LayoutRole::kChannelsLast) {
      const ValueId x = n.inputs[0];
      const TensorType t = g.type(x);
      TensorType wanted = t;
      if (t.rank() == 4) wanted.layout = ChannelsLast();
      // Where only unit extents stand elsewhere the bytes are the same already.
      const bool differs = t.rank() == 4 && SignificantOrder(wanted) != SignificantOrder(t);
      if (differs && t.shape[1] > kFewChannels) {
        auto [it, fresh] = copies.try_emplace(x, kNoValue);
        if (fresh) {
          it->second = g.AddValue(g.values[x].name + "_channels_last", wanted);
          nodes.push_back(Copy(g, x, it->second, n.label));
        }
        n.inputs[0] = it->second;
        changed = true;
      }
    }
    for (ValueId o : n.outputs) {
      expr::IndexMap layout = ChooseLayout(g, n, g.type(o));
      TensorType& type = g.values[o].type;
      type.layout = std::move(layout);
      // One spelling for equal bytes, so that workloads that differ in the name of a layout are
      // one.
      if (type.IsRowMajor()) type.layout = expr::IndexMap::Identity(type.rank());
      changed |= !type.layout.IsIdentity();
    }
    nodes.push_back(std::move(n));
  }
  // Graph outputs: row-major, by a copy where the bytes differ.
  for (GraphOutput& o : g.outputs) {
    const TensorType t = g.type(o.value);
    if (t.IsRowMajor()) continue;
    const ValueId copy =
        g.AddValue(g.values[o.value].name + "_row_major", TensorType::Of(t.dtype, t.shape));
    nodes.push_back(Copy(g, o.value, copy, o.name));
    o.value = copy;
    changed = true;
  }
  g.nodes = std::move(nodes);
  return changed;
}

StatusOr<bool> MarkViews(Graph& g) {
  bool changed = false;
  for (Node& n : g.nodes) {
    const bool view = IsPhysicalView(g.View(n));
    changed |= view != n.view;
    n.view = view;
  }
  return changed;
}

// Each graph output must be memory of its own that a kernel writes: one that shares bytes with a
// graph input, a constant or another output is copied.
StatusOr<bool> SeparateOutputs(Graph& g) {
  std::vector<ValueId> root(g.values.size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<ValueId>(i);
  for (const Node& n : g.nodes) {
    if (n.view) root[n.outputs[0]] = root[n.inputs[0]];
  }
  std::vector<bool> taken(g.values.size(), false);
  for (ValueId v : g.inputs) taken[v] = true;
  bool changed = false;
  for (GraphOutput& o : g.outputs) {
    const ValueId r = root[o.value];
    if (!taken[r] && !g.constant(r)) {
      taken[r] = true;
      continue;
    }
    const ValueId copy = g.AddValue(g.values[o.value].name + "_output",
                                    TensorType::Of(g.type(o.value).dtype, g.type(o.value).shape));
    g.nodes.push_back(Copy(g, o.value, copy, o.name));
    o.value = copy;
    changed = true;
  }
  return changed;
}

}  // namespace whet::graph
