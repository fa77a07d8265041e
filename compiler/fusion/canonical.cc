#include "compiler/fusion/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace whet::fusion {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

class Canonicalizer {
 public:
  Canonicalizer(const Graph& g, const std::vector<int>& nodes) : g_(g) {
    for (int n : nodes) {
      for (ValueId v : g.nodes[n].outputs) producer_[v] = n;
    }
    // Merkle hashes, bottom up: the nodes are in execution order.
    for (int n : nodes) HashNode(n);
  }

  Canonical Run(const std::vector<ValueId>& outputs) {
    for (ValueId v : outputs) Visit(producer_.at(v));
    // Inputs come first in the numbering, but which they are is known only now.
    std::map<ValueId, int> number;
    for (size_t i = 0; i < result_.inputs.size(); ++i)
      number[result_.inputs[i]] = static_cast<int>(i);
    int next = static_cast<int>(result_.inputs.size());
    Workload& w = result_.workload;
    for (int n : order_) {
      const Node& node = g_.nodes[n];
      WorkloadOp o{node.op, node.attrs, {}, {}};
      for (ValueId v : args_.at(n)) o.args.push_back(number.at(v));
      for (ValueId v : node.outputs) {
        o.outputs.push_back(graph::TensorType::Of(g_.type(v).dtype, g_.type(v).shape));
        number[v] = next++;
      }
      w.ops.push_back(std::move(o));
    }
    for (ValueId v : outputs) w.outputs.push_back({number.at(v), g_.type(v)});
    return std::move(result_);
  }

 private:
  const Fingerprint& HashOf(ValueId v) {
    auto [it, fresh] = hash_.try_emplace(v);
    if (fresh)
      it->second = FingerprintOf(
          fmt::format("input {} {}", g_.constant(v) ? "const" : "", g_.type(v).ToString()));
    return it->second;
  }

  void HashNode(int n) {
    const Node& node = g_.nodes[n];
    std::vector<ValueId> args = node.inputs;
    while (!args.empty() && args.back() == graph::kNoValue) args.pop_back();
    if (node.op->commutative) {
      // What holds the anchor comes first, for people and schedules alike; then by hash.
      std::stable_sort(args.begin(), args.end(), [this](ValueId a, ValueId b) {
        return rank_[a] != rank_[b] ? rank_[a] > rank_[b] : HashOf(a) < HashOf(b);
      });
    }
    int rank = 1 + static_cast<int>(node.op->kind);
    for (ValueId v : args) rank = std::max(rank, rank_[v]);
    for (ValueId v : node.outputs) rank_[v] = rank;
    std::string text =
        fmt::format("{}.{} {}", node.op->name, node.op->version, node.attrs.ToString());
    for (ValueId v : args) text += " " + HashOf(v).Hex();
    for (size_t i = 0; i < node.outputs.size(); ++i)
      hash_[node.outputs[i]] = FingerprintOf(fmt::format("{} {}", text, i));
    args_[n] = std::move(args);
  }

  // Producers before consumers, operands in canonical order; inputs numbered by first use. Groups
  // are small (kMaxOps).
  void Visit(int n) {
    if (std::find(order_.begin(), order_.end(), n) != order_.end()) return;
    for (ValueId v : args_.at(n)) {
      auto it = producer_.find(v);
      if (it != producer_.end()) {
        Visit(it->second);
      } else if (std::find(result_.inputs.begin(), result_.inputs.end(), v) ==
                 result_.inputs.end()) {
        result_.inputs.push_back(v);
        result_.workload.inputs.push_back({g_.type(v), g_.constant(v) != nullptr});
      }
    }
    order_.push_back(n);
  }

  const Graph& g_;
  std::map<ValueId, int> producer_;
  std::map<ValueId, Fingerprint> hash_;
  // The highest fusion kind among what computes a value; 0 for inputs.
  std::map<ValueId, int> rank_;
  std::map<int, std::vector<ValueId>> args_;
  std::vector<int> order_;
  Canonical result_;
};

}  // namespace

Canonical Canonicalize(const Graph& g, const std::vector<int>& nodes,
                       const std::vector<ValueId>& outputs) {
  return Canonicalizer(g, nodes).Run(outputs);
}

}  // namespace whet::fusion
