#include "compiler/fusion/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "compiler/fusion/canonical.h"
#include "compiler/graph/layout_cost.h"

namespace whet::fusion {
namespace {

using graph::FusionKind;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

// Far above what models need; a group must stay well below the caps of a workload's text.
constexpr size_t kMaxGroupNodes = 24;
constexpr size_t kMaxGroupInputs = 24;
// An operand may be recomputed for at most this many times its own elements, unless it only moves
// data.
constexpr int64_t kMaxRecompute = 2;
// Taps of a window whose weights stay in registers.
constexpr int64_t kMaxTaps = 9;
// What does not stay in a second-level cache between two kernels.
constexpr int64_t kFarBytes = int64_t{2} << 20;

bool IsAnchor(const Node& n) {
  return !n.view && (n.op->kind == FusionKind::kOutFusable || n.op->kind == FusionKind::kReduction);
}

class Grouper {
 public:
  explicit Grouper(const Graph& g)
      : g_(g),
        users_(g.Users()),
        producers_(g.Producers()),
        group_(g.nodes.size(), -1),
        in_front_(g.nodes.size(), false),
        is_output_(g.values.size(), false) {
    for (const graph::GraphOutput& o : g.outputs) is_output_[o.value] = true;
  }

  // Every group has one exit node, all of whose members reach it inside of the group, and nothing
  // outside reads anything but the exit's result. Two such groups cannot depend on each other both
  // ways, so the cut graph has no cycles.
  std::vector<std::vector<int>> Run() {
    for (int anchor : Anchors()) {
      const int id = NewGroup(anchor);
      int exit = anchor;
      while (Extend(id, anchor, &exit)) {
      }
      Retreat(id, anchor, exit);
    }
    for (int n = static_cast<int>(g_.nodes.size()) - 1; n >= 0; --n) {
      if (group_[n] >= 0 || g_.nodes[n].view || Dead(n)) continue;
      const int into = ConsumerGroup(n);
      if (into >= 0) {
        Add(into, n);
      } else {
        NewGroup(n);
      }
    }
    for (std::vector<int>& nodes : groups_) std::sort(nodes.begin(), nodes.end());
    JoinDepthwise();
    // The exit is the last node of a group, and results are read only after the exit: this is an
    // execution order.
    std::sort(groups_.begin(), groups_.end(),
              [](const auto& a, const auto& b) { return a.back() < b.back(); });
    return std::move(groups_);
  }

 private:
  const Node& node(int n) const { return g_.nodes[n]; }
  FusionKind kind(int n) const { return node(n).op->kind; }
  ValueId out(int n) const { return node(n).outputs[0]; }
  bool Dead(int n) const {
    for (ValueId v : node(n).outputs) {
      if (is_output_[v] || !users_[v].empty()) return false;
    }
    return true;
  }

  // The dearest first: where two could take the same addition, it goes where it is smallest in
  // proportion. Later ones before earlier ones, since the addition has to wait for them anyway.
  std::vector<int> Anchors() const {
    std::vector<std::pair<int64_t, int>> found;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (!IsAnchor(node)) continue;
      found.emplace_back(graph::FlopsOf(g_.View(node)), static_cast<int>(n));
    }
    std::sort(found.rbegin(), found.rend());
    std::vector<int> anchors;
    for (const auto& [flops, n] : found) anchors.push_back(n);
    return anchors;
  }

  int NewGroup(int n) {
    groups_.push_back({n});
    group_[n] = static_cast<int>(groups_.size()) - 1;
    return group_[n];
  }

  void Add(int id, int n) {
    groups_[id].push_back(n);
    group_[n] = id;
    for (int user : users_[out(n)]) {
      if (group_[user] == id && (kind(user) == FusionKind::kOutFusable || in_front_[user]))
        in_front_[n] = true;
    }
  }

  bool Fits(int id, const std::vector<int>& more) const {
    std::set<int> nodes(groups_[id].begin(), groups_[id].end());
    nodes.insert(more.begin(), more.end());
    std::set<ValueId> inputs;
    for (int n : nodes) {
      for (ValueId v : node(n).inputs) {
        if (v != kNoValue && (producers_[v] < 0 || !nodes.count(producers_[v]))) inputs.insert(v);
      }
    }
    return nodes.size() <= kMaxGroupNodes && inputs.size() <= kMaxGroupInputs;
  }

  // May `n` follow an anchor with this result? One that changes the layout would make the anchor's
  // kernel write across its vectors.
  bool IsEpilogue(int n, const graph::TensorType& result) const {
    return group_[n] < 0 && !node(n).view && kind(n) <= FusionKind::kBroadcast &&
           node(n).outputs.size() == 1 && g_.type(out(n)).shape == result.shape &&
           graph::SameOrder(g_.type(out(n)), result);
  }

