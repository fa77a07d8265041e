// LogReader::Stats: one pass over every row, grouped by task.
#include <map>
#include <tuple>

#include "db/store/tuning_log.h"

namespace whet::db {
namespace {

struct Group {
  explicit Group(const TrialRow& row) : first_seq(row.seq) {
    stats.key = row.key;
    stats.codegen_version = row.codegen_version;
    stats.initial_program = row.initial_program;
  }
  int64_t first_seq;
  TaskStats stats;
  BestChooser chooser{std::nullopt};
};

// Counts one row into a LogStats or a TaskStats.
template <typename Stats>
void Count(const TrialRow& row, Stats& stats) {
  if (stats.first_ms == 0 || row.created_ms < stats.first_ms) stats.first_ms = row.created_ms;
  stats.last_ms = std::max(stats.last_ms, row.created_ms);
  if (row.origin == Origin::kImported) {
    ++stats.imported;
  } else if (row.status == TrialStatus::kLate) {
    ++stats.late;
  } else {
    ++stats.trials;
    ++stats.by_failure[static_cast<size_t>(row.failure)];
  }
}

void AddRow(const TrialRow& row, Group& group) {
  Count(row, group.stats);
  group.chooser.Add(row);
  const bool evidence = row.origin == Origin::kMeasured && row.status == TrialStatus::kCounted &&
                        row.failure == FailureKind::kOk;
  if (evidence && row.is_default) group.stats.default_median_ns = row.median_ns;
}

}  // namespace

StatusOr<LogStats> LogReader::Stats() {
  LogStats log;
  using GroupKey = std::tuple<Fingerprint, int64_t, Fingerprint>;
  std::map<GroupKey, Group> groups;
  WHET_ASSIGN_OR_RETURN(log.damaged_rows, ForEachTrial(nullptr, [&](const TrialRow& row) {
                          const GroupKey key(row.key.Task(), row.codegen_version,
                                             row.initial_program);
                          AddRow(row, groups.try_emplace(key, row).first->second);
                          Count(row, log);
                          return true;
                        }));
  WHET_RETURN_IF_ERROR(CountRoom(log));
  std::map<int64_t, Group*> ordered;
  for (auto& [key, group] : groups) ordered[group.first_seq] = &group;
  for (auto& [seq, group] : ordered) {
    TaskStats& task = group->stats;
    if (const auto workload = Workload(task.key.workload); workload.ok()) {
      task.op_summary = workload->op_summary;
    }
    task.best = group->chooser.Choose();
    if (task.best) {
      WHET_ASSIGN_OR_RETURN(const TrialRow row, Trial(task.best->seq));
      task.best_median_ns = row.median_ns;
    } else {
      std::tie(task.miss, task.why) = group->chooser.Miss();
    }
    log.tasks.push_back(std::move(task));
  }
  return log;
}

}  // namespace whet::db
