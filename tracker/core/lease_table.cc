#include "tracker/core/lease_table.h"

#include <algorithm>

#include "compiler/support/names.h"

namespace whet::tracker {
namespace {

constexpr int64_t kEpochBlock = 1'000'000;
constexpr size_t kMaxIdBytes = 256;
constexpr uint32_t kProtocol = 1;

bool IsId(const std::string& text) {
  return !text.empty() && text.size() <= kMaxIdBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 32 && c < 127; });
}

// Text of a peer is data: printable, short.
bool IsText(const std::string& text, size_t cap) {
  return text.size() <= cap &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 32 && c != 127; });
}

Status CheckIdentity(const v1::DeviceIdentity& d) {
  if (!IsId(d.device_id()) || !IsId(d.worker_id()) || !IsId(d.boot_id()))
    return InvalidArgument(
        "a worker needs device, worker and boot ids of 1 to {} printable characters", kMaxIdBytes);
  if (!IsDeviceKey(d.key()))
    return InvalidArgument("'{}' is not a key: {}", d.key().substr(0, 64), kDeviceKeyRule);
  if (!IsText(d.machine(), 1024))
    return InvalidArgument(
        "the figures of the worker's machine are not printable text of at most 1 KiB");
  for (const std::string* text : {&d.target(), &d.feature_set()}) {
    if (!IsText(*text, 8 << 10))
      return InvalidArgument("the worker's target is not printable text of at most 8 KiB");
  }
  for (const std::string* text :
       {&d.triple(), &d.cpu_model(), &d.governor(), &d.kernel(), &d.host_boot_id()}) {
    if (!IsText(*text, kMaxIdBytes))
      return InvalidArgument(
          "a field of the worker's identity is not printable text of at most {} bytes",
          kMaxIdBytes);
  }
  return OkStatus();
}

Status CheckProtocol(const v1::ProtocolRange& range, const char* who) {
  if (range.min() <= kProtocol && kProtocol <= range.max()) return OkStatus();
  return FailedPrecondition(
      "the {} speaks protocol {} to {}, this tracker {}; install the same release on both", who,
      range.min(), range.max(), kProtocol);
}

v1::AttachReply EndedForWorker(int64_t epoch, const std::string& reason) {
  v1::AttachReply m;
  m.mutable_ended()->set_epoch(epoch);
  m.mutable_ended()->set_reason(reason);
  return m;
}

}  // namespace

LeaseTable::LeaseTable(const TableConfig& config, std::string incarnation, int64_t first_epoch,
                       int64_t reserved_below, bool quiet, int64_t now)
    : config_(config),
      incarnation_(std::move(incarnation)),
      quiet_until_ns_(quiet ? now + config.lease_life_ns : now),
      next_epoch_(std::max<int64_t>(first_epoch, 1)),
      reserved_below_(reserved_below) {}

int64_t LeaseTable::HeartbeatNs() const {
  return std::max(config_.min_heartbeat_ns,
                  static_cast<int64_t>(devices_.size()) * config_.heartbeat_per_worker_ns);
}

bool LeaseTable::Suspect(const Device& d, int64_t now) const {
  return d.session == 0 || now - d.heard_ns > config_.suspect_after * HeartbeatNs();
}

std::set<std::string> LeaseTable::Keys() const {
  std::set<std::string> keys;
  for (const auto& [id, d] : devices_) keys.insert(d.identity.key());
  return keys;
}

std::optional<uint64_t> LeaseTable::SessionOf(const std::string& server_id) const {
  for (const auto& [session, id] : server_sessions_) {
    if (id == server_id) return session;
  }
  return std::nullopt;
}

// ---- workers

