// Whatever workers, the tracker and clients say to a tuner server: no crash, a row that counts is
// of an assignment that was made and is the latest of its trial, blobs are dropped no more often
// than kept, and every row fits the log or is refused by it in words.
#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "compiler/support/fingerprint.h"
#include "compiler/support/sha256.h"
#include "tests/fuzz/fill_message.h"
#include "tuner/service/core.h"

namespace {

using namespace whet;

tuner::CoreConfig Config() {
  tuner::CoreConfig c;
  c.server_id = "server";
  c.log_id = "log";
  c.generation = "gen";
  c.host_boot_id = "host";
  c.max_jobs = 3;
  c.kept_jobs = 2;
  c.max_tasks = 4;
  return c;
}

// The adapter: builds, prepares and stores at once, unless the input has it otherwise.
class Adapter {
 public:
  explicit Adapter(fuzz::Input* in) : in_(*in), core_(Config()) {}

  tuner::ServiceCore& core() { return core_; }
  int64_t now() const { return now_; }
  void Wait(int64_t ns) { now_ += ns; }
  const std::deque<v1::Assign>& assigned() const { return assigned_; }
  void Submit(const v1::JobSpec& spec) {
    tuner::Actions out;
    const std::string job = "job" + std::to_string(jobs_++);
    specs_[job] = spec;
    if (core_.Submit(now_, job, spec, "cpu", "f", 0, &out).ok()) Do(std::move(out));
  }
  void Cancel(const std::string& job) {
    tuner::Actions out;
    if (core_.Cancel(now_, job, &out).ok()) Do(std::move(out));
  }

