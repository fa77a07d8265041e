// The ways to compute a network that differ in more than schedules: the layouts of its images, and
// which fused groups are taken apart. `whet tune` writes them to the log's plan table and measures
// their tasks; `whet compile` takes those whose tasks were faster. They never change a workload's
// key.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/records.h"
#include "compiler/fusion/partition.h"
#include "compiler/graph/layout_cost.h"

namespace whet::driver {

// The first is what is used without measurements: the selection of least estimated cost.
inline constexpr const char* kLayoutNames[] = {"selected", "row-major", "channels-last"};
// InvalidArgument lists the names.
StatusOr<const graph::LayoutCost*> LayoutCostOf(const std::string& name);

// The alternative of a fused workload: see fusion::SplitOf.
inline constexpr const char* kSplit = "split";
inline constexpr const char* kFused = "fused";

struct Plan {
  std::string layouts = kLayoutNames[0];
  std::vector<graph::StoredLayout> stored;  // instead of those that are selected; empty: none
  LayoutCosts costs;                        // of these
  std::set<Fingerprint> split;
  // What the network then consists of, by the log; empty: not known.
  std::vector<db::PlanRow::Part> parts;
  std::string source = "default";    // "measured", or "given" by a flag or an artifact
  std::string why;                   // words for "default"
  double own_ns = 0, chosen_ns = 0;  // sums over the tasks of one run; 0: not known
};

// What the log holds of a network's alternatives, and the best of them.
StatusOr<Plan> ChoosePlan(const Fingerprint& region, Records& records,
                          const std::string& feature_set, int threads);

std::vector<db::PlanRow::Part> PartsOf(const fusion::Partition& partition);

// The ways to compute a model, by region: only what is used without measurements, or all; and the
// tasks that they consist of, each once, counted as often as the way that runs it most often does.
struct Alternatives {
  std::vector<db::PlanRow> plans;
  std::vector<TaskInfo> tasks;
};
StatusOr<Alternatives> ListAlternatives(const ModelOptions& options, bool all);

}  // namespace whet::driver
