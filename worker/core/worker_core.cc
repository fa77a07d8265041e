#include "worker/core/worker_core.h"

#include <algorithm>
#include <cmath>

#include "worker/core/object_check.h"

namespace whet::worker {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr int kSilentBeats = 5;

std::string IdsText(const v1::TrialIds& ids) {
  return fmt::format("job={} task={} trial={} attempt={}", ids.job_id(), ids.task(), ids.trial(),
                     ids.attempt());
}

bool SameTrial(const v1::TrialIds& a, const v1::TrialIds& b) {
  return a.job_id() == b.job_id() && a.task() == b.task() && a.trial() == b.trial() &&
         a.attempt() == b.attempt() && a.lease_epoch() == b.lease_epoch();
}

}  // namespace

WorkerCore::WorkerCore(WorkerConfig config, std::vector<v1::SpooledResult> spool,
                       const std::map<std::string, uint64_t>& cached, uint64_t seed,
                       std::map<std::string, PartialBlob> partial)
    : config_(std::move(config)), rng_(seed), baseline_ns_(config_.baseline_ns) {
  for (v1::SpooledResult& r : spool) {
    const int64_t sequence = r.result().sequence();
    if (sequence < 1 || sequence > kMaxSequence) continue;
    next_sequence_ = std::max(next_sequence_, sequence + 1);
    spool_bytes_ += r.ByteSizeLong();
    spool_[sequence] = {std::move(r), false};
  }
  for (const auto& [sha, bytes] : cached) cache_[sha] = {bytes, 0};
  for (auto& [sha, p] : partial) {
    if (cache_.contains(sha)) continue;
    Fetching& f = fetching_[sha];
    f.hash = std::move(p.hash);
    f.received = p.bytes;
  }
}

Actions WorkerCore::Step(int64_t now, const Event& event) {
  out_.clear();
  now_ = now;
  if (exited_) return {};
  struct Visitor {
    WorkerCore& core;
    int64_t now;
    void operator()(const FromTracker& e) { core.OnTracker(now, e.message); }
    void operator()(const TrackerLost& e) { core.OnTrackerLost(now, e.status); }
    void operator()(const FromServer& e) { core.OnServer(now, e.message); }
    void operator()(const ServerLost& e) { core.OnServerLost(now, e.status); }
    void operator()(const BlobStored& e) { core.OnBlobStored(e.sha256, e.status); }
    void operator()(const RunEnded& e) { core.OnRunEnded(now, e); }
    void operator()(const DrainRequested&) { core.OnDrainRequested(now); }
    void operator()(const Tick&) {}
  };
  std::visit(Visitor{*this, now}, event);
  OnTick(now);
  return std::move(out_);
}

int64_t WorkerCore::NextDeadline() const {
  int64_t at = running_ ? give_up_run_ns_ : drain_by_ns_;
  if (tracker_ == Link::kDown && !draining_) at = std::min(at, tracker_retry_ns_);
  if (tracker_ == Link::kConnecting) at = std::min(at, tracker_hello_by_ns_);
  if (tracker_ == Link::kUp) at = std::min(at, next_tracker_beat_ns_);
  if (server_ == Link::kDown && !DialAddress().empty()) at = std::min(at, server_retry_ns_);
  if (server_ == Link::kConnecting) at = std::min(at, server_hello_by_ns_);
  if (server_ == Link::kUp)
    at = std::min({at, next_server_beat_ns_, server_heard_ns_ + kSilentBeats * server_beat_ns_});
  return at;
}

int64_t WorkerCore::Backoff(int* failures) {
  const int64_t base =
      std::min(config_.max_backoff_ns, config_.min_backoff_ns << std::min(*failures, 10));
  ++*failures;
  return base / 2 + rng_.Below(base / 2 + 1);
}

