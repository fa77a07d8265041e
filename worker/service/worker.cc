#include "worker/service/worker.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "compiler/support/mailbox.h"
#include "compiler/support/paths.h"
#include "compiler/support/sandbox.h"
#include "compiler/target/target.h"
#include "proto/rpc/access.h"
#include "proto/rpc/client_stream.h"
#include "proto/rpc/endpoint.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "worker/core/object_check.h"
#include "worker/core/worker_core.h"
#include "worker/device/baseline.h"
#include "worker/device/cpu.h"
#include "worker/device/device_lock.h"
#include "worker/device/probe.h"
#include "worker/measure/known_good.h"
#include "worker/measure/runner.h"
#include "worker/service/blob_store.h"
#include "worker/service/runner_client.h"

namespace whet::worker {
namespace {

constexpr size_t kMaxSpooledBytes = 1 << 20;
constexpr int64_t kDeviceLockWait = 60 * kSecond;
constexpr int64_t kFirstBaselineWait = 2 * kSecond;  // for whoever measures while this starts
constexpr int kMaxWorkersPerFolder = 16;

StatusOr<std::string> WorkerId(const std::string& state_dir) {
  const std::string path = state_dir + "/worker-id";
  StatusOr<std::string> id = ReadFile(path, 100);
  if (id.ok() && id->size() == 16 && id->find_first_not_of("0123456789abcdef") == std::string::npos)
    return *id;
  if (id.ok())
    return DataLoss("'{}' is damaged; remove it and this worker gets a new identity", path);
  if (id.status().code() != absl::StatusCode::kNotFound) return id.status();
  const std::string fresh = RandomHex(8);
  WHET_RETURN_IF_ERROR(WriteFile(path, fresh, Sync::kDurable));
  return fresh;
}

std::vector<v1::SpooledResult> LoadSpool(const std::string& dir) {
  std::vector<v1::SpooledResult> spool;
  const StatusOr<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok()) return spool;
  for (const std::string& name : *names) {
    const StatusOr<std::string> bytes = ReadFile(dir + "/" + name, kMaxSpooledBytes);
    v1::SpooledResult r;
    if (bytes.ok() && r.ParseFromString(*bytes) && name == std::to_string(r.result().sequence()) &&
        r.result().sequence() >= 1 && r.result().sequence() <= WorkerCore::kMaxSequence) {
      spool.push_back(std::move(r));
    } else {
      spdlog::warn("event=spool_file_ignored file={}/{}", dir, name);
      if (const Status s = RemoveFile(dir + "/" + name); !s.ok())
        spdlog::warn("event=not_removed error=\"{}\"", Message(s));
    }
  }
  return spool;
}

std::string DevicesDir(const std::string& state_dir) { return state_dir + "/devices"; }

}  // namespace

StatusOr<FileLock> TakeDevicesFolder(const std::string& state_dir) {
  WHET_RETURN_IF_ERROR(MakeDirs(DevicesDir(state_dir)));
  StatusOr<FileLock> lock = FileLock::TryAcquire(DevicesDir(state_dir) + "/worker.lock",
                                                 fmt::format("an rpc-worker, pid {}", getpid()));
  if (lock.status().code() != absl::StatusCode::kUnavailable) return lock;
  return Annotate(lock.status(),
                  fmt::format("the state folder '{}' has a worker already; stop that one, or give "
                              "this one a --state-dir of its own",
                              state_dir));
}

class Worker::Impl {
 public:
  explicit Impl(const WorkerOptions& options) : options_(options) {}

  ~Impl() {
    runs_.PushAlways(std::nullopt);
    if (runner_thread_.joinable()) runner_thread_.join();
    if (tracker_) tracker_->Cancel();
    if (server_) server_->Cancel();
    // Their last callbacks post to this object.
    if (tracker_done_.valid()) tracker_done_.wait();
    if (server_done_.valid()) server_done_.wait();
    for (auto& done : old_streams_) done.wait();
  }

