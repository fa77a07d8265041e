#include "compiler/graph/graph.h"

#include <algorithm>

namespace whet::graph {

std::string Graph::TakeName(std::string_view wanted) {
  const std::string base(wanted.empty() ? "value" : wanted);
  if (taken_.try_emplace(base, 0).second) return base;
  // The counter makes a run of equal wishes linear; a candidate may still be taken by the model's
  // own name.
  int& count = taken_[base];
  while (true) {
    std::string name = base + "_" + std::to_string(++count);
    if (!taken_.count(name)) {
      taken_.emplace(name, 0);
      return name;
    }
  }
}

ValueId Graph::AddValue(std::string_view wanted_name, TensorType type, ConstantPtr constant) {
  values.push_back({TakeName(wanted_name), std::move(type), std::move(constant)});
  return static_cast<ValueId>(values.size() - 1);
}

void Graph::Rename(ValueId v, std::string_view wanted_name) {
  if (values[v].name == wanted_name) return;
  taken_.erase(values[v].name);
  values[v].name = TakeName(wanted_name);
}

ValueId Graph::AddConstant(std::string_view wanted_name, ConstantPtr constant) {
  TensorType type = constant->type();
  return AddValue(wanted_name, std::move(type), std::move(constant));
}

OpView Graph::View(const Node& n) const {
  OpView v{n.op, &n.attrs, {}, {}};
  for (ValueId i : n.inputs) v.in.push_back(i == kNoValue ? nullptr : &values[i].type);
  for (ValueId o : n.outputs) v.out.push_back(&values[o].type);
  return v;
}

std::vector<int> Graph::Producers() const {
  std::vector<int> producers(values.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op == nullptr) continue;
    for (ValueId o : nodes[i].outputs) producers[o] = static_cast<int>(i);
  }
  return producers;
}

std::vector<std::vector<int>> Graph::Users() const {
  std::vector<std::vector<int>> users(values.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op == nullptr) continue;
    for (ValueId v : nodes[i].inputs) {
      if (v == kNoValue) continue;
      if (users[v].empty() || users[v].back() != static_cast<int>(i))
        users[v].push_back(static_cast<int>(i));
    }
  }
  return users;
}

bool Graph::IsOutput(ValueId v) const {
  return std::any_of(outputs.begin(), outputs.end(),
                     [v](const GraphOutput& o) { return o.value == v; });
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  for (Node& n : nodes) std::replace(n.inputs.begin(), n.inputs.end(), from, to);
  for (GraphOutput& o : outputs) {
    if (o.value == from) o.value = to;
  }
}

bool Graph::Compact() {
  const size_t nodes_before = nodes.size(), values_before = values.size();
  std::erase_if(nodes, [](const Node& n) { return n.op == nullptr; });
  std::vector<bool> used(values.size(), false);
  auto mark = [&](ValueId v) {
    if (v != kNoValue) used[v] = true;
  };
  for (const Node& n : nodes) {
    for (ValueId v : n.inputs) mark(v);
    for (ValueId v : n.outputs) mark(v);
  }
  for (ValueId v : inputs) mark(v);
  for (const GraphOutput& o : outputs) mark(o.value);
  std::vector<ValueId> renumbered(values.size(), kNoValue);
  std::vector<Value> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!used[i]) continue;
    renumbered[i] = static_cast<ValueId>(kept.size());
    kept.push_back(std::move(values[i]));
  }
  values = std::move(kept);
  auto renumber = [&](ValueId& v) {
    if (v != kNoValue) v = renumbered[v];
  };
  for (Node& n : nodes) {
    std::for_each(n.inputs.begin(), n.inputs.end(), renumber);
    std::for_each(n.outputs.begin(), n.outputs.end(), renumber);
  }
  std::for_each(inputs.begin(), inputs.end(), renumber);
  for (GraphOutput& o : outputs) renumber(o.value);
  taken_.clear();
  for (const Value& v : values) taken_.emplace(v.name, 0);
  return nodes.size() != nodes_before || values.size() != values_before;
}

namespace {

// The physical order of a tensor's dimensions, counted without those of extent 1.
std::vector<int> SignificantRanks(const TensorType& t) {
  std::vector<int> order = SignificantOrder(t), sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int& d : order)
    d = static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(), d) - sorted.begin());
  return order;
}

}  // namespace

bool IsPhysicalView(const OpView& v) {
  if (v.in.empty() || v.in[0] == nullptr || v.out.empty() || v.in[0]->dtype != v.out[0]->dtype)
    return false;
  const TensorType& in = *v.in[0];
  const TensorType& out = *v.out[0];
  switch (v.op->view) {
    case ViewRole::kNone: return false;
    case ViewRole::kReshape:
      // Up to extents of 1 any equal layout will do; otherwise only row-major order is kept.
      if (WithoutUnits(in.shape) == WithoutUnits(out.shape))
        return SignificantRanks(in) == SignificantRanks(out);
      return in.IsRowMajor() && out.IsRowMajor();
    case ViewRole::kTranspose: {
      const std::vector<int64_t>& perm = v.attrs->Ints("perm");
      std::vector<int> through;
      for (int d : SignificantOrder(out)) through.push_back(static_cast<int>(perm[d]));
      return through == SignificantOrder(in);
    }
  }
  return false;
}

}  // namespace whet::graph
