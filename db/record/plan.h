// Which way to compute a region: the pure decision, from the rows of the plan table (PlanRow) and
// what the log knows of the workloads that they consist of.
//
// A region's own alternative, the one that is used without a log, goes first. Another one is taken
// only when each workload of both has been timed on one device while nothing disturbed it, and the
// sum over its parts is smaller by more than kPlanMargin: the times of two workloads were not
// measured side by side, as two schedules of one workload are, and a sum says nothing about caches
// that stay warm in between.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/record/record.h"

namespace whet::db {

inline constexpr double kPlanMargin = 0.1;

struct PlanChoice {
  std::string alternative;  // the own one, or one that is faster
  double own_ns = 0;        // 0: not all of its parts have been timed
  double chosen_ns = 0;
  std::string why;  // words, when it is the own one
};

// Best known undisturbed time of one run of a workload in nanoseconds, if there is one.
using WorkloadTime = std::function<std::optional<double>(const Fingerprint& workload)>;

// Sum over the parts, if all have been timed.
std::optional<double> TimeOf(const PlanRow& plan, const WorkloadTime& time);

// `rows` are the region's. Ties fall to the alternative whose name is smaller: one log, one answer.
PlanChoice ChoosePlan(const std::vector<PlanRow>& rows, std::string_view own,
                      const WorkloadTime& time);

}  // namespace whet::db
