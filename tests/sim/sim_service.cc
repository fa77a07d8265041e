// The simulation's tracker and server: what their adapters do, a scripted search and builder, and
// the client that submits the jobs.
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "compiler/support/fingerprint.h"
#include "compiler/support/sha256.h"
#include "tests/sim/fleet_sim.h"

namespace whet::testing {
namespace {

// As the server's adapter has them.
constexpr int64_t kRetryRows = 500 * kMillisecond;
constexpr int64_t kRetryTracker = 500 * kMillisecond;
constexpr int64_t kTrackerAnswer = 5 * kSecond;

bool RowIsRefused(const Status& s) {
  return s.code() == absl::StatusCode::kInvalidArgument ||
         s.code() == absl::StatusCode::kFailedPrecondition;
}

}  // namespace

// ---- tracker

void Sim::DoTracker(const tracker::Actions& actions) {
  for (const int boot = tracker_boot_; const tracker::Action& action : actions) {
    if (boot != tracker_boot_) return;
    if (DiesHere() && !o_.tracker_in_server) {
      CrashTracker(Loss::kProcess, kSecond + rng_.Below(5 * kSecond));
      return;
    }
    if (const auto* a = std::get_if<tracker::ToWorker>(&action)) {
      net_.Send(a->session, StreamEnd::kServer, [this, session = a->session, m = a->message] {
        Note("t>", session, m);
        const size_t w = session_worker_.at(session);
        ToProcess(w, [this, w, session, m] {
          if (workers_[w].tracker == session) Feed(w, worker::FromTracker{m});
        });
      });
    } else if (const auto* a = std::get_if<tracker::ToServer>(&action)) {
      if (a->message.has_granted()) {
        const v1::Granted& g = a->message.granted();
        history_.Add(
            What::kGranted, now(),
            {.incarnation = g.incarnation(), .epoch = g.epoch(), .device = g.device().device_id()});
      }
      net_.Send(a->session, StreamEnd::kServer, [this, session = a->session, m = a->message] {
        if (!core_ || session != tracker_stream_) return;
        Note("l>", session, m);
        if (m.has_presented()) {
          presented_ = true;
          Do(core_->TrackerUp(Local(server_clock_)));
        }
        if (core_) Do(core_->FromTracker(Local(server_clock_), m));
      });
    } else if (const auto* a = std::get_if<tracker::EndSession>(&action)) {
      net_.Close(a->session, StreamEnd::kServer);
      loop_.After(0, [this, boot, side = a->side, session = a->session] {
        if (boot != tracker_boot_ || !table_) return;
        const int64_t here = Local(tracker_clock_);
        DoTracker(side == tracker::Side::kWorker ? table_->WorkerGone(here, session)
                                                 : table_->ServerGone(here, session));
      });
    } else if (const auto* a = std::get_if<tracker::ReserveEpochs>(&action)) {
      loop_.After(Delay(), [this, boot, below = a->below] {
        if (boot != tracker_boot_ || !table_) return;
        epochs_.reserved_below = below;
        DoTracker(table_->EpochsReserved(Local(tracker_clock_), below));
      });
    }
  }
}

void Sim::ConnectTracker() {
  net_.Close(tracker_stream_, StreamEnd::kClient);
  presented_ = false;
  const StreamId stream = tracker_stream_ = net_.Open(
      server_to_tracker_, SimNet::KeepAlive::kWorks, [this](StreamId id) { TrackerLost(id); },
      [this, boot = tracker_boot_](StreamId id) {
        if (boot == tracker_boot_ && table_)
          DoTracker(table_->ServerGone(Local(tracker_clock_), id));
      });
  if (!table_) net_.Die(stream, StreamEnd::kServer, SimNet::Death::kKilled);
  v1::LeaseRequest m;
  v1::Present& p = *m.mutable_present();
  p.mutable_protocol()->set_min(1);
  p.mutable_protocol()->set_max(1);
  p.set_server_id("server");
  p.set_server_address("127.0.0.1:1");
  for (const v1::HeldLease& held : core_->HeldLeases()) *p.add_held() = held;
  tuner::SendTracker send{m};
  DoCore(send);
  AfterHere(kTrackerAnswer, [this, stream] {
    if (tracker_stream_ == stream && !presented_) ConnectTracker();
  });
}

void Sim::TrackerLost(StreamId stream) {
  if (!core_ || stream != tracker_stream_) return;
  tracker_stream_ = 0;
  AfterHere(kRetryTracker, [this] {
    if (tracker_stream_ == 0) ConnectTracker();
  });
  Do(core_->TrackerDown(Local(server_clock_)));
}

void Sim::DoCore(tuner::SendTracker& a) {
  net_.Send(tracker_stream_, StreamEnd::kClient,
            [this, session = tracker_stream_, boot = tracker_boot_, m = a.message] {
              if (boot != tracker_boot_ || !table_) return;
              Note("l<", session, m);
              DoTracker(table_->FromServer(Local(tracker_clock_), session, m));
            });
}

// ---- jobs

Sim::SimJob* Sim::FindJob(const std::string& id) {
  for (SimJob& job : jobs_) {
    if (job.id == id) return &job;
  }
  return nullptr;
}

// The client of one job: asks until it is told that the job is accepted.
void Sim::Submit(size_t index) {
  SimJob& job = jobs_[index];
  if (job.accepted || job.over) return;
  loop_.After(2 * kSecond, [this, index] { Submit(index); });
  if (!core_ || log_.jobs.contains(job.id)) return;  // away; or taken up again, and about to say so
  if (!core_->Terminal(job.id)) return;              // not durable yet
  tuner::Actions a;
  const Status s = core_->Submit(Local(server_clock_), job.id, job.spec, "cpu", "f",
                                 server_clock_.wall_ms + now() / kMillisecond, &a);
  if (s.ok()) Do(std::move(a));
}

void Sim::Resume() {
  for (const auto& [id, row] : log_.jobs) {
    if (db::IsTerminal(row.state)) continue;
    v1::KeptJob kept_job;
    WHET_CHECK(google::protobuf::util::JsonStringToMessage(row.spec, &kept_job).ok(), "{}",
               row.spec);
    for (v1::TaskSpec& task : *kept_job.mutable_spec()->mutable_tasks()) {
      const StatusOr<Fingerprint> workload = ParseFingerprint(task.workload());
      WHET_CHECK(workload.ok() && log_.workloads.contains(*workload), "{}", task.workload());
      task.set_workload(log_.workloads.at(*workload));
    }
    // Before anything else of this process: nothing of it is carried out while it is being made.
    AfterHere(0, [this, id = id, kept_job, created = row.created_ms] {
      tuner::Actions a;
      const Status s = core_->Resume(Local(server_clock_), id, kept_job, "f", created, &a);
      WHET_CHECK(s.ok(), "{}", Message(s));
      Do(std::move(a));
    });
  }
}

void Sim::DoCore(tuner::JobPrepared& a) {
  SimJob* job = FindJob(a.job);
  if (job->accepted) return;
  job->accepted = true;
  Note("accepted " + a.job);
  history_.Add(What::kJobAccepted, now(), {.job = a.job}, "", job_deadline_ns_);
}

void Sim::DoCore(tuner::JobEnded& a) {
  SimJob* job = FindJob(a.job);
  Note("ended " + a.job + " " + StateText(a.state));
  history_.Add(What::kJobEnded, now(), {.job = a.job}, StateText(a.state));
  job->over = a.state;
  if (job == jobs_.data()) ended_ = a.state;
}

void Sim::Do(tuner::Actions actions) {
  for (const int boot = server_boot_; tuner::Action & action : actions) {
    if (boot != server_boot_) return;
    if (DiesHere()) {
      CrashServer(rng_.Below(4) ? Loss::kProcess : Loss::kPower,
                  kSecond + rng_.Below(10 * kSecond));
      return;
    }
    std::visit([this](auto& a) { DoCore(a); }, action);
  }
}

// ---- search and builders

tuner::PreparedTask Sim::FromRows(const Fingerprint& workload) const {
  tuner::PreparedTask p;
  std::set<std::string> tried;
  for (const auto& [id, row] : log_.trials) {
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

void Sim::DoCore(tuner::PrepareTask& a) {
  AfterHere(Delay(), [this, a] {
    tuner::PreparedTask p = FromRows(a.key.workload);
    p.initial_program = FingerprintOf(a.workload);
    p.default_trace = "default " + a.workload;
    p.flops = 1e6;
    Do(core_->TaskPrepared(Local(server_clock_), a.job, a.task, p));
  });
}

void Sim::DoCore(tuner::ComputeExpected& a) {
  AfterHere(Delay(), [this, a] {
    const std::string bytes = "expected " + a.workload;
    blobs_[Sha256Hex(bytes)] = bytes;
    Do(core_->ExpectedReady(Local(server_clock_), a.job, a.task, OkStatus(), Sha256Hex(bytes),
                            bytes.size()));
  });
}

void Sim::DoCore(tuner::StartSearch& a) {
  weights = a.weights;
  AfterHere(Delay(), [this, job = a.job] {
    Do(core_->SearchStarted(Local(server_clock_), job, OkStatus()));
  });
}

void Sim::DoCore(tuner::AskSearch& a) {
  AfterHere(Delay(), [this, a] {
    SimJob& job = *FindJob(a.job);
    std::vector<tuner::Proposal> proposals;
    while (static_cast<int>(proposals.size()) < a.n &&
           job.next_token <= static_cast<uint64_t>(o_.proposals)) {
      const auto task = static_cast<uint32_t>(job.next_token % static_cast<uint64_t>(o_.tasks));
      proposals.push_back({task, job.next_token, fmt::format("trace {}", job.next_token)});
      ++job.next_token;
      ++job.pending;
    }
    const bool done = proposals.empty() && job.pending == 0;
    Do(core_->Proposed(Local(server_clock_), a.job, proposals, done));
  });
}

void Sim::DoCore(tuner::TellSearch& a) {
  Note("tell");
  if (!told.insert({a.job, a.token}).second) troubles.push_back("a proposal was told twice");
  --FindJob(a.job)->pending;
}

void Sim::DoCore(tuner::StartBuild& a) {
  AfterHere(5 * kMillisecond + rng_.Below(30 * kMillisecond), [this, a] {
    tuner::BuiltObject o;
    o.failure = v1::FAILURE_OK;
    const std::string bytes = "object " + a.request.workload() + a.request.trace();
    o.sha256 = Sha256Hex(bytes);
    o.bytes = bytes.size();
    o.initial_program = FingerprintOf(a.request.workload()).Hex();
    blobs_[o.sha256] = bytes;
    Do(core_->Built(Local(server_clock_), a.build, o));
  });
}

// ---- blobs and workers

void Sim::DoCore(tuner::KeepBlob& a) { ++kept[a.sha256]; }
void Sim::DoCore(tuner::DropBlob& a) {
  if (--kept[a.sha256] < 0) troubles.push_back("a blob was dropped more often than kept");
}

// In three pieces, so that links, disks and processes fail between them.
void Sim::SendBlob(StreamId session, const v1::Fetch& fetch) {
  v1::ServerMessage m;
  v1::Chunk& c = *m.mutable_chunk();
  c.set_sha256(fetch.sha256());
  const auto it = blobs_.find(fetch.sha256());
  if (it == blobs_.end()) {
    c.set_error("gone");
    ToWorkerSession(session, m);
    return;
  }
  const std::string& blob = it->second;
  c.set_total(blob.size());
  const size_t asked = fetch.max_bytes() == 0 ? blob.size() : fetch.max_bytes();
  const size_t end = std::min<size_t>(blob.size(), fetch.offset() + asked);
  const size_t piece = blob.size() / 3 + 1;
  for (size_t at = fetch.offset(); at < end; at += piece) {
    c.set_offset(at);
    c.set_data(blob.substr(at, std::min(piece, end - at)));
    ToWorkerSession(session, m);
  }
}

void Sim::ToWorkerSession(StreamId session, const v1::ServerMessage& m) {
  net_.Send(session, StreamEnd::kServer, [this, session, m] {
    Note("s>", session, m);
    const size_t w = session_worker_.at(session);
    ToProcess(w, [this, w, session, m] {
      if (workers_[w].server == session) Feed(w, worker::FromServer{m});
    });
  });
}

void Sim::DoCore(tuner::SendWorker& a) {
  if (a.message.has_assign())
    history_.Add(What::kAssigned, now(), RunIdsOf(a.message.assign().ids()));
  ToWorkerSession(a.session, a.message);
}

void Sim::DoCore(tuner::CloseWorker& a) {
  net_.Close(a.session, StreamEnd::kServer);
  AfterHere(0,
            [this, session = a.session] { Do(core_->WorkerGone(Local(server_clock_), session)); });
}

void Sim::DoCore(tuner::ResultRefused& a) {
  refused.push_back(a.ids);
  history_.Add(What::kRefused, now(), RunIdsOf(a.ids));
}

// ---- log

RunIds Sim::RowIds(const db::TrialRow& row) const {
  const auto task = task_of_.find(row.key.workload);
  return {row.ids.job_id,      task == task_of_.end() ? 0 : task->second,
          row.ids.trial,       row.ids.attempt,
          row.ids.incarnation, row.ids.lease_epoch,
          row.ids.device_id};
}

void Sim::DoCore(tuner::AppendRow& a) {
  const int64_t wall = server_clock_.wall_ms + now() / kMillisecond;
  if (auto* job = std::get_if<db::JobRow>(&a.row)) job->updated_ms = wall;
  if (auto* row = std::get_if<db::TrialRow>(&a.row)) {
    row->created_ms = wall;
    history_.Add(What::kTaken, now(), RowIds(*row), std::string(db::TrialStatusName(row->status)));
  }
  waiting_rows_.emplace(next_row_++, a);
  if (waiting_rows_.size() == 1) AppendWaiting();
}

void Sim::AppendWaiting() {
  for (const int boot = server_boot_; boot == server_boot_ && !waiting_rows_.empty();) {
    const auto [order, row] = *waiting_rows_.begin();
    const Status queued =
        log_.Append(row.row, [this, boot, order, row](const StatusOr<db::TrialStatus>& verdict) {
          if (boot == server_boot_) OnCommitted(order, row, verdict);
        });
    if (!queued.ok() && !RowIsRefused(queued)) return WaitForLog();
    waiting_rows_.erase(order);
    if (queued.ok()) continue;
    troubles.push_back("a bad row: " + Message(queued));
    Do(core_->Committed(Local(server_clock_), row.ticket, queued));
  }
}

void Sim::WaitForLog() {
  if (std::exchange(retrying_rows_, true)) return;
  AfterHere(kRetryRows, [this] {
    retrying_rows_ = false;
    AppendWaiting();
  });
}

void Sim::OnCommitted(int64_t order, const tuner::AppendRow& row,
                      const StatusOr<db::TrialStatus>& verdict) {
  // A row that refers to one that still waits is refused only because it came first.
  const bool early = !waiting_rows_.empty() && waiting_rows_.begin()->first < order;
  if (!verdict.ok() && (early || !RowIsRefused(verdict.status()))) {
    waiting_rows_.emplace(order, row);
    return WaitForLog();
  }
  if (const auto* trial = std::get_if<db::TrialRow>(&row.row)) {
    if (!verdict.ok())
      troubles.push_back("a trial was refused for good: " + Message(verdict.status()));
    if (verdict.ok())
      history_.Add(What::kDurable, now(), RowIds(*trial),
                   std::string(db::TrialStatusName(*verdict)));
  }
  Do(core_->Committed(Local(server_clock_), row.ticket, verdict));
}

}  // namespace whet::testing