  void Do(tuner::Actions actions) {
    for (tuner::Action& a : actions) queue_.push_back(std::move(a));
    if (doing_) return;
    doing_ = true;
    // Bounded: what a step causes must come to rest by itself.
    for (int n = 0; !queue_.empty(); ++n) {
      if (n > 20'000) std::abort();
      tuner::Action action = std::move(queue_.front());
      queue_.pop_front();
      std::visit([this](auto& a) { Carry(a); }, action);
    }
    doing_ = false;
  }

 private:
  template <typename T>
  void Carry(T&) {}
  void Carry(tuner::PrepareTask& a) {
    if (in_.Byte() == 255)
      return Do(core_.TaskPrepared(now_, a.job, a.task, InvalidArgument("no")));
    tuner::PreparedTask p;
    p.initial_program = FingerprintOf(a.workload);
    p.default_trace = "default";
    Do(core_.TaskPrepared(now_, a.job, a.task, p));
  }
  void Carry(tuner::ComputeExpected& a) {
    Do(core_.ExpectedReady(now_, a.job, a.task, OkStatus(), Sha256Hex("expected"), 8));
  }
  void Carry(tuner::StartSearch& a) { Do(core_.SearchStarted(now_, a.job, OkStatus())); }
  void Carry(tuner::AskSearch& a) {
    std::vector<tuner::Proposal> proposals;
    for (int i = 0; i < a.n && token_ < 60; ++i, ++token_)
      proposals.push_back({in_.Byte() % 2u, token_, "trace " + std::to_string(token_)});
    Do(core_.Proposed(now_, a.job, proposals, proposals.empty()));
  }
  void Carry(tuner::StartBuild& a) {
    tuner::BuiltObject o;
    o.failure = in_.Byte() < 250 ? v1::FAILURE_OK : v1::FAILURE_BUILD_ERROR;
    o.sha256 = Sha256Hex(a.request.trace());
    o.bytes = 10;
    o.initial_program = FingerprintOf(a.request.workload()).Hex();
    Do(core_.Built(now_, a.build, o));
  }
  void Carry(tuner::KeepBlob& a) { ++kept_[a.sha256]; }
  void Carry(tuner::DropBlob& a) {
    if (--kept_[a.sha256] < 0) std::abort();
  }
  void Carry(tuner::SendWorker& a) {
    if (!a.message.has_assign()) return;
    const v1::TrialIds& ids = a.message.assign().ids();
    if (!known_.insert(ids.SerializeAsString()).second) std::abort();  // twice under one fence
    latest_[Key(ids.job_id(), FingerprintOf(Workload(ids)).Hex(), ids.trial())] = ids;
    assigned_.push_back(a.message.assign());
    if (assigned_.size() > 8) assigned_.pop_front();
  }
  void Carry(tuner::CloseWorker& a) { Do(core_.WorkerGone(now_, a.session)); }
  void Carry(tuner::AppendRow& a) {
    StatusOr<db::TrialStatus> verdict = db::TrialStatus::kCounted;
    const Status fits = std::visit([](auto& row) { return db::Normalize(row); }, a.row);
    if (const auto* row = std::get_if<db::TrialRow>(&a.row)) verdict = row->status;
    if (!fits.ok()) {
      if (fits.message().empty()) std::abort();
      verdict = fits;
    } else if (const auto* row = std::get_if<db::TrialRow>(&a.row)) {
      CheckCounted(*row);
    }
    Do(core_.Committed(now_, a.ticket, verdict));
  }

  static std::string Key(const std::string& job, const std::string& workload, int64_t trial) {
    return job + "/" + workload + "/" + std::to_string(trial);
  }
  std::string Workload(const v1::TrialIds& ids) const {
    return specs_.at(ids.job_id()).tasks(static_cast<int>(ids.task())).workload();
  }
  void CheckCounted(const db::TrialRow& row) {
    if (row.status != db::TrialStatus::kCounted || row.ids.device_id.empty()) return;
    const auto it = latest_.find(Key(row.ids.job_id, row.key.workload.Hex(), row.ids.trial));
    if (it == latest_.end()) std::abort();
    const v1::TrialIds& ids = it->second;
    const bool same =
        ids.attempt() == row.ids.attempt && ids.lease_epoch() == row.ids.lease_epoch &&
        ids.incarnation() == row.ids.incarnation && ids.device_id() == row.ids.device_id;
    // A second delivery of one that was taken may come when the trial is elsewhere already.
    if (!same && !taken_.contains(Delivery(row))) std::abort();
    taken_.insert(Delivery(row));
  }
  static std::string Delivery(const db::TrialRow& row) {
    return Key(row.ids.job_id, row.key.workload.Hex(), row.ids.trial) + "/" +
           std::to_string(row.ids.attempt) + "/" + std::to_string(row.ids.lease_epoch) + "/" +
           row.ids.incarnation + "/" + row.ids.device_id;
  }

  fuzz::Input& in_;
  tuner::ServiceCore core_;
  int64_t now_ = kSecond;
  int jobs_ = 0;
  uint64_t token_ = 1;
  bool doing_ = false;
  std::deque<tuner::Action> queue_;
  std::map<std::string, int> kept_;
  std::map<std::string, v1::JobSpec> specs_;
  std::deque<v1::Assign> assigned_;
  std::set<std::string> known_, taken_;
  std::map<std::string, v1::TrialIds> latest_;
};

v1::JobSpec HonestSpec() {
  v1::JobSpec spec;
  spec.set_key("k");
  spec.set_threads(1);
  spec.set_trials(20);
  spec.add_tasks()->set_workload("w0");
  spec.add_tasks()->set_workload("w1");
  return spec;
}
v1::WorkerMessage HonestHello(int n) {
  v1::WorkerMessage m;
  v1::Hello& h = *m.mutable_hello();
  h.mutable_protocol()->set_min(1);
  h.mutable_protocol()->set_max(1);
  h.set_kernel_abi(1);
  h.mutable_device()->set_worker_id("w" + std::to_string(n));
  h.mutable_device()->set_device_id("w" + std::to_string(n) + "/cpu0");
  h.mutable_device()->set_boot_id("boot0");
  h.mutable_device()->set_key("k");
  h.mutable_device()->set_target("cpu");
  h.mutable_device()->set_feature_set("f");
  h.set_incarnation("inc");
  h.set_lease_epoch(n + 1);
  return m;
}
v1::LeaseReply HonestGrant(int n) {
  v1::LeaseReply m;
  m.mutable_granted()->set_incarnation("inc");
  m.mutable_granted()->set_epoch(n + 1);
  *m.mutable_granted()->mutable_device() = HonestHello(n).hello().device();
  return m;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  fuzz::MessageMaker make(&in, {"k", "w0", "w1", "w0/cpu0", "w1/cpu0", "boot0", "inc", "log", "gen",
                                "job0", "job1", "cpu", "f", "evolutionary", "random", "host"});
  Adapter a(&in);
  a.Submit(HonestSpec());
  a.Do(a.core().TrackerUp(a.now()));
  int64_t sequence = 0;
  for (int i = 0; i < 150 && !in.empty(); ++i) {
    const int n = in.Byte() % 3;
    const auto session = static_cast<uint64_t>(n + 1);
    switch (in.Byte() % 14) {
      case 0:
      case 1: a.Do(a.core().FromWorker(a.now(), session, make.Make<v1::WorkerMessage>())); break;
      case 2: a.Do(a.core().FromTracker(a.now(), make.Make<v1::LeaseReply>())); break;
      case 3: a.Submit(make.Make<v1::JobSpec>()); break;
      case 4: a.Cancel(make.Text()); break;
      case 5: a.Do(a.core().FromWorker(a.now(), session, HonestHello(n))); break;
      case 6: a.Do(a.core().FromTracker(a.now(), HonestGrant(n))); break;
      case 7:
      case 8:
      case 9: {  // a result of an assignment, with whatever measurement and, at times, other ids
        if (a.assigned().empty()) break;
        const v1::Assign& assign = a.assigned()[in.Byte() % a.assigned().size()];
        v1::WorkerMessage m;
        v1::Result& r = *m.mutable_result();
        r.set_sequence(in.Byte() % 4 ? ++sequence : make.Integer());
        *r.mutable_ids() = in.Byte() % 8 ? assign.ids() : make.Make<v1::TrialIds>();
        r.set_object_sha256(assign.object_sha256());
        *r.mutable_measurement() = make.Make<v1::Measurement>();
        if (in.Byte() % 2) {
          r.mutable_measurement()->set_failure(v1::FAILURE_OK);
          r.mutable_measurement()->clear_samples_ns();
          for (int s = 0; s < 5; ++s) r.mutable_measurement()->add_samples_ns(1e6 + in.Byte());
        }
        a.Do(a.core().FromWorker(a.now(), session, m));
        break;
      }
      case 10: {
        if (a.assigned().empty()) break;
        v1::WorkerMessage m;
        *m.mutable_started()->mutable_ids() = a.assigned()[in.Byte() % a.assigned().size()].ids();
        a.Do(a.core().FromWorker(a.now(), session, m));
        break;
      }
      case 11: a.Do(a.core().WorkerGone(a.now(), session)); break;
      case 12:
        a.Do(in.Byte() % 2 ? a.core().TrackerUp(a.now()) : a.core().TrackerDown(a.now()));
        break;
      default:
        a.Wait(int64_t{in.Byte()} * 500 * kMillisecond);
        a.Do(a.core().Tick(a.now()));
        break;
    }
    (void)a.core().Snapshot(a.now(), make.Text());
  }
  return 0;
}
