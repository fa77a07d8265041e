// A whole fleet in one thread: the tracker's table, the service core and worker cores, each a
// process on a host, on a network, disks and clocks that fail; a scripted search, builder and
// runner. What the real adapters do with actions is done here with queues. Time is simulated, and
// everything that happens comes from one seed: the same options give the same history, byte for
// byte (trace_hash).
//
// Faults: streams break, half or wholly; links are cut; processes are killed, frozen or lose their
// power, between any two actions of a step as well; disks fill up, sync slowly, and lose what was
// not synced; wall clocks step by a day, monotonic clocks run at different rates. Every fault ends
// at some time, so that what must come to an end can.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/event_loop.h"
#include "tests/sim/history.h"
#include "tests/sim/sim_log.h"
#include "tests/sim/sim_net.h"
#include "tracker/core/lease_table.h"
#include "tuner/service/core.h"
#include "worker/core/worker_core.h"

namespace whet::testing {

struct SimOptions {
  uint64_t seed = 1;
  int workers = 2;
  int tasks = 2;
  int proposals = 20;  // of each job, defaults not counted
  // Chances per simulated second, of each worker where there are several.
  double break_link = 0;
  double crash_worker = 0;
  // Chances of a run.
  double lose_device = 0;     // it ends with DEVICE_LOST
  double fail_candidate = 0;  // its candidate crashes
  int64_t run_ns = 60 * kMillisecond;
  int64_t time_limit_ns = 0;
  int64_t trials = 0;  // budget; 0: tasks + proposals
  bool tasks_alike = false;

  int jobs = 1;
  int64_t submit_every_ns = 0;
  int workers_per_box = 1;        // that share one device
  bool tracker_in_server = true;  // else a process of its own, with state that outlives it
  // More chances per simulated second.
  double half_break = 0;  // one end of a stream learns of its end late, or never
  double cut_link = 0;    // for up to a minute, in one direction or both
  double freeze_worker = 0;
  double drain_worker = 0;
  double power_worker = 0, power_server = 0;  // loss of power of the host
  double crash_server = 0, crash_tracker = 0;
  double full_disk = 0;  // of the log's or a worker's
  double slow_disk = 0;  // of the log's: syncs of up to 3 s
  double step_wall = 0;  // by a day, either way
  double cancel_job = 0;
  double crash_in_step = 0;  // chance of an action that its process dies before it
  double slow_message = 0;   // chance of a message to take seconds
  int64_t clock_ppm = 0;     // monotonic clocks run up to so much slower or faster
  int64_t faults_until_ns = INT64_MAX;
  int64_t no_device_after_ns = 0;  // 0: the core's own
};

// Everything at once, in proportions that the seed draws; faults for four fifths of `minutes`.
SimOptions ChaosOptions(uint64_t seed, double minutes);

class Sim {
 public:
  explicit Sim(const SimOptions& options);
  ~Sim();

  // Runs until the first job is over, or up to `limit` of simulated time, and a while longer: what
  // is on its way settles.
  void Run(int64_t limit);
  template <typename Done>
  void RunUntil(const Done& done, int64_t limit) {
    while (now() < limit && !done()) loop_.Step(limit);
  }
  // Runs for `minutes`, then until every job is over or 20 minutes more have passed.
  void RunChaos(double minutes);

  // Of everything that has happened.
  History TakeHistory();
  uint64_t trace_hash() const { return hash_; }
  void set_trace(std::string* trace) { trace_ = trace; }  // a line for each thing that happens
  // Messages as they arrive: "NS TAG SESSION BYTES", BYTES in hex; TAG is who reads, t (tracker), l
  // (its stream with a server) or s (server) and the direction, < to it, > from it.
  void set_wire(std::string* wire) { wire_ = wire; }

  bool up() const { return core_ != nullptr; }  // the server
  tuner::ServiceCore& core() { return *core_; }
  tracker::LeaseTable& table() { return *table_; }
  v1::JobSnapshot snapshot();
  const db::JobRow& job_row() { return log_.jobs.at(jobs_[0].id); }
  int64_t now() const { return loop_.now(); }
  void CancelJob(size_t job = 0);
  // kill -9: what the server held in memory and what is on its way to it is gone, its rows stay. It
  // comes back after `down` and takes its jobs up again.
  void RestartServer(int64_t down) { CrashServer(Loss::kProcess, down); }
  // The worker's process is stopped: nothing of it is sent or taken until it goes on.
  void Freeze(size_t w);
  void Thaw(size_t w);
  bool Running(size_t w) const { return workers_[w].core && workers_[w].core->running(); }
  size_t jobs_over() const;