Actions LeaseTable::FromWorker(int64_t now, uint64_t session, const v1::AttachRequest& message) {
  Actions out;
  const auto known = worker_sessions_.find(session);
  switch (message.message_case()) {
    case v1::AttachRequest::kRegister:
      if (known != worker_sessions_.end()) {
        out.push_back(
            EndSession{Side::kWorker, session, InvalidArgument("registered twice on one stream")});
      } else {
        Register(now, session, message.register_(), &out);
      }
      break;
    case v1::AttachRequest::kHeartbeat:
      if (known == worker_sessions_.end()) {
        out.push_back(EndSession{Side::kWorker, session,
                                 FailedPrecondition("the first message must register the worker")});
      } else {
        devices_[known->second].heard_ns = now;
      }
      break;
    case v1::AttachRequest::kLeave:
      if (known != worker_sessions_.end()) Forget(known->second, "the worker left", &out);
      out.push_back(EndSession{Side::kWorker, session, OkStatus()});
      break;
    case v1::AttachRequest::MESSAGE_NOT_SET:
      out.push_back(EndSession{Side::kWorker, session, InvalidArgument("empty message")});
      break;
  }
  Grant(now, &out);
  return out;
}

void LeaseTable::Register(int64_t now, uint64_t session, const v1::Register& message,
                          Actions* out) {
  const v1::DeviceIdentity& identity = message.device();
  Status ok = CheckProtocol(message.protocol(), "worker");
  if (ok.ok()) ok = CheckIdentity(identity);
  const auto it = devices_.find(identity.device_id());
  if (ok.ok() && it == devices_.end() && devices_.size() >= config_.max_devices)
    ok = ResourceExhausted("{} devices are registered, the limit", devices_.size());
  if (ok.ok() && it != devices_.end() && it->second.identity.boot_id() != identity.boot_id() &&
      !Suspect(it->second, now)) {
    ok = FailedPrecondition(
        "worker id {} is in use by another live process (boot {}); if this machine was cloned, "
        "remove its copy of the state folder",
        identity.worker_id(), it->second.identity.boot_id());
  }
  if (!ok.ok()) {
    out->push_back(EndSession{Side::kWorker, session, ok});
    return;
  }
  if (it != devices_.end()) {
    // The same process again: its lease goes on. Another one (the first is gone): a measurement
    // that ran there is lost.
    if (it->second.session != 0) {
      worker_sessions_.erase(it->second.session);
      out->push_back(EndSession{Side::kWorker, it->second.session,
                                FailedPrecondition("the worker opened another stream")});
    }
    if (it->second.identity.boot_id() != identity.boot_id() && it->second.epoch != 0)
      EndLease(it->second.epoch, "the worker restarted", out);
  }
  Device& d = devices_[identity.device_id()];
  d.identity = identity;
  d.session = session;
  d.heard_ns = now;
  worker_sessions_[session] = identity.device_id();
  v1::AttachReply reply;
  v1::Registered& r = *reply.mutable_registered();
  r.set_protocol(kProtocol);
  r.set_incarnation(incarnation_);
  r.set_heartbeat_ns(HeartbeatNs());
  out->push_back(ToWorker{session, reply});
  // A lease that its server presented before the device was back.
  for (const auto& [epoch, lease] : leases_) {
    if (lease.device_id != identity.device_id()) continue;
    d.epoch = epoch;
    if (const auto server = servers_.find(lease.server_id); server != servers_.end()) {
      v1::AttachReply grant;
      v1::WorkerLease& l = *grant.mutable_lease();
      l.set_incarnation(lease.incarnation);
      l.set_epoch(epoch);
      l.set_server_address(server->second.address);
      l.set_server_id(lease.server_id);
      out->push_back(ToWorker{session, grant});
    }
    return;
  }
  // It still serves a lease that has ended meanwhile.
  if (message.has_held() && message.held().epoch() != 0 && now >= quiet_until_ns_) {
    out->push_back(
        ToWorker{session, EndedForWorker(message.held().epoch(), "the lease has ended")});
  }
}

Actions LeaseTable::WorkerGone(int64_t now, uint64_t session) {
  Actions out;
  const auto it = worker_sessions_.find(session);
  if (it == worker_sessions_.end()) return out;
  // A broken stream is not a dead worker: it has until its heartbeats are overdue to come back.
  devices_[it->second].session = 0;
  worker_sessions_.erase(it);
  return out;
}

