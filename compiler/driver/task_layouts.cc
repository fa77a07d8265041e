#include "compiler/driver/task_layouts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "compiler/graph/layout_cost.h"
#include "compiler/task/workload_program.h"
#include "db/record/plan.h"

namespace whet::driver {
namespace {

using expr::IndexMap;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::OpView;
using graph::TensorType;
using graph::ValueId;

// Of starting a kernel, which estimates leave out: it is the same for all schedules of a task.
constexpr double kLaunchNs = 300;

// Whether its layout makes a difference.
bool HasOrder(const TensorType& t) { return graph::WithoutUnits(t.shape).size() > 1; }

fusion::Workload OneOperator(const OpView& v) {
  fusion::Workload w;
  w.inputs.push_back({*v.in[0], false});
  w.ops.push_back({v.op, *v.attrs, {0}, {TensorType::Of(v.out[0]->dtype, v.out[0]->shape)}});
  w.outputs.push_back({1, *v.out[0]});
  return w;
}

// A fused group of the first selection: its nodes in the graph before layouts, and how values lay
// for it.
struct Place {
  std::vector<int> nodes;  // empty: copies that the selection made
  ValueId result = kNoValue;
  TensorType lay;                        // of the result
  std::map<ValueId, IndexMap> operands;  // constants left out
  bool meets = false;                    // some of these lie row-major, some do not
  bool follows = false;                  // operands of the result's rank are best read as it lies
  bool fixed = false;                    // the result's layout is left to the roofline
};

// By the roofline, rows of pixels cost more than twice what a copy would.
bool WritesRowsBadly(const Graph& g, const Node& n) {
  const TensorType& rows = g.type(n.outputs[0]);
  if (n.op->layout != graph::LayoutRole::kChannelsLast || rows.rank() != 4) return false;
  TensorType last = rows;
  last.layout = graph::ChannelsLast();
  const graph::LayoutCost& cost = graph::RooflineLayoutCost();
  return cost.Compute(g.View(n), rows) - cost.Compute(g.View(n), last) > 2 * cost.Copy(last, rows);
}

Place PlaceOf(const Graph& before, const Graph& first, const fusion::Group& group,
              const std::vector<int>& producers) {
  Place p;
  p.follows = true;
  bool rows = false, others = false;
  auto look = [&](ValueId v) {
    if (v == kNoValue || first.constant(v) || !HasOrder(first.type(v))) return;
    (first.type(v).IsRowMajor() ? rows : others) = true;
  };
  for (ValueId v : group.outputs) look(v);
  std::set<ValueId> inner;
  for (int n : group.nodes) {
    const Node& as_first = first.nodes[static_cast<size_t>(n)];
    for (ValueId v : as_first.inputs) look(v);
    const auto y = static_cast<size_t>(as_first.outputs[0]);
    inner.insert(as_first.outputs[0]);
    if (y >= producers.size()) continue;  // a copy; in `before` its readers read the value itself
    p.nodes.push_back(producers[y]);
    const Node& node = before.nodes[static_cast<size_t>(producers[y])];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId x = node.inputs[i];
      if (x != kNoValue && !before.constant(x) && !inner.count(x))
        p.operands[x] = first.type(as_first.inputs[i]).layout;
    }
    p.follows &=
        node.op->kind != graph::FusionKind::kOutFusable && node.op->view == graph::ViewRole::kNone;
    p.fixed |= WritesRowsBadly(before, node);
  }
  p.meets = rows && others;
  p.result = group.outputs[0];
  p.lay = first.type(p.result);
  if (group.outputs.size() != 1 || static_cast<size_t>(p.result) >= producers.size())
    p.nodes.clear();
  return p;
}

class TaskLayoutCost : public graph::LayoutCost {
 public:
  TaskLayoutCost(const Graph& before, const Graph& first, const fusion::Partition& partition)
      : g_(before), scratch_(before), place_of_(before.nodes.size(), -1) {
    const std::vector<int> producers = g_.Producers();
    std::vector<Place> all;
    std::set<ValueId> met;  // what neighbours of such places share with them
    for (const fusion::Group& group : partition.groups) {
      all.push_back(PlaceOf(g_, first, group, producers));
      if (!all.back().meets) continue;
      any_ = true;
      if (all.back().nodes.empty()) copied_.insert(all.back().lay.shape);
      met.insert(group.outputs.begin(), group.outputs.end());
      for (ValueId v : group.inputs) {
        if (!first.constant(v) && HasOrder(first.type(v))) met.insert(v);
      }
    }
    for (size_t i = 0; i < all.size() && any_; ++i) {
      const fusion::Group& group = partition.groups[i];
      auto is_met = [&](ValueId v) { return met.count(v) > 0; };
      if (all[i].nodes.empty() || (!std::any_of(group.inputs.begin(), group.inputs.end(), is_met) &&
                                   !is_met(all[i].result)))
        continue;
      for (int n : all[i].nodes)
        place_of_[static_cast<size_t>(n)] = static_cast<int>(places_.size());
      copied_.insert(all[i].lay.shape);
      for (const auto& [v, layout] : all[i].operands) copied_.insert(g_.type(v).shape);
      places_.push_back(std::move(all[i]));
    }
  }

