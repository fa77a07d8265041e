// Trials: from proposal to durable row.
#include <algorithm>
#include <cmath>

#include "tuner/service/core.h"

namespace whet::tuner {
namespace {

constexpr size_t kKeptContenders = 4;

}  // namespace

db::FailureKind ServiceCore::FailureOf(v1::FailureKind kind) {
  switch (kind) {
    case v1::FAILURE_OK: return db::FailureKind::kOk;
    case v1::FAILURE_BUILD_ERROR: return db::FailureKind::kBuildError;
    case v1::FAILURE_BUILD_TIMEOUT: return db::FailureKind::kBuildTimeout;
    case v1::FAILURE_RUN_CRASH: return db::FailureKind::kRunCrash;
    case v1::FAILURE_RUN_TIMEOUT: return db::FailureKind::kRunTimeout;
    case v1::FAILURE_WRONG_OUTPUT: return db::FailureKind::kWrongOutput;
    case v1::FAILURE_INVALID_TIMING: return db::FailureKind::kInvalidTiming;
    case v1::FAILURE_REJECTED: return db::FailureKind::kRejected;
    case v1::FAILURE_POISONED: return db::FailureKind::kPoisoned;
    case v1::FAILURE_DEVICE_LOST: return db::FailureKind::kDeviceLost;
    case v1::FAILURE_INFRASTRUCTURE: return db::FailureKind::kInfrastructure;
    case v1::FAILURE_NOT_RUNNABLE: return db::FailureKind::kNotRunnable;
    default: return db::FailureKind::kUnknown;
  }
}

ServiceCore::TrialId ServiceCore::NewTrial(Job* job, uint32_t task, Kind kind,
                                           const std::string& trace, uint64_t token) {
  const TrialId id = next_trial_id_++;
  Trial& t = trials_[id];
  t.job = job->id;
  t.task = task;
  t.number = job->tasks[task].next_trial++;
  t.kind = kind;
  t.trace = trace;
  t.token = token;
  job->live.insert(id);
  by_ids_[{job->id, task, t.number}] = id;
  return id;
}

void ServiceCore::Build(TrialId id, Actions* out) {
  const Trial& t = trials_[id];
  const Job& job = *FindJob(t.job);
  StartBuild b;
  b.build = next_build_++;
  b.request.set_id(b.build);
  b.request.set_workload(job.tasks[t.task].spec.workload());
  b.request.set_trace(t.trace);
  b.request.set_target(job.target);
  b.request.set_threads(job.spec.threads());
  b.request.set_untuned(t.kind == Kind::kDefault);
  b.request.set_time_limit_ns(config_.build_limit_ns);
  b.request.set_memory_limit_bytes(config_.build_memory_bytes);
  builds_[b.build] = id;
  ++builds_started_;
  out->push_back(std::move(b));
}

// Into the queue of what a device may take, once its task's expected outputs are known.
void ServiceCore::MakeReady(Job* job, TrialId id) {
  if (job->tasks[trials_[id].task].expected_object.empty()) return;
  if (std::find(job->ready.begin(), job->ready.end(), id) == job->ready.end())
    job->ready.push_back(id);
}

Actions ServiceCore::Built(int64_t now, uint64_t build, const BuiltObject& object) {
  Actions out;
  const auto b = builds_.find(build);
  if (b == builds_.end()) return out;
  const TrialId id = b->second;
  builds_.erase(b);
  const auto it = trials_.find(id);
  if (it == trials_.end() || it->second.stage != Stage::kBuilding) {  // dropped meanwhile
    Dispatch(now, &out);
    return out;
  }
  Trial& t = it->second;
  Job* job = FindJob(t.job);
  TaskState& task = job->tasks[t.task];
  t.build_ns = object.build_ns;
  const bool other_program = object.failure == v1::FAILURE_OK &&
                             object.initial_program != task.prepared.initial_program.Hex();
  if (object.failure == v1::FAILURE_INFRASTRUCTURE && ++t.losses < config_.max_attempts) {
    Build(id, &out);
  } else if (object.failure != v1::FAILURE_OK) {
    FinishWithoutRun(now, id, FailureOf(object.failure), object.message, &out);
  } else if (other_program) {
    FinishWithoutRun(now, id, db::FailureKind::kInfrastructure,
                     "the builder starts from another loop program than this server; install one "
                     "release of both",
                     &out);
  } else {
    t.object = object.sha256;
    t.object_bytes = object.bytes;
    out.push_back(KeepBlob{t.object});
    t.stage = Stage::kReady;
    if (t.kind == Kind::kDefault) {
      if (!object.trace.empty()) task.prepared.default_trace = t.trace = object.trace;
      task.baseline_object = t.object;
      task.baseline_bytes = t.object_bytes;
      out.push_back(KeepBlob{t.object});
      if (task.default_ns > 0) DropTrial(id, &out);  // measured already: it was built for the pairs
    }
    if (trials_[id].stage == Stage::kReady) MakeReady(job, id);
    JobStep(now, job, &out);
  }
  Dispatch(now, &out);
  return out;
}

// Leaves no row: nothing was learnt.
void ServiceCore::DropTrial(TrialId id, Actions* out) {
  Trial& t = trials_[id];
  Job* job = FindJob(t.job);
  job->live.erase(id);
  std::erase(job->ready, id);
  if (t.kind == Kind::kSearch) out->push_back(TellSearch{t.job, t.token, TellKind::kLost, 0, 0, 0});
  if (!t.object.empty()) out->push_back(DropBlob{t.object});
  t.stage = Stage::kDone;
}

db::TrialRow ServiceCore::RowOf(const Trial& t, const Job& job) const {
  const TaskState& task = job.tasks[t.task];
  db::TrialRow row;
  row.key = task.key;
  row.ids.generation = config_.generation;
  row.ids.job_id = t.job;
  row.ids.trial = t.number;
  row.ids.attempt = std::max<int64_t>(t.attempt, 1);
  row.trace = t.trace;
  row.initial_program = task.prepared.initial_program;
  row.codegen_version = config_.codegen_version;
  row.compiler_version = config_.compiler_version;
  row.object_hash = t.object;
  row.is_default = t.trace == task.prepared.default_trace;
  row.input_seed = config_.seeds[0];
  row.build_ns = t.build_ns;
  return row;
}

void ServiceCore::Append(int64_t now, TrialId id, db::TrialRow row, uint64_t session,
                         int64_t sequence, bool late, double noise, Actions* out) {
  Ticket ticket;
  ticket.what = Ticket::What::kTrial;
  ticket.trial = id;
  ticket.session = session;
  ticket.sequence = sequence;
  ticket.noise = noise;
  ticket.row = row;
  if (late) row.status = db::TrialStatus::kLate;
  const uint64_t number = next_ticket_++;
  tickets_[number] = std::move(ticket);
  out->push_back(AppendRow{number, std::move(row)});
}

void ServiceCore::FinishWithoutRun(int64_t now, TrialId id, db::FailureKind kind,
                                   const std::string& message, Actions* out) {
  Trial& t = trials_[id];
  Job* job = FindJob(t.job);
  std::erase(job->ready, id);
  t.stage = Stage::kCommitting;
  db::TrialRow row = RowOf(t, *job);
  row.failure = kind;
  row.message = message;
  Append(now, id, std::move(row), 0, 0, false, 0, out);
}

Actions ServiceCore::Committed(int64_t now, uint64_t number,
                               const StatusOr<db::TrialStatus>& verdict) {
  Actions out;
  const auto it = tickets_.find(number);
  if (it == tickets_.end()) return out;
  const Ticket ticket = std::move(it->second);
  tickets_.erase(it);
  // Also when the log refused the row for good: sending it again would not help.
  if (ticket.session != 0) Acknowledge(ticket.session, ticket.sequence, &out);
  if (ticket.what == Ticket::What::kJob) {
    Job* job = FindJob(ticket.job);
    if (!job || job->durable) return out;
    if (!verdict.ok()) {
      End(now, job, v1::JOB_FAILED, "the log does not take it: " + Message(verdict.status()), &out);
      return out;
    }
    job->durable = true;
    if (const auto prepared = Prepared(job->id)) out.push_back(*prepared);
    return out;
  }
  if (ticket.what == Ticket::What::kJobEnd) {
    Job* job = FindJob(ticket.job);
    if (!job) return out;
    job->phase = Phase::kOver;
    job->state = job->ending_as;
    v1::JobEvent event;
    *event.mutable_snapshot() = MakeSnapshot(now, *job, true);
    out.push_back(Publish{job->id, std::move(event), true});
    out.push_back(JobEnded{job->id, job->state});
    over_.push_back(job->id);
    while (over_.size() > config_.kept_jobs) {
      std::erase_if(trials_, [&](const auto& t) { return t.second.job == over_.front(); });
      std::erase_if(by_ids_, [&](const auto& t) { return std::get<0>(t.first) == over_.front(); });
      jobs_.erase(over_.front());
      over_.pop_front();
    }
    return out;
  }
  if (ticket.what != Ticket::What::kTrial) return out;
  const auto t = trials_.find(ticket.trial);
  if (t == trials_.end() || t->second.stage != Stage::kCommitting) return out;
  Ticket judged = ticket;
  if (!verdict.ok()) {  // it counts as tried, for this job
    judged.row.failure = db::FailureKind::kUnknown;
    judged.row.message = Message(verdict.status());
  }
  AfterTrial(now, &t->second, judged, verdict.ok() ? *verdict : db::TrialStatus::kCounted, &out);
  return out;
}

void ServiceCore::AfterTrial(int64_t now, Trial* t, const Ticket& ticket, db::TrialStatus status,
                             Actions* out) {
  Job* job = FindJob(t->job);
  TaskState& task = job->tasks[t->task];
  const db::TrialRow& row = ticket.row;
  t->stage = Stage::kDone;
  job->live.erase(ticket.trial);
  const bool ok = row.failure == db::FailureKind::kOk && status == db::TrialStatus::kCounted;
  if (t->kind != Kind::kFinal) ++task.measured;
  const double best_before = task.best_ns;
  if (ok) {
    if (t->kind != Kind::kFinal) ++job->verified;
    TakeMeasurement(job, t, ticket, out);
  } else {
    ++task.failed;
    ++job->failed[std::string(db::FailureName(row.failure))];
    std::erase_if(task.best, [&](const Contender& c) {
      if (c.trace != t->trace) return false;
      if (!c.object.empty())
        out->push_back(DropBlob{c.object});  // a candidate that failed once is out
      return true;
    });
  }
  if (t->kind == Kind::kDefault && !ok) {
    FailTask(job, t->task,
             fmt::format("its default schedule failed ({}): {}", db::FailureName(row.failure),
                         row.message),
             out);
  }
  if (t->kind == Kind::kSearch) {
    TellSearch tell{t->job,
                    t->token,
                    ok ? TellKind::kMeasured : TellKind::kFailed,
                    ok ? db::MedianOf(row.samples_ns) : 0,
                    ticket.noise,
                    static_cast<double>(row.build_ns + row.measure_ns) * 1e-9};
    if (db::IsRetried(row.failure) || row.failure == db::FailureKind::kPoisoned)
      tell.kind = TellKind::kLost;
    out->push_back(tell);
  }
  v1::JobEvent event;
  v1::TrialEvent& e = *event.mutable_trial();
  e.set_task(t->task);
  e.set_trial(t->number);
  e.set_failure(std::string(db::FailureName(row.failure)));
  e.set_message(db::CleanText(row.message, db::kMaxMessageBytes));
  e.set_median_ns(ok ? db::MedianOf(row.samples_ns) : 0);
  e.set_baseline_ratio(row.baseline_ratio.value_or(0));
  e.set_is_default(row.is_default);
  e.set_is_best(ok && task.best_ns != best_before);
  e.set_rung(row.rung);
  out->push_back(Publish{job->id, std::move(event), false});
  if (!t->object.empty()) out->push_back(DropBlob{t->object});
  if (t->attempt <= 1) t->trace.clear();  // nothing can come late
  JobStep(now, job, out);
  if (job->open()) PublishSnapshot(now, job, out);
  Dispatch(now, out);
}

void ServiceCore::TakeMeasurement(Job* job, Trial* t, const Ticket& ticket, Actions* out) {
  TaskState& task = job->tasks[t->task];
  const double median = db::MedianOf(ticket.row.samples_ns);
  if (t->kind == Kind::kDefault) {
    task.default_ns = median;
    task.best_ns = task.best_ns > 0 ? std::min(task.best_ns, median) : median;
    return;
  }
  Contender c{t->trace,
              t->object,
              t->object_bytes,
              median,
              ticket.row.baseline_ratio.value_or(0),
              ticket.row.rung == 4 && !ticket.row.contended};
  if (t->kind == Kind::kFinal) c.final = true;  // contended or not, it had its turn
  KeepContender(job, &task, c, out);
  const Contender& first = task.best.front();
  const double estimate = std::min(Estimate(task, first), task.default_ns);
  if (t->kind == Kind::kSearch && median < task.best_ns) {
    task.best_ns = median;
    task.trials_to_best = task.measured;
  }
  if (first.ratio > 0) task.best_ratio = first.ratio;
  if (job->phase == Phase::kFinals) task.best_ns = estimate;
}

// Keeps the best few of a task, with their objects for the finals.
void ServiceCore::KeepContender(Job* job, TaskState* task, Contender c, Actions* out) {
  if (!c.object.empty()) out->push_back(KeepBlob{c.object});
  std::erase_if(task->best, [&](const Contender& o) {
    if (o.trace != c.trace) return false;
    if (!o.object.empty()) out->push_back(DropBlob{o.object});
    return true;
  });
  task->best.push_back(std::move(c));
  std::stable_sort(task->best.begin(), task->best.end(),
                   [&](const Contender& a, const Contender& b) {
                     return Estimate(*task, a) < Estimate(*task, b);
                   });
  while (task->best.size() > kKeptContenders) {
    if (!task->best.back().object.empty()) out->push_back(DropBlob{task->best.back().object});
    task->best.pop_back();
  }
}

}  // namespace whet::tuner