  Status Start() {
    WHET_RETURN_IF_ERROR(TakeFolder());
    spool_dir_ = dir_ + "/spool";
    WHET_RETURN_IF_ERROR(MakeDirs(spool_dir_));
    StatusOr<BlobStore> blobs = BlobStore::Open(dir_ + "/cache");
    WHET_RETURN_IF_ERROR(blobs.status());
    blobs_.emplace(std::move(*blobs));
    WHET_RETURN_IF_ERROR(MakeDirs(options_.lock_dir));
    StatusOr<DeviceLock> lock =
        DeviceLock::Open(DeviceLockPath(options_.lock_dir), options_.lock_index);
    WHET_RETURN_IF_ERROR(lock.status());
    device_lock_.emplace(std::move(*lock));
    WHET_ASSIGN_OR_RETURN(runner_, RunnerClient::Start({options_.runner, options_.runner_args,
                                                        options_.cores, device_lock_->fd()}));
    WHET_RETURN_IF_ERROR(CheckSandbox());
    WHET_RETURN_IF_ERROR(WriteFile(KnownGoodExpectedPath(), KnownGoodExpected()));
    WorkerConfig config;
    const bool named = !options_.device.empty();
    WHET_ASSIGN_OR_RETURN(std::string id, WorkerId(named ? DevicesDir(options_.state_dir) : dir_));
    // Tracker and server hold a worker with a certificate to ids of its own.
    if (options_.security) id = rpc::WorkerIdPrefix(options_.security->self()) + id;
    const OnCores measured_here(options_.cores);
    config.device = CpuIdentity(options_.cores);
    if (options_.probe == WorkerOptions::Probe::kOnce) {
      const v1::DeviceIdentity& d = config.device;
      const std::string identity = fmt::format("{} | {} | {} processors | {}", d.cpu_model(),
                                               d.target(), d.processors(), d.governor());
      WHET_ASSIGN_OR_RETURN(const Machine machine,
                            ProbedOnce((named ? dir_ : options_.state_dir) + "/machine", identity,
                                       static_cast<int>(d.processors())));
      config.device.set_machine(machine.ToString());
    }
    config.device.set_worker_id(id);
    config.device.set_device_id(id + "/" + (named ? options_.device : "cpu0"));
    config.device.set_boot_id(options_.boot_id.empty() ? RandomHex(8) : options_.boot_id);
    config.device.set_key(options_.key);
    config.build = kVersion;
    config.kernel_abi = kKernelAbi;
    config.baseline_version = kBaselineVersion;
    if (const auto held = LockDevice(kFirstBaselineWait); held.ok())
      config.baseline_ns = TimeBaseline();
    if (config.baseline_ns) config.device.set_baseline_ns(*config.baseline_ns);
    config.device.set_baseline_version(kBaselineVersion);
    device_id_ = config.device.device_id();
    BlobStore::Left left = blobs_->Load();
    core_ = std::make_unique<WorkerCore>(config, LoadSpool(spool_dir_), left.whole,
                                         std::hash<std::string>()(RandomHex(8)),
                                         std::move(left.partial));
    spdlog::info(
        "event=worker_started worker={} device={} key={} cores={} baseline_us={:.1f} tracker={} "
        "runner_pid={} sandbox={} emulated={}",
        id, device_id_, options_.key, fmt::join(config.device.cores(), ","),
        config.baseline_ns.value_or(0) / 1e3, options_.tracker, runner_->pid(),
        SandboxBitsText(runner_->hello().sandbox_bits()), config.device.emulated());
    return OkStatus();
  }

