// Workers and leases: who runs what, and what happens when they go.
#include <algorithm>

#include "tuner/service/core.h"

namespace whet::tuner {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr uint32_t kKernelAbi = 1;
constexpr uint32_t kAllDevices = 1000;
constexpr int64_t kMaxRunLimit = 600 * kSecond;
constexpr uint32_t kChunkBytes = 1 << 20;
constexpr uint64_t kFetchBytes = 4 << 20;

std::string JsonText(const std::string& text) {
  std::string r = "\"";
  for (const char c : db::CleanText(text, 256)) {
    if (c == '"' || c == '\\') r += '\\';
    if (c != '\n' && c != '\t') r += c;
  }
  return r + "\"";
}

// Only what its system told, so that a device that tells nothing new stays the one it was.
std::string MoreOfIdentity(const v1::DeviceIdentity& d) {
  std::string more;
  if (!d.board().empty()) more += ",\"board\":" + JsonText(d.board());
  if (d.min_khz() > 0) more += fmt::format(",\"min_khz\":{}", d.min_khz());
  if (d.has_boost()) more += fmt::format(",\"boost\":{}", d.boost());
  if (d.physical_cores() > 0) more += fmt::format(",\"physical_cores\":{}", d.physical_cores());
  if (d.numa_nodes() > 1) more += fmt::format(",\"numa_nodes\":{}", d.numa_nodes());
  return more;
}

// What makes a board that board, without what changes at every start.
db::DeviceRow DeviceRowOf(const v1::DeviceIdentity& d) {
  db::DeviceRow row;
  row.device_id = d.device_id();
  row.device_key = d.key();
  row.feature_set = d.feature_set();
  row.identity = fmt::format(
      "{{\"triple\":{},\"cpu_model\":{},\"target\":{},\"processors\":{},\"l1d_bytes\":{},\"l2_"
      "bytes\":{},\"l3_bytes\":{},\"governor\":{},\"max_khz\":{},\"kernel\":{},\"emulated\":{}{}}}",
      JsonText(d.triple()), JsonText(d.cpu_model()), JsonText(d.target()), d.processors(),
      d.l1d_bytes(), d.l2_bytes(), d.l3_bytes(), JsonText(d.governor()), d.max_khz(),
      JsonText(d.kernel()), d.emulated(), MoreOfIdentity(d));
  return row;
}

}  // namespace

size_t ServiceCore::WorkersFor(const Job& job) const {
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        const Session& s = entry.second;
        const auto lease = leases_.find(s.epoch);
        return s.greeted && !s.draining && s.device.key() == job.spec.key() &&
               s.device.feature_set() == job.feature_set && lease != leases_.end() &&
               lease->second.device_id == s.device.device_id();
      }));
}

Actions ServiceCore::FromWorker(int64_t now, uint64_t session_id, v1::WorkerMessage message) {
  Actions out;
  Session& s = sessions_[session_id];
  s.heard_ns = now;
  if (message.has_hello() == s.greeted) {
    out.push_back(CloseWorker{session_id, FailedPrecondition("a stream begins with one Hello")});
    return out;
  }
  switch (message.message_case()) {
    case v1::WorkerMessage::kHello: Hello(now, session_id, message.hello(), &out); break;
    case v1::WorkerMessage::kResult:
      OnResult(now, session_id, std::move(*message.mutable_result()), &out);
      break;
    case v1::WorkerMessage::kStarted: {
      const v1::TrialIds& ids = message.started().ids();
      const auto found = by_ids_.find({ids.job_id(), ids.task(), ids.trial()});
      if (found == by_ids_.end()) break;
      Trial& t = trials_[found->second];
      if (t.stage != Stage::kAssigned || t.attempt != ids.attempt() ||
          t.device_id != s.device.device_id())
        break;
      t.started = true;
      t.builds_at_start = builds_started_;
      t.contended = !builds_.empty();
      break;
    }
    case v1::WorkerMessage::kDrain:
      s.draining = true;
      for (const TrialId id : std::set(s.assigned)) {
        if (!trials_[id].started) {
          s.assigned.erase(id);
          trials_[id].stage = Stage::kReady;
          MakeReady(FindJob(trials_[id].job), id);
        }
      }
      break;
    case v1::WorkerMessage::kHeartbeat: break;
    case v1::WorkerMessage::kFetch:  // served by the adapter, which has the blobs
    case v1::WorkerMessage::MESSAGE_NOT_SET: break;
  }
  Dispatch(now, &out);
  return out;
}