  // From the exit forwards to the nearest node that every path goes through (its post-dominator):
  // when all on the way are epilogue operators whose results nothing else needs, they join the
  // group and that node is the new exit.
  bool Extend(int id, int anchor, int* exit) {
    const ValueId from = out(*exit);
    const graph::TensorType& result = g_.type(out(anchor));
    if (node(anchor).outputs.size() != 1 || is_output_[from] || users_[from].empty()) return false;
    std::priority_queue<int, std::vector<int>, std::greater<>> frontier(std::greater<>{},
                                                                        users_[from]);
    std::set<int> queued(users_[from].begin(), users_[from].end());
    std::vector<int> region;
    while (true) {
      // In execution order: once one node is left, all paths have come together in it.
      const int n = frontier.top();
      frontier.pop();
      if (!IsEpilogue(n, result) || region.size() >= kMaxGroupNodes) return false;
      region.push_back(n);
      if (frontier.empty()) break;
      if (is_output_[out(n)] || users_[out(n)].empty()) return false;
      for (int user : users_[out(n)]) {
        if (queued.insert(user).second) frontier.push(user);
      }
    }
    if (!Fits(id, region)) return false;
    for (int n : region) Add(id, n);
    *exit = region.back();
    return true;
  }

  // A last operator that only widens its operand (a dequantization) is left to the kernel that
  // reads it, if that can compute it: then memory holds the narrow form.
  void Retreat(int id, int anchor, int exit) {
    while (exit != anchor) {
      const ValueId wide = out(exit), narrow = node(exit).inputs[0];
      const int before = producers_[narrow];
      const bool shrinks = g_.type(narrow).bytes() < g_.type(wide).bytes() && before >= 0 &&
                           group_[before] == id && users_[narrow].size() == 1;
      if (!shrinks || is_output_[wide] || users_[wide].size() != 1) return;
      const int reader = users_[wide][0];
      if (node(reader).view || kind(reader) > FusionKind::kReduction || group_[reader] == id)
        return;
      // The rest still ends in one node.
      for (ValueId v : node(exit).inputs) {
        if (v != narrow && v != kNoValue && producers_[v] >= 0 && group_[producers_[v]] == id)
          return;
      }
      group_[exit] = -1;
      std::erase(groups_[id], exit);
      exit = before;
    }
  }

  // The group that is the only reader of `n`, if `n` may be computed inside of it; else -1.
  int ConsumerGroup(int n) const {
    if (kind(n) > FusionKind::kInjective || node(n).outputs.size() != 1 || is_output_[out(n)])
      return -1;
    const int64_t size = g_.type(out(n)).num_elements();
    const bool moves_data = graph::FlopsOf(g_.View(node(n))) == 0;
    int id = -1;
    for (int user : users_[out(n)]) {
      if (group_[user] < 0 || (id >= 0 && group_[user] != id)) return -1;
      id = group_[user];
      // Not into the input of a contraction, which reads each element many times; but a gate into
      // that of a pointwise convolution.
      const bool takes = kind(user) <= FusionKind::kInjective ||
                         kind(user) == FusionKind::kReduction ||
                         (users_[out(n)].size() == 1 && IsGate(n) && IsPointwise(user, out(n)));
      if (!takes) return -1;
      const bool repeats = kind(user) <= FusionKind::kInjective &&
                           g_.type(out(user)).num_elements() > kMaxRecompute * size;
      if ((repeats || in_front_[user]) && !moves_data) return -1;
    }
    return id >= 0 && Fits(id, {n}) ? id : -1;
  }

  // One cheap operation on an image and something that is repeated over its positions.
  bool IsGate(int n) const {
    const graph::TensorType& y = g_.type(out(n));
    if (kind(n) != FusionKind::kBroadcast || y.rank() != 4 || node(n).inputs.size() != 2 ||
        graph::FlopsOf(g_.View(node(n))) > y.num_elements())
      return false;
    int images = 0, gates = 0;
    for (ValueId v : node(n).inputs) {
      const graph::TensorType& x = g_.type(v);
      images += x.shape == y.shape && graph::SameOrder(x, y);
      gates += x.num_elements() <= y.shape[0] * y.shape[1] && x.num_elements() < y.num_elements();
    }
    return images == 1 && gates == 1;
  }

