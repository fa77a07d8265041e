// Who has which device: the tracker's state machine. Pure: events and the time go in, messages to
// send come out; no gRPC, no clock, no threads. One caller at a time.
//
// A lease is (incarnation, device, epoch); epochs only grow, also over restarts: they come from
// blocks that the adapter has made durable (kReserveEpochs asks for the next one). After a restart
// nothing is granted for one lease life, so that leases the former incarnation gave are presented
// again first; a fresh start, or one after a stop without leases, need not wait.
//
// Invariants: a device has at most one lease; a granted epoch is larger than all before it; a
// device that has been silent for suspect_after heartbeats gets no new lease, for expire_after it
// is forgotten and its lease ends; a lease not renewed for lease_life ends; requests for a key are
// served one device at a time to whoever holds fewest of it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/status.h"
#include "proto/tracker.pb.h"

namespace whet::tracker {

struct TableConfig {
  int64_t min_heartbeat_ns = 5 * kSecond;
  int64_t heartbeat_per_worker_ns =
      kSecond / 400;  // the more workers, the rarer: at most 400 heartbeats a second
  int suspect_after = 3;
  int expire_after = 5;
  int64_t lease_life_ns = 15 * kSecond;
  size_t max_devices = 20'000;
  size_t max_wants = 10'000;
};

struct ToWorker {
  uint64_t session;
  v1::AttachReply message;
};
struct ToServer {
  uint64_t session;
  v1::LeaseReply message;
};
enum class Side { kWorker, kServer };
struct EndSession {
  Side side;
  uint64_t session;
  Status status;
};
struct ReserveEpochs {  // make durable that epochs below `below` may have been given out, then call
                        // EpochsReserved
  int64_t below;
};
using Action = std::variant<ToWorker, ToServer, EndSession, ReserveEpochs>;
using Actions = std::vector<Action>;

class LeaseTable {
 public:
  // Epochs in [first_epoch, reserved_below) may be given out. `quiet`: leases of a former
  // incarnation may be about.
  LeaseTable(const TableConfig& config, std::string incarnation, int64_t first_epoch,
             int64_t reserved_below, bool quiet, int64_t now);

  Actions FromWorker(int64_t now, uint64_t session, const v1::AttachRequest& message);
  Actions WorkerGone(int64_t now, uint64_t session);
  Actions FromServer(int64_t now, uint64_t session, const v1::LeaseRequest& message);
  Actions ServerGone(int64_t now, uint64_t session);
  Actions EpochsReserved(int64_t now, int64_t below);
  Actions Tick(int64_t now);

  v1::ListDevicesReply List(int64_t now, const std::string& key) const;
  size_t leases() const { return leases_.size(); }
  const std::string& incarnation() const { return incarnation_; }
  int64_t HeartbeatNs() const;

 private:
  struct Device {
    v1::DeviceIdentity identity;
    uint64_t session = 0;  // 0: its stream is broken
    int64_t heard_ns = 0;
    int64_t epoch = 0;  // 0: not leased
  };
  struct Lease {
    std::string incarnation;  // that granted it
    std::string device_id;
    std::string server_id;
    std::string key;
    int64_t expires_ns = 0;
  };
  struct Server {
    std::string id, address;
    std::map<std::string, std::pair<uint32_t, uint64_t>> wants;  // key -> (count, order of asking)
  };

  void Register(int64_t now, uint64_t session, const v1::Register& message, Actions* out);
  void Present(int64_t now, uint64_t session, const v1::Present& message, Actions* out);
  void AdoptHeld(int64_t now, const Server& server, const v1::HeldLease& held, uint64_t session,
                 Actions* out);
  void Want(uint64_t session, Server* server, const v1::WantDevices& message, Actions* out);
  void Grant(int64_t now, Actions* out);
  void EndLease(int64_t epoch, const std::string& reason, Actions* out);
  void Forget(const std::string& device_id, const std::string& reason, Actions* out);
  std::optional<uint64_t> SessionOf(const std::string& server_id) const;
  const std::string* NextServerFor(const std::string& key) const;
  std::set<std::string> Keys() const;
  bool Suspect(const Device& d, int64_t now) const;

  // Constant after construction.
  const TableConfig config_;
  const std::string incarnation_;
  const int64_t quiet_until_ns_;

  std::map<std::string, Device> devices_;            // by device_id
  std::map<uint64_t, std::string> worker_sessions_;  // -> device_id
  std::map<uint64_t, std::string> server_sessions_;  // -> server_id
  std::map<std::string, Server> servers_;            // with a live session
  std::map<int64_t, Lease> leases_;                  // by epoch
  int64_t next_epoch_;
  int64_t reserved_below_;
  bool reserving_ = false;
  uint64_t next_order_ = 0;
};

}  // namespace whet::tracker
