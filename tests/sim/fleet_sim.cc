#include "tests/sim/fleet_sim.h"

#include <cmath>

#include "compiler/support/fingerprint.h"
#include "db/record/best.h"

namespace whet::testing {
namespace {

constexpr int64_t kWallStart = 1'750'000'000'000;
constexpr int64_t kDay = 86'400'000;  // ms
constexpr int64_t kTrackerTick = 250 * kMillisecond;
constexpr int64_t kSettle = 60 * kSecond;
constexpr int64_t kExtra = 20 * 60 * kSecond;  // for jobs, after the faults

}  // namespace

std::string StateText(v1::JobState state) {
  switch (state) {
    case v1::JOB_DONE: return "done";
    case v1::JOB_FAILED: return "failed";
    case v1::JOB_CANCELLED: return "cancelled";
    case v1::JOB_NO_DEVICE: return "no_device";
    default: return "open";
  }
}

RunIds RunIdsOf(const v1::TrialIds& ids) {
  return {ids.job_id(),      ids.task(),        ids.trial(),    ids.attempt(),
          ids.incarnation(), ids.lease_epoch(), ids.device_id()};
}

SimOptions ChaosOptions(uint64_t seed, double minutes) {
  Rng rng(seed ^ 0x51e55ed);
  // Half of the faults stay away, so that each is met alone and in company.
  const auto maybe = [&](double least, double most) {
    const bool there = rng.Below(2) == 0;
    const double chance = least * std::pow(most / least, rng.Uniform());
    return there ? chance : 0;
  };
  SimOptions o;
  o.seed = seed;
  o.workers = 1 + static_cast<int>(rng.Below(6));
  o.workers_per_box = 1 + static_cast<int>(rng.Below(2));
  o.tasks = 1 + static_cast<int>(rng.Below(3));
  o.proposals = 10 + static_cast<int>(rng.Below(80));
  o.jobs = 2 + static_cast<int>(rng.Below(5));
  o.submit_every_ns = static_cast<int64_t>(minutes * 60e9 * 0.7) / o.jobs;
  o.run_ns = 20 * kMillisecond + rng.Below(600 * kMillisecond);
  o.time_limit_ns = rng.Below(4) == 0 ? 30 * kSecond : 0;
  o.tracker_in_server = rng.Below(3) == 0;
  o.break_link = maybe(0.01, 0.2);
  o.half_break = maybe(0.003, 0.05);
  o.cut_link = maybe(0.002, 0.02);
  o.crash_worker = maybe(0.002, 0.05);
  o.freeze_worker = maybe(0.001, 0.02);
  o.drain_worker = maybe(0.001, 0.02);
  o.power_worker = maybe(0.0005, 0.005);
  o.crash_server = maybe(0.002, 0.03);
  o.power_server = maybe(0.001, 0.01);
  o.crash_tracker = maybe(0.002, 0.02);
  o.full_disk = maybe(0.002, 0.02);
  o.slow_disk = maybe(0.002, 0.02);
  o.step_wall = maybe(0.005, 0.05);
  o.cancel_job = maybe(0.001, 0.005);
  o.crash_in_step = maybe(0.00002, 0.0005);
  o.slow_message = maybe(0.0005, 0.01);
  o.lose_device = maybe(0.01, 0.1);
  o.fail_candidate = maybe(0.05, 0.3);
  o.clock_ppm = rng.Below(2) * 50'000;
  o.no_device_after_ns = rng.Below(3) == 0 ? 90 * kSecond : 0;
  o.faults_until_ns = static_cast<int64_t>(minutes * 60e9 * 0.8);
  return o;
}

Sim::Sim(const SimOptions& options)
    : rows(log_.trials), o_(options), rng_(options.seed), net_(&loop_, &rng_), log_(&loop_, &rng_) {
  history_.epochs_outlive_restarts = !o_.tracker_in_server;
  net_.set_slow(o_.slow_message);
  BootHost(&server_clock_);
  tracker_clock_ = server_clock_;
  if (!o_.tracker_in_server) BootHost(&tracker_clock_);
  server_to_tracker_ = net_.AddLink();
  StartTracker();
  StartServer();
  for (int j = 0; j < o_.jobs; ++j) {
    SimJob& job = jobs_.emplace_back();
    job.id = j == 0 ? "job" : fmt::format("job-{}", j + 1);
    for (int t = 0; t < o_.tasks; ++t) {
      v1::TaskSpec& task = *job.spec.add_tasks();
      task.set_workload(j == 0 ? fmt::format("workload {}", t)
                               : fmt::format("workload {} {}", j, t));
      task.set_name(fmt::format("task {}", t));
      task_of_[FingerprintOf(task.workload())] = static_cast<uint32_t>(t);
    }
    job.spec.set_name(job.id);
    job.spec.set_tasks_alike(o_.tasks_alike);
    job.spec.set_key("k");
    job.spec.set_threads(1);
    job.spec.set_trials(o_.trials > 0          ? o_.trials
                        : o_.time_limit_ns > 0 ? 0
                                               : o_.tasks + o_.proposals);
    job.spec.set_time_limit_ns(o_.time_limit_ns);
    loop_.At(kSecond + j * o_.submit_every_ns, [this, j] { Submit(static_cast<size_t>(j)); });
  }
  for (int i = 0; i < o_.workers; ++i) {
    SimWorker& w = workers_.emplace_back();
    w.box = fmt::format("box {}", i / o_.workers_per_box);
    w.to_tracker = net_.AddLink();
    w.to_server = net_.AddLink();
    BootHost(&w.clock);
  }
  for (size_t w = 0; w < workers_.size(); ++w) StartWorker(w);
  loop_.After(kSecond, [this] { EverySecond(); });
}

Sim::~Sim() = default;

void Sim::Run(int64_t limit) {
  RunUntil([this] { return ended_.has_value(); }, limit);
  RunUntil([] { return false; }, now() + 40 * kSecond);
}

size_t Sim::jobs_over() const {
  size_t over = 0;
  for (const SimJob& job : jobs_) {
    const auto row = log_.jobs.find(job.id);
    over += row != log_.jobs.end() && db::IsTerminal(row->second.state);
  }
  return over;
}

void Sim::RunChaos(double minutes) {
  const auto limit = static_cast<int64_t>(minutes * 60e9);
  job_deadline_ns_ = limit + kExtra;
  RunUntil([] { return false; }, limit);
  RunUntil([this] { return jobs_over() == jobs_.size(); }, limit + kExtra + 1);
  RunUntil([] { return false; }, now() + kSettle);
}

void Sim::Note(std::string_view what) {
  hash_ = SplitMix(hash_ ^ FingerprintOf(what).lo ^ static_cast<uint64_t>(now()));
  if (trace_) *trace_ += fmt::format("{} {}\n", now(), what);
}

void Sim::Note(const char* tag, StreamId session, const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  hash_ = SplitMix(hash_ ^ FingerprintOf(bytes).lo ^ static_cast<uint64_t>(now()));
  if (trace_)
    *trace_ += fmt::format("{} {} {} {}\n", now(), tag, session, message.ShortDebugString());
  if (!wire_) return;
  *wire_ += fmt::format("{} {} {} ", now(), tag, session);
  for (const char c : bytes) *wire_ += fmt::format("{:02x}", static_cast<unsigned char>(c));
  *wire_ += "\n";
}

v1::JobSnapshot Sim::snapshot() { return *core_->Snapshot(Local(server_clock_), jobs_[0].id); }

void Sim::CancelJob(size_t job) {
  if (!core_) return;
  tuner::Actions a;
  if (core_->Cancel(Local(server_clock_), jobs_[job].id, &a).ok()) Do(std::move(a));
}

// ---- clocks

void Sim::BootHost(Clock* c) {
  c->ppm = o_.clock_ppm > 0 ? rng_.Below(2 * o_.clock_ppm + 1) - o_.clock_ppm : 0;
  c->base_ns = 0;
  // A machine that has just started: what a former boot had said of time means nothing.
  c->base_ns = kSecond - Local(*c);
  if (c->wall_ms == 0) c->wall_ms = kWallStart;
}

int64_t Sim::Local(const Clock& c) const { return c.base_ns + now() + now() / 1'000'000 * c.ppm; }

// Never before; a rounding costs a millisecond.
int64_t Sim::Global(const Clock& c, int64_t local) const {
  const int64_t wait = std::max<int64_t>(local - Local(c), 0);
  return now() + std::max<int64_t>(wait - wait / 1'000'000 * c.ppm, kMillisecond);
}

void Sim::AfterHere(int64_t delay, std::function<void()> what) {
  loop_.After(delay, [this, boot = server_boot_, what = std::move(what)] {
    if (boot == server_boot_ && core_) what();
  });
}

// ---- faults

bool Sim::DiesHere() {
  if (o_.crash_in_step <= 0 || now() >= o_.faults_until_ns || rng_.Uniform() >= o_.crash_in_step)
    return false;
  ++faults["crash_in_step"];
  return true;
}

bool Sim::Chance(double per_second, const char* fault) {
  if (per_second <= 0 || now() >= o_.faults_until_ns || rng_.Uniform() >= per_second) return false;
  ++faults[fault];
  Note(fault);
  return true;
}

void Sim::EverySecond() {
  for (size_t w = 0; w < workers_.size(); ++w) WorkerFaults(w);
  CentralFaults();
  loop_.After(kSecond, [this] { EverySecond(); });
}

void Sim::WorkerFaults(size_t w) {
  SimWorker& sw = workers_[w];
  const StreamId streams[] = {sw.server, sw.tracker};
  if (Chance(o_.break_link, "break_link")) net_.Break(sw.server, SimNet::Learn::kBoth);
  if (Chance(o_.half_break, "half_break"))
    net_.Break(streams[rng_.Below(2)],
               rng_.Below(2) ? SimNet::Learn::kClientOnly : SimNet::Learn::kServerOnly);
  if (Chance(o_.cut_link, "cut_link")) {
    const int64_t ways = 1 + rng_.Below(3);
    net_.Cut(rng_.Below(2) ? sw.to_server : sw.to_tracker, ways & 1, ways & 2,
             kSecond + rng_.Below(60 * kSecond));
  }
  if (!sw.frozen && Chance(o_.freeze_worker, "freeze_worker")) {
    Freeze(w);
    loop_.After(kSecond + rng_.Below(60 * kSecond), [this, w] { Thaw(w); });
  }
  if (sw.core && Chance(o_.drain_worker, "drain_worker"))
    ToProcess(w, [this, w] { Feed(w, worker::DrainRequested{}); });
  if (Chance(o_.crash_worker, "crash_worker"))
    CrashWorker(w, Loss::kProcess, kSecond + rng_.Below(3 * kSecond));
  if (Chance(o_.power_worker, "power_worker"))
    CrashWorker(w, Loss::kPower, 5 * kSecond + rng_.Below(60 * kSecond));
  if (!sw.disk_full && Chance(o_.full_disk / 2, "full_worker_disk")) {
    sw.disk_full = true;
    loop_.After(rng_.Below(30 * kSecond), [this, w] { workers_[w].disk_full = false; });
  }
  if (Chance(o_.step_wall, "step_wall")) sw.clock.wall_ms += rng_.Below(2) ? kDay : -kDay;
}

void Sim::CentralFaults() {
  if (core_ && Chance(o_.crash_server, "crash_server"))
    CrashServer(Loss::kProcess, kSecond + rng_.Below(20 * kSecond));
  if (core_ && Chance(o_.power_server, "power_server"))
    CrashServer(Loss::kPower, 5 * kSecond + rng_.Below(60 * kSecond));
  if (table_ && !o_.tracker_in_server && Chance(o_.crash_tracker, "crash_tracker"))
    CrashTracker(rng_.Below(3) ? Loss::kProcess : Loss::kPower, kSecond + rng_.Below(20 * kSecond));
  if (!o_.tracker_in_server && Chance(o_.half_break, "half_break_tracker"))
    net_.Break(tracker_stream_,
               rng_.Below(2) ? SimNet::Learn::kClientOnly : SimNet::Learn::kServerOnly);
  if (!o_.tracker_in_server && Chance(o_.cut_link, "cut_tracker")) {
    const int64_t ways = 1 + rng_.Below(3);
    net_.Cut(server_to_tracker_, ways & 1, ways & 2, kSecond + rng_.Below(60 * kSecond));
  }
  if (Chance(o_.full_disk, "full_disk")) {
    log_.set_full(true);
    loop_.After(rng_.Below(20 * kSecond), [this] { log_.set_full(false); });
  }
  if (Chance(o_.slow_disk, "slow_disk")) {
    log_.set_sync_ns(3 * kSecond);
    loop_.After(rng_.Below(20 * kSecond), [this] { log_.set_sync_ns(4 * kMillisecond); });
  }
  if (Chance(o_.step_wall, "step_wall")) server_clock_.wall_ms += rng_.Below(2) ? kDay : -kDay;
  if (Chance(o_.cancel_job, "cancel_job"))
    CancelJob(static_cast<size_t>(rng_.Below(static_cast<int64_t>(jobs_.size()))));
}

// ---- the server's process

void Sim::StartServer() {
  if (core_) return;
  ++server_boot_;
  Note("server starts");
  tuner::CoreConfig c;
  c.server_id = "server";
  c.log_id = "log";
  c.generation = "gen";
  c.host_boot_id = "host";
  c.builders = 2;
  if (o_.no_device_after_ns > 0) c.no_device_after_ns = o_.no_device_after_ns;
  core_ = std::make_unique<tuner::ServiceCore>(c);
  if (o_.tracker_in_server && !table_) StartTracker();
  Resume();
  AfterHere(0, [this] { ConnectTracker(); });
  ServerTick(server_boot_);
}

void Sim::CrashServer(Loss loss, int64_t down) {
  if (!core_) return;
  Note("server dies");
  ++server_boot_;
  core_.reset();
  kept.clear();
  blobs_.clear();
  starts.clear();
  waiting_rows_ = {};
  retrying_rows_ = false;
  for (SimJob& job : jobs_) job.pending = 0;
  log_.Crash(loss == Loss::kPower);
  const SimNet::Death death =
      loss == Loss::kPower ? SimNet::Death::kSilent : SimNet::Death::kKilled;
  for (SimWorker& w : workers_) net_.Die(w.server, StreamEnd::kServer, death);
  net_.Die(tracker_stream_, StreamEnd::kClient, death);
  if (o_.tracker_in_server) CrashTracker(loss, down);
  if (loss == Loss::kPower) BootHost(&server_clock_);
  loop_.After(down, [this] { StartServer(); });
}

void Sim::ServerTick(int boot) {
  if (boot != server_boot_ || !core_) return;
  Do(core_->Tick(Local(server_clock_)));
  if (boot != server_boot_) return;  // it died of it
  const int64_t here = Local(server_clock_);
  const int64_t next = std::min(core_->NextDeadline(here), here + kSecond);
  loop_.At(Global(server_clock_, next), [this, boot] { ServerTick(boot); });
}

// ---- the tracker's process

void Sim::StartTracker() {
  if (table_) return;
  ++tracker_boot_;
  Note("tracker starts");
  constexpr int64_t kBlock = 1'000'000;
  const bool keeps = !o_.tracker_in_server;
  const int64_t first = keeps ? epochs_.reserved_below : 1;
  const bool quiet = keeps && epochs_.existed;
  epochs_ = {first + kBlock, true};
  table_ = std::make_unique<tracker::LeaseTable>(
      tracker::TableConfig{}, tracker_boot_ == 1 ? "inc" : fmt::format("inc{}", tracker_boot_),
      first, first + kBlock, quiet, Local(tracker_clock_));
  TrackerTick(tracker_boot_);
}

void Sim::CrashTracker(Loss loss, int64_t down) {
  if (!table_) return;
  Note("tracker dies");
  ++tracker_boot_;
  table_.reset();
  const SimNet::Death death =
      loss == Loss::kPower ? SimNet::Death::kSilent : SimNet::Death::kKilled;
  for (SimWorker& w : workers_) net_.Die(w.tracker, StreamEnd::kServer, death);
  net_.Die(tracker_stream_, StreamEnd::kServer, death);
  if (loss == Loss::kPower) BootHost(&tracker_clock_);
  if (!o_.tracker_in_server) loop_.After(down, [this] { StartTracker(); });
}

void Sim::TrackerTick(int boot) {
  if (boot != tracker_boot_ || !table_) return;
  DoTracker(table_->Tick(Local(tracker_clock_)));
  loop_.At(Global(tracker_clock_, Local(tracker_clock_) + kTrackerTick),
           [this, boot] { TrackerTick(boot); });
}

// ---- what remains in the end

History Sim::TakeHistory() {
  History h = std::move(history_);
  history_ = {};
  std::map<std::string, std::map<int64_t, db::TrialRow>> by_workload;
  for (const auto& [id, row] : log_.trials) {
    h.rows.push_back(
        {RowIds(row), row.status == db::TrialStatus::kCounted, !db::IsRetried(row.failure)});
    by_workload[row.key.workload.Hex()].emplace(row.seq, row);
  }
  for (const auto& [id, row] : log_.jobs)
    h.jobs.push_back({id, std::string(db::JobStateName(row.state))});
  for (const auto& [workload, rows_of] : by_workload) {
    db::BestChooser chooser(std::nullopt);
    for (const auto& [seq, row] : rows_of) chooser.Add(row);
    if (const auto choice = chooser.Choose()) h.best.push_back(RowIds(rows_of.at(choice->seq)));
  }
  h.ended_ns = now();
  return h;
}

}  // namespace whet::testing
