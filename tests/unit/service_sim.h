// A whole fleet in one thread: the tracker's table, the service core and worker cores, joined by
// links that delay, break and reorder nothing within a stream; a scripted search, builder, runner
// and log. Time is simulated; one seed is one history. What the real adapters do with actions is
// done here with queues.
#pragma once
#include <google/protobuf/util/json_util.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/rng.h"
#include "compiler/support/sha256.h"
#include "tracker/core/lease_table.h"
#include "tuner/service/core.h"
#include "worker/core/worker_core.h"

namespace whet::testing {

struct SimOptions {
  uint64_t seed = 1;
  int workers = 2;
  int tasks = 2;
  int proposals = 20;       // in all, defaults not counted
  double break_link = 0;    // chance per simulated second and worker that its server stream breaks
  double crash_worker = 0;  // that the worker's process dies and comes back
  double lose_device = 0;   // that a run ends with DEVICE_LOST
  double fail_candidate = 0;  // that a candidate crashes
  int64_t run_ns = 60 * kMillisecond;
  int64_t time_limit_ns = 0;
  int64_t trials = 0;  // budget; 0: tasks + proposals
  bool tasks_alike = false;
};

class Sim {
 public:
  explicit Sim(const SimOptions& options)
      : o_(options),
        rng_(options.seed),
        table_(tracker::TableConfig{}, "inc", 1, 1'000'000'000, false, 0),
        core_(std::make_unique<tuner::ServiceCore>(Config())) {
    for (int i = 0; i < o_.workers; ++i) {
      workers_.emplace_back();
      StartWorker(static_cast<size_t>(i));
    }
    At(0, [this] { ServerConnectsTracker(); });
    At(kSecond, [this] { Submit(); });
  }

  // Runs until the job is over, or `limit` of simulated time.
  void Run(int64_t limit) {
    while (now_ < limit && !ended_) Step();
    for (int i = 0; i < 2000; ++i) Step();  // what is on its way settles
  }
  void RunUntil(const std::function<bool()>& done, int64_t limit) {
    while (now_ < limit && !done()) Step();
  }

  struct LoggedRow {
    db::TrialRow row;
    bool counted = true;
  };
  // By their identity, as the log's unique index has them.
  using RowId = std::tuple<std::string, int64_t, std::string, int64_t, std::string, int64_t>;
  std::map<RowId, db::TrialRow> rows;
  // Results that workers have dropped, as (worker * 1e6 + sequence).
  std::set<int64_t> acknowledged;
  std::map<int64_t, v1::TrialIds> results;  // all that were ever produced, likewise
  std::map<std::string, int> starts;        // of one trial's attempts, by job/task/trial
  std::optional<v1::JobState> ended_;
  std::string job_error;
  int overlapping_runs = 0;
  uint64_t history = 0;  // hash of everything that happened

  tuner::ServiceCore& core() { return *core_; }
  tracker::LeaseTable& table() { return table_; }
  v1::JobSnapshot snapshot() { return *core_->Snapshot(now_, "job"); }
  int64_t now() const { return now_; }
  void CancelJob() {
    tuner::Actions a;
    if (core_->Cancel(now_, "job", &a).ok()) Do(std::move(a));
  }
  // kill -9: what the server held in memory and what is on its way to it is gone, its rows stay. It
  // comes back after `down` and takes the job up again.
  void RestartServer(int64_t down) {
    Note("restart");
    ++server_boot_;
    server_down_ = true;
    for (size_t w = 0; w < workers_.size(); ++w) BreakServerLink(w);
    DoTracker(table_.ServerGone(now_, kServerSession));
    core_ = std::make_unique<tuner::ServiceCore>(Config());
    kept.clear();
    blobs_.clear();
    starts.clear();
    pending_ = 0;
    After(down, [this] {
      server_down_ = false;
      ServerConnectsTracker();
      Resume();
    });
  }
  const db::JobRow& job_row() const { return job_row_; }
  // The worker's process freezes: nothing of it is sent or received until it is thawed.
  void Freeze(size_t w) { workers_[w].frozen = true; }
  void Thaw(size_t w) { workers_[w].frozen = false; }
  bool Running(size_t w) const { return workers_[w].core && workers_[w].core->running(); }

 private:
  static constexpr uint64_t kServerSession = 999'999'999;

  struct SimWorker {
    std::unique_ptr<worker::WorkerCore> core;
    int boot = 0;
    uint64_t tracker_session = 0, server_session = 0;  // 0: none
    std::map<int64_t, v1::SpooledResult> spool;        // its disk
    bool frozen = false;
    bool running = false;
  };

  tuner::CoreConfig Config() {
    tuner::CoreConfig c;
    c.server_id = "server";
    c.log_id = "log";
    c.generation = "gen";
    c.host_boot_id = "host";
    c.builders = 2;
    return c;
  }

  void At(int64_t when, std::function<void()> what) {
    events_.emplace(std::pair(std::max(when, now_), order_++), std::move(what));
  }
  void After(int64_t delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // Of the server's process that runs now: nothing happens once it was restarted.
  std::function<void()> Here(std::function<void()> what) {
    return [this, boot = server_boot_, what = std::move(what)] {
      if (boot == server_boot_) what();
    };
  }
  void AfterHere(int64_t delay, std::function<void()> what) { After(delay, Here(std::move(what))); }
  void Note(const std::string& what) {
    history = SplitMix(history ^ FingerprintOf(what).lo ^ static_cast<uint64_t>(now_));
  }

  void Step() {
    // Ticks of the three state machines every 20 ms; faults once a second.
    const int64_t next_tick = last_tick_ + 20 * kMillisecond;
    if (!events_.empty() && events_.begin()->first.first <= next_tick) {
      auto node = events_.extract(events_.begin());
      now_ = node.key().first;
      node.mapped()();
      return;
    }
    now_ = last_tick_ = next_tick;
    DoTracker(table_.Tick(now_));
    if (!server_down_) Do(core_->Tick(now_));
    for (size_t w = 0; w < workers_.size(); ++w) Feed(w, worker::Tick{});
    if (now_ / kSecond != (now_ - 20 * kMillisecond) / kSecond) Faults();
  }

  void Faults() {
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (rng_.Uniform() < o_.break_link) BreakServerLink(w);
      if (rng_.Uniform() < o_.crash_worker) {
        Note("crash");
        BreakServerLink(w);
        if (const uint64_t s = std::exchange(workers_[w].tracker_session, 0))
          DoTracker(table_.WorkerGone(now_, s));
        workers_[w].core.reset();
        workers_[w].running = false;
        ++workers_[w].boot;
        After(kSecond + rng_.Below(3 * kSecond), [this, w] { StartWorker(w); });
      }
    }
  }

  void StartWorker(size_t w) {
    if (workers_[w].core) return;
    worker::WorkerConfig config;
    config.device.set_worker_id("w" + std::to_string(w));
    config.device.set_device_id("w" + std::to_string(w) + "/cpu0");
    config.device.set_boot_id("boot" + std::to_string(workers_[w].boot));
    config.device.set_key("k");
    config.device.set_target("cpu");
    config.device.set_feature_set("f");
    config.device.set_host_boot_id("host");
    std::vector<v1::SpooledResult> spool;
    for (const auto& [seq, r] : workers_[w].spool) spool.push_back(r);
    workers_[w].core = std::make_unique<worker::WorkerCore>(
        config, spool, std::map<std::string, uint64_t>{}, rng_.Next());
  }

  // ---- links: each message takes a while, in order within its stream

  int64_t Delay() { return kMillisecond + rng_.Below(20 * kMillisecond); }
  void Deliver(int64_t* last, std::function<void()> what) {
    *last = std::max(*last, now_ + Delay());
    At(*last, std::move(what));
  }
  int64_t& Last(const std::string& stream) { return last_delivery_[stream]; }

  void BreakServerLink(size_t w) {
    const uint64_t session = std::exchange(workers_[w].server_session, 0);
    if (session == 0) return;
    Note("break");
    AfterHere(Delay(), [this, session] { Do(core_->WorkerGone(now_, session)); });
    After(Delay(), [this, w, core = workers_[w].core.get()] {
      if (workers_[w].core.get() == core) Feed(w, worker::ServerLost{Unavailable("broken")});
    });
  }

  // ---- workers

  void Feed(size_t w, const worker::Event& event) {
    SimWorker& sw = workers_[w];
    if (!sw.core) return;
    if (sw.frozen) {
      if (!std::holds_alternative<worker::Tick>(event))
        After(50 * kMillisecond, [this, w, event] { Feed(w, event); });
      return;
    }
    for (worker::Action& a : sw.core->Step(now_, event)) {
      std::visit([&](auto& x) { DoWorker(w, x); }, a);
    }
  }

  void DoWorker(size_t w, worker::ConnectTracker&) {
    workers_[w].tracker_session = ++next_session_;
  }
  void DoWorker(size_t w, worker::CloseTracker&) {
    if (const uint64_t s = std::exchange(workers_[w].tracker_session, 0))
      DoTracker(table_.WorkerGone(now_, s));
  }
  void DoWorker(size_t w, worker::ToTracker& a) {
    const uint64_t session = workers_[w].tracker_session;
    session_worker_[session] = w;
    Deliver(&Last("t" + std::to_string(session)),
            [this, session, m = a.message] { DoTracker(table_.FromWorker(now_, session, m)); });
  }
  void DoWorker(size_t w, worker::ConnectServer&) {
    workers_[w].server_session = ++next_session_;
    session_worker_[next_session_] = w;
    if (server_down_) BreakServerLink(w);
  }
  void DoWorker(size_t w, worker::CloseServer&) {
    if (const uint64_t s = std::exchange(workers_[w].server_session, 0))
      AfterHere(Delay(), [this, s] { Do(core_->WorkerGone(now_, s)); });
  }
  void DoWorker(size_t w, worker::ToServer& a) {
    const uint64_t session = workers_[w].server_session;
    if (session == 0) return;
    Deliver(&Last("s" + std::to_string(session)), [this, w, session, m = a.message] {
      if (workers_[w].server_session != session) return;  // lost with the link
      if (m.has_fetch()) SendBlob(session, m.fetch().sha256());
      Do(core_->FromWorker(now_, session, m));
    });
  }
  void DoWorker(size_t w, worker::StoreBlob& a) {
    After(0, [this, w, sha = a.sha256] { Feed(w, worker::BlobStored{sha, OkStatus()}); });
  }
  void DoWorker(size_t, worker::DropBlob&) {}
  void DoWorker(size_t w, worker::StartRun& a) {
    SimWorker& sw = workers_[w];
    overlapping_runs += sw.running;
    sw.running = true;
    const v1::TrialIds& ids = a.assign.ids();
    ++starts[fmt::format("{}/{}/{}", ids.job_id(), ids.task(), ids.trial())];
    Note(fmt::format("run {} {} {}", w, ids.task(), ids.trial()));
    After(o_.run_ns / 2 + rng_.Below(o_.run_ns), [this, w, boot = sw.boot, assign = a.assign] {
      if (!workers_[w].core || workers_[w].boot != boot) return;
      workers_[w].running = false;
      v1::Measurement m;
      if (rng_.Uniform() < o_.lose_device) {
        m.set_failure(v1::FAILURE_DEVICE_LOST);
      } else if (assign.has_spec() && assign.baseline_sha256().size() &&
                 rng_.Uniform() < o_.fail_candidate) {
        m.set_failure(v1::FAILURE_RUN_CRASH);
        m.set_message("SIGSEGV");
      } else {
        m.set_failure(v1::FAILURE_OK);
        const double ns =
            1e6 + static_cast<double>(FingerprintOf(assign.object_sha256()).lo % 1000000);
        for (int i = 0; i < 5; ++i) m.add_samples_ns(ns);
        m.set_runs_per_sample(1);
        m.set_rung(assign.spec().plan().final() ? 4 : 3);
        if (!assign.baseline_sha256().empty()) m.set_baseline_ratio(ns / 2e6);
      }
      Feed(w, worker::RunEnded{m});
    });
  }
  void DoWorker(size_t w, worker::SaveResult& a) {
    const int64_t id = static_cast<int64_t>(w) * 1'000'000 + a.result.result().sequence();
    workers_[w].spool[a.result.result().sequence()] = a.result;
    results[id + 100'000'000 * workers_[w].boot] = a.result.result().ids();
  }
  void DoWorker(size_t w, worker::DropResult& a) {
    const auto it = workers_[w].spool.find(a.sequence);
    if (it == workers_[w].spool.end()) return;
    dropped.push_back(it->second.result().ids());
    workers_[w].spool.erase(it);
  }
  void DoWorker(size_t, worker::SayStatus&) {}
  void DoWorker(size_t w, worker::Exit&) { workers_[w].core.reset(); }

  void SendBlob(uint64_t session, const std::string& sha) {
    v1::ServerMessage m;
    m.mutable_chunk()->set_sha256(sha);
    const auto it = blobs_.find(sha);
    if (it == blobs_.end()) {
      m.mutable_chunk()->set_error("gone");
    } else {
      m.mutable_chunk()->set_total(it->second.size());
      m.mutable_chunk()->set_data(it->second);
    }
    ToWorkerSession(session, m);
  }
  void ToWorkerSession(uint64_t session, const v1::ServerMessage& m) {
    Deliver(&Last("w" + std::to_string(session)), [this, session, m] {
      const size_t w = session_worker_[session];
      if (workers_[w].server_session == session) Feed(w, worker::FromServer{m});
    });
  }

  // ---- tracker

  void DoTracker(const tracker::Actions& actions) {
    for (const tracker::Action& action : actions) {
      if (const auto* a = std::get_if<tracker::ToWorker>(&action)) {
        const size_t w = session_worker_[a->session];
        Deliver(&Last("tw" + std::to_string(a->session)),
                [this, w, session = a->session, m = a->message] {
                  if (workers_[w].tracker_session == session) Feed(w, worker::FromTracker{m});
                });
      } else if (const auto* a = std::get_if<tracker::ToServer>(&action)) {
        Deliver(&Last("ts"), Here([this, m = a->message] { Do(core_->FromTracker(now_, m)); }));
      } else if (const auto* a = std::get_if<tracker::EndSession>(&action);
                 a && a->side == tracker::Side::kWorker) {
        const size_t w = session_worker_[a->session];
        if (workers_[w].tracker_session == a->session) {
          workers_[w].tracker_session = 0;
          After(Delay(), [this, w] { Feed(w, worker::TrackerLost{Unavailable("ended")}); });
        }
        After(0, [this, s = a->session] { DoTracker(table_.WorkerGone(now_, s)); });
      }
    }
  }

  void ServerConnectsTracker() {
    v1::LeaseRequest m;
    m.mutable_present()->mutable_protocol()->set_min(1);
    m.mutable_present()->mutable_protocol()->set_max(1);
    m.mutable_present()->set_server_id("server");
    m.mutable_present()->set_server_address("127.0.0.1:1");
    Do(core_->TrackerUp(now_));
    DoTracker(table_.FromServer(now_, kServerSession, m));
  }

  // ---- the service's actions

  void Submit() {
    v1::JobSpec spec;
    spec.set_tasks_alike(o_.tasks_alike);
    spec.set_key("k");
    spec.set_threads(1);
    spec.set_trials(o_.trials > 0 ? o_.trials : o_.time_limit_ns > 0 ? 0 : o_.tasks + o_.proposals);
    spec.set_time_limit_ns(o_.time_limit_ns);
    for (int t = 0; t < o_.tasks; ++t) {
      spec.add_tasks()->set_workload("workload " + std::to_string(t));
      spec.mutable_tasks(t)->set_name("task " + std::to_string(t));
    }
    tuner::Actions a;
    const Status s = core_->Submit(now_, "job", spec, "cpu", "f", 0, &a);
    WHET_CHECK(s.ok(), "{}", Message(s));
    Do(std::move(a));
  }

  void Do(tuner::Actions actions) {
    for (tuner::Action& action : actions) std::visit([this](auto& a) { DoCore(a); }, action);
  }
  tuner::PreparedTask FromRows(const Fingerprint& workload) const {
    tuner::PreparedTask p;
    std::set<std::string> tried;
    for (const auto& [id, row] : rows) {
      if (row.key.workload != workload) continue;
      p.next_trial = std::max(p.next_trial, row.ids.trial + 1);
      if (row.status != db::TrialStatus::kCounted || db::IsRetried(row.failure)) continue;
      tried.insert(row.trace);
      if (row.failure != db::FailureKind::kOk) {
        ++p.failed[std::string(db::FailureName(row.failure))];
        continue;
      }
      if (row.rung != 4) ++p.verified;
      const double median = db::MedianOf(row.samples_ns);
      if (row.is_default)
        p.default_ns = median;
      else
        p.best.push_back({row.trace, median, row.baseline_ratio.value_or(0), row.rung == 4});
    }
    p.tried = static_cast<int64_t>(tried.size());
    return p;
  }

  void Resume() {
    v1::KeptJob kept_job;
    WHET_CHECK(google::protobuf::util::JsonStringToMessage(job_row_.spec, &kept_job).ok());
    for (int t = 0; t < o_.tasks; ++t)
      kept_job.mutable_spec()->mutable_tasks(t)->set_workload("workload " + std::to_string(t));
    tuner::Actions a;
    const Status s = core_->Resume(now_, "job", kept_job, "f", job_row_.created_ms, &a);
    WHET_CHECK(s.ok(), "{}", Message(s));
    Do(std::move(a));
  }

  void DoCore(tuner::PrepareTask& a) {
    AfterHere(Delay(), [this, a] {
      tuner::PreparedTask p = FromRows(a.key.workload);
      p.initial_program = FingerprintOf(a.workload);
      p.default_trace = "default " + a.workload;
      p.flops = 1e6;
      Do(core_->TaskPrepared(now_, a.job, a.task, p));
    });
  }
  void DoCore(tuner::ComputeExpected& a) {
    AfterHere(Delay(), [this, a] {
      const std::string bytes = "expected " + a.workload;
      blobs_[Sha256Hex(bytes)] = bytes;
      Do(core_->ExpectedReady(now_, a.job, a.task, OkStatus(), Sha256Hex(bytes), bytes.size()));
    });
  }
  void DoCore(tuner::JobPrepared&) {}
  void DoCore(tuner::ResultRefused& a) { refused.push_back(a.ids); }
  void DoCore(tuner::StartSearch& a) {
    weights = a.weights;
    AfterHere(Delay(), [this, job = a.job] { Do(core_->SearchStarted(now_, job, OkStatus())); });
  }
  void DoCore(tuner::AskSearch& a) {
    AfterHere(Delay(), [this, a] {
      std::vector<tuner::Proposal> proposals;
      while (static_cast<int>(proposals.size()) < a.n &&
             next_token_ <= static_cast<uint64_t>(o_.proposals)) {
        const auto task = static_cast<uint32_t>(next_token_ % static_cast<uint64_t>(o_.tasks));
        proposals.push_back({task, next_token_, "trace " + std::to_string(next_token_)});
        ++next_token_;
        ++pending_;
      }
      const bool done = proposals.empty() && pending_ == 0;
      Do(core_->Proposed(now_, a.job, proposals, done));
    });
  }
  void DoCore(tuner::TellSearch& a) {
    Note("tell");
    WHET_CHECK(told.insert(a.token).second, "told twice");
    --pending_;
  }
  void DoCore(tuner::EndSearch&) {}
  void DoCore(tuner::StartBuild& a) {
    AfterHere(5 * kMillisecond + rng_.Below(30 * kMillisecond), [this, a] {
      tuner::BuiltObject o;
      o.failure = v1::FAILURE_OK;
      const std::string bytes = "object " + a.request.workload() + a.request.trace();
      o.sha256 = Sha256Hex(bytes);
      o.bytes = bytes.size();
      o.initial_program = FingerprintOf(a.request.workload()).Hex();
      blobs_[o.sha256] = bytes;
      Do(core_->Built(now_, a.build, o));
    });
  }
  void DoCore(tuner::KeepBlob& a) { ++kept[a.sha256]; }
  void DoCore(tuner::DropBlob& a) {
    WHET_CHECK(--kept[a.sha256] >= 0, "blob dropped more often than kept");
  }
  void DoCore(tuner::SendWorker& a) { ToWorkerSession(a.session, a.message); }
  void DoCore(tuner::CloseWorker& a) {
    const size_t w = session_worker_[a.session];
    if (workers_[w].server_session == a.session)
      BreakServerLink(w);
    else
      AfterHere(0, [this, s = a.session] { Do(core_->WorkerGone(now_, s)); });
  }
  void DoCore(tuner::SendTracker& a) {
    Deliver(&Last("st"),
            [this, m = a.message] { DoTracker(table_.FromServer(now_, kServerSession, m)); });
  }
  void DoCore(tuner::AppendRow& a) {
    AfterHere(Delay(), [this, a]() mutable {
      StatusOr<db::TrialStatus> verdict = db::TrialStatus::kCounted;
      if (const auto* job = std::get_if<db::JobRow>(&a.row)) job_row_ = *job;
      if (auto* row = std::get_if<db::TrialRow>(&a.row)) {
        if (const Status s = db::Normalize(*row); !s.ok())
          WHET_CHECK(false, "bad row: {}", Message(s));
        const RowId id{row->key.workload.Hex(), row->ids.trial,       row->ids.device_id,
                       row->ids.attempt,        row->ids.incarnation, row->ids.lease_epoch};
        const auto [it, first] = rows.emplace(id, *row);
        verdict = it->second.status;
      }
      Do(core_->Committed(now_, a.ticket, verdict));
    });
  }
  void DoCore(tuner::Publish&) {}
  void DoCore(tuner::JobEnded& a) { ended_ = a.state; }

  const SimOptions o_;
  Rng rng_;
  int64_t now_ = 0, last_tick_ = 0;
  uint64_t order_ = 0;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
  std::map<std::string, int64_t> last_delivery_;
  std::map<uint64_t, size_t> session_worker_;
  uint64_t next_session_ = 0;
  std::vector<SimWorker> workers_;
  tracker::LeaseTable table_;
  std::unique_ptr<tuner::ServiceCore> core_;
  int server_boot_ = 0;
  bool server_down_ = false;
  db::JobRow job_row_;
  std::map<std::string, std::string> blobs_;
  uint64_t next_token_ = 1;
  int pending_ = 0;

 public:
  std::set<uint64_t> told;
  std::map<std::string, int> kept;
  std::vector<v1::TrialIds> dropped;  // results that left a worker's spool
  std::vector<double> weights;        // of the tasks, as the search got them
  std::vector<v1::TrialIds> refused;  // by a server that does not know their trials
};

}  // namespace whet::testing
