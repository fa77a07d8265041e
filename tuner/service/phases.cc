// The phases of a job: baselines, search, finals.
#include <algorithm>

#include "tuner/service/core.h"

namespace whet::tuner {
namespace {

// Candidates this much slower than the default are not worth a final.
constexpr double kFinalMargin = 1.05;
constexpr int64_t kFinalNs = 400 * kMillisecond;  // what one costs, for planning

}  // namespace

bool ServiceCore::HasBudget(const Job& job) const {
  return job.spec.trials() == 0 || Measured(job) < job.spec.trials();
}

int64_t ServiceCore::Measured(const Job& job) const {
  int64_t n = 0;
  for (const TaskState& t : job.tasks) n += t.measured;
  return n;
}

double ServiceCore::Estimate(const TaskState& task, const Contender& c) {
  return EstimateNs(c.median_ns, c.ratio, task.default_ns);
}

// Indices of the task's contenders that want a final: until the one in front has had its own. (A
// final can take its subject out of the lead; then the next ones are heard. Each is heard once, and
// a later job finds it in the log: one that measured nothing new leaves the verdict as it was.)
std::vector<size_t> ServiceCore::FinalsOf(const Job& job, const TaskState& task) const {
  std::vector<size_t> r;
  if (task.best.empty() || task.best.front().final) return r;
  const bool news = task.measured > task.prepared.tried;
  if (task.prepared.finals > 0 && !news) return r;
  const auto wanted = static_cast<size_t>(
      job.spec.finals() > 0 ? static_cast<int>(std::min<uint32_t>(job.spec.finals(), 16))
                            : config_.finals_per_task);
  for (size_t i = 0; i < task.best.size() && i < wanted; ++i) {
    const Contender& c = task.best[i];
    if (!c.final && c.trace != task.prepared.default_trace &&
        Estimate(task, c) < task.default_ns * kFinalMargin)
      r.push_back(i);
  }
  return r;
}

// ---- baseline

void ServiceCore::BeginBaselines(int64_t now, Job* job, Actions* out) {
  job->phase = Phase::kBaseline;
  const bool search = HasBudget(*job);
  for (uint32_t i = 0; i < job->tasks.size(); ++i) {
    TaskState& task = job->tasks[i];
    if (task.phase == TaskPhase::kFailed) continue;
    task.needs_baseline = search || !FinalsOf(*job, task).empty();
    if (task.needs_baseline) {
      BeginBaseline(job, i, out);
    } else {
      TaskDone(job, &task);
    }
  }
  MaybeEndBaselines(now, job, out);
  UpdateWants(out);
}

void ServiceCore::BeginBaseline(Job* job, uint32_t index, Actions* out) {
  out->push_back(ComputeExpected{job->id, index, job->tasks[index].spec.workload(), config_.seeds});
  Build(NewTrial(job, index, Kind::kDefault, job->tasks[index].prepared.default_trace, 0), out);
}

Actions ServiceCore::ExpectedReady(int64_t now, const std::string& id, uint32_t index,
                                   const Status& status, const std::string& sha256,
                                   uint64_t bytes) {
  Actions out;
  Job* job = FindJob(id);
  if (!job || job->phase != Phase::kBaseline || index >= job->tasks.size()) return out;
  TaskState& task = job->tasks[index];
  if (task.phase != TaskPhase::kBaseline || !task.expected_object.empty()) return out;
  if (!status.ok()) {
    FailTask(job, index, "its expected outputs cannot be computed: " + Message(status), &out);
  } else {
    task.expected_object = sha256;
    task.expected_bytes = bytes;
    out.push_back(KeepBlob{sha256});
    for (const TrialId t : job->live) {
      if (trials_[t].task == index && trials_[t].stage == Stage::kReady) MakeReady(job, t);
    }
  }
  MaybeEndBaselines(now, job, &out);
  Dispatch(now, &out);
  return out;
}

void ServiceCore::MaybeEndBaselines(int64_t now, Job* job, Actions* out) {
  if (job->phase != Phase::kBaseline || job->cancelled()) return;
  bool any = false;
  for (const TaskState& t : job->tasks) {
    if (t.phase == TaskPhase::kFailed || !t.needs_baseline) continue;
    any = true;
    if (t.expected_object.empty() || t.baseline_object.empty() || t.default_ns <= 0) return;
  }
  const bool all_failed = std::all_of(job->tasks.begin(), job->tasks.end(), [](const TaskState& t) {
    return t.phase == TaskPhase::kFailed;
  });
  if (all_failed) {
    const TaskState& first = job->tasks[0];
    End(now, job, v1::JOB_FAILED,
        fmt::format("none of its {} tasks can be tuned; '{}': {}", job->tasks.size(),
                    first.spec.name(), first.error),
        out);
  } else if (!any) {
    End(now, job, v1::JOB_DONE, "", out);
  } else if (HasBudget(*job) && !SearchTimeIsUp(now, *job)) {
    BeginSearch(now, job, out);
  } else {
    BeginFinals(now, job, out);
  }
}

// A task that cannot be tuned leaves the others alone.
void ServiceCore::FailTask(Job* job, uint32_t index, const std::string& why, Actions* out) {
  TaskState& task = job->tasks[index];
  if (task.phase == TaskPhase::kFailed) return;
  task.phase = TaskPhase::kFailed;
  task.error = db::CleanText(why, 500);
  for (const TrialId id : std::set(job->live)) {
    Trial& t = trials_[id];
    if (t.task == index && (t.stage == Stage::kBuilding || t.stage == Stage::kReady))
      DropTrial(id, out);
  }
  job->snapshot_due = true;
}

void ServiceCore::TaskDone(Job* job, TaskState* task) {
  task->phase = TaskPhase::kDone;
  // What the finals say, where they spoke: a time on the default's own scale.
  for (const Contender& c : task->best) {
    if (!c.final || c.ratio <= 0) continue;
    task->best_ratio = c.ratio;
    task->best_ns = std::min(task->default_ns, c.ratio * task->default_ns);
    break;
  }
  job->snapshot_due = true;
}

// ---- search

bool ServiceCore::SearchTimeIsUp(int64_t now, const Job& job) const {
  const int64_t limit = job.spec.time_limit_ns();
  if (limit == 0 || job.started_ns == 0) return false;
  // Some of it is for the finals.
  const auto workers = static_cast<int64_t>(std::max<size_t>(WorkersFor(job), 1));
  const int64_t finals =
      static_cast<int64_t>(job.tasks.size()) * config_.finals_per_task * kFinalNs / workers;
  return now - job.started_ns >= limit - std::min(finals, limit / 4);
}

void ServiceCore::BeginSearch(int64_t now, Job* job, Actions* out) {
  job->phase = Phase::kSearch;
  StartSearch start;
  start.job = job->id;
  start.seed = job->spec.seed();
  start.random = job->spec.strategy() == "random";
  int64_t elsewhere = 0;  // traces of tasks that failed: they fill the budget too
  for (uint32_t i = 0; i < job->tasks.size(); ++i) {
    TaskState& task = job->tasks[i];
    if (task.phase == TaskPhase::kFailed) {
      elsewhere += task.measured;
      continue;
    }
    task.phase = TaskPhase::kSearch;
    start.tasks.push_back(i);
    const bool share = job->spec.tasks_alike() && task.default_ns > 0;
    start.weights.push_back(share ? task.spec.weight() / task.default_ns : task.spec.weight());
  }
  if (job->spec.trials() > 0)
    start.total_trials = static_cast<int>(std::max<int64_t>(job->spec.trials() - elsewhere, 0));
  out->push_back(std::move(start));
  job->snapshot_due = true;
}

Actions ServiceCore::SearchStarted(int64_t now, const std::string& id, const Status& status) {
  Actions out;
  Job* job = FindJob(id);
  if (!job || job->phase != Phase::kSearch) return out;
  if (!status.ok()) {
    End(now, job, v1::JOB_FAILED, "the search cannot start: " + Message(status), &out);
    return out;
  }
  job->search_started = true;
  Pump(now, job, &out);
  return out;
}

size_t ServiceCore::Unassigned(const Job& job) const {
  return static_cast<size_t>(std::count_if(job.live.begin(), job.live.end(), [&](TrialId id) {
    const Stage s = trials_.at(id).stage;
    return s == Stage::kBuilding || s == Stage::kReady;
  }));
}

size_t ServiceCore::InFlight(const Job& job) const { return job.live.size() - Unassigned(job); }

// Keeps enough candidates built and building that no device waits, and no more: each is chosen with
// what is known then.
void ServiceCore::Pump(int64_t now, Job* job, Actions* out) {
  if (job->phase != Phase::kSearch || !job->search_started || job->cancelled()) return;
  if (!job->search_done && SearchTimeIsUp(now, *job)) {
    job->search_done = true;
    DropUnassigned(job, out);
  }
  if (!job->search_done && !job->asked) {
    const size_t workers = std::max<size_t>(WorkersFor(*job), 1);
    const size_t wanted = workers * 3 + static_cast<size_t>(config_.builders) * 2;
    const size_t have = Unassigned(*job);
    if (have < wanted) {
      job->asked = true;
      out->push_back(AskSearch{job->id, static_cast<int>(wanted - have)});
    }
  }
  if (job->search_done && !job->asked && job->live.empty()) {
    out->push_back(EndSearch{job->id});
    BeginFinals(now, job, out);
  }
}

Actions ServiceCore::Proposed(int64_t now, const std::string& id, std::vector<Proposal> proposals,
                              bool done) {
  Actions out;
  Job* job = FindJob(id);
  if (!job || !job->asked) return out;
  job->asked = false;
  if (job->phase != Phase::kSearch || job->cancelled()) {
    JobStep(now, job, &out);
    return out;
  }
  // Nothing to try while nothing is under way: waiting would never end.
  const bool over = job->search_done;
  if (done || (proposals.empty() && job->live.empty())) job->search_done = true;
  for (Proposal& p : proposals) {
    if (over || p.task >= job->tasks.size() || job->tasks[p.task].phase != TaskPhase::kSearch) {
      out.push_back(TellSearch{id, p.token, TellKind::kLost, 0, 0, 0});
      continue;
    }
    Build(NewTrial(job, p.task, Kind::kSearch, p.trace, p.token), &out);
  }
  // With proposals in hand, asking again at once is up to the next step; without, to the next
  // result.
  if (!proposals.empty() || job->search_done) Pump(now, job, &out);
  return out;
}

// ---- finals

void ServiceCore::BeginFinals(int64_t now, Job* job, Actions* out) {
  job->phase = Phase::kFinals;
  for (uint32_t i = 0; i < job->tasks.size(); ++i) {
    TaskState& task = job->tasks[i];
    if (task.phase == TaskPhase::kFailed || task.phase == TaskPhase::kDone) continue;
    task.phase = TaskPhase::kFinals;
    AddFinals(job, i, out);
  }
  job->snapshot_due = true;
  JobStep(now, job, out);
  Dispatch(now, out);
}

// False when the task wants none (any more).
bool ServiceCore::AddFinals(Job* job, uint32_t index, Actions* out) {
  TaskState& task = job->tasks[index];
  const std::vector<size_t> finals = FinalsOf(*job, task);
  for (const size_t k : finals) {
    const TrialId id = NewTrial(job, index, Kind::kFinal, task.best[k].trace, 0);
    if (task.best[k].object.empty()) {
      Build(id, out);
      continue;
    }
    Trial& t = trials_[id];
    t.object = task.best[k].object;
    t.object_bytes = task.best[k].bytes;
    out->push_back(KeepBlob{t.object});
    t.stage = Stage::kReady;
    MakeReady(job, id);
  }
  return !finals.empty();
}

bool ServiceCore::FinalsTimeIsUp(int64_t now, const Job& job) const {
  const int64_t limit = job.spec.time_limit_ns();
  return limit > 0 && job.started_ns != 0 &&
         now - job.started_ns > limit + std::max(2 * kSecond, limit / 20);
}

// Looks whether a phase is over. Called after anything that may have ended one.
void ServiceCore::JobStep(int64_t now, Job* job, Actions* out) {
  if (!job->open() || job->phase == Phase::kEnding) return;
  if (job->cancelled()) {
    if (job->phase != Phase::kPreparing &&
        (InFlight(*job) == 0 || now >= job->cancel_ns + config_.cancel_grace_ns))
      End(now, job, v1::JOB_CANCELLED, "", out);
    return;
  }
  switch (job->phase) {
    case Phase::kPreparing: break;
    case Phase::kBaseline: MaybeEndBaselines(now, job, out); break;
    case Phase::kSearch: Pump(now, job, out); break;
    case Phase::kFinals: {
      const bool late = FinalsTimeIsUp(now, *job);
      if (late) DropUnassigned(job, out);
      for (uint32_t i = 0; i < job->tasks.size(); ++i) {
        if (job->tasks[i].phase != TaskPhase::kFinals) continue;
        const bool open = std::any_of(job->live.begin(), job->live.end(),
                                      [&](TrialId id) { return trials_[id].task == i; });
        if (!open && (late || !AddFinals(job, i, out))) TaskDone(job, &job->tasks[i]);
      }
      if (job->live.empty()) End(now, job, v1::JOB_DONE, "", out);
      break;
    }
    case Phase::kEnding:
    case Phase::kOver: break;
  }
}

void ServiceCore::DropUnassigned(Job* job, Actions* out) {
  for (const TrialId id : std::set(job->live)) {
    const Stage s = trials_[id].stage;
    if (s == Stage::kBuilding || s == Stage::kReady) DropTrial(id, out);
  }
}

}  // namespace whet::tuner
