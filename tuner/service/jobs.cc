// Jobs: submission, phases, progress, endings.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>

#include "compiler/support/names.h"
#include "tuner/service/core.h"

namespace whet::tuner {
namespace {

constexpr uint32_t kMaxThreads = 1024;
constexpr int64_t kMaxTrials = 1'000'000'000;
constexpr size_t kMaxNameBytes = 4096;
// Candidates this much slower than the default are not worth a final.
constexpr double kFinalMargin = 1.05;
constexpr int64_t kFinalNs = 400 * kMillisecond;  // what one costs, for planning

Status CheckSpec(const v1::JobSpec& spec, const CoreConfig& config) {
  if (!IsDeviceKey(spec.key()))
    return InvalidArgument("'{}' is not a device key: {}", spec.key().substr(0, 64),
                           kDeviceKeyRule);
  if (spec.tasks().empty()) return InvalidArgument("the job has no tasks");
  if (static_cast<size_t>(spec.tasks_size()) > config.max_tasks)
    return InvalidArgument("the job has {} tasks, the limit is {}", spec.tasks_size(),
                           config.max_tasks);
  if (spec.threads() < 1 || spec.threads() > kMaxThreads)
    return InvalidArgument("threads is {}, the limits are 1 and {}", spec.threads(), kMaxThreads);
  if (spec.trials() < 0 || spec.trials() > kMaxTrials || spec.time_limit_ns() < 0)
    return InvalidArgument("a negative or absurd budget");
  if (spec.trials() == 0 && spec.time_limit_ns() == 0)
    return InvalidArgument("the job has no budget: neither trials nor time");
  if (!spec.strategy().empty() && spec.strategy() != "evolutionary" &&
      spec.strategy() != "random") {
    return InvalidArgument("strategy '{}' does not exist; there are evolutionary and random",
                           spec.strategy().substr(0, 64));
  }
  std::set<Fingerprint> seen;
  for (const v1::TaskSpec& t : spec.tasks()) {
    if (t.workload().empty() || t.workload().size() > db::kMaxWorkloadBytes)
      return InvalidArgument("task '{}': its workload has {} bytes, the limits are 1 and {}",
                             t.name().substr(0, 100), t.workload().size(), db::kMaxWorkloadBytes);
    if (t.name().size() > kMaxNameBytes || t.op_summary().size() > kMaxNameBytes)
      return InvalidArgument("a task's name is longer than {} bytes", kMaxNameBytes);
    if (!std::isfinite(t.weight()) || t.weight() < 0)
      return InvalidArgument("task '{}': weight {} is not a count", t.name().substr(0, 100),
                             t.weight());
    if (!seen.insert(FingerprintOf(t.workload())).second)
      return InvalidArgument(
          "task '{}': the same workload twice; give it once, with the sum of the weights",
          t.name().substr(0, 100));
  }
  return OkStatus();
}

// For people and for taking a job up again: workloads by fingerprint, their texts are in the log.
std::string SpecText(const v1::JobSpec& spec) {
  v1::JobSpec brief = spec;
  for (v1::TaskSpec& t : *brief.mutable_tasks()) t.set_workload(FingerprintOf(t.workload()).Hex());
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(brief, &json).ok() ||
      json.size() > db::kMaxSpecBytes)
    return "{}";
  return json;
}

db::JobState ToDb(v1::JobState s) {
  switch (s) {
    case v1::JOB_QUEUED: return db::JobState::kQueued;
    case v1::JOB_RUNNING: return db::JobState::kRunning;
    case v1::JOB_DONE: return db::JobState::kDone;
    case v1::JOB_FAILED: return db::JobState::kFailed;
    case v1::JOB_CANCELLED: return db::JobState::kCancelled;
    case v1::JOB_NO_DEVICE: return db::JobState::kNoDevice;
    default: return db::JobState::kFailed;
  }
}

}  // namespace

ServiceCore::Job* ServiceCore::FindJob(const std::string& id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : it->second.get();
}
const ServiceCore::Job* ServiceCore::FindJob(const std::string& id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : it->second.get();
}

size_t ServiceCore::open_jobs() const {
  return static_cast<size_t>(
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.second->open(); }));
}

bool ServiceCore::Terminal(const std::string& id) const {
  const Job* job = FindJob(id);
  return !job || !job->open();
}

