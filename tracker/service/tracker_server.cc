#include "tracker/service/tracker_server.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "compiler/support/env.h"
#include "proto/rpc/access.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/server_streams.h"
#include "proto/tracker.grpc.pb.h"

namespace whet::tracker {
namespace {

constexpr int64_t kFirstBlock = 1'000'000;
constexpr int64_t kTickNs = 250 * kMillisecond;
constexpr size_t kMaxQueue = 10'000;

// "whet-epochs 1 <reserved below> <clean|live>": which epochs may have been given out, and whether
// leases may be about.
struct EpochFile {
  int64_t reserved_below = 1;
  bool existed = false;
  bool clean = true;
};

StatusOr<EpochFile> ReadEpochs(const std::string& path) {
  const StatusOr<std::string> text = ReadFile(path, 4096);
  if (text.status().code() == absl::StatusCode::kNotFound) return EpochFile{};
  WHET_RETURN_IF_ERROR(text.status());
  EpochFile file{0, true, false};
  char state[8] = "";
  long long below = 0;
  if (std::sscanf(text->c_str(), "whet-epochs 1 %lld %7s", &below, state) != 2 || below < 1) {
    return DataLoss(
        "'{}' is damaged: it keeps leases apart over restarts; remove it once no worker and no "
        "server of this tracker runs",
        path);
  }
  file.reserved_below = below;
  file.clean = std::string_view(state) == "clean";
  return file;
}

Status WriteEpochs(const std::string& path, int64_t below, bool clean) {
  return WriteFile(path, fmt::format("whet-epochs 1 {} {}\n", below, clean ? "clean" : "live"),
                   Sync::kDurable);
}

}  // namespace

class TrackerServer::Impl final : public v1::Tracker::CallbackService {
 public:
  Impl()
      : workers_(
            [this](uint64_t s, v1::AttachRequest m) {
              Apply([&](int64_t now) { return table_->FromWorker(now, s, m); });
            },
            [this](uint64_t s) { Apply([&](int64_t now) { return table_->WorkerGone(now, s); }); },
            kMaxQueue, CheckRegistration),
        servers_(
            [this](uint64_t s, v1::LeaseRequest m) {
              Apply([&](int64_t now) { return table_->FromServer(now, s, m); });
            },
            [this](uint64_t s) {
              Apply([&](int64_t now) { return table_->ServerGone(now, s); });
            }) {}