  // A convolution of 1x1 that reads each element of `x` for one position only: what is computed on
  // the way in is repeated for each block of output channels, and is spread over the vectors of it.
  bool IsPointwise(int n, ValueId x) const {
    const Node& c = node(n);
    if (kind(n) != FusionKind::kOutFusable || c.inputs.size() < 2 || c.inputs[0] != x ||
        c.inputs[1] == x)
      return false;
    const std::vector<int64_t>&in = g_.type(x).shape, &w = g_.type(c.inputs[1]).shape,
          &y = g_.type(out(n)).shape;
    return in.size() == 4 && y.size() == 4 && in[2] == y[2] && in[3] == y[3] &&
           w == std::vector<int64_t>{y[1], in[1], 1, 1};
  }

  // A convolution of each channel by itself whose weights a kernel keeps in registers.
  bool IsDepthwise(int n) const {
    const Node& c = node(n);
    if (kind(n) != FusionKind::kOutFusable || c.inputs.size() < 2) return false;
    const std::vector<int64_t>&in = g_.type(c.inputs[0]).shape, &w = g_.type(c.inputs[1]).shape;
    return in.size() == 4 && w.size() == 4 && g_.type(out(n)).shape.size() == 4 && in[0] == 1 &&
           in[1] > 1 && w[0] == in[1] && w[1] == 1 && g_.type(out(n)).shape[1] == in[1] &&
           g_.type(out(n)).shape[2] > 1 && g_.type(out(n)).shape[3] > 1 && w[2] * w[3] > 1 &&
           w[2] * w[3] <= kMaxTaps;
  }

  bool IsImage(ValueId v) const {
    graph::TensorType wanted = g_.type(v);
    if (wanted.rank() != 4 || wanted.dtype != DType::kF32) return false;
    wanted.layout = graph::ChannelsLast();
    return graph::SameOrder(wanted, g_.type(v));
  }

  // A depthwise convolution, with what follows it, joins the pointwise one that alone reads it
  // where its operand and its result leave the second-level cache: the result then stays near.
  void JoinDepthwise() {
    for (std::vector<int>& into : groups_) {
      const auto anchor = std::find_if(into.begin(), into.end(), [&](int n) {
        return IsAnchor(node(n)) && !node(n).inputs.empty() && IsPointwise(n, node(n).inputs[0]);
      });
      if (anchor == into.end()) continue;
      const ValueId between = node(*anchor).inputs[0];
      const int exit = producers_[between];
      if (exit < 0 || node(exit).view || is_output_[between] || users_[between].size() != 1 ||
          group_[exit] == group_[*anchor])
        continue;
      std::vector<int>& from = groups_[static_cast<size_t>(group_[exit])];
      const auto depthwise = std::find_if(
          from.begin(), from.end(), [&](int n) { return IsAnchor(node(n)) && IsDepthwise(n); });
      if (depthwise == from.end() || from.size() + into.size() > kMaxGroupNodes) continue;
      const ValueId x = node(*depthwise).inputs[0];
      if (!IsImage(x) || !IsImage(between) || !IsImage(out(*anchor)) ||
          !g_.constant(node(*depthwise).inputs[1]) || !g_.constant(node(*anchor).inputs[1]) ||
          g_.type(x).bytes() + g_.type(between).bytes() < kFarBytes || !Fits(group_[*anchor], from))
        continue;
      for (int n : from) group_[n] = group_[*anchor];
      into.insert(into.end(), from.begin(), from.end());
      std::sort(into.begin(), into.end());
      from.clear();
    }
    std::erase_if(groups_, [](const std::vector<int>& nodes) { return nodes.empty(); });
  }