  void Run() {
    runner_thread_ = std::thread([this] { RunRuns(); });
    Apply(Tick{});
    while (!exit_) {
      std::optional<Posted> posted = mailbox_.Pop(core_->NextDeadline());
      if (!posted) {
        Apply(Tick{});
      } else if ((posted->side == Side::kTracker && posted->link != tracker_link_) ||
                 (posted->side == Side::kServer && posted->link != server_link_)) {
        // From a stream that was given up.
      } else {
        Apply(posted->event);
      }
    }
    stopping_ = true;
    runner_->Interrupt();  // what was given up does not outlive this worker
    if (tracker_) {
      tracker_->Finish();
      tracker_done_.wait_for(std::chrono::seconds(2));
    }
    spdlog::info("event=worker_stopped device={} kept_results={}", device_id_,
                 core_->kept_results());
  }

  void RequestDrain() { mailbox_.PushAlways({Side::kNone, 0, DrainRequested{}}); }

 private:
  using TrackerStream = rpc::ClientStream<v1::AttachRequest, v1::AttachReply>;
  using ServerStream = rpc::ClientStream<v1::WorkerMessage, v1::ServerMessage>;
  enum class Side { kNone, kTracker, kServer };
  struct Posted {
    Side side;
    uint64_t link;  // of the stream it came from
    Event event;
  };

  Status CheckSandbox() const {
    const std::string missing = MissingForStrangers(runner_->hello().sandbox_bits());
    if (missing.empty()) return OkStatus();
    if (options_.sandbox == WorkerOptions::Sandbox::kStrict) {
      return FailedPrecondition(
          "this host's sandbox is too weak for candidates of others; missing: {}. `whet doctor` "
          "shows all layers; where the tracker is on this machine and you trust whoever tunes, "
          "--allow-weak-sandbox starts it all the same",
          missing);
    }
    spdlog::warn("event=weak_sandbox missing=\"{}\"", missing);
    return OkStatus();
  }

  std::string KnownGoodExpectedPath() const { return dir_ + "/known-good.expected"; }

  // The first folder that no live worker has. A second worker on one machine (one that `whet tune`
  // starts beside a standing one, say) is another device to the trackers; the device lock keeps
  // their measurements apart.
  // A named device has its own, in a state folder that is this process's (TakeDevicesFolder).
  Status TakeFolder() {
    if (!options_.device.empty()) {
      dir_ = DevicesDir(options_.state_dir) + "/" + options_.device;
      return MakeDirs(dir_);
    }
    Status busy;
    for (int i = 0; i < kMaxWorkersPerFolder; ++i) {
      dir_ = options_.state_dir + "/worker" + (i == 0 ? "" : fmt::format("-{}", i));
      WHET_RETURN_IF_ERROR(MakeDirs(dir_));
      StatusOr<FileLock> lock = FileLock::TryAcquire(
          dir_ + "/worker.lock", fmt::format("an rpc-worker, pid {}", getpid()));
      if (lock.ok()) {
        lock_ = std::move(*lock);
        return OkStatus();
      }
      if (lock.status().code() != absl::StatusCode::kUnavailable) return lock.status();
      busy = lock.status();
    }
    return Annotate(busy, fmt::format("{} workers have their state in '{}'", kMaxWorkersPerFolder,
                                      options_.state_dir));
  }

  void Apply(const Event& event) {
    LogEvent(event);
    for (Action& action : core_->Step(MonotonicNs(), event)) {
      std::visit([this](auto& a) { Do(a); }, action);
    }
  }

  static void LogEvent(const Event& event) {
    if (const auto* e = std::get_if<FromTracker>(&event)) {
      if (e->message.has_registered())
        spdlog::info("event=registered incarnation={}", e->message.registered().incarnation());
      if (e->message.has_lease())
        spdlog::info("event=leased epoch={} server={}", e->message.lease().epoch(),
                     e->message.lease().server_address());
      if (e->message.has_ended())
        spdlog::info("event=lease_ended epoch={} reason=\"{}\"", e->message.ended().epoch(),
                     e->message.ended().reason());
    } else if (const auto* e = std::get_if<RunEnded>(&event)) {
      if (e->measurement.failure() != v1::FAILURE_OK) {
        spdlog::debug("event=run_failed kind={} message=\"{}\"",
                      v1::FailureKind_Name(e->measurement.failure()), e->measurement.message());
      }
    } else if (std::holds_alternative<DrainRequested>(event)) {
      spdlog::info("event=draining");
    }
  }