void ServiceCore::Hello(int64_t now, uint64_t session_id, const v1::Hello& hello, Actions* out) {
  SendWorker reply{session_id, {}};
  v1::HelloReply& r = *reply.message.mutable_hello();
  r.set_protocol(kProtocol);
  r.set_server_id(config_.server_id);
  r.set_log_id(config_.log_id);
  r.set_generation(config_.generation);
  r.set_heartbeat_ns(config_.heartbeat_ns);
  r.set_max_in_flight(config_.max_in_flight);
  r.set_max_blob_bytes(uint64_t{512} << 20);
  r.set_chunk_bytes(kChunkBytes);
  r.set_fetch_bytes(kFetchBytes);
  if (hello.protocol().min() > kProtocol || hello.protocol().max() < kProtocol) {
    r.set_refusal(fmt::format(
        "this server speaks protocol {}, the worker {} to {}; install one release on both",
        kProtocol, hello.protocol().min(), hello.protocol().max()));
  } else if (hello.kernel_abi() != kKernelAbi) {
    r.set_refusal(
        fmt::format("this server builds kernels of interface {}, the worker runs {}; install one "
                    "release on both",
                    kKernelAbi, hello.kernel_abi()));
  }
  db::DeviceRow row = DeviceRowOf(hello.device());
  if (const Status bad = db::Normalize(row); r.refusal().empty() && !bad.ok())
    r.set_refusal("the worker's identity: " + Message(bad));
  const bool refused = !r.refusal().empty();
  out->push_back(std::move(reply));
  if (refused) {
    out->push_back(CloseWorker{session_id, OkStatus()});
    return;
  }
  Session& s = sessions_[session_id];
  s.greeted = true;
  s.device = hello.device();
  s.incarnation = hello.incarnation();
  s.epoch = hello.lease_epoch();
  s.device_row = row.fingerprint();
  silent_since_.erase(s.device.device_id());
  for (const auto& [other, session] : sessions_) {
    if (other != session_id && session.greeted &&
        session.device.device_id() == s.device.device_id()) {
      out->push_back(CloseWorker{other, FailedPrecondition("the worker opened another stream")});
    }
  }
  const auto append = [&](db::Row r) {
    const uint64_t ticket = next_ticket_++;
    tickets_[ticket] = {};
    out->push_back(AppendRow{ticket, std::move(r)});
  };
  db::MachineRow machine{s.device_row, s.device.machine()};
  append(std::move(row));
  if (!machine.figures.empty() && !s.device.emulated() && db::Normalize(machine).ok())
    append(std::move(machine));
}

Actions ServiceCore::WorkerGone(int64_t now, uint64_t session_id) {
  Actions out;
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return out;
  const Session s = std::move(it->second);
  sessions_.erase(it);
  for (const TrialId id : s.assigned) {
    Trial& t = trials_[id];
    if (t.stage != Stage::kAssigned || t.session != session_id) continue;
    if (t.started) {
      // It may come back with the result. Until then, or until it is given up, nobody else runs it.
      silent_since_.emplace(s.device.device_id(), now);
    } else {
      t.stage = Stage::kReady;  // workers forget what they have not started
      MakeReady(FindJob(t.job), id);
    }
  }
  Dispatch(now, &out);
  return out;
}

// epoch 0: whatever the epoch.
void ServiceCore::LoseAssignments(int64_t now, const std::string& device_id, int64_t epoch,
                                  Actions* out) {
  for (auto& [id, t] : trials_) {
    if (t.stage == Stage::kAssigned && t.device_id == device_id && (epoch == 0 || t.epoch == epoch))
      LoseTrial(now, id, out);
  }
}

void ServiceCore::LoseTrial(int64_t now, TrialId id, Actions* out) {
  Trial& t = trials_[id];
  Job* job = FindJob(t.job);
  if (const auto s = sessions_.find(t.session); s != sessions_.end()) s->second.assigned.erase(id);
  t.lost_on.insert(t.device_id);
  ++t.losses;
  if (job->phase == Phase::kEnding || job->phase == Phase::kOver || job->cancelled()) {
    DropTrial(id, out);
  } else if (t.losses >= config_.max_attempts) {
    ++t.attempt;  // a row of its own, beside those of the attempts
    FinishWithoutRun(now, id, db::FailureKind::kPoisoned,
                     fmt::format("given up: {} workers were lost while they ran it", t.losses),
                     out);
  } else {
    t.stage = Stage::kReady;
    MakeReady(job, id);
  }
}