  bool any() const { return any_; }
  void Ask(TaskTimes* times) {
    times_ = times;
    group_ns_.clear();
  }
  const Status& status() const { return status_; }

  double Compute(const OpView& v, const TensorType& out) const override {
    const Place* p = At(v);
    if (!p || p->fixed) return graph::RooflineLayoutCost().Compute(v, out);
    return g_.nodes[static_cast<size_t>(v.node)].outputs[0] == p->result ? GroupNs(*p, out.layout)
                                                                         : 0;
  }

  double Read(const OpView& v, int input, const TensorType& in,
              const TensorType& out) const override {
    const double roofline = graph::RooflineLayoutCost().Read(v, input, in, out);
    const Place* p = At(v);
    if (!p || std::isinf(roofline)) return roofline;
    const ValueId x = g_.nodes[static_cast<size_t>(v.node)].inputs[static_cast<size_t>(input)];
    const bool as_first = out.shape != p->lay.shape || graph::SameOrder(out, p->lay);
    if (!p->operands.count(x) || (p->fixed && !as_first)) return roofline;
    const IndexMap& result = as_first ? p->lay.layout : out.layout;
    return GroupNs(*p, result, x, &in.layout) - GroupNs(*p, result);
  }

  double Copy(const TensorType& from, const TensorType& to) const override {
    if (from.shape != to.shape || !copied_.count(from.shape))
      return graph::RooflineLayoutCost().Copy(from, to);
    const graph::Attrs none;
    return Ns(OneOperator({g_.catalog->Find("Identity"), &none, {&from}, {&to}}));
  }

  double Move(const OpView& v) const override {
    const Place* p = At(v);
    return p && p->nodes.size() == 1 ? Ns(OneOperator(v)) : LayoutCost::Move(v);
  }

 private:
  const Place* At(const OpView& v) const {
    const int p = v.node < 0 ? -1 : place_of_[static_cast<size_t>(v.node)];
    return p < 0 ? nullptr : &places_[static_cast<size_t>(p)];
  }

  // The group as a task that writes this layout, with operands as they suit it, but for `x`.
  double GroupNs(const Place& p, const IndexMap& result, ValueId x = kNoValue,
                 const IndexMap* layout = nullptr) const {
    const auto [known, fresh] = group_ns_.try_emplace(
        {&p, result.AsPermutation(), x, layout ? layout->AsPermutation() : std::vector<int>()}, 0);
    if (!fresh) return known->second;
    auto type = [&](ValueId v) -> TensorType& {
      return scratch_.values[static_cast<size_t>(v)].type;
    };
    for (const auto& [v, as_first] : p.operands) {
      const bool suits = p.follows && type(v).rank() == p.lay.rank() && HasOrder(type(v));
      type(v).layout = v == x ? *layout : suits ? result : as_first;
    }
    type(p.result).layout = result;
    return known->second = Ns(fusion::WorkloadOf(scratch_, p.nodes));
  }

  double Ns(const fusion::Workload& w) const {
    const StatusOr<double> ns = times_->Best(w.ToString());
    if (ns.ok()) return *ns;
    if (status_.ok()) status_ = ns.status();
    return 0;
  }

  const Graph& g_;
  mutable Graph scratch_;  // with the layouts that are asked about
  std::vector<Place> places_;
  std::vector<int> place_of_;  // by node; -1: nowhere
  std::set<std::vector<int64_t>> copied_;
  mutable std::map<std::tuple<const Place*, std::vector<int>, ValueId, std::vector<int>>, double>
      group_ns_;
  bool any_ = false;
  TaskTimes* times_ = nullptr;
  mutable Status status_ = OkStatus();
};

using Counted = std::map<std::string, int64_t>;

Counted CountsOf(const fusion::Partition& p) {
  Counted counts;
  for (const fusion::Group& g : p.groups)
    ++counts[p.tasks[static_cast<size_t>(g.task)].workload.ToString()];
  return counts;
}

// What `a` runs and `b` does not.
Counted Less(const Counted& a, const Counted& b) {
  Counted rest;
  for (const auto& [text, count] : a) {
    const auto there = b.find(text);
    const int64_t more = count - (there == b.end() ? 0 : there->second);
    if (more > 0) rest[text] = more;
  }
  return rest;
}

}  // namespace

