#include "tuner/service/job_search.h"

namespace whet::tuner {

std::optional<search::LoggedTrial> ToLoggedTrial(const Task& task, const db::TrialRow& row) {
  if (row.status != db::TrialStatus::kCounted || row.origin != db::Origin::kMeasured ||
      db::IsRetried(row.failure))
    return std::nullopt;
  search::LoggedTrial trial;
  trial.trace = row.trace_fingerprint();
  trial.point = task.PointOf(row.trace);
  const bool ok = row.failure == db::FailureKind::kOk && row.median_ns > 0;
  trial.outcome.kind = ok ? search::OutcomeKind::kMeasured : search::OutcomeKind::kFailed;
  trial.outcome.latency_ns = ok ? row.median_ns : 0;
  return trial;
}

StatusOr<std::unique_ptr<JobSearch>> JobSearch::Create(const StartSearch& start,
                                                       std::vector<SearchTask> tasks,
                                                       int feature_count) {
  search::SchedulerOptions scheduling;
  scheduling.total_trials = start.total_trials;
  std::unique_ptr<JobSearch> s(new JobSearch(scheduling, feature_count));
  s->tasks_ = std::move(tasks);
  for (const SearchTask& t : s->tasks_) {
    search::SearchOptions options;
    options.seed = start.seed + t.index;
    options.strategy = start.random ? search::Strategy::kRandom : search::Strategy::kEvolution;
    options.floor_ns = t.task->floor_ns();
    WHET_ASSIGN_OR_RETURN(auto search, search::TaskSearch::Create(
                                           &t.task->space(), start.random ? nullptr : &s->model_,
                                           std::to_string(t.index), options, t.log));
    s->scheduler_.AddTask(search.get(),
                          {t.weight, t.task->flops(), t.task->tag(), t.task->floor_ns()});
    s->searches_.push_back(std::move(search));
  }
  return s;
}

std::vector<Proposal> JobSearch::Ask(int n) {
  std::vector<Proposal> proposals;
  for (search::Assignment& a : scheduler_.Ask(n)) {
    const SearchTask& task = tasks_[static_cast<size_t>(a.task)];
    StatusOr<std::string> trace = task.task->TraceOf(a.point);
    if (!trace.ok()) {
      // The space and its schedules disagree; that is a fault of ours, and this point is out.
      if (const Status s =
              scheduler_.Tell(a.task, a.point, {search::OutcomeKind::kFailed, 0, 0}, 0);
          !s.ok())
        continue;
      continue;
    }
    const uint64_t token = next_token_++;
    pending_[token] = {a.task, std::move(a.point)};
    proposals.push_back({task.index, token, *std::move(trace)});
  }
  return proposals;
}

Status JobSearch::Tell(const TellSearch& told) {
  const auto it = pending_.find(told.token);
  if (it == pending_.end()) return OkStatus();
  const Pending pending = std::move(it->second);
  pending_.erase(it);
  search::Outcome outcome;
  switch (told.kind) {
    case TellKind::kMeasured:
      outcome = {search::OutcomeKind::kMeasured, told.latency_ns, told.noise};
      break;
    case TellKind::kFailed: outcome = {search::OutcomeKind::kFailed, 0, 0}; break;
    case TellKind::kLost: outcome = {search::OutcomeKind::kLost, 0, 0}; break;
  }
  return scheduler_.Tell(pending.task, pending.point, outcome, told.seconds);
}

}  // namespace whet::tuner
