// Layouts by what the tasks take that result from them: nanoseconds of a tuning log where it has
// them, else of the prior. Asked only where it decides something: around the places of a selection
// by the roofline (graph/layout_cost.h) at which values meet that lie differently. There each fused
// group and each copy is priced as the workload that it would be. What the prices lead to is taken
// where the tasks that differ take clearly less together. Same model, target, figures of the
// machine and records: same layouts.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/records.h"
#include "compiler/fusion/partition.h"
#include "compiler/graph/passes.h"
#include "compiler/schedule/space.h"

namespace whet::driver {

// Of one run of a workload, by its canonical text; each is found out once. Used by one thread.
class TaskTimes {
 public:
  // `records` may be null. `tasks`: of the network; where several devices have measured, times are
  // those of the one that has timed most of these.
  static StatusOr<TaskTimes> Of(const Target& target, int threads, Records* records,
                                const std::vector<fusion::Task>& tasks);
  TaskTimes(Target target, const schedule::Conditions& conditions)
      : target_(std::move(target)), conditions_(conditions) {}

  StatusOr<double> Estimated(const std::string& workload);
  StatusOr<std::optional<double>> Measured(const std::string& workload);
  // Measured, else estimated.
  StatusOr<double> Best(const std::string& workload);
  // From now on estimates count as much more as what was asked for and is measured took more than
  // was estimated of it: else all that was never tuned looks better than what was. Whether they do.
  StatusOr<bool> Calibrate();

 private:
  Target target_;
  schedule::Conditions conditions_;
  Records* records_ = nullptr;
  std::optional<Fingerprint> device_;
  double scale_ = 1;
  std::map<std::string, double> estimated_;
  std::map<std::string, std::optional<double>> measured_;
};

struct TaskLayouts {
  std::vector<graph::StoredLayout> stored;  // empty: the selection by the roofline stays
  LayoutCosts costs;
};
// `before`: the graph as assign-layouts finds it; `first`, `partition`: what has become of it.
// `cut` does the same with given layouts and keeps what it returns; `times` is called where there
// is something to ask.
StatusOr<TaskLayouts> LayoutsByTasks(const graph::Graph& before, const graph::Graph& first,
                                     const fusion::Partition& partition,
                                     const std::function<StatusOr<TaskTimes>()>& times,
                                     const std::function<StatusOr<const fusion::Partition*>(
                                         const std::vector<graph::StoredLayout>&)>& cut);

}  // namespace whet::driver
