// The tuner server's inside, shared by its three sources: tuner_server.cc (life, loop, workers),
// server_actions.cc (what the core wants done), server_calls.cc (what clients and the tracker say).
// One loop thread owns the core and all that is listed as its; the others post to its mailbox. Not
// for anyone else to include.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiler/support/mailbox.h"
#include "proto/rpc/client_stream.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/server_streams.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/tuner.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tuner/service/blob_store.h"
#include "tuner/service/job_search.h"
#include "tuner/service/leftovers.h"
#include "tuner/service/preparation.h"
#include "tuner/service/tuner_server.h"
#include "tuner/service/watchers.h"

namespace whet::tuner {

// A thread that runs what is posted, in order.
class Lane {
 public:
  Lane() : thread_([this] { Run(); }) {}
  ~Lane() { Stop(); }
  void Post(std::function<void()> work) { work_.PushAlways(std::move(work)); }
  // What is queued is dropped.
  void Stop() {
    stopping_ = true;
    work_.PushAlways(nullptr);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    while (true) {
      const std::function<void()> work = *work_.Pop(kNever);
      if (!work || stopping_) return;
      work();
    }
  }
  Mailbox<std::function<void()>> work_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class TunerServer::Impl {
 public:
  Impl(const ServerOptions& options, std::unique_ptr<db::TuningLog> log,
       std::unique_ptr<BuilderPool> builders, const SpaceProvider* spaces,
       const ReferenceProvider* references)
      : options_(options),
        log_(std::move(log)),
        builders_(std::move(builders)),
        spaces_(spaces),
        references_(references),
        blobs_(options.max_unneeded_blob_bytes),
        tuner_service_(MakeTunerService()),
        dispatch_service_(MakeDispatchService()),
        workers_(
            [this](uint64_t s, v1::WorkerMessage m) {
              Post([this, s, m = std::move(m)]() mutable { OnWorkerMessage(s, std::move(m)); });
            },
            [this](uint64_t s) { Post([this, s] { Execute(core_->WorkerGone(Now(), s)); }); },
            kMaxWorkerQueue,
            [](const rpc::Principal& by, const v1::WorkerMessage& m) {
              if (!m.has_hello()) return OkStatus();
              const v1::DeviceIdentity& d = m.hello().device();
              return rpc::CheckOwnDevice(by, d.worker_id(), d.device_id());
            }) {}
  ~Impl() { Stop(); }

  Status Start();
  const std::string& address() const { return listener_.address; }

 private:
  class TunerService;
  class DispatchService;
  static constexpr size_t kMaxWorkerQueue = 10'000;  // messages
  struct JobContext {
    std::mutex mu;
    std::map<uint32_t, std::shared_ptr<const Task>> tasks;
    std::map<uint32_t, db::RecordKey> keys;
    std::unique_ptr<JobSearch> search;  // of the search lane
  };

  static int64_t Now() { return MonotonicNs(); }
  void Post(std::function<void()> work) { mailbox_.PushAlways(std::move(work)); }

  // ---- life: on the thread that starts and stops
  // One log on one address has one server at a time: after a restart it is the same one to the
  // tracker, which then need not wait for the leases of the former process to expire.
  std::string ServerId() const;
  // After the port is ours, before the loop begins: whoever asks for one of these jobs finds it.
  void TakeUpLeftovers();
  Status TakeUp(const Leftover& job);
  void Stop();

  // ---- the loop: everything below runs on it unless said otherwise
  void CheckIdle();
  void RunLoop();
  void Execute(Actions actions);
  void OnWorkerMessage(uint64_t session, v1::WorkerMessage message);
  void SendBlob(uint64_t session, const v1::Fetch& fetch);

  // ---- actions of the core
  std::shared_ptr<JobContext> ContextOf(const std::string& job);
  // Figures of the first board of this instruction set in the log, else as the tracker lists one;
  // empty: none was measured. Any thread.
  std::string MachineFor(const std::string& feature_set);
  void Do(PrepareTask& a);
  void Do(ComputeExpected& a);
  void Do(StartSearch& a);
  void Do(const AskSearch& a);
  void Do(const TellSearch& a);
  void Do(const EndSearch& a);
  void Do(StartBuild& a);
  void Do(const JobPrepared& a);
  void Do(const JobEnded& a);
  void Do(const CloseWorker& a);
  void Do(SendTracker& a);
  void Do(AppendRow& a);
  // In order. A full queue or disk is waited for: what is not acknowledged is not lost, it is still
  // with its worker.
  void AppendWaiting();
  void OnCommitted(int64_t order, const AppendRow& row, const StatusOr<db::AppendVerdict>& verdict);
  void WaitForLog(const Status& why);
  void PruneLog();
  void Do(const ResultRefused& a);
  void Do(const KeepBlob& a) { blobs_.Keep(a.sha256); }
  void Do(const DropBlob& a) { blobs_.Drop(a.sha256); }
  void Do(SendWorker& a) { workers_.Send(a.session, std::move(a.message)); }
  void Do(const Publish& a) { watchers_.Publish(a.job, a.event, a.last); }

  // ---- tracker and calls
  std::unique_ptr<grpc::Service> MakeTunerService();  // handlers run on gRPC's threads
  std::unique_ptr<grpc::Service> MakeDispatchService();
  void ConnectTracker(int64_t now);
  void OnTracker(uint64_t link, const v1::LeaseReply& m);
  void OnTrackerLost(uint64_t link, const grpc::Status& s);
  // What the tracker lists for a key; `done` comes on one of gRPC's threads.
  void AskTracker(const std::string& key, std::function<void(StatusOr<v1::ListDevicesReply>)> done);
  void Submit(const std::string& by, const v1::JobSpec& spec, const JobTarget& target,
              v1::SubmitJobReply* reply, grpc::ServerUnaryReactor* reactor);
  void Watch(Watchers::Stream* stream, const std::string& job);
  void Cancel(const std::string& by, const std::string& job, v1::CancelJobReply* reply,
              grpc::ServerUnaryReactor* reactor);

  // Constant after Start.
  const ServerOptions options_;
  std::unique_ptr<db::TuningLog> log_;
  std::unique_ptr<BuilderPool> builders_;
  const SpaceProvider* const spaces_;
  const ReferenceProvider* const references_;
  std::unique_ptr<db::LogReader> reader_;  // thread-safe
  v1::ServerInfo info_;
  std::string advertise_;
  std::shared_ptr<grpc::Channel> tracker_channel_;
  std::unique_ptr<v1::Tracker::Stub> tracker_stub_;

  // Thread-safe.
  BlobStore blobs_;
  Mailbox<std::function<void()>> mailbox_;
  Watchers watchers_;
  const std::unique_ptr<grpc::Service> tuner_service_, dispatch_service_;
  rpc::ServerStreams<v1::WorkerMessage, v1::ServerMessage> workers_;
  rpc::Listener listener_;
  Lane search_lane_, prepare_lane_, query_lane_;

  std::mutex machines_mu_;
  std::map<std::string, std::string> machines_;  // by feature set, as listed

  // Of the loop.
  std::thread loop_;
  bool stop_ = false, stopping_ = false;
  std::shared_ptr<std::promise<void>> when_idle_;
  std::unique_ptr<ServiceCore> core_;
  std::map<std::string, std::shared_ptr<JobContext>> contexts_;
  std::map<int64_t, AppendRow> waiting_rows_;  // by the order in which they came
  int64_t next_row_ = 0;
  int64_t log_retry_ns_ = 0;
  bool log_stalled_ = false;
  int64_t next_prune_ns_ = 0;
  // Shared with gRPC until the call ends.
  std::shared_ptr<rpc::ClientStream<v1::LeaseRequest, v1::LeaseReply>> tracker_stream_;
  std::vector<std::future<void>> tracker_ends_;
  uint64_t tracker_link_ = 0;
  int64_t tracker_retry_ns_ = 0;
  bool tracker_said_ = false;
  std::map<std::string, std::vector<std::pair<v1::SubmitJobReply*, grpc::ServerUnaryReactor*>>>
      submits_;
  std::map<std::string, std::vector<std::pair<v1::CancelJobReply*, grpc::ServerUnaryReactor*>>>
      cancels_;
};

}  // namespace whet::tuner
