// The tracker as a gRPC service: an adapter around LeaseTable that passes messages in, sends what
// comes out, keeps the epoch file and a timer. Used by rpc-tracker and embedded in tuner-server and
// `whet tune`. Thread-safe.
#pragma once
#include <memory>
#include <string>

#include "compiler/support/status.h"
#include "proto/rpc/endpoint.h"
#include "tracker/core/lease_table.h"

namespace whet::tracker {

struct TrackerOptions {
  std::string listen;  // "127.0.0.1:0"
  std::string
      state_dir;  // of the epoch file; empty: nothing outlives this process, so nothing is kept
  TableConfig table;
  rpc::ListenOptions listening;
};

class TrackerServer {
 public:
  // InvalidArgument: the port is in use. Unavailable: another tracker uses the state folder.
  static StatusOr<std::unique_ptr<TrackerServer>> Start(const TrackerOptions& options);
  ~TrackerServer();  // stops: streams end, the epoch file is marked clean when no lease is left
  const std::string& address() const;

 private:
  class Impl;
  explicit TrackerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace whet::tracker
