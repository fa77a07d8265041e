#include "compiler/onnx/order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

namespace whet::onnx {
namespace {

using onnx_schema::AttributeProto;
using onnx_schema::GraphProto;
using onnx_schema::NodeProto;
using Names = std::unordered_set<std::string>;

void ReadsOf(const NodeProto& n, Names* reads);

// What a graph that is an attribute reads from around it.
void ReadsOf(const GraphProto& g, Names* reads) {
  Names inside, own;
  for (const NodeProto& n : g.node()) ReadsOf(n, &inside);
  for (const auto& o : g.output()) inside.insert(o.name());
  for (const auto& i : g.input()) own.insert(i.name());
  for (const auto& t : g.initializer()) own.insert(t.name());
  for (const NodeProto& n : g.node()) own.insert(n.output().begin(), n.output().end());
  for (const std::string& name : inside) {
    if (!own.count(name)) reads->insert(name);
  }
}

void ReadsOf(const NodeProto& n, Names* reads) {
  reads->insert(n.input().begin(), n.input().end());
  for (const AttributeProto& a : n.attribute()) {
    if (a.has_g()) ReadsOf(a.g(), reads);
  }
}

}  // namespace

std::string LabelOf(const NodeProto& n) {
  if (!n.name().empty()) return n.name();
  return n.output_size() > 0 && !n.output(0).empty() ? n.output(0) : n.op_type();
}

StatusOr<std::vector<int>> ExecutionOrder(const NodeList& nodes, const Names& given) {
  std::unordered_map<std::string, int> producer;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& out : nodes[i].output()) {
      if (out.empty()) continue;
      if (given.count(out))
        return InvalidArgument("node '{}' computes '{}', which is an input or initializer",
                               LabelOf(nodes[i]), out);
      auto [it, fresh] = producer.emplace(out, i);
      if (!fresh)
        return InvalidArgument("nodes '{}' and '{}' both compute '{}'", LabelOf(nodes[it->second]),
                               LabelOf(nodes[i]), out);
    }
  }
  std::vector<int> waiting(static_cast<size_t>(nodes.size()), 0);
  std::vector<std::vector<int>> readers(static_cast<size_t>(nodes.size()));
  for (int i = 0; i < nodes.size(); ++i) {
    Names reads;
    ReadsOf(nodes[i], &reads);
    for (const std::string& in : reads) {
      auto it = producer.find(in);
      if (it == producer.end()) continue;
      ++waiting[i];
      readers[it->second].push_back(i);
    }
  }
  // Lowest first: a sorted file keeps its order.
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i) {
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int r : readers[i]) {
      if (--waiting[r] == 0) ready.push(r);
    }
  }
  if (static_cast<int>(order.size()) == nodes.size()) return order;
  const auto stuck =
      std::find_if(waiting.begin(), waiting.end(), [](int n) { return n > 0; }) - waiting.begin();
  return InvalidArgument("the graph has a cycle through or before node '{}'",
                         LabelOf(nodes[static_cast<int>(stuck)]));
}

}  // namespace whet::onnx