// Where there is something to do: the server that holds the lease, else one that kept results are
// for.
std::string WorkerCore::DialAddress() const {
  if (lease_.epoch != 0 && !draining_) return lease_.server_address;
  if (!spool_.empty()) return spool_.begin()->second.result.server_address();
  return running_ ? lease_.server_address : "";
}

// ---- tracker

void WorkerCore::OnTracker(int64_t now, const v1::AttachReply& message) {
  if (tracker_ == Link::kDown) return;
  switch (message.message_case()) {
    case v1::AttachReply::kRegistered:
      tracker_ = Link::kUp;
      tracker_failures_ = 0;
      heartbeat_ns_ = std::clamp<int64_t>(message.registered().heartbeat_ns(), 100 * kMillisecond,
                                          60 * kSecond);
      next_tracker_beat_ns_ = now + heartbeat_ns_;
      break;
    case v1::AttachReply::kLease:
      if (message.lease().epoch() == lease_.epoch &&
          message.lease().incarnation() == lease_.incarnation)
        break;
      if (lease_.epoch != 0) EndLease();
      lease_ = {message.lease().incarnation(), message.lease().epoch(),
                message.lease().server_address()};
      server_failures_ = 0;
      server_retry_ns_ = now;
      if (server_ != Link::kDown)
        DropServer(now, OkStatus());  // the stream was opened under another lease
      break;
    case v1::AttachReply::kEnded:
      if (message.ended().epoch() == lease_.epoch) EndLease();
      break;
    case v1::AttachReply::MESSAGE_NOT_SET: break;
  }
}

// A run that is under way goes on: its result is stored late, or is still welcome.
void WorkerCore::EndLease() {
  lease_ = {};
  queue_.clear();
}

void WorkerCore::OnTrackerLost(int64_t now, const Status& status) {
  if (tracker_ == Link::kDown) return;
  tracker_ = Link::kDown;
  tracker_retry_ns_ = now + Backoff(&tracker_failures_);
  if (!status.ok()) out_.push_back(SayStatus{Annotate(status, "tracker")});
}

// ---- server

void WorkerCore::OnServer(int64_t now, const v1::ServerMessage& message) {
  if (server_ == Link::kDown) return;
  server_heard_ns_ = now;
  if (server_ == Link::kConnecting && !message.has_hello()) return;
  switch (message.message_case()) {
    case v1::ServerMessage::kHello: OnHelloReply(now, message.hello()); break;
    case v1::ServerMessage::kAssign: OnAssign(message.assign()); break;
    case v1::ServerMessage::kChunk: OnChunk(message.chunk()); break;
    case v1::ServerMessage::kAck:
      for (auto it = spool_.begin(); it != spool_.end();) {
        if (it->second.sent && it->first <= message.ack().watermark()) {
          out_.push_back(DropResult{it->first});
          spool_bytes_ -= it->second.result.ByteSizeLong();
          it = spool_.erase(it);
        } else {
          ++it;
        }
      }
      break;
    case v1::ServerMessage::kRevoke:
      std::erase_if(
          queue_, [&](const v1::Assign& a) { return SameTrial(a.ids(), message.revoke().ids()); });
      break;
    case v1::ServerMessage::kHeartbeat:
    case v1::ServerMessage::MESSAGE_NOT_SET: break;
  }
}

void WorkerCore::OnHelloReply(int64_t now, const v1::HelloReply& reply) {
  if (server_ != Link::kConnecting) return;
  if (!reply.refusal().empty() || reply.protocol() != kProtocol) {
    DropServer(now,
               FailedPrecondition("{} refused this worker: {}", server_address_,
                                  reply.refusal().empty() ? "unknown protocol" : reply.refusal()));
    return;
  }
  server_ = Link::kUp;
  server_failures_ = 0;
  log_id_ = reply.log_id();
  fetch_bytes_ = std::min(reply.fetch_bytes(), config_.max_blob_bytes);
  server_beat_ns_ = std::clamp<int64_t>(reply.heartbeat_ns(), 100 * kMillisecond, 60 * kSecond);
  next_server_beat_ns_ = now + server_beat_ns_;
  if (draining_) {
    ToServer m;
    m.message.mutable_drain();
    out_.push_back(std::move(m));
  }
  SendUnsent();
}