void ServiceCore::Acknowledge(uint64_t session_id, int64_t sequence, Actions* out) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  auto& results = it->second.results;
  for (auto& [seq, durable] : results) {
    if (seq == sequence) durable = true;
  }
  int64_t watermark = 0;
  while (!results.empty() && results.front().second) {
    watermark = results.front().first;
    results.pop_front();
  }
  if (watermark == 0) return;
  SendWorker m{session_id, {}};
  m.message.mutable_ack()->set_watermark(watermark);
  out->push_back(std::move(m));
}

// ---- dispatch

void ServiceCore::Dispatch(int64_t now, Actions* out) {
  // One more assignment for each worker in turn, until nothing moves: early candidates spread over
  // the devices.
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [session_id, s] : sessions_) {
      const auto lease = leases_.find(s.epoch);
      if (!s.greeted || s.draining || s.assigned.size() >= config_.max_in_flight ||
          lease == leases_.end())
        continue;
      if (lease->second.device_id != s.device.device_id() ||
          lease->second.incarnation != s.incarnation)
        continue;
      // Jobs take turns: the one after the last served comes first.
      Job* chosen = nullptr;
      TrialId trial = 0;
      auto consider = [&](Job* job) {
        if (trial != 0 || !job->open() || job->cancelled() || job->phase == Phase::kEnding ||
            job->ready.empty())
          return;
        if (job->spec.key() != s.device.key() || job->feature_set != s.device.feature_set()) return;
        trial = NextReady(s, job);
        if (trial != 0) chosen = job;
      };
      for (auto it = jobs_.upper_bound(last_served_); it != jobs_.end(); ++it)
        consider(it->second.get());
      for (auto& [id, job] : jobs_) consider(job.get());
      if (!chosen) continue;
      last_served_ = chosen->id;
      Assign(now, session_id, trial, out);
      moved = true;
    }
  }
}

// 0: nothing for this device. A trial that was lost on it goes to another one where there is one.
ServiceCore::TrialId ServiceCore::NextReady(const Session& s, Job* job) {
  if (job->phase == Phase::kFinals) {
    // Decisions are measured with the builders idle.
    const bool building = std::any_of(builds_.begin(), builds_.end(), [&](const auto& b) {
      return trials_[b.second].job == job->id;
    });
    if (building) return 0;
  }
  for (const TrialId id : job->ready) {
    const Trial& t = trials_[id];
    const bool elsewhere =
        t.lost_on.contains(s.device.device_id()) && WorkersFor(*job) > t.lost_on.size();
    if (!elsewhere) return id;
  }
  return 0;
}

void ServiceCore::Assign(int64_t now, uint64_t session_id, TrialId id, Actions* out) {
  Session& s = sessions_[session_id];
  Trial& t = trials_[id];
  Job* job = FindJob(t.job);
  TaskState& task = job->tasks[t.task];
  std::erase(job->ready, id);
  s.assigned.insert(id);
  t.stage = Stage::kAssigned;
  ++t.attempt;
  t.session = session_id;
  t.device_id = s.device.device_id();
  t.incarnation = s.incarnation;
  t.epoch = s.epoch;
  t.started = false;
  t.builds_at_start = builds_started_;
  t.contended = !builds_.empty();
  if (job->started_ns == 0) job->started_ns = now - job->kept_spent_ns;

  SendWorker m{session_id, {}};
  v1::Assign& a = *m.message.mutable_assign();
  v1::TrialIds& ids = *a.mutable_ids();
  ids.set_log_id(config_.log_id);
  ids.set_generation(config_.generation);
  ids.set_job_id(t.job);
  ids.set_task(t.task);
  ids.set_trial(t.number);
  ids.set_attempt(t.attempt);
  ids.set_incarnation(t.incarnation);
  ids.set_lease_epoch(t.epoch);
  ids.set_worker_id(s.device.worker_id());
  ids.set_boot_id(s.device.boot_id());
  ids.set_device_id(t.device_id);
  a.set_object_sha256(t.object);
  a.set_object_bytes(t.object_bytes);
  a.set_expected_sha256(task.expected_object);
  a.set_expected_bytes(task.expected_bytes);
  a.set_feature_set(job->feature_set);
  v1::MeasureSpec& spec = *a.mutable_spec();
  for (const v1::BufferSpec& b : task.prepared.buffers) *spec.add_buffers() = b;
  for (const uint64_t seed : config_.seeds) spec.add_seeds(seed);
  spec.set_threads(job->spec.threads());
  spec.set_memory_limit_bytes(config_.run_memory_bytes);
  // Without a time of the default: what a machine that does a tenth of a billion operations a
  // second would need.
  const double known =
      task.default_ns > 0 ? 2e9 + 300 * task.default_ns : 10e9 + 10 * task.prepared.flops;
  t.limit_ns = static_cast<int64_t>(std::min(known, static_cast<double>(kMaxRunLimit)));
  t.assigned_ns = now;
  spec.set_time_limit_ns(t.limit_ns);
  v1::MeasurePlan& plan = *spec.mutable_plan();
  plan.set_min_measured_ns(config_.rung1_ns);
  plan.set_rung2_ns(config_.rung2_ns);
  plan.set_rung3_ns(config_.rung3_ns);
  plan.set_sigma(config_.sigma);
  if (t.kind != Kind::kDefault) {
    a.set_baseline_sha256(task.baseline_object);
    a.set_baseline_bytes(task.baseline_bytes);
    plan.set_incumbent_ns(task.best_ns);
    plan.set_min_pairs(t.kind == Kind::kFinal ? 10 : 4);  // a search's only say who gets a final
    plan.set_pairs_ns(t.kind == Kind::kFinal ? config_.final_pairs_ns : config_.pairs_ns);
    plan.set_final(t.kind == Kind::kFinal);
  }
  out->push_back(std::move(m));
}

