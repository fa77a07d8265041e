// What the service core wants done: values that its methods return. The adapter carries them out in
// order and feeds back what the comment behind each names. Values only; they own what they hold.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"
#include "db/record/record.h"
#include "proto/build.pb.h"
#include "proto/tracker.pb.h"
#include "proto/tuner.pb.h"
#include "proto/worker.pb.h"

namespace whet::tuner {

// What preparing a task gives.
// A ratio of pairs is surer than a median, but it is worth what the default's own time is: measured
// in a slow moment, that one would send finalists behind candidates that are slower. `ratio` 0: not
// paired; `default_ns` 0: not known.
inline double EstimateNs(double median_ns, double ratio, double default_ns) {
  if (ratio <= 0 || default_ns <= 0) return median_ns;
  return median_ns > 0 ? std::min(ratio * default_ns, median_ns) : ratio * default_ns;
}
struct LoggedTrace {  // a valid, counted trial of this machine in the log
  std::string trace;
  double median_ns = 0;
  double ratio = 0;    // 0: not paired
  bool final = false;  // uncontended pairs of rung 4
};
struct PreparedTask {
  std::string op_summary;
  Fingerprint initial_program;
  std::string default_trace;
  std::vector<v1::BufferSpec> buffers;
  double flops = 0;
  double floor_ns = 0;  // nothing faster is believable
  // From the log:
  int64_t verified = 0;                   // of this job, before its server was restarted
  std::map<std::string, int64_t> failed;  // likewise, by kind
  int64_t tried = 0;                      // distinct traces
  int64_t next_trial = 1;
  double default_ns = 0;          // 0: the default was not measured yet
  int64_t finals = 0;             // traces that had theirs
  std::vector<LoggedTrace> best;  // fastest first, a few
};

struct Proposal {
  uint32_t task = 0;
  uint64_t token = 0;  // for Tell
  std::string trace;
};

enum class TellKind { kMeasured, kFailed, kLost };

// ---- actions
struct PrepareTask {  // -> TaskPrepared
  std::string job;
  uint32_t task;
  std::string workload, target;
  db::RecordKey key;
};
struct ComputeExpected {  // -> ExpectedReady
  std::string job;
  uint32_t task;
  std::string workload;
  std::vector<uint64_t> seeds;
};
struct JobPrepared {  // answers the submission: the job is durable, and will end
  std::string job;
  int64_t already_measured, to_measure;
};
struct StartSearch {  // -> SearchStarted; tasks that failed are left out
  std::string job;
  std::vector<uint32_t> tasks;
  std::vector<double> weights;
  uint64_t seed;
  bool random;
  std::optional<int> total_trials;  // of these tasks in the log, for the scheduler
};
struct AskSearch {  // -> Proposed
  std::string job;
  int n;
};
struct TellSearch {
  std::string job;
  uint64_t token;
  TellKind kind;
  double latency_ns, noise, seconds;
};
struct EndSearch {
  std::string job;
};
struct StartBuild {  // -> Built
  uint64_t build;
  v1::BuildRequest request;
};
struct KeepBlob {  // these blobs may be fetched until dropped; counted
  std::string sha256;
};
struct DropBlob {
  std::string sha256;
};
struct SendWorker {
  uint64_t session;
  v1::ServerMessage message;
};
struct CloseWorker {
  uint64_t session;
  Status status;
};
struct SendTracker {
  v1::LeaseRequest message;
};
struct AppendRow {  // -> Committed(ticket)
  uint64_t ticket;
  db::Row row;
};
struct Publish {  // to those who watch the job
  std::string job;
  v1::JobEvent event;
  bool last = false;  // the stream ends after it
};
struct JobEnded {  // durable
  std::string job;
  v1::JobState state;
};
struct ResultRefused {  // acknowledged, and not kept: for the log
  v1::TrialIds ids;
  std::string why;
};
using Action = std::variant<PrepareTask, ComputeExpected, JobPrepared, StartSearch, AskSearch,
                            TellSearch, EndSearch, StartBuild, KeepBlob, DropBlob, SendWorker,
                            CloseWorker, SendTracker, AppendRow, Publish, JobEnded, ResultRefused>;
using Actions = std::vector<Action>;

}  // namespace whet::tuner