void WorkerCore::SendUnsent() {
  if (server_ != Link::kUp) return;
  for (auto& [sequence, kept] : spool_) {
    if (kept.sent || kept.result.log_id() != log_id_) continue;
    kept.sent = true;
    ToServer m;
    *m.message.mutable_result() = kept.result.result();
    out_.push_back(std::move(m));
  }
}

void WorkerCore::OnAssign(const v1::Assign& assign) {
  if (draining_ || lease_.epoch == 0 || assign.ids().lease_epoch() != lease_.epoch ||
      assign.ids().incarnation() != lease_.incarnation)
    return;
  if (const Status s = CheckFeatureSet(assign.feature_set(), config_.device); !s.ok()) {
    RefuseAssign(now_, assign, v1::FAILURE_NOT_RUNNABLE, Message(s));
    return;
  }
  for (const auto& [sha, bytes] : Needs(assign)) {
    if (IsSha256Hex(sha) && bytes > 0 && bytes <= config_.max_blob_bytes) continue;
    RefuseAssign(
        now_, assign, v1::FAILURE_INFRASTRUCTURE,
        fmt::format("a blob of {} bytes; the limits are 1 and {}", bytes, config_.max_blob_bytes));
    return;
  }
  if (queue_.size() >= config_.max_queue) {
    RefuseAssign(now_, assign, v1::FAILURE_INFRASTRUCTURE,
                 "more assignments than this worker queues");
    return;
  }
  queue_.push_back(assign);
}

std::vector<std::pair<std::string, uint64_t>> WorkerCore::Needs(const v1::Assign& a) const {
  std::vector<std::pair<std::string, uint64_t>> needs = {{a.expected_sha256(), a.expected_bytes()},
                                                         {a.object_sha256(), a.object_bytes()}};
  if (!a.baseline_sha256().empty()) needs.emplace_back(a.baseline_sha256(), a.baseline_bytes());
  return needs;
}

void WorkerCore::FetchMissing() {
  if (server_ != Link::kUp) return;
  for (const v1::Assign& a : queue_) {
    for (const auto& [sha, bytes] : Needs(a)) {
      if (cache_.contains(sha)) continue;
      Fetching& f = fetching_[sha];
      if (f.asked_until > 0 || f.storing) continue;
      if (f.received >= bytes) f = {};  // a former process left more than there is to come
      f.total = bytes;
      AskForMore(sha, f);
    }
  }
}

void WorkerCore::AskForMore(const std::string& sha256, Fetching& f) {
  f.asked_until = fetch_bytes_ == 0 ? f.total : std::min(f.total, f.received + fetch_bytes_);
  ToServer m;
  m.message.mutable_fetch()->set_sha256(sha256);
  m.message.mutable_fetch()->set_offset(f.received);
  if (fetch_bytes_ > 0) m.message.mutable_fetch()->set_max_bytes(f.asked_until - f.received);
  out_.push_back(std::move(m));
}

void WorkerCore::OnChunk(const v1::Chunk& chunk) {
  const auto it = fetching_.find(chunk.sha256());
  if (it == fetching_.end() || it->second.storing || it->second.asked_until == 0) return;
  Fetching& f = it->second;
  Status wrong;
  if (!chunk.error().empty()) {
    wrong = NotFound("blob {}: {}", chunk.sha256(), chunk.error());
  } else if (chunk.total() != f.total || chunk.offset() != f.received || chunk.data().empty() ||
             chunk.data().size() > f.asked_until - f.received) {
    wrong = DataLoss("blob {}: a chunk of {} bytes at {} of {} does not fit", chunk.sha256(),
                     chunk.data().size(), chunk.offset(), chunk.total());
  } else {
    f.hash.Update(chunk.data());
    f.received += chunk.data().size();
    f.storing = f.received == f.total;
    if (f.storing && f.hash.Hex() != chunk.sha256())
      wrong = DataLoss("blob {} has other contents", chunk.sha256());
  }
  if (wrong.ok()) {
    out_.push_back(StoreBlob{chunk.sha256(), chunk.offset(), chunk.data(), f.storing});
    if (!f.storing && f.received == f.asked_until) AskForMore(chunk.sha256(), f);
    return;
  }
  const std::string sha256 = it->first;
  fetching_.erase(it);
  out_.push_back(DropBlob{sha256});
  RefuseThoseThatNeed(sha256, Message(wrong));
}