  const Graph& g_;
  const std::vector<std::vector<int>> users_;
  const std::vector<int> producers_;
  std::vector<int> group_;
  // A gate in front of a convolution, and what moves data into it: anything dearer would be
  // computed again for each block of output channels.
  std::vector<bool> in_front_;
  std::vector<bool> is_output_;
  std::vector<std::vector<int>> groups_;
};

std::string LabelOf(const Graph& g, const std::vector<int>& nodes) {
  std::string label;
  std::set<std::string> seen;
  for (int n : nodes) {
    if (!g.nodes[n].label.empty() && seen.insert(g.nodes[n].label).second)
      label += (label.empty() ? "" : "+") + g.nodes[n].label;
  }
  return label;
}

// The values of `nodes` that something outside reads.
std::vector<ValueId> ResultsOf(const Graph& g, const std::vector<int>& nodes,
                               const std::vector<std::vector<int>>& users) {
  std::vector<ValueId> results;
  for (int n : nodes) {
    for (ValueId v : g.nodes[n].outputs) {
      const bool outside = std::any_of(users[v].begin(), users[v].end(), [&](int u) {
        return !std::binary_search(nodes.begin(), nodes.end(), u);
      });
      if (outside || g.IsOutput(v)) results.push_back(v);
    }
  }
  return results;
}

// See SplitOf: the parts in execution order, or none.
std::vector<std::vector<int>> PartsOf(const Graph& g, const std::vector<int>& nodes,
                                      const std::vector<std::vector<int>>& users) {
  const auto anchors =
      std::count_if(nodes.begin(), nodes.end(), [&](int n) { return IsAnchor(g.nodes[n]); });
  if (nodes.size() < 2 || anchors < 1 || anchors > 2) return {};
  const int anchor =
      *std::find_if(nodes.rbegin(), nodes.rend(), [&](int n) { return IsAnchor(g.nodes[n]); });
  // Backwards from the anchor; nodes are in execution order.
  std::set<ValueId> needed(g.nodes[anchor].inputs.begin(), g.nodes[anchor].inputs.end());
  std::vector<int> before, after;
  for (size_t i = nodes.size(); i-- > 0;) {
    const int n = nodes[i];
    if (n == anchor) continue;
    const bool feeds = std::any_of(g.nodes[n].outputs.begin(), g.nodes[n].outputs.end(),
                                   [&](ValueId v) { return needed.count(v) > 0; });
    (feeds ? before : after).push_back(n);
    if (feeds) needed.insert(g.nodes[n].inputs.begin(), g.nodes[n].inputs.end());
  }
  std::vector<int> alone = {anchor};
  // Of a pair, each as the group that it would be.
  if (anchors == 2) {
    after.push_back(anchor);
    alone.clear();
  }
  std::vector<std::vector<int>> parts;
  for (std::vector<int> part : {std::move(before), std::move(alone), std::move(after)}) {
    if (part.empty()) continue;
    std::sort(part.begin(), part.end());
    if (ResultsOf(g, part, users).size() != 1) return {};
    parts.push_back(std::move(part));
  }
  return parts;
}

// `a` and `b` have an element of equal size at each place of equally many bytes.
bool SamePlaces(const graph::TensorType& a, const graph::TensorType& b) {
  return a.shape == b.shape && graph::SameOrder(a, b) && SizeOf(a.dtype) == SizeOf(b.dtype);
}

// See Group. On the way from such an input to the result there are only element-wise operators on
// values of the result's form: what an anchor, a reduction or a data movement reads is read again
// for other elements.
std::vector<int> Overwritable(const Graph& g, const Group& group,
                              const std::vector<std::vector<int>>& users,
                              const std::vector<ValueId>& storage) {
  if (group.outputs.size() != 1) return {};
  const graph::TensorType& result = g.type(group.outputs[0]);
  std::set<int> pointwise;  // nodes, from the last to the first
  for (size_t k = group.nodes.size(); k-- > 0;) {
    const Node& n = g.nodes[group.nodes[k]];
    if (n.op->kind > FusionKind::kBroadcast || n.outputs.size() != 1 ||
        g.type(n.outputs[0]).shape != result.shape ||
        !graph::SameOrder(g.type(n.outputs[0]), result))
      continue;
    const std::vector<int>& readers = users[n.outputs[0]];
    if (n.outputs[0] == group.outputs[0] ||
        std::all_of(readers.begin(), readers.end(), [&](int u) { return pointwise.count(u) > 0; }))
      pointwise.insert(group.nodes[k]);
  }
  std::vector<int> positions;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    bool fits = true;
    for (int n : group.nodes) {
      for (ValueId v : g.nodes[n].inputs) {
        if (v == kNoValue || storage[v] != group.inputs[i]) continue;
        fits &= pointwise.count(n) > 0 && SamePlaces(g.type(v), result);
      }
    }
    if (fits && !g.constant(group.inputs[i])) positions.push_back(static_cast<int>(i));
  }
  return positions;
}

std::vector<ValueId> Storage(const Graph& g) {
  std::vector<ValueId> storage(g.values.size());
  for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<ValueId>(i);
  for (const Node& n : g.nodes) {
    if (n.view) storage[n.outputs[0]] = storage[n.inputs[0]];
  }
  return storage;
}

Status CheckOutputs(const Graph& g, const std::vector<ValueId>& storage) {
  std::set<ValueId> taken(g.inputs.begin(), g.inputs.end());
  for (const graph::GraphOutput& o : g.outputs) {
    if (g.constant(storage[o.value]) || !taken.insert(storage[o.value]).second) {
      return FailedPrecondition(
          "graph output '{}' shares its bytes with an input, a constant or another output; the "
          "pass separate-outputs has not run",
          o.name);
    }
    if (!g.type(o.value).IsRowMajor())
      return FailedPrecondition("graph output '{}' is not row-major", o.name);
  }
  return OkStatus();
}

