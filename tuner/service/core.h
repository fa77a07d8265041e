// The tuning service as a state machine: jobs, trials, workers, leases. Methods are events; each
// returns the actions to take. Time is passed in; no gRPC, no clock, no threads, no files, no
// compiler: searching, building, storing and sending are actions whose results come back as events,
// so tests run it in one thread against scripted workers.
//
//   job:   preparing (each task: space, expected outputs, log)
//          -> baseline (each task's default schedule is built and measured first)
//          -> search (proposals -> build -> ready -> assigned -> result -> durable -> told)
//          -> finals (the best of each task against its default, in pairs, builders idle)
//          -> done
//   trial: building -> ready -> assigned -> committing -> done; back to ready when its worker is
//          lost (at most max_attempts starts, then poisoned)
//
// Invariants: a trial has one live assignment, fenced by (attempt, incarnation, epoch); a result
// under another fence is stored late and never counts; a worker is acknowledged only what the log
// has made durable; ready candidates and proposals are bounded; every job reaches one terminal
// state, which is durable before it is told.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/status.h"
#include "db/record/record.h"
#include "proto/tracker.pb.h"
#include "proto/tuner.pb.h"
#include "proto/worker.pb.h"
#include "tuner/service/actions.h"

namespace whet::tuner {

struct CoreConfig {
  std::string server_id, log_id, generation;
  std::string host_boot_id;  // of the machine that builds
  std::string compiler_version;
  int64_t codegen_version = 0;
  int builders = 1;
  int max_attempts = 3;  // starts of one trial on workers that were lost
  // Assignments at one worker: the next is there before the one that runs ends.
  uint32_t max_in_flight = 3;
  int finals_per_task = 2;
  size_t max_jobs = 64;    // that are not over
  size_t kept_jobs = 200;  // that are
  size_t max_tasks = 4096;
  int64_t heartbeat_ns = 5 * kSecond;
  int64_t lost_after_ns = 25 * kSecond;  // a worker's broken stream, when the tracker says nothing
  int64_t no_device_after_ns = int64_t{24} * 3600 * kSecond;
  int64_t cancel_grace_ns = 5 * kSecond;  // for measurements that run
  int64_t snapshot_every_ns = 200 * kMillisecond;
  int64_t keep_every_ns = 10 * kSecond;  // how much of a spent time limit a crash may forget
  int64_t build_limit_ns = 10 * kSecond;
  int64_t build_memory_bytes = int64_t{4} << 30;
  int64_t run_memory_bytes = int64_t{8} << 30;
  int64_t rung1_ns = 3 * kMillisecond;
  int64_t rung2_ns = 10 * kMillisecond;
  int64_t rung3_ns = 30 * kMillisecond;
  int64_t pairs_ns = 15 * kMillisecond;
  int64_t final_pairs_ns = 100 * kMillisecond;
  double sigma = 0.02;
  std::vector<uint64_t> seeds = {0x5eed0001, 0x5eed0002};
};

// What Built hands over: the object itself is with the adapter, under its hash.
struct BuiltObject {
  v1::FailureKind failure = v1::FAILURE_UNKNOWN;
  std::string message;
  std::string sha256;
  uint64_t bytes = 0;
  std::string initial_program;  // as the builder saw it
  std::string trace;            // as built; empty: as asked for
  int64_t build_ns = 0;
};

class ServiceCore {
 public:
  explicit ServiceCore(CoreConfig config) : config_(std::move(config)) {}