StatusOr<TaskTimes> TaskTimes::Of(const Target& target, int threads, Records* records,
                                  const std::vector<fusion::Task>& tasks) {
  TaskTimes times(target, {Machine::Typical(target), threads});
  if (records == nullptr) return times;
  times.records_ = records;
  std::vector<std::string> texts;
  for (const fusion::Task& t : tasks) texts.push_back(t.workload.ToString());
  WHET_ASSIGN_OR_RETURN(const std::vector<TaskRecord> found,
                        records->Find(texts, target.FeatureSet(), threads));
  std::map<Fingerprint, int> timed;
  for (const TaskRecord& r : found) {
    for (const auto& [device, ns] : r.calm_ns) ++timed[device];
  }
  int most = 0;
  for (const auto& [device, n] : timed) {
    if (n > most) most = n, times.device_ = device;
  }
  WHET_ASSIGN_OR_RETURN(const std::string figures, records->Machine(target.FeatureSet()));
  times.conditions_ = schedule::Conditions::Of(figures, target, threads);
  return times;
}

StatusOr<double> TaskTimes::Estimated(const std::string& workload) {
  const auto known = estimated_.find(workload);
  if (known != estimated_.end()) return known->second;
  WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(workload));
  const schedule::Space space(std::move(w.program), target_, conditions_);
  const double ns = kLaunchNs + space.PriorNs(space.Default());
  estimated_[workload] = ns;
  return ns;
}

StatusOr<std::optional<double>> TaskTimes::Measured(const std::string& workload) {
  if (!device_) return std::optional<double>();
  const auto known = measured_.find(workload);
  if (known != measured_.end()) return known->second;
  WHET_ASSIGN_OR_RETURN(const std::vector<TaskRecord> found,
                        records_->Find({workload}, target_.FeatureSet(), conditions_.threads));
  std::optional<double> ns;
  const auto own = found[0].calm_ns.find(*device_);
  if (own != found[0].calm_ns.end()) ns = own->second;
  measured_[workload] = ns;
  return ns;
}

StatusOr<double> TaskTimes::Best(const std::string& workload) {
  WHET_ASSIGN_OR_RETURN(const std::optional<double> ns, Measured(workload));
  if (ns) return *ns;
  WHET_ASSIGN_OR_RETURN(const double estimated, Estimated(workload));
  return scale_ * estimated;
}

StatusOr<bool> TaskTimes::Calibrate() {
  double measured = 0, estimated = 0;
  for (const auto& [workload, ns] : measured_) {
    if (!ns) continue;
    WHET_ASSIGN_OR_RETURN(const double prior, Estimated(workload));
    measured += *ns;
    estimated += prior;
  }
  if (measured <= estimated) return false;
  scale_ = measured / estimated;
  return true;
}

StatusOr<TaskLayouts> LayoutsByTasks(const Graph& before, const Graph& first,
                                     const fusion::Partition& partition,
                                     const std::function<StatusOr<TaskTimes>()>& times_of,
                                     const std::function<StatusOr<const fusion::Partition*>(
                                         const std::vector<graph::StoredLayout>&)>& cut) {
  TaskLayouts result;
  TaskLayoutCost cost(before, first, partition);
  if (!cost.any()) return result;
  WHET_ASSIGN_OR_RETURN(TaskTimes times, times_of());
  cost.Ask(&times);
  std::vector<graph::StoredLayout> stored = graph::ChooseLayouts(before, cost);
  WHET_ASSIGN_OR_RETURN(const bool calibrated, times.Calibrate());
  if (calibrated) {
    cost.Ask(&times);
    stored = graph::ChooseLayouts(before, cost);
  }
  WHET_RETURN_IF_ERROR(cost.status());
  WHET_ASSIGN_OR_RETURN(const fusion::Partition* other, cut(stored));
  LayoutCosts& c = result.costs;
  const Counted gone = Less(CountsOf(partition), CountsOf(*other)),
                come = Less(CountsOf(*other), CountsOf(partition));
  for (const auto& [text, count] : gone) {
    WHET_ASSIGN_OR_RETURN(const double ns, times.Best(text));
    c.tasks += count;
    c.ns += static_cast<double>(count) * ns;
  }
  for (const auto& [text, count] : come) {
    WHET_ASSIGN_OR_RETURN(const double ns, times.Best(text));
    c.other_tasks += count;
    c.other_ns += static_cast<double>(count) * ns;
  }
  c.taken = c.other_ns < (1 - db::kPlanMargin) * c.ns;
  if (c.taken) result.stored = stored;
  return result;
}

}  // namespace whet::driver
