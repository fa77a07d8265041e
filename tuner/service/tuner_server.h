// tuner-server as a component: carries out the actions of ServiceCore over gRPC, the tuning log,
// the builders and the compiler's providers. Threads: one loop that owns the core; one for
// searches; one that prepares tasks; one for queries of the log; the builders'; the log's writer;
// gRPC's. They meet in mailboxes.
#pragma once
#include <memory>
#include <string>

#include "compiler/support/status.h"
#include "db/store/tuning_log.h"
#include "proto/rpc/endpoint.h"
#include "tuner/service/builder_pool.h"
#include "tuner/service/core.h"
#include "tuner/task/task.h"

namespace whet::tuner {

// What becomes of jobs that a former process left open in the log: taken up again, or closed as
// failed (their rows stay; the same job submitted again goes on from there).
enum class Leftovers { kResume, kEnd };

struct ServerOptions {
  std::string listen;  // "127.0.0.1:0"
  // Address that workers dial; empty: the one that is listened on. A port of 0 stands for that
  // one's.
  std::string advertise;
  std::string tracker;  // address to dial
  Leftovers leftovers = Leftovers::kResume;
  db::Retention retention;  // of the log: looked after at the start and every hour
  size_t max_unneeded_blob_bytes = 64u << 20;  // artifacts kept for workers that may yet ask
  rpc::ListenOptions listening;                // its Security is for dialling the tracker, too
  CoreConfig core;                             // ids, versions and builders are filled in here
};

class TunerServer {
 public:
  // The providers must outlive the server.
  static StatusOr<std::unique_ptr<TunerServer>> Start(const ServerOptions& options,
                                                      std::unique_ptr<db::TuningLog> log,
                                                      std::unique_ptr<BuilderPool> builders,
                                                      const SpaceProvider* spaces,
                                                      const ReferenceProvider* references);
  // Cancels what is under way (waiting a few seconds for measurements that run, whose results are
  // kept), ends the streams.
  ~TunerServer();
  const std::string& address() const;

 private:
  class Impl;
  explicit TunerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace whet::tuner