  // ---- clients
  // `devices`: those of the key, as the tracker lists them now; `feature_set`: of the job's target.
  // A refusal has no actions. InvalidArgument, NotFound (unknown key, with those that exist),
  // ResourceExhausted.
  Status Submit(int64_t now, const std::string& job, const v1::JobSpec& spec,
                const std::string& target, const std::string& feature_set, int64_t wall_ms,
                Actions* out);
  // Takes up a job that a former process of this server left open: `kept` is its row, with the
  // workloads' texts put back. It goes on from the log, under its own id.
  Status Resume(int64_t now, const std::string& job, const v1::KeptJob& kept,
                const std::string& feature_set, int64_t created_ms, Actions* out);
  // An open job that was taken up again and asks for just this: whoever repeats the command after a
  // restart watches it instead of measuring the same beside it. Nothing if there is none.
  std::optional<std::string> ResumedLike(const v1::JobSpec& spec, const std::string& target) const;
  // Nothing while the job is being prepared or made durable: JobPrepared will tell.
  std::optional<JobPrepared> Prepared(const std::string& job) const;
  Status Cancel(int64_t now, const std::string& job, Actions* out);
  StatusOr<v1::JobSnapshot> Snapshot(int64_t now, const std::string& job) const;
  std::vector<v1::JobSnapshot> Jobs(int64_t now) const;  // without tasks
  bool Terminal(const std::string& job) const;

  // ---- search and builders
  Actions TaskPrepared(int64_t now, const std::string& job, uint32_t task,
                       StatusOr<PreparedTask> prepared);
  Actions ExpectedReady(int64_t now, const std::string& job, uint32_t task, const Status& status,
                        const std::string& sha256, uint64_t bytes);
  Actions SearchStarted(int64_t now, const std::string& job, const Status& status);
  Actions Proposed(int64_t now, const std::string& job, std::vector<Proposal> proposals, bool done);
  Actions Built(int64_t now, uint64_t build, const BuiltObject& object);

  // ---- workers
  Actions FromWorker(int64_t now, uint64_t session, v1::WorkerMessage message);
  Actions WorkerGone(int64_t now, uint64_t session);

  // ---- tracker
  Actions FromTracker(int64_t now, const v1::LeaseReply& message);
  Actions TrackerUp(
      int64_t now);  // a new stream; Present was sent by the adapter with HeldLeases()
  Actions TrackerDown(int64_t now);
  std::vector<v1::HeldLease> HeldLeases() const;

  // ---- log
  Actions Committed(int64_t now, uint64_t ticket, const StatusOr<db::TrialStatus>& verdict);

  Actions Tick(int64_t now);
  int64_t NextDeadline(int64_t now) const;
  size_t open_jobs() const;

 private:
  enum class Phase { kPreparing, kBaseline, kSearch, kFinals, kEnding, kOver };
  enum class TaskPhase { kPreparing, kBaseline, kSearch, kFinals, kDone, kFailed };
  enum class Kind { kDefault, kSearch, kFinal };
  enum class Stage { kBuilding, kReady, kAssigned, kCommitting, kDone };