void LeaseTable::Forget(const std::string& device_id, const std::string& reason, Actions* out) {
  const auto it = devices_.find(device_id);
  if (it == devices_.end()) return;
  const int64_t epoch = it->second.epoch;
  const uint64_t session = it->second.session;
  devices_.erase(it);
  if (session != 0) worker_sessions_.erase(session);
  if (epoch != 0) EndLease(epoch, reason, out);
}

// ---- servers

Actions LeaseTable::FromServer(int64_t now, uint64_t session, const v1::LeaseRequest& message) {
  Actions out;
  const auto known = server_sessions_.find(session);
  if (message.message_case() == v1::LeaseRequest::kPresent && known == server_sessions_.end()) {
    Present(now, session, message.present(), &out);
    Grant(now, &out);
    return out;
  }
  if (known == server_sessions_.end() || message.message_case() == v1::LeaseRequest::kPresent) {
    out.push_back(EndSession{Side::kServer, session,
                             FailedPrecondition("a lease stream begins with one Present")});
    return out;
  }
  const std::string& server_id = known->second;
  switch (message.message_case()) {
    case v1::LeaseRequest::kWant: Want(session, &servers_[server_id], message.want(), &out); break;
    case v1::LeaseRequest::kRenew:
      for (const int64_t epoch : message.renew().epochs()) {
        const auto lease = leases_.find(epoch);
        if (lease != leases_.end() && lease->second.server_id == server_id) {
          lease->second.expires_ns = now + config_.lease_life_ns;
        } else {
          v1::LeaseReply reply;
          reply.mutable_ended()->set_epoch(epoch);
          reply.mutable_ended()->set_reason("the lease has ended");
          out.push_back(ToServer{session, reply});
        }
      }
      break;
    case v1::LeaseRequest::kRelease: {
      const auto lease = leases_.find(message.release().epoch());
      if (lease != leases_.end() && lease->second.server_id == server_id)
        EndLease(lease->first, "released", &out);
      break;
    }
    case v1::LeaseRequest::kPresent:
    case v1::LeaseRequest::MESSAGE_NOT_SET:
      out.push_back(EndSession{Side::kServer, session, InvalidArgument("empty message")});
      break;
  }
  Grant(now, &out);
  return out;
}

void LeaseTable::Present(int64_t now, uint64_t session, const v1::Present& message, Actions* out) {
  Status ok = CheckProtocol(message.protocol(), "tuner server");
  if (ok.ok() && !IsId(message.server_id()))
    ok = InvalidArgument("a server needs an id of 1 to {} printable characters", kMaxIdBytes);
  if (ok.ok() && !IsId(message.server_address()))
    ok = InvalidArgument("a server needs an address that workers can dial");
  if (!ok.ok()) {
    out->push_back(EndSession{Side::kServer, session, ok});
    return;
  }
  if (const auto former = SessionOf(message.server_id())) {
    server_sessions_.erase(*former);
    out->push_back(
        EndSession{Side::kServer, *former, FailedPrecondition("the server opened another stream")});
  }
  Server& server = servers_[message.server_id()];
  server = {message.server_id(), message.server_address(), {}};
  server_sessions_[session] = message.server_id();
  v1::LeaseReply reply;
  v1::Presented& p = *reply.mutable_presented();
  p.set_protocol(kProtocol);
  p.set_incarnation(incarnation_);
  p.set_lease_life_ns(config_.lease_life_ns);
  p.set_renew_ns(config_.lease_life_ns / 3);
  out->push_back(ToServer{session, reply});
  // What it does not hold (any more: it was restarted, or a grant was lost with its stream) is free
  // at once.
  std::set<int64_t> lost;
  for (const auto& [epoch, lease] : leases_) {
    if (lease.server_id == message.server_id()) lost.insert(epoch);
  }
  for (const v1::HeldLease& held : message.held()) lost.erase(held.epoch());
  for (const int64_t epoch : lost) EndLease(epoch, "its server does not hold it", out);
  for (const v1::HeldLease& held : message.held()) AdoptHeld(now, server, held, session, out);
}