  ~Impl() override {
    {
      const std::lock_guard lock(timer_mu_);
      stopping_ = true;
      timer_wake_.notify_all();
    }
    if (timer_.joinable()) timer_.join();
    workers_.CloseAll(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the tracker is stopping"));
    servers_.CloseAll(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the tracker is stopping"));
    listener_.Stop(std::chrono::seconds(5));
    if (!epoch_path_.empty() && table_ && table_->leases() == 0) {
      if (const Status s = WriteEpochs(epoch_path_, reserved_below_, true); !s.ok())
        spdlog::warn("event=epochs_not_marked_clean error=\"{}\"", Message(s));
    }
  }

  Status Start(const TrackerOptions& options) {
    EpochFile epochs;
    if (!options.state_dir.empty()) {
      WHET_RETURN_IF_ERROR(MakeDirs(options.state_dir));
      epoch_path_ = options.state_dir + "/tracker-epochs";
      StatusOr<FileLock> lock = FileLock::TryAcquire(options.state_dir + "/tracker.lock",
                                                     fmt::format("a tracker, pid {}", getpid()));
      if (!lock.ok())
        return Status(
            lock.status().code(),
            Message(lock.status()) + "; stop that one, or give this one its own --state-dir");
      lock_ = *std::move(lock);
      WHET_ASSIGN_OR_RETURN(epochs, ReadEpochs(epoch_path_));
    }
    const int64_t first = epochs.reserved_below;
    reserved_below_ = first + kFirstBlock;
    if (!epoch_path_.empty())
      WHET_RETURN_IF_ERROR(WriteEpochs(epoch_path_, reserved_below_, false));
    table_ = std::make_unique<LeaseTable>(options.table, RandomHex(8), first, reserved_below_,
                                          epochs.existed && !epochs.clean, MonotonicNs());
    WHET_ASSIGN_OR_RETURN(listener_, rpc::Listen(options.listen, {this}, options.listening));
    timer_ = std::thread([this] { RunTimer(); });
    spdlog::info("event=tracker_started address={} incarnation={} quiet={}", listener_.address,
                 table_->incarnation(), epochs.existed && !epochs.clean);
    return OkStatus();
  }

  const std::string& address() const { return listener_.address; }

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachReply>* Attach(
      grpc::CallbackServerContext* context) override {
    rpc::Principal by;
    const grpc::Status allowed = Authorize(*context, "/whet.v1.Tracker/Attach", &by);
    return workers_.Accept(allowed, std::move(by));
  }

  grpc::ServerBidiReactor<v1::LeaseRequest, v1::LeaseReply>* Lease(
      grpc::CallbackServerContext* context) override {
    rpc::Principal by;
    const grpc::Status allowed = Authorize(*context, "/whet.v1.Tracker/Lease", &by);
    return servers_.Accept(allowed, std::move(by));
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesReply* reply) override {
    auto* reactor = context->DefaultReactor();
    rpc::Principal principal;
    const grpc::Status allowed =
        rpc::Authorize(*context, "/whet.v1.Tracker/ListDevices", &principal);
    if (allowed.ok()) {
      const std::lock_guard lock(mu_);
      *reply = table_->List(MonotonicNs(), request->key());
    }
    reactor->Finish(allowed);
    return reactor;
  }

 private:
  static grpc::Status Authorize(const grpc::CallbackServerContext& context, const char* method,
                                rpc::Principal* by) {
    const grpc::Status allowed = rpc::Authorize(context, method, by);
    spdlog::info("event=stream method={} by={} allowed={}", method, by->name, allowed.ok());
    return allowed;
  }

  static Status CheckRegistration(const rpc::Principal& by, const v1::AttachRequest& m) {
    if (!m.has_register_()) return OkStatus();
    const v1::DeviceIdentity& d = m.register_().device();
    return rpc::CheckOwnDevice(by, d.worker_id(), d.device_id());
  }

  template <typename F>
  void Apply(F&& step) {
    const std::lock_guard lock(mu_);
    if (table_) Execute(step(MonotonicNs()));
  }

  // Under mu_, so that messages to one session keep the order in which the table made them.
  void Execute(const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* a = std::get_if<ToWorker>(&action)) {
        workers_.Send(a->session, a->message);
      } else if (const auto* a = std::get_if<ToServer>(&action)) {
        if (a->message.has_granted())
          spdlog::info("event=lease_granted epoch={} device={}", a->message.granted().epoch(),
                       a->message.granted().device().device_id());
        if (a->message.has_ended())
          spdlog::info("event=lease_ended epoch={} reason=\"{}\"", a->message.ended().epoch(),
                       a->message.ended().reason());
        servers_.Send(a->session, a->message);
      } else if (const auto* a = std::get_if<EndSession>(&action)) {
        if (!a->status.ok()) spdlog::warn("event=session_ended reason=\"{}\"", Message(a->status));
        if (a->side == Side::kWorker) {
          workers_.Close(a->session, rpc::ToGrpc(a->status));
        } else {
          servers_.Close(a->session, rpc::ToGrpc(a->status));
        }
      } else if (const auto* a = std::get_if<ReserveEpochs>(&action)) {
        const Status saved =
            epoch_path_.empty() ? OkStatus() : WriteEpochs(epoch_path_, a->below, false);
        if (saved.ok()) {
          reserved_below_ = a->below;
          Execute(table_->EpochsReserved(MonotonicNs(), a->below));
        } else {
          spdlog::error("event=epochs_not_reserved error=\"{}\"", Message(saved));
        }
      }
    }
  }

  void RunTimer() {
    std::unique_lock lock(timer_mu_);
    while (!stopping_) {
      timer_wake_.wait_for(lock, std::chrono::nanoseconds(kTickNs));
      if (!stopping_) Apply([&](int64_t now) { return table_->Tick(now); });
    }
  }

  // Set in Start.
  std::string epoch_path_;
  FileLock lock_;

  std::mutex mu_;
  std::unique_ptr<LeaseTable> table_;
  int64_t reserved_below_ = 0;

  rpc::ServerStreams<v1::AttachRequest, v1::AttachReply> workers_;
  rpc::ServerStreams<v1::LeaseRequest, v1::LeaseReply> servers_;
  rpc::Listener listener_;

  std::mutex timer_mu_;
  std::condition_variable timer_wake_;
  bool stopping_ = false;
  std::thread timer_;
};

StatusOr<std::unique_ptr<TrackerServer>> TrackerServer::Start(const TrackerOptions& options) {
  auto impl = std::make_unique<Impl>();
  WHET_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<TrackerServer>(new TrackerServer(std::move(impl)));
}

TrackerServer::TrackerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrackerServer::~TrackerServer() = default;
const std::string& TrackerServer::address() const { return impl_->address(); }

}  // namespace whet::tracker
