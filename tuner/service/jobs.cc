// Jobs: submission, resumption, preparation, endings.
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

StatusOr<db::PlanRow> PlanRowOf(const v1::Plan& plan) {
  db::PlanRow row;
  WHET_ASSIGN_OR_RETURN(row.region, ParseFingerprint(plan.region()));
  row.alternative = plan.alternative();
  for (const v1::Plan::Part& p : plan.parts()) {
    WHET_ASSIGN_OR_RETURN(const Fingerprint workload, ParseFingerprint(p.workload()));
    row.parts.push_back({workload, p.count()});
  }
  WHET_RETURN_IF_ERROR(db::Normalize(row));
  return row;
}

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
  if (static_cast<size_t>(spec.plans_size()) > 2 * config.max_tasks)
    return InvalidArgument("the job has {} plans, the limit is {}", spec.plans_size(),
                           2 * config.max_tasks);
  for (const v1::Plan& plan : spec.plans()) {
    const StatusOr<db::PlanRow> row = PlanRowOf(plan);
    if (!row.ok())
      return InvalidArgument("plan '{}': {}", plan.alternative().substr(0, 100),
                             Message(row.status()));
    for (const db::PlanRow::Part& p : row->parts) {
      if (!seen.contains(p.workload))
        return InvalidArgument("plan '{}': workload {} is no task of the job", row->alternative,
                               p.workload.Hex());
    }
  }
  return OkStatus();
}

// As it is kept: workloads by fingerprint, their texts are in the log, as plans are.
v1::JobSpec Brief(const v1::JobSpec& spec, const std::string& target) {
  v1::JobSpec brief = spec;
  brief.set_target(target);
  brief.clear_plans();
  for (v1::TaskSpec& t : *brief.mutable_tasks()) t.set_workload(FingerprintOf(t.workload()).Hex());
  return brief;
}

std::string JsonOf(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok() ||
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
  Job* j = job.get();
  jobs_[id] = std::move(job);
  Open(now, j, out);
  return OkStatus();
}

Status ServiceCore::Resume(int64_t now, const std::string& id, const v1::KeptJob& kept,
                           const std::string& feature_set, int64_t created_ms, Actions* out) {
  WHET_RETURN_IF_ERROR(CheckSpec(kept.spec(), config_));
  if (FindJob(id)) return InvalidArgument("job '{}' exists", id);
  auto job = std::make_unique<Job>();
  job->id = id;
  job->spec = kept.spec();
  job->target = kept.spec().target();
  job->feature_set = feature_set;
  job->wall_ms = created_ms;
  job->resumed = job->durable = true;
  job->kept_spent_ns = std::max<int64_t>(kept.spent_ns(), 0);
  if (kept.has_trials_before()) job->kept_before = kept.trials_before();
  Job* j = job.get();
  jobs_[id] = std::move(job);
  Open(now, j, out);
  return OkStatus();
}

void ServiceCore::Open(int64_t now, Job* job, Actions* out) {
  job->submitted_ns = job->device_seen_ns = now;
  job->state = v1::JOB_RUNNING;
  for (const v1::TaskSpec& t : job->spec.tasks()) {
    TaskState& task = job->tasks.emplace_back();
    task.spec = t;
    if (task.spec.weight() == 0) task.spec.set_weight(1);
    task.key.workload = FingerprintOf(t.workload());
    task.key.target = job->feature_set;
    task.key.threads = static_cast<int>(job->spec.threads());
    // Before the job's row: whoever takes the job up finds the texts.
    const uint64_t ticket = next_ticket_++;
    tickets_[ticket] = {};
    out->push_back(AppendRow{ticket, db::WorkloadRow{t.workload(), t.op_summary()}});
  }
  for (const v1::Plan& plan : job->spec.plans()) {
    const uint64_t ticket = next_ticket_++;
    tickets_[ticket] = {};
    out->push_back(AppendRow{ticket, *PlanRowOf(plan)});  // CheckSpec has looked at it
  }
  Ticket ticket;
  ticket.what = Ticket::What::kJob;
  ticket.job = job->id;
  AppendJobRow(now, job, v1::JOB_RUNNING, std::move(ticket), out);
  for (uint32_t i = 0; i < job->tasks.size(); ++i)
    out->push_back(
        PrepareTask{job->id, i, job->tasks[i].spec.workload(), job->target, job->tasks[i].key});
}

std::optional<std::string> ServiceCore::ResumedLike(const v1::JobSpec& spec,
                                                    const std::string& target) const {
  const std::string wanted = JsonOf(Brief(spec, target));
  for (const auto& [id, job] : jobs_) {
    if (job->resumed && job->open() && job->phase != Phase::kEnding && !job->cancelled() &&
        JsonOf(Brief(job->spec, job->target)) == wanted)
      return id;
  }
  return std::nullopt;
}

std::optional<JobPrepared> ServiceCore::Prepared(const std::string& id) const {
  const Job* job = FindJob(id);
  if (!job || job->phase == Phase::kPreparing || !job->durable) return std::nullopt;
  const int64_t measured = Measured(*job);
  return JobPrepared{id, measured, std::max<int64_t>(job->spec.trials() - measured, 0)};
}

void ServiceCore::AppendJobRow(int64_t now, Job* job, v1::JobState state, Ticket ticket,
                               Actions* out) {
  job->kept_ns = now;
  v1::KeptJob kept;
  *kept.mutable_spec() = Brief(job->spec, job->target);
  kept.set_spent_ns(job->started_ns != 0 ? ElapsedNs(now, *job) : job->kept_spent_ns);
  if (job->phase != Phase::kPreparing) {
    kept.set_trials_before(job->before);
  } else if (job->kept_before) {
    kept.set_trials_before(*job->kept_before);
  }
  db::JobRow row;
  row.job_id = job->id;
  row.state = ToDb(state);
  row.spec = JsonOf(kept);
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
    job->verified += task.prepared.verified;
    for (const auto& [kind, count] : task.prepared.failed) {
      job->failed[kind] += count;
      task.failed += count;
    }
  }
  const bool all = std::none_of(job->tasks.begin(), job->tasks.end(), [](const TaskState& t) {
    return t.phase == TaskPhase::kPreparing;
  });
  if (all) {
    if (job->kept_before) job->before = std::min(*job->kept_before, job->before);
    if (job->cancelled()) {
      End(now, job, v1::JOB_CANCELLED, "", &out);
    } else {
      BeginBaselines(now, job, &out);
      if (const auto prepared = Prepared(id)) out.push_back(*prepared);
      if (job->phase != Phase::kEnding) AppendJobRow(now, job, v1::JOB_RUNNING, {}, &out);
    }
  }
  PublishSnapshot(now, job, &out);
  return out;
}

// ---- endings

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
  AppendJobRow(now, job, state, ticket, out);
}

// From the first measurement on.
int64_t ServiceCore::ElapsedNs(int64_t now, const Job& job) const {
  const int64_t begin = job.started_ns != 0 ? job.started_ns : job.submitted_ns;
  return std::max<int64_t>((job.ended_ns != 0 ? job.ended_ns : now) - begin, 0);
}

}  // namespace whet::tuner