  void Do(const ConnectTracker&) {
    Retire(tracker_, &tracker_done_);
    const uint64_t link = ++tracker_link_;
    auto done = std::make_shared<std::promise<void>>();
    tracker_done_ = done->get_future();
    std::shared_ptr<v1::Tracker::Stub> stub = v1::Tracker::NewStub(
        rpc::Dial(options_.tracker, options_.security.get(), rpc::Peer::kTracker));
    tracker_ = TrackerStream::Start(
        [stub](grpc::ClientContext* c, auto* reactor) { stub->async()->Attach(c, reactor); },
        [this, link](v1::AttachReply m) {
          mailbox_.PushAlways({Side::kTracker, link, FromTracker{std::move(m)}});
        },
        [this, link, done, stub](const grpc::Status& s) {
          mailbox_.PushAlways({Side::kTracker, link, TrackerLost{Closed(s, options_.tracker)}});
          done->set_value();
        });
  }

  void Do(const ConnectServer& a) {
    Retire(server_, &server_done_);
    const uint64_t link = ++server_link_;
    auto done = std::make_shared<std::promise<void>>();
    server_done_ = done->get_future();
    const Status dialable =
        rpc::ParseDialAddress("the server's address", a.address, options_.security.get()).status();
    if (!dialable.ok()) {
      mailbox_.PushAlways({Side::kServer, link, ServerLost{dialable}});
      done->set_value();
      return;
    }
    std::shared_ptr<v1::Dispatch::Stub> stub =
        v1::Dispatch::NewStub(rpc::Dial(a.address, options_.security.get()));
    server_ = ServerStream::Start(
        [stub](grpc::ClientContext* c, auto* reactor) { stub->async()->Work(c, reactor); },
        [this, link](v1::ServerMessage m) {
          mailbox_.PushAlways({Side::kServer, link, FromServer{std::move(m)}});
        },
        [this, link, done, stub, address = a.address](const grpc::Status& s) {
          mailbox_.PushAlways({Side::kServer, link, ServerLost{Closed(s, address)}});
          done->set_value();
        });
  }

  static Status Closed(const grpc::Status& s, const std::string& peer) {
    return s.ok() ? Unavailable("{} closed the stream", peer) : rpc::FromGrpc(s, peer);
  }