void WorkerCore::OnBlobStored(const std::string& sha256, const Status& status) {
  const auto it = fetching_.find(sha256);
  if (it == fetching_.end()) return;
  if (status.ok() && !it->second.storing) return;
  if (status.ok()) cache_[sha256] = {it->second.total, ++uses_};
  fetching_.erase(it);
  if (status.ok()) return;
  out_.push_back(SayStatus{status});
  RefuseThoseThatNeed(sha256, Message(status));
}

// The server learns that this worker cannot: their trials go elsewhere, or are tried again.
void WorkerCore::RefuseThoseThatNeed(const std::string& sha256, const std::string& why) {
  std::deque<v1::Assign> rest;
  std::vector<v1::Assign> refused;
  for (v1::Assign& a : queue_) {
    const auto needs = Needs(a);
    const bool affected =
        std::any_of(needs.begin(), needs.end(), [&](const auto& n) { return n.first == sha256; });
    if (affected) {
      refused.push_back(std::move(a));
    } else {
      rest.push_back(std::move(a));
    }
  }
  queue_ = std::move(rest);
  for (const v1::Assign& a : refused) RefuseAssign(now_, a, v1::FAILURE_INFRASTRUCTURE, why);
}

void WorkerCore::OnServerLost(int64_t now, const Status& status) {
  if (server_ == Link::kDown) return;
  server_ = Link::kDown;
  server_retry_ns_ = now + Backoff(&server_failures_);
  queue_.clear();                                      // the server gives them out again
  for (auto& [sha, f] : fetching_) f.asked_until = 0;  // gone on with when it is asked for again
  for (auto& [sequence, kept] : spool_) kept.sent = false;
  if (!status.ok()) out_.push_back(SayStatus{Annotate(status, "server")});
}

void WorkerCore::DropServer(int64_t now, const Status& why) {
  out_.push_back(CloseServer{});
  OnServerLost(now, why);
}

// ---- runs

void WorkerCore::StartNext(int64_t now) {
  while (!running_ && server_ == Link::kUp && !queue_.empty()) {
    const v1::Assign& next = queue_.front();
    const auto needs = Needs(next);
    if (!std::all_of(needs.begin(), needs.end(),
                     [&](const auto& n) { return cache_.contains(n.first); }))
      return;
    for (const auto& [sha, bytes] : needs) cache_[sha].used = ++uses_;
    running_ = next;
    queue_.pop_front();
    ToServer m;
    *m.message.mutable_started()->mutable_ids() = running_->ids();
    out_.push_back(std::move(m));
    const bool due = !baseline_ns_ || baseline_age_ >= config_.baseline_every;
    out_.push_back(StartRun{*running_, config_.baseline_version > 0 && due});
  }
}

void WorkerCore::OnRunEnded(int64_t now, const RunEnded& e) {
  for (const std::string& sha : e.damaged) {
    if (cache_.erase(sha) > 0) out_.push_back(DropBlob{sha});
  }
  if (e.baseline_ns && std::isfinite(*e.baseline_ns) && *e.baseline_ns > 0) {
    baseline_ns_ = *e.baseline_ns;
    baseline_age_ = 0;
  }
  if (!running_) return;  // given up
  v1::Measurement m = e.measurement;
  if (baseline_ns_) {
    m.set_device_baseline_ns(*baseline_ns_);
    m.set_device_baseline_version(config_.baseline_version);
    m.set_device_baseline_age(baseline_age_);
    ++baseline_age_;
  }
  const v1::Assign assign = *std::move(running_);
  running_.reset();
  Finish(now, assign, m);
}

