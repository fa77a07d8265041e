// Results of workers: what is believed, what counts, what comes late.
#include <algorithm>
#include <cmath>

#include "tuner/service/core.h"

namespace whet::tuner {
namespace {

// Half the width of the middle half, relative: deaf to the spikes of a shared machine.
double RelativeNoise(std::vector<double> samples) {
  if (samples.size() < 4) return 0;
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  return median > 0
             ? (samples[samples.size() * 3 / 4] - samples[samples.size() / 4]) / 1.35 / median
             : 0;
}

std::string StateJson(const v1::DeviceState& s) {
  std::string fields;
  auto add = [&](const char* name, const std::string& value) {
    fields += fmt::format("{}\"{}\":{}", fields.empty() ? "" : ",", name, value);
  };
  if (s.has_khz()) add("khz", std::to_string(s.khz()));
  if (s.has_load1() && std::isfinite(s.load1())) add("load1", fmt::format("{:.2f}", s.load1()));
  if (s.has_temperature_mc()) add("temperature_mc", std::to_string(s.temperature_mc()));
  if (s.has_throttled()) add("throttled", s.throttled() ? "true" : "false");
  return fields.empty() ? "" : "{" + fields + "}";
}

}  // namespace

// What a worker claims is not what is true: numbers are checked again here.
db::FailureKind ServiceCore::Judge(const v1::Measurement& m, const TaskState& task, const Job& job,
                                   std::string* message) const {
  const db::FailureKind claimed = FailureOf(m.failure());
  *message = m.message();
  if (claimed != db::FailureKind::kOk) return claimed;
  double total = 0;
  const auto runs = static_cast<double>(std::max<uint32_t>(m.runs_per_sample(), 1));
  for (const double s : m.samples_ns()) {
    if (!std::isfinite(s) || s <= 0) {
      *message = "a sample is not a positive time";
      return db::FailureKind::kInvalidTiming;
    }
    total += s * runs;
  }
  if (m.samples_ns().empty() || static_cast<size_t>(m.samples_ns_size()) > db::kMaxSamples ||
      total < static_cast<double>(config_.rung1_ns)) {
    *message =
        fmt::format("{} samples of {:.0f} ns in all are not enough", m.samples_ns_size(), total);
    return db::FailureKind::kInvalidTiming;
  }
  const double median = db::MedianOf({m.samples_ns().begin(), m.samples_ns().end()});
  const double floor = task.prepared.floor_ns / job.spec.threads();
  if (median < floor) {
    *message = fmt::format("{:.0f} ns is faster than this task can be ({:.0f} ns)", median, floor);
    return db::FailureKind::kInvalidTiming;
  }
  if (m.baseline_ratio() != 0 && (!std::isfinite(m.baseline_ratio()) || m.baseline_ratio() <= 0)) {
    *message = "the ratio to the default schedule is not a positive number";
    return db::FailureKind::kInvalidTiming;
  }
  if (m.state().throttled()) {
    *message = "the processor was throttled while this was measured";
    return db::FailureKind::kInvalidTiming;
  }
  return db::FailureKind::kOk;
}

// What a delivery says of its trial, as far as it is believed.
void ServiceCore::FillRow(const Trial& t, const Job& job, const Session& s,
                          const v1::Result& result, db::TrialRow* row) const {
  const v1::TrialIds& ids = result.ids();
  const v1::Measurement& m = result.measurement();
  row->ids.attempt = ids.attempt();
  row->ids.incarnation = ids.incarnation();
  row->ids.lease_epoch = ids.lease_epoch();
  row->ids.worker_id = s.device.worker_id();
  row->ids.boot_id = ids.boot_id();
  row->ids.device_id = ids.device_id();
  row->device = s.device_row;
  row->object_hash = result.object_sha256();
  row->failure = Judge(m, job.tasks[t.task], job, &row->message);
  row->exec_class = s.device.emulated() ? db::ExecClass::kEmulated : db::ExecClass::kNative;
  row->sandbox_bits = m.sandbox_bits();
  row->device_state = StateJson(m.state());
  row->measure_ns = std::clamp<int64_t>(m.phases().total_ns(), 0, int64_t{3600} * kSecond);
  if (row->failure == db::FailureKind::kOk) {
    row->samples_ns.assign(m.samples_ns().begin(), m.samples_ns().end());
    row->runs_per_sample = std::max<uint32_t>(m.runs_per_sample(), 1);
    row->rung = std::clamp(m.rung(), 0, 4);
    if (m.baseline_ratio() > 0 && !row->is_default) row->baseline_ratio = m.baseline_ratio();
  }
}

void ServiceCore::OnResult(int64_t now, uint64_t session_id, v1::Result result, Actions* out) {
  Session& s = sessions_[session_id];
  const v1::TrialIds& ids = result.ids();
  s.results.emplace_back(result.sequence(), false);
  const auto found = by_ids_.find({ids.job_id(), ids.task(), ids.trial()});
  Trial* t = found == by_ids_.end() ? nullptr : &trials_[found->second];
  Job* job = t ? FindJob(t->job) : nullptr;
  const bool ours =
      ids.generation() == config_.generation && ids.device_id() == s.device.device_id();
  // Numbers of a job that was taken up again are given out anew: a former process of this server
  // may have sent another candidate under this one. Without its trace a result is no record.
  const bool of_another_start = t && (ids.attempt() > t->attempt ||
                                      (!t->object.empty() && result.object_sha256() != t->object));
  if (!t || !job || !ours || of_another_start) {
    Acknowledge(session_id, result.sequence(), out);  // keeping it helps nobody
    out->push_back(ResultRefused{ids, !ours ? "it is of another log or device"
                                      : of_another_start
                                          ? "its trial was given out before this server started"
                                          : "its trial is not known here (any more)"});
    return;
  }
  const TrialId id = found->second;
  const bool live = t->stage == Stage::kAssigned && ids.attempt() == t->attempt &&
                    ids.lease_epoch() == t->epoch && ids.incarnation() == t->incarnation &&
                    ids.device_id() == t->device_id && result.object_sha256() == t->object;
  const bool repeated = ids.attempt() == t->taken_attempt && ids.lease_epoch() == t->epoch &&
                        ids.incarnation() == t->incarnation && ids.device_id() == t->device_id;
  if (repeated && t->stage == Stage::kDone) {
    Acknowledge(session_id, result.sequence(), out);
    return;
  }
  db::TrialRow row = RowOf(*t, *job);
  if (row.trace.empty()) {  // long done under another attempt, or another start's
    Acknowledge(session_id, result.sequence(), out);
    out->push_back(ResultRefused{ids, "its trial is over, and what it tried is forgotten"});
    return;
  }
  FillRow(*t, *job, s, result, &row);
  const double noise = RelativeNoise(row.samples_ns);
  if (!live) {
    Append(now, id, std::move(row), session_id, result.sequence(), !repeated, noise, out);
    tickets_[next_ticket_ - 1].what = Ticket::What::kOther;  // to be acknowledged, nothing more
    return;
  }
  TakeLive(now, id, session_id, result.sequence(), std::move(row), noise, out);
}

// The result that a trial was waiting for.
void ServiceCore::TakeLive(int64_t now, TrialId id, uint64_t session_id, int64_t sequence,
                           db::TrialRow row, double noise, Actions* out) {
  Session& s = sessions_[session_id];
  Trial* t = &trials_[id];
  // The builders are on this machine; so, perhaps, is the device.
  const bool local =
      !config_.host_boot_id.empty() && s.device.host_boot_id() == config_.host_boot_id;
  t->contended = local && (t->builds_at_start != builds_started_ || t->contended);
  row.contended = t->contended;
  if (const auto holder = sessions_.find(t->session); holder != sessions_.end())
    holder->second.assigned.erase(id);
  s.assigned.erase(id);
  t->stage = Stage::kCommitting;
  t->taken_attempt = t->attempt;
  const bool lost = row.failure == db::FailureKind::kDeviceLost ||
                    row.failure == db::FailureKind::kInfrastructure;
  if (lost) {
    // The attempt's own row; the trial goes on. After the last attempt the row of the trial
    // follows.
    Append(now, id, row, session_id, sequence, false, 0, out);
    tickets_[next_ticket_ - 1].what = Ticket::What::kOther;
    t->stage = Stage::kAssigned;
    LoseTrial(now, id, out);
  } else {
    Append(now, id, std::move(row), session_id, sequence, false, noise, out);
  }
  Dispatch(now, out);
}

}  // namespace whet::tuner