  // Ends a stream and remembers to wait for its last callback.
  template <typename S>
  void Retire(std::shared_ptr<S>& stream, std::future<void>* done) {
    if (!stream) return;
    stream->Cancel();
    stream.reset();
    std::erase_if(old_streams_, [](const std::future<void>& f) {
      return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    old_streams_.push_back(std::move(*done));
    *done = {};
  }

  void Do(const CloseTracker&) {
    ++tracker_link_;
    Retire(tracker_, &tracker_done_);
  }
  void Do(const CloseServer&) {
    ++server_link_;
    Retire(server_, &server_done_);
  }
  void Do(ToTracker& a) {
    if (tracker_) tracker_->Send(std::move(a.message));
  }
  void Do(ToServer& a) {
    if (!server_) return;
    if (a.message.has_heartbeat())
      *a.message.mutable_heartbeat()->mutable_state() = CpuState(std::nullopt);
    server_->Send(std::move(a.message));
  }

  void Do(const StoreBlob& a) {
    if (a.offset == 0) not_stored_.erase(a.sha256);
    if (not_stored_.contains(a.sha256)) return;  // was said
    const Status s = blobs_->Append(a);
    if (!s.ok()) not_stored_.insert(a.sha256);
    if (!s.ok() || a.last) mailbox_.PushAlways({Side::kNone, 0, BlobStored{a.sha256, s}});
  }
  void Do(const DropBlob& a) { blobs_->Drop(a.sha256); }

  void Do(StartRun& a) { runs_.PushAlways(std::move(a)); }

  void Do(const SaveResult& a) {
    // Against the death of this process, not of the machine: no sync on the way of every
    // measurement.
    const Status s =
        WriteFile(SpoolPath(a.result.result().sequence()), a.result.SerializeAsString());
    if (!s.ok()) spdlog::warn("event=result_not_spooled error=\"{}\"", Message(s));
    const v1::TrialIds& ids = a.result.result().ids();
    spdlog::debug(
        "event=result_kept sequence={} job={} task={} trial={} attempt={} incarnation={} epoch={} "
        "device={}",
        a.result.result().sequence(), ids.job_id(), ids.task(), ids.trial(), ids.attempt(),
        ids.incarnation(), ids.lease_epoch(), ids.device_id());
  }
  void Do(const DropResult& a) {
    unlink(SpoolPath(a.sequence).c_str());
    spdlog::debug("event=result_dropped sequence={}", a.sequence);
  }
  void Do(const SayStatus& a) {
    if (last_said_ != Message(a.status))
      spdlog::warn("event=trouble message=\"{}\"", Message(a.status));
    last_said_ = Message(a.status);
  }
  void Do(const Exit&) { exit_ = true; }

  std::string SpoolPath(int64_t sequence) const {
    return fmt::format("{}/{}", spool_dir_, sequence);
  }

  // The runner's thread.
  void RunRuns() {
    const OnCores for_the_baseline(options_.cores);
    while (true) {
      const std::optional<StartRun> start = *runs_.Pop(kNever);
      if (!start) return;
      RunEnded ended;
      ended.measurement = RunOne(*start, &ended);
      mailbox_.PushAlways({Side::kNone, 0, std::move(ended)});
    }
  }

  StatusOr<DeviceLock::Held> LockDevice(int64_t patience_ns) {
    for (const int64_t give_up = MonotonicNs() + patience_ns;;) {
      StatusOr<DeviceLock::Held> held =
          device_lock_->TryLock(fmt::format("rpc-worker, pid {}", getpid()));
      if (held.status().code() != absl::StatusCode::kUnavailable || MonotonicNs() > give_up)
        return held;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  static v1::Measurement NotRun(v1::FailureKind kind, const Status& why) {
    v1::Measurement m;
    m.set_failure(kind);
    m.set_message(Message(why));
    return m;
  }

  // That its files are what they were fetched as, and the candidate one for this processor.
  Status CheckBlobs(const v1::Assign& assign, RunEnded* ended) {
    for (const std::string* sha :
         {&assign.object_sha256(), &assign.expected_sha256(), &assign.baseline_sha256()}) {
      if (sha->empty()) continue;
      const Status s = blobs_->Verify(*sha);
      if (s.ok()) continue;
      ended->damaged.push_back(*sha);
      return s;
    }
    return OkStatus();
  }

  Status CheckHeader(const v1::Assign& assign) const {
    for (const std::string* sha : {&assign.object_sha256(), &assign.baseline_sha256()}) {
      if (sha->empty()) continue;
      const StatusOr<std::string> head = blobs_->Head(*sha, kObjectHeaderBytes);
      WHET_RETURN_IF_ERROR(head.status());
      WHET_RETURN_IF_ERROR(CheckObjectHeader(*head, arch_));
    }
    return OkStatus();
  }

  v1::Measurement RunOne(const StartRun& start, RunEnded* ended) {
    const v1::Assign& assign = start.assign;
    if (const Status s = CheckBlobs(assign, ended); !s.ok())
      return NotRun(v1::FAILURE_INFRASTRUCTURE, s);
    if (const Status s = CheckHeader(assign); !s.ok()) {
      return NotRun(s.code() == absl::StatusCode::kFailedPrecondition ? v1::FAILURE_NOT_RUNNABLE
                                                                      : v1::FAILURE_INFRASTRUCTURE,
                    s);
    }
    const StatusOr<DeviceLock::Held> held = LockDevice(kDeviceLockWait);
    if (!held.ok()) return NotRun(v1::FAILURE_INFRASTRUCTURE, held.status());
    if (stopping_) return NotRun(v1::FAILURE_INFRASTRUCTURE, Unavailable("the worker stops"));
    const int64_t start_ns = MonotonicNs();
    if (start.baseline) ended->baseline_ns = TimeBaseline();
    v1::Measurement m = Measure(assign);
    spdlog::debug("event=ran device={} trial={} start_ns={} end_ns={}", device_id_,
                  assign.ids().trial(), start_ns, MonotonicNs());
    return m;
  }

  v1::Measurement Measure(const v1::Assign& assign) {
    v1::RunRequest request;
    request.set_object_path(blobs_->Path(assign.object_sha256()));
    request.set_expected_path(blobs_->Path(assign.expected_sha256()));
    if (!assign.baseline_sha256().empty())
      request.set_baseline_path(blobs_->Path(assign.baseline_sha256()));
    *request.mutable_spec() = assign.spec();
    v1::Measurement m;
    if (streak_.unfit()) ProbeDevice(&m);
    if (streak_.unfit()) {
      m.set_failure(v1::FAILURE_INFRASTRUCTURE);
      m.set_message("this device is unfit: " + streak_.reason());
      return m;
    }
    const std::optional<int64_t> throttles = CpuThrottleCount();
    const v1::Measurement::KnownGood probed = m.known_good();
    m = runner_->Run(std::move(request));
    *m.mutable_state() = CpuState(throttles);
    m.set_known_good(probed);
    if (streak_.Suspicious(m)) ProbeDevice(&m);
    return m;
  }

  // The known-good candidate, with its outcome told in `m`.
  void ProbeDevice(v1::Measurement* m) {
    v1::RunRequest request;
    request.set_object_path(options_.known_good);
    request.set_expected_path(KnownGoodExpectedPath());
    *request.mutable_spec() = KnownGoodSpec();
    streak_.Probed(runner_->Run(std::move(request)));
    m->set_known_good(streak_.unfit() ? v1::Measurement::FAILED : v1::Measurement::PASSED);
    m->set_known_good_message(streak_.reason());
    if (streak_.unfit()) {
      // The candidate may be innocent: somebody else shall try it.
      m->set_failure(v1::FAILURE_INFRASTRUCTURE);
      m->set_message("a candidate that is known to be right failed after it: " + streak_.reason());
      m->clear_samples_ns();
      spdlog::error("event=unfit reason=\"{}\"", streak_.reason());
    } else {
      spdlog::info("event=known_good_passed");
    }
  }

  const WorkerOptions options_;
  const std::string arch_ = Target::Host().arch;
  std::string dir_, spool_dir_, device_id_;
  std::optional<BlobStore> blobs_;
  FileLock lock_;                                    // of the folder
  std::optional<DeviceLock> device_lock_;            // used by the runner's thread
  std::unique_ptr<RunnerClient> runner_;             // likewise
  FailureStreak streak_{options_.known_good_after};  // likewise
  Mailbox<Posted> mailbox_;
  Mailbox<std::optional<StartRun>> runs_;
  std::thread runner_thread_;
  std::atomic<bool> stopping_{false};

  // Of the thread in Run().
  std::unique_ptr<WorkerCore> core_;
  std::shared_ptr<TrackerStream> tracker_;  // shared with gRPC until the call ends
  std::shared_ptr<ServerStream> server_;
  uint64_t tracker_link_ = 0, server_link_ = 0;
  std::future<void> tracker_done_, server_done_;
  std::vector<std::future<void>> old_streams_;
  std::set<std::string> not_stored_;  // blobs that could not be, since they were begun
  std::string last_said_;
  bool exit_ = false;
};

StatusOr<std::unique_ptr<Worker>> Worker::Create(const WorkerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  WHET_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;
void Worker::Run() { impl_->Run(); }
void Worker::RequestDrain() { impl_->RequestDrain(); }

}  // namespace whet::worker
