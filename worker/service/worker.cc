#include "worker/service/worker.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "compiler/support/mailbox.h"
#include "compiler/support/paths.h"
#include "compiler/support/sandbox.h"
#include "compiler/support/sha256.h"
#include "proto/rpc/access.h"
#include "proto/rpc/client_stream.h"
#include "proto/rpc/endpoint.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "worker/core/worker_core.h"
#include "worker/device/cpu.h"
#include "worker/device/probe.h"
#include "worker/measure/known_good.h"
#include "worker/measure/runner.h"
#include "worker/service/runner_client.h"

namespace whet::worker {
namespace {

constexpr size_t kMaxSpooledBytes = 1 << 20;
constexpr int64_t kDeviceLockWait = 60 * kSecond;
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
    if (bytes.ok() && r.ParseFromString(*bytes) && name == std::to_string(r.result().sequence())) {
      spool.push_back(std::move(r));
    } else {
      spdlog::warn("event=spool_file_ignored file={}/{}", dir, name);
      if (const Status s = RemoveFile(dir + "/" + name); !s.ok())
        spdlog::warn("event=not_removed error=\"{}\"", Message(s));
    }
  }
  return spool;
}

// What a former process left, checked: a file is not trusted for its name.
std::map<std::string, uint64_t> LoadCache(const std::string& dir) {
  std::map<std::string, uint64_t> cache;
  const StatusOr<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok()) return cache;
  for (const std::string& name : *names) {
    const StatusOr<std::string> bytes = ReadFile(dir + "/" + name, 512u << 20);
    if (bytes.ok() && IsSha256Hex(name) && Sha256Hex(*bytes) == name) {
      cache[name] = bytes->size();
    } else {
      unlink((dir + "/" + name).c_str());
    }
  }
  return cache;
}

}  // namespace

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
    cache_dir_ = dir_ + "/cache";
    WHET_RETURN_IF_ERROR(MakeDirs(spool_dir_));
    WHET_RETURN_IF_ERROR(MakeDirs(cache_dir_));
    WHET_RETURN_IF_ERROR(MakeDirs(options_.lock_dir));
    WHET_ASSIGN_OR_RETURN(runner_, RunnerClient::Start(options_.runner, options_.runner_args));
    WHET_RETURN_IF_ERROR(CheckSandbox());
    WHET_RETURN_IF_ERROR(WriteFile(KnownGoodExpectedPath(), KnownGoodExpected()));
    WorkerConfig config;
    WHET_ASSIGN_OR_RETURN(std::string id, WorkerId(dir_));
    // Tracker and server hold a worker with a certificate to ids of its own.
    if (options_.security) id = rpc::WorkerIdPrefix(options_.security->self()) + id;
    config.device = CpuIdentity();
    if (options_.probe == WorkerOptions::Probe::kOnce) {
      const v1::DeviceIdentity& d = config.device;
      const std::string identity = fmt::format("{} | {} | {} processors | {}", d.cpu_model(),
                                               d.target(), d.processors(), d.governor());
      WHET_ASSIGN_OR_RETURN(
          const Machine machine,
          ProbedOnce(options_.state_dir + "/machine", identity, static_cast<int>(d.processors())));
      config.device.set_machine(machine.ToString());
    }
    config.device.set_worker_id(id);
    config.device.set_device_id(id + "/cpu0");
    config.device.set_boot_id(RandomHex(8));
    config.device.set_key(options_.key);
    config.build = kVersion;
    config.kernel_abi = kKernelAbi;
    core_ = std::make_unique<WorkerCore>(config, LoadSpool(spool_dir_), LoadCache(cache_dir_),
                                         std::hash<std::string>()(RandomHex(8)));
    spdlog::info(
        "event=worker_started worker={} key={} tracker={} runner_pid={} sandbox={} emulated={}", id,
        options_.key, options_.tracker, runner_->pid(),
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
    if (tracker_) {
      tracker_->Finish();
      tracker_done_.wait_for(std::chrono::seconds(2));
    }
    spdlog::info("event=worker_stopped kept_results={}", core_->kept_results());
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

  // The first folder that no live worker has. A second worker on one machine (one that `whet tune`
  // starts beside a standing one, say) is another device to the trackers; the device lock keeps
  // their measurements apart.
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

  Status TakeFolder() {
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
    const Status s = WriteFile(BlobPath(a.sha256), a.bytes);
    mailbox_.PushAlways({Side::kNone, 0, BlobStored{a.sha256, s}});
  }
  void Do(const DropBlob& a) { unlink(BlobPath(a.sha256).c_str()); }

  void Do(StartRun& a) { runs_.PushAlways(std::move(a.assign)); }

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

  std::string BlobPath(const std::string& sha) const { return cache_dir_ + "/" + sha; }
  std::string SpoolPath(int64_t sequence) const {
    return fmt::format("{}/{}", spool_dir_, sequence);
  }

  // The runner's thread.
  void RunRuns() {
    while (true) {
      const std::optional<v1::Assign> assign = *runs_.Pop(kNever);
      if (!assign) return;
      mailbox_.PushAlways({Side::kNone, 0, RunEnded{RunOne(*assign)}});
    }
  }

  v1::Measurement RunOne(const v1::Assign& assign) {
    StatusOr<FileLock> lock = Unavailable("not tried");
    for (const int64_t give_up = MonotonicNs() + kDeviceLockWait; !lock.ok();) {
      lock = FileLock::TryAcquire(DeviceLockPath(options_.lock_dir, 0),
                                  fmt::format("rpc-worker, pid {}", getpid()));
      if (lock.ok()) break;
      if (MonotonicNs() > give_up || lock.status().code() != absl::StatusCode::kUnavailable) {
        v1::Measurement m;
        m.set_failure(v1::FAILURE_INFRASTRUCTURE);
        m.set_message(Message(lock.status()));
        return m;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    v1::RunRequest request;
    request.set_object_path(BlobPath(assign.object_sha256()));
    request.set_expected_path(BlobPath(assign.expected_sha256()));
    if (!assign.baseline_sha256().empty())
      request.set_baseline_path(BlobPath(assign.baseline_sha256()));
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
  std::string dir_, spool_dir_, cache_dir_;
  FileLock lock_;
  std::unique_ptr<RunnerClient> runner_;             // used by the runner's thread
  FailureStreak streak_{options_.known_good_after};  // likewise
  Mailbox<Posted> mailbox_;
  Mailbox<std::optional<v1::Assign>> runs_;
  std::thread runner_thread_;

  // Of the thread in Run().
  std::unique_ptr<WorkerCore> core_;
  std::shared_ptr<TrackerStream> tracker_;  // shared with gRPC until the call ends
  std::shared_ptr<ServerStream> server_;
  uint64_t tracker_link_ = 0, server_link_ = 0;
  std::future<void> tracker_done_, server_done_;
  std::vector<std::future<void>> old_streams_;
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