Status CheckElements(const Graph& g, const std::vector<int>& nodes) {
  for (int n : nodes) {
    for (const std::vector<ValueId>* list : {&g.nodes[n].inputs, &g.nodes[n].outputs}) {
      for (ValueId v : *list) {
        if (v == kNoValue || g.type(v).num_elements() > 0) continue;
        return InvalidArgument("node '{}' ({}): '{}' is {}, which has no elements",
                               g.nodes[n].label, g.nodes[n].op->name, g.values[v].name,
                               g.type(v).ToString());
      }
    }
  }
  return OkStatus();
}

// Counts one more instance of a workload; its index in `tasks`.
int AddTask(std::vector<Task>& tasks, std::map<Fingerprint, int>& index, Workload workload,
            const std::string& label) {
  const Fingerprint f = workload.fingerprint();
  const auto [it, fresh] = index.emplace(f, static_cast<int>(tasks.size()));
  if (fresh) tasks.push_back({std::move(workload), f, 0, label});
  ++tasks[it->second].count;
  return it->second;
}

// The instances of these workloads taken apart; still an execution order.
std::vector<std::vector<int>> SplitPieces(const Graph& g, std::vector<std::vector<int>> pieces,
                                          const std::vector<std::vector<int>>& users,
                                          const std::set<Fingerprint>& split) {
  std::vector<std::vector<int>> out;
  for (std::vector<int>& nodes : pieces) {
    std::vector<std::vector<int>> parts = PartsOf(g, nodes, users);
    if (!parts.empty() &&
        split.count(Canonicalize(g, nodes, ResultsOf(g, nodes, users)).workload.fingerprint()) >
            0) {
      out.insert(out.end(), parts.begin(), parts.end());
    } else {
      out.push_back(std::move(nodes));
    }
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.back() < b.back(); });
  return out;
}

}  // namespace

StatusOr<Partition> PartitionGraph(const Graph& g, const std::set<Fingerprint>& split) {
  Partition p;
  p.storage = Storage(g);
  WHET_RETURN_IF_ERROR(CheckOutputs(g, p.storage));
  const std::vector<std::vector<int>> users = g.Users();
  std::map<Fingerprint, int> tasks;
  std::vector<std::vector<int>> pieces = Grouper(g).Run();
  if (!split.empty()) pieces = SplitPieces(g, std::move(pieces), users, split);
  for (std::vector<int>& nodes : pieces) {
    Group group;
    group.outputs = ResultsOf(g, nodes, users);
    // Nothing has to run for results without elements.
    if (std::all_of(group.outputs.begin(), group.outputs.end(),
                    [&](ValueId v) { return g.type(v).num_elements() == 0; }))
      continue;
    WHET_RETURN_IF_ERROR(CheckElements(g, nodes));
    Canonical c = Canonicalize(g, nodes, group.outputs);
    for (ValueId v : c.inputs) group.inputs.push_back(p.storage[v]);
    group.label = LabelOf(g, nodes);
    group.nodes = std::move(nodes);
    group.overwritable = Overwritable(g, group, users, p.storage);
    group.task = AddTask(p.tasks, tasks, std::move(c.workload), group.label);
    p.groups.push_back(std::move(group));
  }
  return p;
}

Workload WorkloadOf(const Graph& g, const std::vector<int>& nodes) {
  return Canonicalize(g, nodes, ResultsOf(g, nodes, g.Users())).workload;
}

std::vector<Task> SplitOf(const Graph& g, const Group& group) {
  const std::vector<std::vector<int>> users = g.Users();
  std::vector<Task> parts;
  std::map<Fingerprint, int> index;
  for (const std::vector<int>& nodes : PartsOf(g, group.nodes, users)) {
    Canonical c = Canonicalize(g, nodes, ResultsOf(g, nodes, users));
    AddTask(parts, index, std::move(c.workload), LabelOf(g, nodes));
  }
  return parts;
}

void ShareTasks(Partition& first, Partition& other) {
  std::map<Fingerprint, int> known;
  for (const Task& t : first.tasks) known.emplace(t.fingerprint, static_cast<int>(known.size()));
  std::vector<int> index;
  for (Task& t : other.tasks) {
    auto [it, fresh] = known.emplace(t.fingerprint, static_cast<int>(first.tasks.size()));
    if (fresh) {
      first.tasks.push_back(std::move(t));
    } else {
      first.tasks[it->second].count += t.count;
    }
    index.push_back(it->second);
  }
  for (Group& g : other.groups) g.task = index[g.task];
  other.tasks.clear();
}

}  // namespace whet::fusion
