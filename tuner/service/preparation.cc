#include "tuner/service/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace whet::tuner {
namespace {

constexpr int kMaxQueries = 10'000;
constexpr size_t kLoggedBest = 4;

bool SameProgram(const db::TrialRow& row, const Task& task, int64_t codegen_version) {
  return row.codegen_version == codegen_version && row.initial_program == task.initial_program();
}

}  // namespace

StatusOr<PreparedTask> PrepareFromLog(const Task& task, const PrepareTask& request,
                                      db::LogReader& log, int64_t codegen_version) {
  PreparedTask p;
  p.op_summary = task.op_summary();
  p.initial_program = task.initial_program();
  WHET_ASSIGN_OR_RETURN(p.default_trace, task.DefaultTrace());
  p.buffers = task.buffers();
  p.flops = task.flops();
  p.floor_ns = task.floor_ns();
  WHET_ASSIGN_OR_RETURN(const db::TriedTraces tried,
                        log.Tried(request.key, codegen_version, p.initial_program));
  p.tried = static_cast<int64_t>(tried.traces.size());
  std::map<Fingerprint, LoggedTrace> valid;
  std::set<Fingerprint> failed;
  const auto visit = [&](const db::TrialRow& row) {
    // A job that is taken up again must not reuse its numbers: rows of one number are deliveries of
    // one trial.
    if (row.ids.job_id == request.job) p.next_trial = std::max(p.next_trial, row.ids.trial + 1);
    if (row.status != db::TrialStatus::kCounted || row.origin != db::Origin::kMeasured ||
        !SameProgram(row, task, codegen_version))
      return true;
    const bool of_this_job = row.ids.job_id == request.job;
    if (row.failure != db::FailureKind::kOk) {
      if (db::IsRetried(row.failure)) return true;
      failed.insert(row.trace_fingerprint());
      if (of_this_job) ++p.failed[std::string(db::FailureName(row.failure))];
      return true;
    }
    if (of_this_job && row.rung != 4) ++p.verified;
    if (row.exec_class == db::ExecClass::kEmulated || row.median_ns <= 0) return true;
    if (row.is_default) {
      p.default_ns = row.median_ns;
      return true;
    }
    LoggedTrace& t = valid[row.trace_fingerprint()];
    const bool final = row.rung == 4;
    if (t.trace.empty() || final || !t.final)
      t = {row.trace, row.median_ns, row.baseline_ratio.value_or(0), final};
    return true;
  };
  WHET_RETURN_IF_ERROR(log.ForEachTrial(&request.key, visit).status());
  for (auto& [fingerprint, t] : valid) {
    if (failed.contains(fingerprint)) continue;
    p.finals += t.final;
    p.best.push_back(std::move(t));
  }
  const auto estimate = [&](const LoggedTrace& t) {
    return EstimateNs(t.median_ns, t.ratio, p.default_ns);
  };
  std::stable_sort(p.best.begin(), p.best.end(), [&](const LoggedTrace& a, const LoggedTrace& b) {
    return estimate(a) < estimate(b);
  });
  if (p.best.size() > kLoggedBest) p.best.resize(kLoggedBest);
  return p;
}

StatusOr<std::vector<search::LoggedTrial>> ReadLogged(const Task& task, const db::RecordKey& key,
                                                      db::LogReader& log, int64_t codegen_version) {
  std::vector<search::LoggedTrial> logged;
  const auto visit = [&](const db::TrialRow& row) {
    if (!SameProgram(row, task, codegen_version)) return true;
    if (auto trial = ToLoggedTrial(task, row)) logged.push_back(*std::move(trial));
    return true;
  };
  WHET_RETURN_IF_ERROR(log.ForEachTrial(&key, visit).status());
  return logged;
}