Status ServiceCore::Submit(int64_t now, const std::string& id, const v1::JobSpec& spec,
                           const std::string& target, const std::string& feature_set,
                           int64_t wall_ms, Actions* out) {
  WHET_RETURN_IF_ERROR(CheckSpec(spec, config_));
  if (FindJob(id)) return InvalidArgument("job '{}' exists", id);
  if (open_jobs() >= config_.max_jobs)
    return ResourceExhausted("{} jobs are under way, the limit; try again when one has ended",
                             open_jobs());
  auto job = std::make_unique<Job>();
  job->id = id;
  job->spec = spec;
  job->target = target;
  job->feature_set = feature_set;
  job->wall_ms = wall_ms;
  job->submitted_ns = job->device_seen_ns = now;
  job->state = v1::JOB_RUNNING;
  Job* j = job.get();
  jobs_[id] = std::move(job);
  AppendJobRow(j, v1::JOB_RUNNING, {}, out);
  for (const v1::TaskSpec& t : spec.tasks()) {
    TaskState& task = j->tasks.emplace_back();
    task.spec = t;
    if (task.spec.weight() == 0) task.spec.set_weight(1);
    task.key.workload = FingerprintOf(t.workload());
    task.key.target = feature_set;
    task.key.threads = static_cast<int>(spec.threads());
    const uint64_t ticket = next_ticket_++;
    tickets_[ticket] = {};
    out->push_back(AppendRow{ticket, db::WorkloadRow{t.workload(), t.op_summary()}});
  }
  for (uint32_t i = 0; i < j->tasks.size(); ++i)
    out->push_back(
        PrepareTask{id, i, spec.tasks(static_cast<int>(i)).workload(), target, j->tasks[i].key});
  return OkStatus();
}

void ServiceCore::AppendJobRow(Job* job, v1::JobState state, Ticket ticket, Actions* out) {
  db::JobRow row;
  row.job_id = job->id;
  row.state = ToDb(state);
  row.spec = SpecText(job->spec);
  row.error = job->error;
  row.created_ms = job->wall_ms;
  row.updated_ms = job->wall_ms;
  const uint64_t number = next_ticket_++;
  tickets_[number] = std::move(ticket);
  out->push_back(AppendRow{number, std::move(row)});
}

Actions ServiceCore::TaskPrepared(int64_t now, const std::string& id, uint32_t index,
                                  StatusOr<PreparedTask> prepared) {
  Actions out;
  Job* job = FindJob(id);
  if (!job || job->phase != Phase::kPreparing || index >= job->tasks.size()) return out;
  TaskState& task = job->tasks[index];
  if (task.phase != TaskPhase::kPreparing) return out;
  if (!prepared.ok()) {
    FailTask(job, index, Message(prepared.status()), &out);
  } else {
    task.prepared = *std::move(prepared);
    task.phase = TaskPhase::kBaseline;
    task.next_trial = task.prepared.next_trial;
    task.measured = task.prepared.tried;
    task.default_ns = task.prepared.default_ns;
    task.best_ns = task.default_ns;
    for (const LoggedTrace& t : task.prepared.best)
      KeepContender(job, &task, {t.trace, "", 0, t.median_ns, t.ratio, t.final}, &out);
    if (!task.best.empty()) {
      const double best = Estimate(task, task.best.front());
      task.best_ns = task.default_ns > 0 ? std::min(task.default_ns, best) : best;
      task.best_ratio = task.best.front().ratio;
    }
    job->before += task.measured;
  }
  const bool all = std::none_of(job->tasks.begin(), job->tasks.end(), [](const TaskState& t) {
    return t.phase == TaskPhase::kPreparing;
  });
  if (all) {
    const int64_t missing =
        job->spec.trials() > 0 ? std::max<int64_t>(job->spec.trials() - job->before, 0) : -1;
    out.push_back(JobPrepared{id, job->before, std::max<int64_t>(missing, 0)});
    if (job->cancelled()) {
      End(now, job, v1::JOB_CANCELLED, "", &out);
    } else {
      BeginBaselines(now, job, &out);
    }
  }
  PublishSnapshot(now, job, &out);
  return out;
}

bool ServiceCore::HasBudget(const Job& job) const {
  return job.spec.trials() == 0 || Measured(job) < job.spec.trials();
}

int64_t ServiceCore::Measured(const Job& job) const {
  int64_t n = 0;
  for (const TaskState& t : job.tasks) n += t.measured;
  return n;
}

double ServiceCore::Estimate(const TaskState& task, const Contender& c) {
  return c.ratio > 0 && task.default_ns > 0 ? c.ratio * task.default_ns : c.median_ns;
}

