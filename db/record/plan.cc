#include "db/record/plan.h"

#include <algorithm>

namespace whet::db {

std::optional<double> TimeOf(const PlanRow& plan, const WorkloadTime& time) {
  double sum = 0;
  for (const PlanRow::Part& p : plan.parts) {
    const std::optional<double> one = time(p.workload);
    if (!one) return std::nullopt;
    sum += *one * static_cast<double>(p.count);
  }
  return sum;
}

PlanChoice ChoosePlan(const std::vector<PlanRow>& rows, std::string_view own,
                      const WorkloadTime& time) {
  PlanChoice choice;
  choice.alternative = own;
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const PlanRow& r) { return r.alternative == own; });
  if (row == rows.end() || rows.size() < 2) {
    choice.why = "the log has no alternatives; whet tune --alternatives measures them";
    return choice;
  }
  const std::optional<double> own_ns = TimeOf(*row, time);
  if (!own_ns) {
    choice.why = fmt::format("not every task of '{}' has an undisturbed time", own);
    return choice;
  }
  choice.own_ns = choice.chosen_ns = *own_ns;
  const PlanRow* nearest = nullptr;
  double nearest_ns = 0;
  for (const PlanRow& r : rows) {
    if (r.alternative == own) continue;
    const std::optional<double> ns = TimeOf(r, time);
    if (!ns || (nearest != nullptr &&
                (*ns > nearest_ns || (*ns == nearest_ns && r.alternative > nearest->alternative))))
      continue;
    nearest = &r;
    nearest_ns = *ns;
  }
  if (nearest == nullptr) {
    choice.why = "no alternative has undisturbed times of all its tasks";
  } else if (nearest_ns < (1 - kPlanMargin) * *own_ns) {
    choice.alternative = nearest->alternative;
    choice.chosen_ns = nearest_ns;
  } else {
    choice.why = fmt::format("the nearest alternative, '{}', takes {:.3f} x the time",
                             nearest->alternative, nearest_ns / *own_ns);
  }
  return choice;
}

}  // namespace whet::db
