// The simulation's workers: processes, their disks and devices.
#include "compiler/support/fingerprint.h"
#include "compiler/support/sha256.h"
#include "tests/sim/fleet_sim.h"

namespace whet::testing {
namespace {

constexpr int64_t kUnsyncedFor = 5 * kSecond;  // what a spool wrote so lately, a power loss takes
constexpr int64_t kBoxWait = 60 * kSecond;     // as the adapter waits for the device's lock
constexpr double kBaselineNs = 5e5;            // of each device

}  // namespace

void Sim::StartWorker(size_t w) {
  SimWorker& sw = workers_[w];
  if (sw.core) return;
  Note(fmt::format("worker {} starts", w));
  worker::WorkerConfig config;
  config.device.set_worker_id(fmt::format("w{}", w));
  config.device.set_device_id(fmt::format("w{}/cpu0", w));
  config.device.set_boot_id(fmt::format("boot{}", sw.boot));
  config.device.set_key("k");
  config.device.set_target("cpu");
  config.device.set_feature_set("f");
  config.device.set_host_boot_id("host");
  config.baseline_version = 1;
  config.baseline_ns = kBaselineNs;
  std::vector<v1::SpooledResult> spool;
  for (const auto& [sequence, file] : sw.spool) spool.push_back(file.result);
  std::map<std::string, worker::PartialBlob> partial;
  for (const auto& [sha, bytes] : sw.parts) {
    partial[sha].bytes = bytes.size();
    partial[sha].hash.Update(bytes);
  }
  sw.not_stored.clear();
  sw.core = std::make_unique<worker::WorkerCore>(config, spool, sw.cache, rng_.Next(),
                                                 std::move(partial));
  sw.tick_at = 0;
  Feed(w, worker::Tick{});
}

void Sim::EndStreams(size_t w, SimNet::Death death) {
  net_.Die(std::exchange(workers_[w].server, 0), StreamEnd::kClient, death);
  net_.Die(std::exchange(workers_[w].tracker, 0), StreamEnd::kClient, death);
}

// The candidate dies with its worker.
void Sim::LeaveDevice(size_t w) {
  SimWorker& sw = workers_[w];
  if (sw.on_device) history_.Add(What::kRunEnds, now(), *sw.on_device, sw.box);
  sw.on_device.reset();
  if (sw.holds_box) box_holder_.erase(sw.box);
  sw.holds_box = sw.run_asked = false;
}

void Sim::CrashWorker(size_t w, Loss loss, int64_t down) {
  SimWorker& sw = workers_[w];
  if (!sw.core) return;
  Note(fmt::format("worker {} dies", w));
  EndStreams(w, loss == Loss::kPower ? SimNet::Death::kSilent : SimNet::Death::kKilled);
  LeaveDevice(w);
  sw.core.reset();
  sw.inbox.clear();
  sw.frozen = false;
  ++sw.boot;
  if (loss == Loss::kPower) {
    std::erase_if(sw.spool,
                  [&](const auto& f) { return now() - f.second.written_ns < kUnsyncedFor; });
    sw.cache.clear();
    sw.parts.clear();
    BootHost(&sw.clock);
  }
  loop_.After(down, [this, w] { StartWorker(w); });
}

void Sim::Freeze(size_t w) {
  SimWorker& sw = workers_[w];
  if (!sw.core || sw.frozen) return;
  Note(fmt::format("worker {} stops", w));
  sw.frozen = true;
  // Nobody answers its peers' keep-alive.
  loop_.After(15 * kSecond + rng_.Below(5 * kSecond), [this, w, boot = sw.boot] {
    if (!workers_[w].frozen || workers_[w].boot != boot) return;
    net_.Break(workers_[w].server, SimNet::Learn::kServerOnly);
    net_.Break(workers_[w].tracker, SimNet::Learn::kServerOnly);
  });
}

void Sim::Thaw(size_t w) {
  SimWorker& sw = workers_[w];
  if (!sw.frozen) return;
  Note(fmt::format("worker {} goes on", w));
  sw.frozen = false;
  std::deque<std::function<void()>> inbox = std::exchange(sw.inbox, {});
  for (const int boot = sw.boot; !inbox.empty() && sw.boot == boot; inbox.pop_front())
    inbox.front()();
  if (sw.core) Feed(w, worker::Tick{});
}

// What happens to the process that runs now, at once or once it goes on.
void Sim::ToProcess(size_t w, std::function<void()> what) {
  SimWorker& sw = workers_[w];
  if (!sw.core) return;
  if (sw.frozen)
    sw.inbox.push_back(std::move(what));
  else
    what();
}

void Sim::Feed(size_t w, const worker::Event& event) {
  SimWorker& sw = workers_[w];
  if (!sw.core || sw.frozen) return;
  overflow_ = false;
  const int boot = sw.boot;
  for (worker::Action& a : sw.core->Step(Local(sw.clock), event)) {
    if (DiesHere()) {
      CrashWorker(w, rng_.Below(4) ? Loss::kProcess : Loss::kPower,
                  kSecond + rng_.Below(5 * kSecond));
      return;
    }
    std::visit([&](auto& x) { DoWorker(w, x); }, a);
    if (!sw.core || sw.boot != boot) return;
  }
  ScheduleTick(w);
}

void Sim::ScheduleTick(size_t w) {
  SimWorker& sw = workers_[w];
  const int64_t deadline = sw.core->NextDeadline();
  if (deadline == kNever) return;
  const int64_t at = Global(sw.clock, deadline);
  if (sw.tick_at > now() && sw.tick_at <= at) return;  // one is due before
  sw.tick_at = at;
  loop_.At(at, [this, w, at, boot = sw.boot] {
    if (workers_[w].tick_at != at || workers_[w].boot != boot) return;
    workers_[w].tick_at = 0;
    Feed(w, worker::Tick{});
  });
}

// ---- streams

void Sim::DoWorker(size_t w, worker::ConnectTracker&) {
  SimWorker& sw = workers_[w];
  net_.Close(sw.tracker, StreamEnd::kClient);
  sw.tracker = net_.Open(
      sw.to_tracker, SimNet::KeepAlive::kWorks,
      [this, w](StreamId id) {
        ToProcess(w, [this, w, id] {
          if (workers_[w].tracker == id) Feed(w, worker::TrackerLost{Unavailable("broken")});
        });
      },
      [this, boot = tracker_boot_](StreamId id) {
        if (boot == tracker_boot_ && table_)
          DoTracker(table_->WorkerGone(Local(tracker_clock_), id));
      });
  session_worker_[sw.tracker] = w;
  if (!table_) net_.Die(sw.tracker, StreamEnd::kServer, SimNet::Death::kKilled);
}

void Sim::DoWorker(size_t w, worker::CloseTracker&) {
  net_.Close(std::exchange(workers_[w].tracker, 0), StreamEnd::kClient);
}

void Sim::DoWorker(size_t w, worker::ToTracker& a) {
  const StreamId session = workers_[w].tracker;
  net_.Send(session, StreamEnd::kClient, [this, session, boot = tracker_boot_, m = a.message] {
    if (boot != tracker_boot_ || !table_) return;
    Note("t<", session, m);
    DoTracker(table_->FromWorker(Local(tracker_clock_), session, m));
  });
}

void Sim::DoWorker(size_t w, worker::ConnectServer&) {
  SimWorker& sw = workers_[w];
  net_.Close(sw.server, StreamEnd::kClient);
  sw.server = net_.Open(
      sw.to_server, SimNet::KeepAlive::kMayHang,
      [this, w](StreamId id) {
        ToProcess(w, [this, w, id] {
          if (workers_[w].server == id) Feed(w, worker::ServerLost{Unavailable("broken")});
        });
      },
      [this, boot = server_boot_](StreamId id) {
        if (boot == server_boot_ && core_) Do(core_->WorkerGone(Local(server_clock_), id));
      });
  session_worker_[sw.server] = w;
  if (!core_) net_.Die(sw.server, StreamEnd::kServer, SimNet::Death::kKilled);
}

void Sim::DoWorker(size_t w, worker::CloseServer&) {
  net_.Close(std::exchange(workers_[w].server, 0), StreamEnd::kClient);
}

void Sim::DoWorker(size_t w, worker::ToServer& a) {
  const StreamId session = workers_[w].server;
  net_.Send(session, StreamEnd::kClient, [this, session, boot = server_boot_, m = a.message] {
    if (boot != server_boot_ || !core_) return;
    Note("s<", session, m);
    if (m.has_fetch()) SendBlob(session, m.fetch());
    Do(core_->FromWorker(Local(server_clock_), session, m));
  });
}

// ---- disk

void Sim::DoWorker(size_t w, worker::StoreBlob& a) {
  SimWorker& sw = workers_[w];
  if (a.offset == 0) {
    sw.not_stored.erase(a.sha256);
    sw.parts.erase(a.sha256);
  }
  if (sw.not_stored.contains(a.sha256)) return;
  std::string& part = sw.parts[a.sha256];
  if (part.size() != a.offset) troubles.push_back("a piece of a blob does not follow the last one");
  part += a.bytes;
  const Status stored = sw.disk_full ? ResourceExhausted("the simulated disk is full") : OkStatus();
  if (stored.ok() && a.last) {
    if (Sha256Hex(part) != a.sha256) troubles.push_back("a blob is kept under another's hash");
    sw.cache[a.sha256] = part.size();
  }
  if (!stored.ok()) sw.not_stored.insert(a.sha256);
  if (stored.ok() && !a.last) return;
  sw.parts.erase(a.sha256);
  loop_.After(0, [this, w, boot = sw.boot, sha = a.sha256, stored] {
    if (workers_[w].boot == boot)
      ToProcess(w, [this, w, sha, stored] { Feed(w, worker::BlobStored{sha, stored}); });
  });
}

void Sim::DoWorker(size_t w, worker::DropBlob& a) {
  workers_[w].cache.erase(a.sha256);
  workers_[w].parts.erase(a.sha256);
}

void Sim::DoWorker(size_t w, worker::SaveResult& a) {
  SimWorker& sw = workers_[w];
  const int64_t sequence = a.result.result().sequence();
  results[ResultKey(w, sequence)] = a.result.result().ids();
  if (!sw.disk_full) sw.spool[sequence] = {a.result, now()};
}

void Sim::DoWorker(size_t w, worker::DropResult& a) {
  SimWorker& sw = workers_[w];
  const auto it = sw.spool.find(a.sequence);
  // One that found its disk full was in memory only.
  const v1::TrialIds ids = it != sw.spool.end() ? it->second.result.result().ids()
                                                : results.at(ResultKey(w, a.sequence));
  sw.spool.erase(a.sequence);
  if (std::exchange(overflow_, false)) return;  // given up, not acknowledged
  dropped.push_back(ids);
  history_.Add(What::kForgotten, now(), RunIdsOf(ids));
}

void Sim::DoWorker(size_t, worker::SayStatus& a) {
  overflow_ = a.status.code() == absl::StatusCode::kResourceExhausted;
}

void Sim::DoWorker(size_t w, worker::Exit&) {
  SimWorker& sw = workers_[w];
  Note(fmt::format("worker {} leaves", w));
  // What it said last arrives.
  net_.Close(std::exchange(sw.server, 0), StreamEnd::kClient);
  net_.Close(std::exchange(sw.tracker, 0), StreamEnd::kClient);
  LeaveDevice(w);
  sw.core.reset();
  ++sw.boot;
  if (o_.drain_worker > 0)
    loop_.After(kSecond + rng_.Below(20 * kSecond), [this, w] { StartWorker(w); });
}

// ---- the device

void Sim::DoWorker(size_t w, worker::StartRun& a) {
  SimWorker& sw = workers_[w];
  overlapping_runs += sw.run_asked;
  sw.run_asked = true;
  const v1::TrialIds& ids = a.assign.ids();
  ++starts[fmt::format("{}/{}/{}", ids.job_id(), ids.task(), ids.trial())];
  BeginRun(w, sw.boot, a, now() + kBoxWait);
}

void Sim::BeginRun(size_t w, int boot, const worker::StartRun& run, int64_t give_up) {
  SimWorker& sw = workers_[w];
  if (sw.boot != boot) return;
  // Waiting for the lock is the worker's own doing: it does not while it is stopped.
  if (box_holder_.contains(sw.box) || sw.frozen) {
    if (now() < give_up || sw.frozen) {
      loop_.After(20 * kMillisecond,
                  [this, w, boot, run, give_up] { BeginRun(w, boot, run, give_up); });
      return;
    }
    v1::Measurement m;
    m.set_failure(v1::FAILURE_INFRASTRUCTURE);
    m.set_message("the device is in use");
    sw.run_asked = false;
    Feed(w, worker::RunEnded{m});
    return;
  }
  box_holder_[sw.box] = w;
  sw.holds_box = true;
  sw.on_device = RunIdsOf(run.assign.ids());
  Note("runs " + sw.on_device->Text());
  history_.Add(What::kRunBegins, now(), *sw.on_device, sw.box);
  loop_.After(o_.run_ns / 2 + rng_.Below(o_.run_ns),
              [this, w, boot, run] { FinishRun(w, boot, run); });
}

void Sim::FinishRun(size_t w, int boot, const worker::StartRun& run) {
  SimWorker& sw = workers_[w];
  if (sw.boot != boot || !sw.on_device) return;
  history_.Add(What::kRunEnds, now(), *sw.on_device, sw.box);
  sw.on_device.reset();
  worker::RunEnded ended{Measured(run.assign)};
  if (run.baseline) ended.baseline_ns = kBaselineNs;
  ToProcess(w, [this, w, ended] {
    LeaveDevice(w);
    Feed(w, ended);
  });
}

v1::Measurement Sim::Measured(const v1::Assign& assign) {
  v1::Measurement m;
  if (rng_.Uniform() < o_.lose_device) {
    m.set_failure(v1::FAILURE_DEVICE_LOST);
    return m;
  }
  if (assign.has_spec() && !assign.baseline_sha256().empty() &&
      rng_.Uniform() < o_.fail_candidate) {
    m.set_failure(v1::FAILURE_RUN_CRASH);
    m.set_message("SIGSEGV");
    return m;
  }
  m.set_failure(v1::FAILURE_OK);
  const double ns = 1e6 + static_cast<double>(FingerprintOf(assign.object_sha256()).lo % 1000000);
  for (int i = 0; i < 5; ++i) m.add_samples_ns(ns);
  m.set_runs_per_sample(1);
  m.set_rung(assign.spec().plan().final() ? 4 : 3);
  if (!assign.baseline_sha256().empty()) m.set_baseline_ratio(ns / 2e6);
  return m;
}

}  // namespace whet::testing