void WorkerCore::OnDrainRequested(int64_t now) {
  if (draining_) return;
  draining_ = true;
  give_up_run_ns_ = now + config_.drain_run_ns;
  drain_by_ns_ = now + config_.drain_timeout_ns;
  queue_.clear();
  if (server_ != Link::kUp) return;
  ToServer m;
  m.message.mutable_drain();
  out_.push_back(std::move(m));
}

void WorkerCore::RefuseAssign(int64_t now, const v1::Assign& assign, v1::FailureKind kind,
                              const std::string& why) {
  v1::Measurement m;
  m.set_failure(kind);
  m.set_message(why);
  Finish(now, assign, m);
}

void WorkerCore::Finish(int64_t now, const v1::Assign& assign, const v1::Measurement& m) {
  Kept kept;
  v1::Result& r = *kept.result.mutable_result();
  r.set_sequence(next_sequence_++);
  *r.mutable_ids() = assign.ids();
  r.set_object_sha256(assign.object_sha256());
  *r.mutable_measurement() = m;
  kept.result.set_server_address(server_address_);
  kept.result.set_log_id(assign.ids().log_id());
  const uint64_t bytes = kept.result.ByteSizeLong();
  while (!spool_.empty() &&
         (spool_.size() >= config_.max_spool || spool_bytes_ + bytes > config_.max_spool_bytes)) {
    const auto oldest = spool_.begin();
    out_.push_back(SayStatus{
        ResourceExhausted("{} results wait for an acknowledgement; the oldest is dropped: {}",
                          spool_.size(), IdsText(oldest->second.result.result().ids()))});
    out_.push_back(DropResult{oldest->first});
    spool_bytes_ -= oldest->second.result.ByteSizeLong();
    spool_.erase(oldest);
  }
  out_.push_back(SaveResult{kept.result});
  spool_bytes_ += bytes;
  spool_[r.sequence()] = std::move(kept);
  SendUnsent();
}

void WorkerCore::EvictCache() {
  std::set<std::string> in_use;
  for (const v1::Assign& a : queue_) {
    for (const auto& [sha, bytes] : Needs(a)) in_use.insert(sha);
  }
  if (running_) {
    for (const auto& [sha, bytes] : Needs(*running_)) in_use.insert(sha);
  }
  uint64_t total = 0;
  for (const auto& [sha, blob] : cache_) total += blob.bytes;
  for (const auto& [sha, f] : fetching_) total += f.received;
  for (auto it = fetching_.begin(); it != fetching_.end() && total > config_.max_cache_bytes;) {
    if (it->second.storing || in_use.contains(it->first)) {
      ++it;
      continue;
    }
    total -= it->second.received;
    out_.push_back(DropBlob{it->first});
    it = fetching_.erase(it);
  }
  while (total > config_.max_cache_bytes) {
    auto oldest = cache_.end();
    for (auto it = cache_.begin(); it != cache_.end(); ++it) {
      if (!in_use.contains(it->first) &&
          (oldest == cache_.end() || it->second.used < oldest->second.used))
        oldest = it;
    }
    if (oldest == cache_.end()) return;
    total -= oldest->second.bytes;
    out_.push_back(DropBlob{oldest->first});
    cache_.erase(oldest);
  }
}

// ---- time

