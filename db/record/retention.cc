#include "db/record/retention.h"

#include <algorithm>

namespace whet::db {

int64_t StoredBytes(const TrialRow& row) {
  // Six fingerprints, numbers and names of a row; then its entries in the two indexes, which repeat
  // the ids and two fingerprints. A seventh on top, for pages that are not full.
  constexpr size_t kFixed = 370, kIndexed = 150;
  const TrialIds& ids = row.ids;
  const size_t ids_bytes =
      ids.generation.size() + ids.job_id.size() + ids.incarnation.size() + ids.device_id.size();
  const size_t own = ids.worker_id.size() + ids.boot_id.size() + row.trace.size() +
                     row.compiler_version.size() + row.object_hash.size() + row.message.size() +
                     row.device_state.size() + row.samples_ns.size() * sizeof(double);
  const size_t bytes = kFixed + kIndexed + 2 * ids_bytes + own;
  return static_cast<int64_t>(bytes + bytes / 7);
}

RetentionPlanner::RetentionPlanner(const std::vector<JobRow>& jobs) {
  for (const JobRow& job : jobs) {
    if (IsTerminal(job.state)) closed_jobs_[job.job_id] = {0, job.updated_ms};
  }
}

void RetentionPlanner::Add(const TrialRow& row) {
  const int64_t bytes = StoredBytes(row);
  bytes_ += bytes;
  ++trials_;
  newest_ms_ = std::max(newest_ms_, row.created_ms);
  last_seq_ = std::max(last_seq_, row.seq);
  Group& group = groups_[{row.key.Task(), row.codegen_version, row.initial_program}];
  group.chooser.Add(row);
  ++group.trials;
  Trace& trace = group.traces[row.trace_fingerprint()];
  trace.rows.task = row.key.Task();
  trace.rows.trace = row.trace_fingerprint();
  trace.rows.seqs.push_back(row.seq);
  ++trace.rows.jobs[row.ids.job_id];
  trace.bytes += bytes;
  trace.newest_ms = std::max(trace.newest_ms, row.created_ms);
  const auto job = closed_jobs_.find(row.ids.job_id);
  // A job whose row is damaged counts as open.
  trace.stays |= row.is_default || job == closed_jobs_.end();
  if (job != closed_jobs_.end()) ++job->second.trials;
  // As BestChooser sees a final.
  const bool evidence = row.origin == Origin::kMeasured && row.status == TrialStatus::kCounted &&
                        row.failure == FailureKind::kOk && row.exec_class == ExecClass::kNative &&
                        !row.is_default && row.baseline_ratio;
  if (evidence && row.rung == 4 && !row.contended) trace.final_seq = row.seq;
}

std::map<int64_t, const RetentionPlanner::Trace*> RetentionPlanner::Forgettable(
    const Group& group) {
  const std::set<int64_t> choices = group.chooser.Choices();
  int64_t last_final = 0;  // one is enough for it to be known that finals were held
  for (const auto& [print, trace] : group.traces) {
    last_final = std::max(last_final, trace.final_seq);
  }
  std::map<int64_t, const Trace*> out;
  for (const auto& [print, trace] : group.traces) {
    const bool chosen =
        std::ranges::any_of(trace.rows.seqs, [&](int64_t seq) { return choices.contains(seq); });
    if (trace.stays || chosen || (last_final > 0 && trace.final_seq == last_final)) continue;
    out[trace.rows.seqs.back()] = &trace;
  }
  return out;
}

RetentionPlan RetentionPlanner::Plan(const Retention& limits, int64_t now_ms) const {
  const int64_t too_old =
      limits.max_age_ms > 0 ? std::min(now_ms, newest_ms_) - limits.max_age_ms : INT64_MIN;
  std::map<int64_t, const Trace*> going, rest;  // of all groups, by the newest row
  int64_t kept_bytes = bytes_;
  for (const auto& [key, group] : groups_) {
    int64_t trials = group.trials;
    for (const auto& [seq, trace] : Forgettable(group)) {
      const bool too_many = limits.trials_per_task > 0 && trials > limits.trials_per_task;
      const bool goes = too_many || trace->newest_ms < too_old;
      (goes ? going : rest)[seq] = trace;
      if (!goes) continue;
      trials -= static_cast<int64_t>(trace->rows.seqs.size());
      kept_bytes -= trace->bytes;
    }
  }
  for (const auto& [seq, trace] : rest) {
    if (limits.max_bytes <= 0 || kept_bytes <= limits.max_bytes) break;
    going[seq] = trace;
    kept_bytes -= trace->bytes;
  }
  RetentionPlan plan;
  std::map<std::string, int64_t> gone;
  for (const auto& [seq, trace] : going) {
    plan.trials += static_cast<int64_t>(trace->rows.seqs.size());
    for (const auto& [job, n] : trace->rows.jobs) gone[job] += n;
    plan.traces.push_back(trace->rows);
  }
  for (const auto& [id, job] : closed_jobs_) {
    const bool emptied = job.trials > 0 && gone[id] == job.trials;
    if (emptied || (job.trials == 0 && job.updated_ms < too_old)) plan.idle_jobs.insert(id);
  }
  plan.kept_trials = trials_ - plan.trials;
  plan.kept_bytes = kept_bytes;
  plan.bytes = bytes_ - kept_bytes;
  plan.as_of_seq = last_seq_;
  return plan;
}

}  // namespace whet::db