void LeaseTable::AdoptHeld(int64_t now, const Server& server, const v1::HeldLease& held,
                           uint64_t session, Actions* out) {
  const auto lease = leases_.find(held.epoch());
  if (lease != leases_.end() && lease->second.server_id == server.id &&
      lease->second.device_id == held.device_id()) {
    lease->second.expires_ns = now + config_.lease_life_ns;
    return;
  }
  // A lease of a former incarnation: taken over while nothing new is granted, unless a later one is
  // known for the device.
  const bool valid = held.epoch() > 0 && held.epoch() < next_epoch_ && IsId(held.device_id()) &&
                     IsDeviceKey(held.key()) && IsId(held.incarnation());
  const bool taken = std::any_of(leases_.begin(), leases_.end(), [&](const auto& l) {
    return l.second.device_id == held.device_id();
  });
  if (now < quiet_until_ns_ && valid && !taken && lease == leases_.end() &&
      leases_.size() < config_.max_devices) {
    leases_[held.epoch()] = {held.incarnation(), held.device_id(), server.id, held.key(),
                             now + config_.lease_life_ns};
    if (const auto d = devices_.find(held.device_id()); d != devices_.end())
      d->second.epoch = held.epoch();
    return;
  }
  v1::LeaseReply reply;
  reply.mutable_ended()->set_epoch(held.epoch());
  reply.mutable_ended()->set_reason("the lease has ended");
  out->push_back(ToServer{session, reply});
}

void LeaseTable::Want(uint64_t session, Server* server, const v1::WantDevices& message,
                      Actions* out) {
  if (message.count() == 0) {
    server->wants.erase(message.key());
    return;
  }
  const std::set<std::string> keys = Keys();
  if (!keys.contains(message.key())) {
    v1::LeaseReply reply;
    reply.mutable_unknown_key()->set_key(message.key().substr(0, 64));
    for (const std::string& key : keys) reply.mutable_unknown_key()->add_known(key);
    out->push_back(ToServer{session, reply});
    // Remembered all the same: a device with this key may be on its way back.
    if (!IsDeviceKey(message.key())) return;
  }
  size_t wants = 0;
  for (const auto& [id, s] : servers_) wants += s.wants.size();
  const auto it = server->wants.find(message.key());
  if (it == server->wants.end() && wants >= config_.max_wants) {
    out->push_back(EndSession{Side::kServer, session,
                              ResourceExhausted("{} requests are waiting, the limit", wants)});
    return;
  }
  const uint64_t order = it == server->wants.end() ? ++next_order_ : it->second.second;
  server->wants[message.key()] = {message.count(), order};
}

Actions LeaseTable::ServerGone(int64_t now, uint64_t session) {
  const auto it = server_sessions_.find(session);
  if (it == server_sessions_.end()) return {};
  servers_.erase(it->second);  // its leases stay until they expire
  server_sessions_.erase(it);
  return {};
}

// ---- leases

const std::string* LeaseTable::NextServerFor(const std::string& key) const {
  const std::string* best = nullptr;
  std::pair<size_t, uint64_t> best_order;
  for (const auto& [id, server] : servers_) {
    const auto want = server.wants.find(key);
    if (want == server.wants.end()) continue;
    const auto held =
        static_cast<size_t>(std::count_if(leases_.begin(), leases_.end(), [&](const auto& l) {
          return l.second.server_id == id && l.second.key == key;
        }));
    const std::pair order{held, want->second.second};
    if (held < want->second.first && (!best || order < best_order)) {
      best = &id;
      best_order = order;
    }
  }
  return best;
}