  std::map<SimLog::RowId, db::TrialRow>& rows;
  std::map<int64_t, v1::TrialIds> results;  // all that were ever produced, by worker and sequence
  std::map<std::string, int> starts;        // of one trial's attempts, by job/task/trial
  std::optional<v1::JobState> ended_;       // of the first job
  int overlapping_runs = 0;                 // that one worker's core asked for
  std::set<std::pair<std::string, uint64_t>> told;
  std::map<std::string, int> kept;
  std::vector<v1::TrialIds> dropped;      // results that left a worker's spool, acknowledged
  std::vector<double> weights;            // of the tasks, as the search got them
  std::vector<v1::TrialIds> refused;      // by a server that does not know their trials
  std::map<std::string, int64_t> faults;  // that happened, by name
  std::vector<std::string> troubles;      // what must never happen, beside the promises

 private:
  using StreamId = SimNet::StreamId;
  enum class Loss { kProcess, kPower };

  // A host's clocks. A boot sets the monotonic one back.
  struct Clock {
    int64_t base_ns = 0, ppm = 0, wall_ms = 0;
  };
  struct SpoolFile {
    v1::SpooledResult result;
    int64_t written_ns = 0;
  };
  struct SimWorker {
    std::unique_ptr<worker::WorkerCore> core;  // of the process that lives
    int boot = 0;
    std::string box;  // the device
    Clock clock;
    StreamId tracker = 0, server = 0;
    SimNet::LinkId to_tracker = 0, to_server = 0;
    std::map<int64_t, SpoolFile> spool;        // its disk
    std::map<std::string, uint64_t> cache;     // likewise
    std::map<std::string, std::string> parts;  // likewise, of blobs that are not whole
    std::set<std::string> not_stored;          // that this process could not, and said so
    bool disk_full = false;
    bool frozen = false;
    std::deque<std::function<void()>> inbox;  // while it is frozen
    int64_t tick_at = 0;
    std::optional<RunIds> on_device;  // its run is there now
    bool holds_box = false;
    bool run_asked = false;
  };
  struct SimJob {
    std::string id;
    v1::JobSpec spec;
    int64_t submit_at = 0;
    bool accepted = false;
    std::optional<v1::JobState> over;
    uint64_t next_token = 1;
    int pending = 0;
  };

  // ---- fleet_sim.cc: life, time, faults
  void Note(std::string_view what);
  void Note(const char* tag, StreamId session, const google::protobuf::Message& message);
  bool DiesHere();
  int64_t Local(const Clock& c) const;
  int64_t Global(const Clock& c, int64_t local) const;
  void BootHost(Clock* c);
  void EverySecond();
  void WorkerFaults(size_t w);
  void CentralFaults();
  bool Chance(double per_second, const char* fault);
  void StartServer();
  void CrashServer(Loss loss, int64_t down);
  void ServerTick(int boot);
  void StartTracker();
  void CrashTracker(Loss loss, int64_t down);
  void TrackerTick(int boot);
  void Submit(size_t job);
  // Of the server's process that runs now: nothing happens once it is another one.
  void AfterHere(int64_t delay, std::function<void()> what);
  int64_t Delay() { return kMillisecond + rng_.Below(20 * kMillisecond); }