// Indices of the task's contenders that want a final: until the one in front has had its own. (A
// final can take its subject out of the lead; then the next ones are heard. Each is heard once, and
// a later job finds it in the log.)
std::vector<size_t> ServiceCore::FinalsOf(const Job& job, const TaskState& task) const {
  std::vector<size_t> r;
  if (task.best.empty() || task.best.front().final) return r;
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
// --------------------------------------------------------------------------------------------------------

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
// ----------------------------------------------------------------------------------------------------------

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
    start.weights.push_back(task.spec.weight());
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
// ----------------------------------------------------------------------------------------------------------

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

// ---- endings
// ---------------------------------------------------------------------------------------------------------

Status ServiceCore::Cancel(int64_t now, const std::string& id, Actions* out) {
  Job* job = FindJob(id);
  if (!job) return NotFound("there is no job '{}'", id.substr(0, 64));
  if (!job->open() || job->phase == Phase::kEnding || job->cancelled()) return OkStatus();
  job->cancel_ns = now;
  DropUnassigned(job, out);
  JobStep(now, job, out);
  return OkStatus();
}

void ServiceCore::End(int64_t now, Job* job, v1::JobState state, const std::string& error,
                      Actions* out) {
  if (job->phase == Phase::kEnding || job->phase == Phase::kOver) return;
  const bool searching = job->phase == Phase::kSearch;
  job->phase = Phase::kEnding;
  job->ending_as = state;
  job->error = db::CleanText(error, db::kMaxMessageBytes);
  job->ended_ns = now;
  DropUnassigned(job, out);
  // What runs yet comes late.
  for (const TrialId id : std::set(job->live)) {
    if (trials_[id].stage == Stage::kAssigned) LoseTrial(now, id, out);
  }
  if (searching) out->push_back(EndSearch{job->id});
  for (TaskState& task : job->tasks) {
    if (task.phase == TaskPhase::kSearch || task.phase == TaskPhase::kFinals ||
        task.phase == TaskPhase::kBaseline)
      TaskDone(job, &task);
    for (const std::string& blob : {task.expected_object, task.baseline_object}) {
      if (!blob.empty()) out->push_back(DropBlob{blob});
    }
    for (Contender& c : task.best) {
      if (!c.object.empty()) out->push_back(DropBlob{c.object});
      c.object.clear();
    }
  }
  UpdateWants(out);
  Ticket ticket;
  ticket.what = Ticket::What::kJobEnd;
  ticket.job = job->id;
  AppendJobRow(job, state, ticket, out);
}

// ---- progress
// --------------------------------------------------------------------------------------------------------

v1::JobSnapshot ServiceCore::MakeSnapshot(int64_t now, const Job& job, bool with_tasks) const {
  v1::JobSnapshot s;
  s.set_job_id(job.id);
  s.set_name(job.spec.name());
  s.set_state(job.state);
  s.set_error(job.error);
  s.set_trials_wanted(job.spec.trials());
  s.set_trials_done(Measured(job));
  s.set_trials_before(job.before);
  for (const auto& [kind, count] : job.failed) {
    s.add_failed()->set_kind(kind);
    s.mutable_failed(s.failed_size() - 1)->set_count(count);
  }
  const int64_t begin = job.started_ns != 0 ? job.started_ns : job.submitted_ns;
  const int64_t elapsed = std::max<int64_t>((job.ended_ns != 0 ? job.ended_ns : now) - begin, 0);
  s.set_elapsed_ns(elapsed);
  if (job.open() && job.started_ns != 0) {
    int64_t remaining =
        job.spec.time_limit_ns() > 0 ? std::max<int64_t>(job.spec.time_limit_ns() - elapsed, 0) : 0;
    const int64_t fresh = s.trials_done() - job.before;
    if (job.spec.trials() > 0 && fresh > 0) {
      const double per_trial = static_cast<double>(elapsed) / static_cast<double>(fresh);
      const auto by_trials =
          static_cast<int64_t>(per_trial * static_cast<double>(std::max<int64_t>(
                                               job.spec.trials() - s.trials_done(), 0)));
      remaining = job.spec.time_limit_ns() > 0 ? std::min(remaining, by_trials) : by_trials;
    }
    s.set_remaining_ns(remaining);
  }
  s.set_workers(static_cast<uint32_t>(WorkersFor(job)));
  double default_total = 0, best_total = 0;
  static constexpr const char* kPhaseNames[] = {"preparing", "baseline", "search",
                                                "finals",    "done",     "failed"};
  for (const TaskState& t : job.tasks) {
    if (t.default_ns > 0 && t.best_ns > 0) {
      default_total += t.spec.weight() * t.default_ns;
      best_total += t.spec.weight() * std::min(t.best_ns, t.default_ns);
    }
    if (!with_tasks) continue;
    v1::TaskProgress& p = *s.add_tasks();
    p.set_name(t.spec.name());
    p.set_weight(t.spec.weight());
    p.set_workload_fingerprint(t.key.workload.Hex());
    p.set_state(kPhaseNames[static_cast<int>(t.phase)]);
    p.set_trials(t.measured);
    p.set_failed(t.failed);
    p.set_default_ns(t.default_ns);
    p.set_best_ns(t.best_ns);
    p.set_best_ratio(t.best_ratio);
    p.set_trials_to_best(t.trials_to_best);
    p.set_error(t.error);
  }
  s.set_default_total_ns(default_total);
  s.set_best_total_ns(best_total);
  return s;
}

StatusOr<v1::JobSnapshot> ServiceCore::Snapshot(int64_t now, const std::string& id) const {
  const Job* job = FindJob(id);
  if (!job) return NotFound("there is no job '{}'", id.substr(0, 64));
  return MakeSnapshot(now, *job, true);
}

std::vector<v1::JobSnapshot> ServiceCore::Jobs(int64_t now) const {
  std::vector<v1::JobSnapshot> r;
  for (const auto& [id, job] : jobs_) r.push_back(MakeSnapshot(now, *job, false));
  return r;
}

void ServiceCore::PublishSnapshot(int64_t now, Job* job, Actions* out) {
  if (now < job->last_snapshot_ns + config_.snapshot_every_ns && job->last_snapshot_ns != 0) {
    job->snapshot_due = true;  // the next tick
    return;
  }
  job->last_snapshot_ns = now;
  job->snapshot_due = false;
  v1::JobEvent event;
  *event.mutable_snapshot() = MakeSnapshot(now, *job, true);
  out->push_back(Publish{job->id, std::move(event), false});
}

// ---- time
// ------------------------------------------------------------------------------------------------------------

Actions ServiceCore::Tick(int64_t now) {
  Actions out;
  if (now >= next_beat_ns_) {
    next_beat_ns_ = now + config_.heartbeat_ns;
    for (const auto& [id, s] : sessions_) {
      if (!s.greeted) continue;
      SendWorker m{id, {}};
      m.message.mutable_heartbeat();
      out.push_back(std::move(m));
    }
  }
  std::vector<uint64_t> silent;
  for (const auto& [id, s] : sessions_) {
    if (now - s.heard_ns > 5 * config_.heartbeat_ns) silent.push_back(id);
  }
  for (const uint64_t id : silent)
    out.push_back(CloseWorker{id, DeadlineExceeded("no heartbeat for too long")});
  if (tracker_up_ && now >= next_renew_ns_ && !leases_.empty()) {
    next_renew_ns_ = now + renew_every_ns_;
    SendTracker m;
    for (const auto& [epoch, lease] : leases_) m.message.mutable_renew()->add_epochs(epoch);
    out.push_back(std::move(m));
  }
  if (!tracker_up_ && tracker_down_ns_ != 0 && now - tracker_down_ns_ > lease_life_ns_) {
    // Another server may have our devices by now.
    for (const auto& [epoch, lease] : std::map(leases_)) {
      leases_.erase(epoch);
      LoseAssignments(now, lease.device_id, epoch, &out);
    }
  }
  for (const auto& [device, since] : std::map(silent_since_)) {
    if (now - since <= config_.lost_after_ns) continue;
    silent_since_.erase(device);
    LoseAssignments(now, device, 0, &out);
  }
  for (auto& [id, t] : trials_) {
    if (t.stage == Stage::kAssigned && now > t.assigned_ns + 3 * t.limit_ns + 120 * kSecond)
      LoseTrial(now, id, &out);
  }
  for (auto& [id, job] : jobs_) {
    if (!job->open()) continue;
    if (WorkersFor(*job) > 0 || job->phase == Phase::kPreparing || job->phase == Phase::kEnding) {
      job->device_seen_ns = now;
    } else if (now - job->device_seen_ns > config_.no_device_after_ns) {
      End(now, job.get(), v1::JOB_NO_DEVICE,
          fmt::format("no device with the key '{}' took it for {} s", job->spec.key(),
                      (now - job->device_seen_ns) / kSecond),
          &out);
      continue;
    }
    JobStep(now, job.get(), &out);
    if (job->snapshot_due) PublishSnapshot(now, job.get(), &out);
  }
  UpdateWants(&out);
  Dispatch(now, &out);
  return out;
}

int64_t ServiceCore::NextDeadline(int64_t now) const {
  if (open_jobs() > 0) return now + 50 * kMillisecond;
  if (!sessions_.empty() || !leases_.empty()) return now + 500 * kMillisecond;
  return kNever;
}

}  // namespace whet::tuner