StatusOr<v1::GetRecordsReply> FindRecords(const v1::GetRecordsRequest& request,
                                          db::LogReader& log) {
  if (request.queries_size() > kMaxQueries)
    return InvalidArgument("{} queries, the limit is {}", request.queries_size(), kMaxQueries);
  v1::GetRecordsReply reply;
  for (const v1::RecordQuery& q : request.queries()) {
    db::BestQuery query;
    WHET_ASSIGN_OR_RETURN(query.key.workload, ParseFingerprint(q.workload_fingerprint()));
    WHET_ASSIGN_OR_RETURN(query.initial_program, ParseFingerprint(q.initial_program()));
    WHET_ASSIGN_OR_RETURN(query.key.cache_mode,
                          db::ParseCacheMode(q.cache_mode().empty() ? "turns" : q.cache_mode()));
    query.key.target = q.feature_set();
    query.key.threads = static_cast<int>(std::min<uint32_t>(q.threads(), 1 << 20));
    query.codegen_version = q.codegen_version();
    WHET_ASSIGN_OR_RETURN(const db::Best best, log.FindBest(query));
    if (!reply.machines().contains(q.feature_set())) {
      WHET_ASSIGN_OR_RETURN((*reply.mutable_machines())[q.feature_set()],
                            log.FiguresOf(q.feature_set()));
    }
    v1::RecordReply& r = *reply.add_records();
    r.set_found(best.record.has_value());
    r.set_default_ns(best.default_ns);
    for (const auto& [device, ns] : best.calm_default_ns)
      (*r.mutable_calm_default_ns())[device.Hex()] = ns;
    if (best.record) {
      r.set_trace(best.record->row.trace);
      r.set_ratio(best.record->ratio);
      r.set_median_ns(best.record->row.median_ns);
      r.set_evidence_rows(best.record->evidence_rows);
      r.set_device_id(best.record->row.ids.device_id);
    } else {
      r.set_miss(std::string(db::MissName(best.miss)));
      r.set_why(best.why);
    }
  }
  return reply;
}

StatusOr<v1::GetPlansReply> FindPlans(const v1::GetPlansRequest& request, db::LogReader& log) {
  if (request.regions_size() > kMaxQueries)
    return InvalidArgument("{} regions, the limit is {}", request.regions_size(), kMaxQueries);
  v1::GetPlansReply reply;
  std::map<Fingerprint, std::string> texts;
  for (const std::string& region : request.regions()) {
    WHET_ASSIGN_OR_RETURN(const Fingerprint print, ParseFingerprint(region));
    WHET_ASSIGN_OR_RETURN(const db::Plans found, log.FindPlans(print));
    for (const db::PlanRow& row : found.rows) {
      v1::Plan& plan = *reply.add_plans();
      plan.set_region(region);
      plan.set_alternative(row.alternative);
      for (const db::PlanRow::Part& p : row.parts) {
        v1::Plan::Part& part = *plan.add_parts();
        part.set_workload(p.workload.Hex());
        part.set_count(p.count);
      }
    }
    for (const auto& [workload, row] : found.workloads) texts.emplace(workload, row.text);
  }
  for (const auto& [workload, text] : texts) {
    v1::GetPlansReply::Workload& w = *reply.add_workloads();
    w.set_fingerprint(workload.Hex());
    w.set_text(text);
  }
  return reply;
}

StatusOr<JobTarget> ChooseTarget(const v1::JobSpec& spec, const v1::ListDevicesReply& devices,
                                 const SpaceProvider& spaces) {
  std::map<std::string, const v1::DeviceEntry*> by_features;
  for (const v1::DeviceEntry& d : devices.devices())
    by_features.emplace(d.device().feature_set(), &d);
  if (by_features.empty()) {
    std::vector<std::string> known(devices.known_keys().begin(), devices.known_keys().end());
    const std::string key = spec.key().substr(0, 64);
    if (known.empty())
      return NotFound(
          "no device has the key '{}': no worker has registered yet; start one with `rpc-worker "
          "--key {} --tracker ADDRESS`",
          key, key);
    return NotFound("no device has the key '{}'; the keys are: {}", key, fmt::join(known, ", "));
  }
  if (by_features.size() > 1) {
    std::string list;
    for (const auto& [features, d] : by_features)
      list += fmt::format("{}{} ({})", list.empty() ? "" : "; ", d->device().device_id(), features);
    return FailedPrecondition(
        "the devices of key '{}' have different instruction sets: {}; give each kind a key of its "
        "own",
        spec.key(), list);
  }
  JobTarget target;
  const v1::DeviceIdentity& device = by_features.begin()->second->device();
  target.target = spec.target().empty() ? device.target() : spec.target();
  WHET_ASSIGN_OR_RETURN(target.feature_set, spaces.FeatureSetOf(target.target));
  if (target.feature_set != device.feature_set()) {
    return FailedPrecondition(
        "the devices of key '{}' are '{}', the job is for '{}'; records are kept for the device's "
        "own instruction set: leave the target out",
        spec.key(), device.feature_set(), target.feature_set);
  }
  return target;
}

}  // namespace whet::tuner
