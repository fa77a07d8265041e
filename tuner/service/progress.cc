// Progress of jobs, and what time brings.
#include <algorithm>

#include "tuner/service/core.h"

namespace whet::tuner {

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
  s.set_verified(job.verified);
  const int64_t elapsed = ElapsedNs(now, job);
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
    if (job->phase != Phase::kEnding && job->open() && job->started_ns != 0 &&
        now - job->kept_ns >= config_.keep_every_ns)
      AppendJobRow(now, job.get(), v1::JOB_RUNNING, {}, &out);
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
