// A worker's behaviour as a state machine: Step(now, event) gives the actions to take. No gRPC, no
// clock, no files, no threads of its own: the adapter (worker/service) carries actions out and
// feeds back what came of them, the simulation does the same in one thread.
//
// It registers with the tracker, dials the server that leases it, fetches what it lacks by SHA-256
// in pieces that go to disk as they come, so that a broken link or a restart costs the piece on its
// way, runs one assignment at a time, and keeps every result until the server's watermark covers
// it. While the server cannot be reached nothing new is started; what runs is finished and its
// result kept. Reconnects back off with jitter. Draining finishes what runs, or gives it up when
// that takes too long, delivers, leaves.
//
// Invariants: at most one run at a time; an assignment is run at most once; a result leaves the
// spool only by a watermark, or when the spool is full (the oldest, said in the log); nothing is
// run under a lease that has ended, nothing before its bytes have their hash, nothing that was made
// for another processor.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/rng.h"
#include "compiler/support/sha256.h"
#include "compiler/support/status.h"
#include "proto/worker.pb.h"

namespace whet::worker {

struct WorkerConfig {
  v1::DeviceIdentity device;
  std::string build;
  uint32_t kernel_abi = 1;
  int64_t min_backoff_ns = 200 * kMillisecond;
  int64_t max_backoff_ns = 10 * kSecond;
  int64_t hello_timeout_ns = 5 * kSecond;
  int64_t drain_run_ns = 4 * kSecond;  // from the request to stop: a run that lasts is given up
  int64_t drain_timeout_ns =
      7 * kSecond;  // likewise: what is not delivered waits for the next start
  // Of the fixed kernel that shows how fast the device is (worker/device/baseline.h); 0: there is
  // none. Timed before the core is made (absent: that failed), and again every so many runs.
  uint32_t baseline_version = 0;
  std::optional<double> baseline_ns = {};
  uint32_t baseline_every = 20;
  size_t max_spool = 1000;
  uint64_t max_spool_bytes = 64u << 20;
  uint64_t max_cache_bytes = 256u << 20;  // of whole blobs and parts, but for those in use
  uint64_t max_blob_bytes = 512u << 20;
  size_t max_queue = 64;  // assignments; a server that sends more is not one of ours
};

// ---- events
struct FromTracker {
  v1::AttachReply message;
};
struct TrackerLost {
  Status status;
};
struct FromServer {
  v1::ServerMessage message;
};
struct ServerLost {
  Status status;
};
struct BlobStored {  // answers the last StoreBlob of a blob, or the first that fails
  std::string sha256;
  Status status;
};
struct RunEnded {  // answers StartRun
  v1::Measurement measurement;
  std::optional<double> baseline_ns = {};  // when it was asked for, and could be timed
  std::vector<std::string> damaged = {};   // blobs whose files have other contents now
};
struct DrainRequested {};
struct Tick {};
using Event = std::variant<FromTracker, TrackerLost, FromServer, ServerLost, BlobStored, RunEnded,
                           DrainRequested, Tick>;

// ---- actions
struct ConnectTracker {};  // and send what follows on that stream
struct CloseTracker {};
struct ToTracker {
  v1::AttachRequest message;
};
struct ConnectServer {
  std::string address;
};
struct CloseServer {};
struct ToServer {
  v1::WorkerMessage message;
};
struct StoreBlob {  // appends to what there is of it
  std::string sha256;
  uint64_t offset = 0;  // 0: anew
  std::string bytes;
  bool last = false;  // the blob is whole, and its contents have this hash
};
struct DropBlob {  // whole or in part
  std::string sha256;
};
struct StartRun {
  v1::Assign assign;      // its blobs are stored
  bool baseline = false;  // time the baseline kernel first
};
struct SaveResult {  // a failure to save is logged; the result stays in memory
  v1::SpooledResult result;
};
struct DropResult {
  int64_t sequence;
};
struct SayStatus {  // for the log
  Status status;
};
struct Exit {};
using Action =
    std::variant<ConnectTracker, CloseTracker, ToTracker, ConnectServer, CloseServer, ToServer,
                 StoreBlob, DropBlob, StartRun, SaveResult, DropResult, SayStatus, Exit>;
using Actions = std::vector<Action>;

// The beginning of a blob that a former process left.
struct PartialBlob {
  uint64_t bytes = 0;
  Sha256 hash;  // of those
};

class WorkerCore {
 public:
  // Results are numbered from 1 on, and never this far.
  static constexpr int64_t kMaxSequence = int64_t{1} << 62;