  // ---- sim_worker.cc
  void StartWorker(size_t w);
  void CrashWorker(size_t w, Loss loss, int64_t down);
  void ToProcess(size_t w, std::function<void()> what);
  void Feed(size_t w, const worker::Event& event);
  void ScheduleTick(size_t w);
  void EndStreams(size_t w, SimNet::Death death);
  void LeaveDevice(size_t w);
  int64_t ResultKey(size_t w, int64_t sequence) const {
    return static_cast<int64_t>(w) * 1'000'000 + sequence + int64_t{100'000'000} * workers_[w].boot;
  }
  void BeginRun(size_t w, int boot, const worker::StartRun& run, int64_t give_up);
  void FinishRun(size_t w, int boot, const worker::StartRun& run);
  v1::Measurement Measured(const v1::Assign& assign);
  void DoWorker(size_t w, worker::ConnectTracker&);
  void DoWorker(size_t w, worker::CloseTracker&);
  void DoWorker(size_t w, worker::ToTracker& a);
  void DoWorker(size_t w, worker::ConnectServer&);
  void DoWorker(size_t w, worker::CloseServer&);
  void DoWorker(size_t w, worker::ToServer& a);
  void DoWorker(size_t w, worker::StoreBlob& a);
  void DoWorker(size_t w, worker::DropBlob& a);
  void DoWorker(size_t w, worker::StartRun& a);
  void DoWorker(size_t w, worker::SaveResult& a);
  void DoWorker(size_t w, worker::DropResult& a);
  void DoWorker(size_t w, worker::SayStatus& a);
  void DoWorker(size_t w, worker::Exit&);

  // ---- sim_service.cc: the tracker's and the server's actions
  void DoTracker(const tracker::Actions& actions);
  void ConnectTracker();
  void TrackerLost(StreamId stream);
  void Resume();
  void Do(tuner::Actions actions);
  void AppendWaiting();
  void WaitForLog();
  void OnCommitted(int64_t order, const tuner::AppendRow& row,
                   const StatusOr<db::TrialStatus>& verdict);
  tuner::PreparedTask FromRows(const Fingerprint& workload) const;
  RunIds RowIds(const db::TrialRow& row) const;
  SimJob* FindJob(const std::string& id);
  void SendBlob(StreamId session, const v1::Fetch& fetch);
  void ToWorkerSession(StreamId session, const v1::ServerMessage& m);
  void DoCore(tuner::PrepareTask& a);
  void DoCore(tuner::ComputeExpected& a);
  void DoCore(tuner::JobPrepared& a);
  void DoCore(tuner::ResultRefused& a);
  void DoCore(tuner::StartSearch& a);
  void DoCore(tuner::AskSearch& a);
  void DoCore(tuner::TellSearch& a);
  void DoCore(tuner::EndSearch&) {}
  void DoCore(tuner::StartBuild& a);
  void DoCore(tuner::KeepBlob& a);
  void DoCore(tuner::DropBlob& a);
  void DoCore(tuner::SendWorker& a);
  void DoCore(tuner::CloseWorker& a);
  void DoCore(tuner::SendTracker& a);
  void DoCore(tuner::AppendRow& a);
  void DoCore(tuner::Publish&) {}
  void DoCore(tuner::JobEnded& a);

  const SimOptions o_;
  Rng rng_;
  EventLoop loop_;
  SimNet net_;
  SimLog log_;
  uint64_t hash_ = 0;
  std::string* trace_ = nullptr;
  std::string* wire_ = nullptr;
  History history_;
  int64_t job_deadline_ns_ = kNoDeadline;

  // The tracker's process, and its disk.
  std::unique_ptr<tracker::LeaseTable> table_;
  int tracker_boot_ = 0;
  Clock tracker_clock_;
  struct {
    int64_t reserved_below = 1;
    bool existed = false;
  } epochs_;
  std::map<StreamId, size_t> session_worker_;

  // The server's process, its log apart.
  std::unique_ptr<tuner::ServiceCore> core_;
  int server_boot_ = 0;
  Clock server_clock_;
  SimNet::LinkId server_to_tracker_ = 0;
  StreamId tracker_stream_ = 0;
  bool presented_ = false;
  std::map<std::string, std::string> blobs_;
  std::map<int64_t, tuner::AppendRow> waiting_rows_;  // by the order in which they came
  int64_t next_row_ = 0;
  bool retrying_rows_ = false;

  std::vector<SimWorker> workers_;
  std::map<std::string, size_t> box_holder_;
  bool overflow_ = false;  // of a spool, in the step under way
  std::vector<SimJob> jobs_;
  std::map<Fingerprint, uint32_t> task_of_;  // by workload
};

std::string StateText(v1::JobState state);  // "done", as histories have it
RunIds RunIdsOf(const v1::TrialIds& ids);

}  // namespace whet::testing