void WorkerCore::Connect(int64_t now) {
  if (tracker_ == Link::kDown && !draining_ && now >= tracker_retry_ns_) {
    tracker_ = Link::kConnecting;
    tracker_hello_by_ns_ = now + config_.hello_timeout_ns;
    out_.push_back(ConnectTracker{});
    ToTracker m;
    v1::Register& r = *m.message.mutable_register_();
    r.mutable_protocol()->set_min(kProtocol);
    r.mutable_protocol()->set_max(kProtocol);
    r.set_build(config_.build);
    *r.mutable_device() = config_.device;
    if (lease_.epoch != 0) {
      r.mutable_held()->set_incarnation(lease_.incarnation);
      r.mutable_held()->set_epoch(lease_.epoch);
      r.mutable_held()->set_device_id(config_.device.device_id());
      r.mutable_held()->set_key(config_.device.key());
    }
    out_.push_back(std::move(m));
  }
  const std::string address = DialAddress();
  if (server_ == Link::kUp && address.empty() && !running_ && spool_.empty() && lease_.epoch == 0) {
    DropServer(now, OkStatus());
    server_failures_ = 0;
    server_retry_ns_ = now;
  }
  if (server_ == Link::kDown && !address.empty() && now >= server_retry_ns_) {
    server_ = Link::kConnecting;
    server_address_ = address;
    server_hello_by_ns_ = now + config_.hello_timeout_ns;
    server_heard_ns_ = now;
    out_.push_back(ConnectServer{address});
    ToServer m;
    v1::Hello& h = *m.message.mutable_hello();
    h.mutable_protocol()->set_min(kProtocol);
    h.mutable_protocol()->set_max(kProtocol);
    h.set_build(config_.build);
    h.set_kernel_abi(config_.kernel_abi);
    *h.mutable_device() = config_.device;
    h.set_incarnation(lease_.incarnation);
    h.set_lease_epoch(lease_.epoch);
    h.set_unacked(static_cast<int64_t>(spool_.size()));
    out_.push_back(std::move(m));
  }
}

void WorkerCore::OnTick(int64_t now) {
  if (running_ && now >= give_up_run_ns_) {
    const v1::Assign assign = *std::move(running_);
    running_.reset();
    RefuseAssign(now, assign, v1::FAILURE_INFRASTRUCTURE,
                 fmt::format("its worker was stopped, and did not wait longer than {} ms for it",
                             config_.drain_run_ns / kMillisecond));
  }
  if (tracker_ == Link::kConnecting && now >= tracker_hello_by_ns_) {
    out_.push_back(CloseTracker{});
    OnTrackerLost(now, DeadlineExceeded("no answer to the registration"));
  }
  if (server_ == Link::kConnecting && now >= server_hello_by_ns_)
    DropServer(now, DeadlineExceeded("no answer to the hello"));
  if (server_ == Link::kUp && now >= server_heard_ns_ + kSilentBeats * server_beat_ns_)
    DropServer(now, DeadlineExceeded("the server is silent"));
  if (tracker_ == Link::kUp && now >= next_tracker_beat_ns_) {
    // Jitter only shortens: a fleet started at one moment spreads out.
    next_tracker_beat_ns_ = now + heartbeat_ns_ - rng_.Below(heartbeat_ns_ / 8 + 1);
    ToTracker m;
    m.message.mutable_heartbeat();
    out_.push_back(std::move(m));
  }
  if (server_ == Link::kUp && now >= next_server_beat_ns_) {
    next_server_beat_ns_ = now + server_beat_ns_ - rng_.Below(server_beat_ns_ / 8 + 1);
    ToServer m;
    m.message.mutable_heartbeat();
    out_.push_back(std::move(m));
  }
  FetchMissing();
  StartNext(now);
  EvictCache();
  Connect(now);
  MaybeExit(now);
}

void WorkerCore::MaybeExit(int64_t now) {
  if (!draining_ || running_) return;
  if (!spool_.empty() && now < drain_by_ns_) return;
  if (tracker_ == Link::kUp) {
    ToTracker m;
    m.message.mutable_leave();
    out_.push_back(std::move(m));
  }
  exited_ = true;
  out_.push_back(Exit{});
}

}  // namespace whet::worker