void LeaseTable::Grant(int64_t now, Actions* out) {
  if (now < quiet_until_ns_ || servers_.empty()) return;
  for (auto& [device_id, d] : devices_) {
    if (d.epoch != 0 || Suspect(d, now)) continue;
    const std::string* server_id = NextServerFor(d.identity.key());
    if (!server_id) continue;
    if (next_epoch_ >= reserved_below_) break;  // asked for below
    const int64_t epoch = next_epoch_++;
    const Server& server = servers_[*server_id];
    leases_[epoch] = {incarnation_, device_id, *server_id, d.identity.key(),
                      now + config_.lease_life_ns};
    d.epoch = epoch;
    v1::AttachReply to_worker;
    v1::WorkerLease& l = *to_worker.mutable_lease();
    l.set_incarnation(incarnation_);
    l.set_epoch(epoch);
    l.set_server_address(server.address);
    l.set_server_id(*server_id);
    v1::LeaseReply to_server;
    to_server.mutable_granted()->set_incarnation(incarnation_);
    to_server.mutable_granted()->set_epoch(epoch);
    *to_server.mutable_granted()->mutable_device() = d.identity;
    out->push_back(ToServer{*SessionOf(*server_id), to_server});
    out->push_back(ToWorker{d.session, to_worker});
  }
  if (!reserving_ && next_epoch_ + kEpochBlock / 2 >= reserved_below_) {
    reserving_ = true;
    out->push_back(ReserveEpochs{next_epoch_ + kEpochBlock});
  }
}

void LeaseTable::EndLease(int64_t epoch, const std::string& reason, Actions* out) {
  const auto it = leases_.find(epoch);
  if (it == leases_.end()) return;
  const Lease lease = it->second;
  leases_.erase(it);
  if (const auto d = devices_.find(lease.device_id);
      d != devices_.end() && d->second.epoch == epoch) {
    d->second.epoch = 0;
    if (d->second.session != 0)
      out->push_back(ToWorker{d->second.session, EndedForWorker(epoch, reason)});
  }
  if (const auto session = SessionOf(lease.server_id)) {
    v1::LeaseReply reply;
    reply.mutable_ended()->set_epoch(epoch);
    reply.mutable_ended()->set_reason(reason);
    out->push_back(ToServer{*session, reply});
  }
}

Actions LeaseTable::EpochsReserved(int64_t now, int64_t below) {
  Actions out;
  reserving_ = false;
  reserved_below_ = std::max(reserved_below_, below);
  Grant(now, &out);
  return out;
}

Actions LeaseTable::Tick(int64_t now) {
  Actions out;
  std::vector<std::string> silent;
  for (const auto& [id, d] : devices_) {
    if (now - d.heard_ns > config_.expire_after * HeartbeatNs()) silent.push_back(id);
  }
  for (const std::string& id : silent) {
    const uint64_t session = devices_[id].session;
    Forget(id, "the worker is silent", &out);
    if (session != 0)
      out.push_back(
          EndSession{Side::kWorker, session, DeadlineExceeded("no heartbeat for too long")});
  }
  std::vector<int64_t> expired;
  for (const auto& [epoch, lease] : leases_) {
    if (now >= lease.expires_ns) expired.push_back(epoch);
  }
  for (const int64_t epoch : expired) EndLease(epoch, "not renewed in time", &out);
  Grant(now, &out);
  return out;
}

v1::ListDevicesReply LeaseTable::List(int64_t now, const std::string& key) const {
  v1::ListDevicesReply reply;
  reply.set_incarnation(incarnation_);
  for (const std::string& k : Keys()) reply.add_known_keys(k);
  for (const auto& [id, d] : devices_) {
    if (!key.empty() && d.identity.key() != key) continue;
    v1::DeviceEntry& e = *reply.add_devices();
    *e.mutable_device() = d.identity;
    e.set_state(Suspect(d, now) ? "suspect" : d.epoch != 0 ? "leased" : "idle");
    e.set_epoch(d.epoch);
    e.set_heard_ago_ns(now - d.heard_ns);
    if (const auto lease = leases_.find(d.epoch); lease != leases_.end())
      e.set_server_id(lease->second.server_id);
  }
  return reply;
}

}  // namespace whet::tracker
