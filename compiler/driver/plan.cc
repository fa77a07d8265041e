#include "compiler/driver/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "compiler/driver/prepare.h"
#include "compiler/graph/structure.h"
#include "db/record/plan.h"

namespace whet::driver {
namespace {

using Times = std::map<Fingerprint, double>;

// Times of one device: sums of times that were taken on different ones would compare the devices.
// The one that has timed most of the workloads; of equals the one with the smaller fingerprint.
StatusOr<Times> TimesOf(const std::map<Fingerprint, std::string>& texts, Records& records,
                        const std::string& feature_set, int threads) {
  std::vector<std::string> workloads;
  for (const auto& [print, text] : texts) workloads.push_back(text);
  WHET_ASSIGN_OR_RETURN(const std::vector<TaskRecord> found,
                        records.Find(workloads, feature_set, threads));
  std::map<Fingerprint, Times> by_device;
  size_t i = 0;
  for (const auto& [print, text] : texts) {
    for (const auto& [device, ns] : found[i++].calm_ns) by_device[device][print] = ns;
  }
  Times times;
  for (auto& [device, own] : by_device) {
    if (own.size() > times.size()) times = std::move(own);
  }
  return times;
}

std::optional<double> Lookup(const Times& times, const Fingerprint& workload) {
  const auto it = times.find(workload);
  return it == times.end() ? std::nullopt : std::optional<double>(it->second);
}

std::vector<db::PlanRow::Part> ToParts(const std::map<Fingerprint, int64_t>& counts) {
  std::vector<db::PlanRow::Part> parts;
  for (const auto& [workload, count] : counts) parts.push_back({workload, count});
  return parts;
}

}  // namespace

StatusOr<const graph::LayoutCost*> LayoutCostOf(const std::string& name) {
  if (name == kLayoutNames[0]) return &graph::RooflineLayoutCost();
  if (name == kLayoutNames[1]) return &graph::RowMajorLayoutCost();
  if (name == kLayoutNames[2]) return &graph::ChannelsLastLayoutCost();
  return InvalidArgument("there are no layouts '{}'; there are {}", name,
                         fmt::join(kLayoutNames, ", "));
}

StatusOr<Plan> ChoosePlan(const Fingerprint& region, Records& records,
                          const std::string& feature_set, int threads) {
  Plan plan;
  WHET_ASSIGN_OR_RETURN(PlanRows network, records.Plans({region}));
  std::erase_if(network.rows,
                [](const db::PlanRow& r) { return !LayoutCostOf(r.alternative).ok(); });
  std::vector<Fingerprint> workloads;
  for (const auto& [print, text] : network.texts) workloads.push_back(print);
  WHET_ASSIGN_OR_RETURN(PlanRows fused, records.Plans(workloads));
  if (network.rows.size() < 2 && fused.rows.empty()) {  // nothing to choose from, or to look up
    plan.why = db::ChoosePlan(network.rows, plan.layouts, {}).why;
    return plan;
  }
  std::map<Fingerprint, std::string> texts = network.texts;
  texts.merge(fused.texts);
  WHET_ASSIGN_OR_RETURN(Times times, TimesOf(texts, records, feature_set, threads));
  const Times whole = times;
  std::map<Fingerprint, const db::PlanRow*> taken_apart;
  for (const db::PlanRow& row : fused.rows) {
    if (row.alternative != kSplit) continue;
    const std::vector<db::PlanRow> both = {{row.region, kFused, {{row.region, 1}}, 0}, row};
    const db::PlanChoice choice =
        db::ChoosePlan(both, kFused, [&](const Fingerprint& f) { return Lookup(whole, f); });
    if (choice.alternative != kSplit) continue;
    taken_apart[row.region] = &row;
    times[row.region] = choice.chosen_ns;
  }
  const db::PlanChoice choice = db::ChoosePlan(
      network.rows, kLayoutNames[0], [&](const Fingerprint& f) { return Lookup(times, f); });
  const auto own = std::find_if(network.rows.begin(), network.rows.end(),
                                [](const auto& r) { return r.alternative == kLayoutNames[0]; });
  plan.why = choice.why;
  plan.layouts = choice.alternative;
  plan.chosen_ns = choice.chosen_ns;
  std::map<Fingerprint, int64_t> parts;
  for (const db::PlanRow& row : network.rows) {
    if (row.alternative != choice.alternative) continue;
    for (const db::PlanRow::Part& p : row.parts) {
      const auto split = taken_apart.find(p.workload);
      if (split == taken_apart.end()) {
        parts[p.workload] += p.count;
        continue;
      }
      plan.split.insert(p.workload);
      for (const db::PlanRow::Part& q : split->second->parts)
        parts[q.workload] += p.count * q.count;
    }
  }
  plan.parts = ToParts(parts);
  if (own != network.rows.end()) {
    plan.own_ns =
        db::TimeOf(*own, [&](const Fingerprint& f) { return Lookup(whole, f); }).value_or(0);
  }
  if (!plan.split.empty() || plan.layouts != kLayoutNames[0]) {
    plan.source = "measured";
    plan.why.clear();
  }
  return plan;
}

std::vector<db::PlanRow::Part> PartsOf(const fusion::Partition& partition) {
  std::map<Fingerprint, int64_t> parts;
  for (const fusion::Group& g : partition.groups)
    parts[partition.tasks[static_cast<size_t>(g.task)].fingerprint] += 1;
  return ToParts(parts);
}

StatusOr<Alternatives> ListAlternatives(const ModelOptions& options, bool all_ways) {
  WHET_ASSIGN_OR_RETURN(const Target target, Target::Parse(options.target));
  Alternatives all;
  std::map<Fingerprint, TaskInfo> tasks;
  std::vector<Fingerprint> order;         // of first use
  std::map<Fingerprint, int64_t> counts;  // of the set of shapes at hand
  auto add_tasks = [&](const std::vector<fusion::Task>& more) {
    for (TaskInfo& t : DescribeTasks(more, {})) {
      const Fingerprint print = FingerprintOf(t.workload);
      const auto [it, fresh] = tasks.try_emplace(print, t);
      if (fresh) {
        order.push_back(print);
        it->second.count = 0;
      }
      counts[print] = std::max(counts[print], t.count);
    }
  };
  std::set<Fingerprint> seen;
  ModelOptions one = options;
  one.more_shapes.clear();
  std::vector<std::map<std::string, std::vector<int64_t>>> sets = options.more_shapes;
  sets.insert(sets.begin(), options.shapes);
  for (const auto& shapes : sets) {
    one.shapes = shapes;
    WHET_ASSIGN_OR_RETURN(const graph::Graph imported, ImportModel(one));
    const Fingerprint region = graph::StructureOf(imported);
    counts.clear();
    std::set<Fingerprint> here;
    std::vector<std::vector<db::PlanRow::Part>> known;
    for (const char* layouts : kLayoutNames) {
      Plan plan;
      plan.layouts = layouts;
      WHET_ASSIGN_OR_RETURN(const CutModel cut, Cut(imported, target, options, nullptr, plan));
      const graph::Graph& g = cut.graph;
      const fusion::Partition& p = cut.partition;
      std::vector<db::PlanRow::Part> parts = PartsOf(p);
      if (parts.empty() || std::find(known.begin(), known.end(), parts) != known.end()) continue;
      add_tasks(p.tasks);
      all.plans.push_back({region, layouts, parts, 0});
      if (!all_ways) break;
      known.push_back(std::move(parts));
      for (const fusion::Group& group : p.groups) {
        const fusion::Task& task = p.tasks[static_cast<size_t>(group.task)];
        if (!here.insert(task.fingerprint).second) continue;
        std::vector<fusion::Task> split = fusion::SplitOf(g, group);
        if (split.empty()) continue;
        std::map<Fingerprint, int64_t> parts_of_one;
        for (fusion::Task& t : split) {
          parts_of_one[t.fingerprint] += t.count;
          t.count *= task.count;
        }
        add_tasks(split);
        if (seen.insert(task.fingerprint).second)
          all.plans.push_back({task.fingerprint, kSplit, ToParts(parts_of_one), 0});
      }
    }
    for (const auto& [print, count] : counts) tasks.at(print).count += count;
  }
  for (const Fingerprint& print : order) all.tasks.push_back(std::move(tasks.at(print)));
  return all;
}

}  // namespace whet::driver
