// The client's side of a tuner server and of a tracker: thin calls over gRPC with the errors a
// person can act on. Every call has a deadline; a server that is not there is noticed within five
// seconds (Unavailable, exit code 3). Used by one thread, but for Cancel, which may come from
// another while Watch waits.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "compiler/support/status.h"
#include "proto/tracker.pb.h"
#include "proto/tuner.pb.h"

namespace whet::driver {

// The bundle with which other machines are reached (`--tls DIR`); it is read when the first is
// dialled. Without one only this machine is. Before any other function of this header.
void UseBundle(const std::string& dir);

// Of a fleet, or started by this process, on a socket that is its user's alone.
enum class Where { kFleet, kHere };

class TunerClient {
 public:
  // HOST:PORT. `reconnect_limit`: how long Watch tries to reach a server that went away.
  static StatusOr<std::unique_ptr<TunerClient>> Connect(
      const std::string& address,
      std::chrono::milliseconds reconnect_limit = std::chrono::seconds(30),
      Where where = Where::kFleet);
  ~TunerClient();

  StatusOr<v1::ServerInfo> Info();
  // NotFound names the keys that exist when the wanted one does not.
  StatusOr<v1::SubmitJobReply> Submit(const v1::JobSpec& spec);
  // Calls `on_event` for each event until the job has ended; the last snapshot is returned. A
  // broken connection is taken up again until the limit: a server that is restarted on its log goes
  // on with the job. Unavailable when it stays away, or is back without the job; the message says
  // how to go on. `give_up` is asked while disconnected.
  StatusOr<v1::JobSnapshot> Watch(const std::string& job_id,
                                  const std::function<void(const v1::JobEvent&)>& on_event,
                                  const std::function<bool()>& give_up);
  Status Cancel(const std::string& job_id);
  StatusOr<v1::ListJobsReply> Jobs();
  StatusOr<v1::GetRecordsReply> Records(const v1::GetRecordsRequest& request);
  StatusOr<v1::GetPlansReply> Plans(const v1::GetPlansRequest& request);
  StatusOr<v1::ListDevicesReply> Devices(const std::string& key);

 private:
  struct Impl;
  explicit TunerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The devices that a tracker knows.
StatusOr<v1::ListDevicesReply> TrackerDevices(const std::string& address, const std::string& key);

}  // namespace whet::driver