  // `spool`: results kept by a former process; those whose numbers no worker gave out are left
  // alone. `cached`: blobs it left, with their sizes.
  WorkerCore(WorkerConfig config, std::vector<v1::SpooledResult> spool,
             const std::map<std::string, uint64_t>& cached, uint64_t seed,
             std::map<std::string, PartialBlob> partial = {});

  // The first call may be any event; a Tick will do.
  Actions Step(int64_t now, const Event& event);
  // When to send the next Tick at the latest.
  int64_t NextDeadline() const;

  bool running() const { return running_.has_value(); }
  size_t kept_results() const { return spool_.size(); }

 private:
  enum class Link { kDown, kConnecting, kUp };
  struct Lease {
    std::string incarnation;
    int64_t epoch = 0;
    std::string server_address;
  };
  struct Kept {
    v1::SpooledResult result;
    bool sent = false;  // on the stream that is up now
  };
  struct CachedBlob {
    uint64_t bytes = 0;
    uint64_t used = 0;  // order of use
  };
  struct Fetching {
    Sha256 hash;
    uint64_t received = 0;
    uint64_t total = 0;        // announced by the assignment
    uint64_t asked_until = 0;  // of the stream that is up; 0: not asked for
    bool storing = false;      // all of it came
  };

  void OnTracker(int64_t now, const v1::AttachReply& message);
  void OnTrackerLost(int64_t now, const Status& status);
  void OnServer(int64_t now, const v1::ServerMessage& message);
  void OnHelloReply(int64_t now, const v1::HelloReply& reply);
  void OnAssign(const v1::Assign& assign);
  void OnChunk(const v1::Chunk& chunk);
  void OnServerLost(int64_t now, const Status& status);
  void OnBlobStored(const std::string& sha256, const Status& status);
  void OnRunEnded(int64_t now, const RunEnded& e);
  void OnDrainRequested(int64_t now);
  void OnTick(int64_t now);

  void DropServer(int64_t now, const Status& why);
  void EndLease();
  void Connect(int64_t now);
  void SendUnsent();
  void Finish(int64_t now, const v1::Assign& assign, const v1::Measurement& m);
  void RefuseAssign(int64_t now, const v1::Assign& assign, v1::FailureKind kind,
                    const std::string& why);
  void RefuseThoseThatNeed(const std::string& sha256, const std::string& why);
  void AskForMore(const std::string& sha256, Fetching& f);
  std::vector<std::pair<std::string, uint64_t>> Needs(const v1::Assign& assign) const;
  void FetchMissing();
  void StartNext(int64_t now);
  void EvictCache();
  void MaybeExit(int64_t now);
  int64_t Backoff(int* failures);
  std::string DialAddress() const;

  // Constant after construction.
  const WorkerConfig config_;

  Rng rng_;
  Actions out_;  // of the step under way
  int64_t now_ = 0;

  Link tracker_ = Link::kDown;
  int tracker_failures_ = 0;
  int64_t tracker_retry_ns_ = 0;
  int64_t tracker_hello_by_ns_ = 0;
  int64_t heartbeat_ns_ = 5 * kSecond;
  int64_t next_tracker_beat_ns_ = 0;
  Lease lease_;

  Link server_ = Link::kDown;
  std::string server_address_;
  std::string log_id_;
  uint64_t fetch_bytes_ = 0;  // most that this server answers a Fetch with; 0: all
  int server_failures_ = 0;
  int64_t server_retry_ns_ = 0;
  int64_t server_hello_by_ns_ = 0;
  int64_t server_beat_ns_ = 5 * kSecond;
  int64_t next_server_beat_ns_ = 0;
  int64_t server_heard_ns_ = 0;

  std::deque<v1::Assign> queue_;
  std::optional<v1::Assign> running_;
  std::map<std::string, Fetching> fetching_;
  std::map<std::string, CachedBlob> cache_;
  uint64_t uses_ = 0;
  std::map<int64_t, Kept> spool_;
  uint64_t spool_bytes_ = 0;
  int64_t next_sequence_ = 1;

  std::optional<double> baseline_ns_;
  uint32_t baseline_age_ = 0;  // runs since

  bool draining_ = false;
  int64_t give_up_run_ns_ = kNever;
  int64_t drain_by_ns_ = kNever;
  bool exited_ = false;
};

}  // namespace whet::worker