  struct Contender {  // of a task's best; its object may be kept for the finals
    std::string trace, object;
    uint64_t bytes = 0;
    double median_ns = 0;
    double ratio = 0;
    bool final = false;
  };
  struct TaskState {
    v1::TaskSpec spec;
    db::RecordKey key;
    TaskPhase phase = TaskPhase::kPreparing;
    std::string error;
    PreparedTask prepared;
    bool needs_baseline = false;
    std::string expected_object;
    uint64_t expected_bytes = 0;
    std::string baseline_object;
    uint64_t baseline_bytes = 0;
    int64_t next_trial = 1;
    int64_t measured = 0;  // distinct traces in the log, this job's included
    int64_t failed = 0;
    double default_ns = 0, best_ns = 0, best_ratio = 0;
    int64_t trials_to_best = 0;
    std::vector<Contender> best;  // a few, best first
  };
  struct Trial {
    std::string job;
    uint32_t task = 0;
    int64_t number = 0;
    int64_t attempt = 0;
    int64_t taken_attempt = 0;  // whose result was taken; another delivery of it is the same one
    int losses = 0;
    Kind kind = Kind::kSearch;
    Stage stage = Stage::kBuilding;
    uint64_t token = 0;
    std::string trace;
    std::string object;
    uint64_t object_bytes = 0;
    int64_t build_ns = 0;
    std::set<std::string> lost_on;  // devices
    // Of the live assignment:
    std::string device_id, incarnation;
    int64_t epoch = 0;
    uint64_t session = 0;
    bool started = false;
    uint64_t builds_at_start = 0;
    bool contended = false;
    int64_t assigned_ns = 0, limit_ns = 0;
  };
  using TrialId = uint64_t;
  struct Job {
    std::string id;
    v1::JobSpec spec;
    std::string target, feature_set;
    Phase phase = Phase::kPreparing;
    v1::JobState state = v1::JOB_QUEUED;
    v1::JobState ending_as = v1::JOB_DONE;
    std::string error;
    int64_t wall_ms = 0;
    int64_t submitted_ns = 0, started_ns = 0, ended_ns = 0, device_seen_ns = 0, cancel_ns = 0;
    std::vector<TaskState> tasks;
    std::deque<TrialId> ready;
    std::set<TrialId> live;  // not done
    bool asked = false;      // proposals are on their way
    bool search_done = false, search_started = false;
    int64_t before = 0;  // traces in the log when the job came
    int64_t verified = 0;
    std::map<std::string, int64_t> failed;
    bool resumed = false;
    bool durable = false;                // its row; only then is its submission answered
    std::optional<int64_t> kept_before;  // as a former process counted it
    int64_t kept_spent_ns = 0;           // of the time limit, by former processes
    int64_t kept_ns = 0;                 // when the row was written last
    int64_t last_snapshot_ns = 0;
    bool snapshot_due = false;
    bool cancelled() const { return cancel_ns != 0; }
    bool open() const { return phase != Phase::kOver; }
  };
  struct Session {
    bool greeted = false;
    v1::DeviceIdentity device;
    Fingerprint device_row;
    std::string incarnation;
    int64_t epoch = 0;
    bool draining = false;
    int64_t heard_ns = 0;
    std::set<TrialId> assigned;
    std::deque<std::pair<int64_t, bool>> results;  // (sequence, durable), in order of arrival
  };
  struct Lease {
    std::string incarnation, device_id, key;
    v1::DeviceIdentity device;
  };
  struct Ticket {
    enum class What { kTrial, kJob, kJobEnd, kOther } what = What::kOther;
    TrialId trial = 0;
    std::string job;
    uint64_t session = 0;  // to acknowledge; 0: nobody
    int64_t sequence = 0;
    db::TrialRow row;  // without trace and samples, for what follows
    double noise = 0;
  };

  // jobs.cc, phases.cc, progress.cc
  void JobStep(int64_t now, Job* job, Actions* out);
  void BeginBaselines(int64_t now, Job* job, Actions* out);
  void BeginBaseline(Job* job, uint32_t task, Actions* out);
  void MaybeEndBaselines(int64_t now, Job* job, Actions* out);
  bool HasBudget(const Job& job) const;
  std::vector<size_t> FinalsOf(const Job& job, const TaskState& task) const;
  void BeginSearch(int64_t now, Job* job, Actions* out);
  void Pump(int64_t now, Job* job, Actions* out);
  void BeginFinals(int64_t now, Job* job, Actions* out);
  bool AddFinals(Job* job, uint32_t task, Actions* out);
  bool FinalsTimeIsUp(int64_t now, const Job& job) const;
  void End(int64_t now, Job* job, v1::JobState state, const std::string& error, Actions* out);
  void FailTask(Job* job, uint32_t task, const std::string& why, Actions* out);
  void TaskDone(Job* job, TaskState* task);
  size_t Unassigned(const Job& job) const;
  size_t InFlight(const Job& job) const;  // assigned or committing
  void DropUnassigned(Job* job, Actions* out);
  bool SearchTimeIsUp(int64_t now, const Job& job) const;
  v1::JobSnapshot MakeSnapshot(int64_t now, const Job& job, bool with_tasks) const;
  void PublishSnapshot(int64_t now, Job* job, Actions* out);
  void Open(int64_t now, Job* job, Actions* out);
  void AppendJobRow(int64_t now, Job* job, v1::JobState state, Ticket ticket, Actions* out);
  int64_t ElapsedNs(int64_t now, const Job& job) const;
  int64_t Measured(const Job& job) const;
  size_t WorkersFor(const Job& job) const;