// ---- tracker

Actions ServiceCore::FromTracker(int64_t now, const v1::LeaseReply& message) {
  Actions out;
  switch (message.message_case()) {
    case v1::LeaseReply::kPresented:
      lease_life_ns_ =
          std::clamp<int64_t>(message.presented().lease_life_ns(), kSecond, 600 * kSecond);
      renew_every_ns_ = std::clamp<int64_t>(message.presented().renew_ns(), 100 * kMillisecond,
                                            lease_life_ns_ / 2);
      next_renew_ns_ = now;
      wants_.clear();  // the tracker's side of the new stream knows of none
      break;
    case v1::LeaseReply::kGranted: {
      const v1::Granted& g = message.granted();
      leases_[g.epoch()] = {g.incarnation(), g.device().device_id(), g.device().key(), g.device()};
      break;
    }
    case v1::LeaseReply::kEnded: {
      const auto it = leases_.find(message.ended().epoch());
      if (it == leases_.end()) break;
      const std::string device = it->second.device_id;
      leases_.erase(it);
      LoseAssignments(now, device, message.ended().epoch(), &out);
      break;
    }
    case v1::LeaseReply::kUnknownKey:  // submissions ask first; a key that went away may come back
    case v1::LeaseReply::MESSAGE_NOT_SET: break;
  }
  UpdateWants(&out);
  Dispatch(now, &out);
  return out;
}

Actions ServiceCore::TrackerUp(int64_t now) {
  tracker_up_ = true;
  tracker_down_ns_ = 0;
  return {};
}

Actions ServiceCore::TrackerDown(int64_t now) {
  if (tracker_up_ || tracker_down_ns_ == 0) tracker_down_ns_ = now;
  tracker_up_ = false;
  return {};
}

std::vector<v1::HeldLease> ServiceCore::HeldLeases() const {
  std::vector<v1::HeldLease> held;
  for (const auto& [epoch, lease] : leases_) {
    v1::HeldLease& h = held.emplace_back();
    h.set_incarnation(lease.incarnation);
    h.set_epoch(epoch);
    h.set_device_id(lease.device_id);
    h.set_key(lease.key);
  }
  return held;
}

// Asks for devices of every key that has work, gives back those of keys that have none.
void ServiceCore::UpdateWants(Actions* out) {
  if (!tracker_up_) return;
  std::map<std::string, uint32_t> wants;
  for (const auto& [id, job] : jobs_) {
    if (job->open() && job->phase != Phase::kPreparing && job->phase != Phase::kEnding)
      wants[job->spec.key()] = kAllDevices;
  }
  for (const auto& [key, count] : wants) {
    if (wants_.contains(key)) continue;
    SendTracker m;
    m.message.mutable_want()->set_key(key);
    m.message.mutable_want()->set_count(count);
    out->push_back(std::move(m));
  }
  for (const auto& [key, count] : wants_) {
    if (wants.contains(key)) continue;
    SendTracker m;
    m.message.mutable_want()->set_key(key);
    out->push_back(std::move(m));
  }
  wants_ = wants;
  for (const auto& [epoch, lease] : std::map(leases_)) {
    if (wants.contains(lease.key)) continue;
    const bool busy = std::any_of(trials_.begin(), trials_.end(), [&, e = epoch](const auto& t) {
      return t.second.stage == Stage::kAssigned && t.second.epoch == e;
    });
    if (busy) continue;
    SendTracker m;
    m.message.mutable_release()->set_epoch(epoch);
    out->push_back(std::move(m));
    leases_.erase(epoch);
  }
}

}  // namespace whet::tuner