  // trials.cc
  TrialId NewTrial(Job* job, uint32_t task, Kind kind, const std::string& trace, uint64_t token);
  void Build(TrialId id, Actions* out);
  void MakeReady(Job* job, TrialId id);
  void FinishWithoutRun(int64_t now, TrialId id, db::FailureKind kind, const std::string& message,
                        Actions* out);
  db::TrialRow RowOf(const Trial& t, const Job& job) const;
  void Append(int64_t now, TrialId id, db::TrialRow row, uint64_t session, int64_t sequence,
              bool late, double noise, Actions* out);
  void AfterTrial(int64_t now, Trial* t, const Ticket& ticket, db::TrialStatus status,
                  Actions* out);
  void TakeMeasurement(Job* job, Trial* t, const Ticket& ticket, Actions* out);
  void KeepContender(Job* job, TaskState* task, Contender c, Actions* out);
  void DropTrial(TrialId id, Actions* out);
  static double Estimate(const TaskState& task, const Contender& c);

  static db::FailureKind FailureOf(v1::FailureKind kind);

  // results.cc
  void OnResult(int64_t now, uint64_t session_id, v1::Result result, Actions* out);
  void TakeLive(int64_t now, TrialId id, uint64_t session_id, int64_t sequence, db::TrialRow row,
                double noise, Actions* out);
  void FillRow(const Trial& t, const Job& job, const Session& s, const v1::Result& result,
               db::TrialRow* row) const;
  db::FailureKind Judge(const v1::Measurement& m, const TaskState& task, const Job& job,
                        std::string* message) const;

  // dispatch.cc
  void Dispatch(int64_t now, Actions* out);
  void Assign(int64_t now, uint64_t session_id, TrialId id, Actions* out);
  TrialId NextReady(const Session& s, Job* job);
  void Hello(int64_t now, uint64_t session_id, const v1::Hello& hello, Actions* out);
  void LoseAssignments(int64_t now, const std::string& device_id, int64_t epoch, Actions* out);
  void LoseTrial(int64_t now, TrialId id, Actions* out);
  void Acknowledge(uint64_t session, int64_t sequence, Actions* out);
  void UpdateWants(Actions* out);

  Job* FindJob(const std::string& id);
  const Job* FindJob(const std::string& id) const;

  const CoreConfig config_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  std::deque<std::string> over_;  // oldest first
  std::map<TrialId, Trial> trials_;
  std::map<std::tuple<std::string, uint32_t, int64_t>, TrialId> by_ids_;
  TrialId next_trial_id_ = 1;
  std::map<uint64_t, TrialId> builds_;
  uint64_t next_build_ = 1;
  uint64_t builds_started_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::map<std::string, int64_t> silent_since_;  // device_id -> when its stream broke
  std::map<int64_t, Lease> leases_;
  bool tracker_up_ = false;
  int64_t tracker_down_ns_ = 0;
  int64_t lease_life_ns_ = 15 * kSecond;
  int64_t next_renew_ns_ = 0;
  int64_t renew_every_ns_ = 5 * kSecond;
  std::map<std::string, uint32_t> wants_;
  std::map<uint64_t, Ticket> tickets_;
  uint64_t next_ticket_ = 1;
  int64_t next_beat_ns_ = 0;
  std::string last_served_;  // job, for fairness
};

}  // namespace whet::tuner
