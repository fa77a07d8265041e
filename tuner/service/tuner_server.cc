#include "tuner/service/tuner_server.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <future>
#include <thread>

#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "compiler/support/mailbox.h"
#include "proto/rpc/access.h"
#include "proto/rpc/client_stream.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/server_streams.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/tuner.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tuner/service/blob_store.h"
#include "tuner/service/leftovers.h"
#include "tuner/service/preparation.h"
#include "tuner/service/watchers.h"

namespace whet::tuner {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kTrackerRetry = 500 * kMillisecond;
constexpr int64_t kTrackerHelloLimit = 5 * kSecond;
constexpr int64_t kLogRetry = 500 * kMillisecond;
constexpr auto kTrackerCallLimit = std::chrono::seconds(4);
constexpr auto kStopLimit = std::chrono::seconds(7);

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

}  // namespace

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
        tuner_service_(this),
        dispatch_service_(this),
        workers_(
            [this](uint64_t s, v1::WorkerMessage m) {
              Post([this, s, m = std::move(m)]() mutable { OnWorkerMessage(s, std::move(m)); });
            },
            [this](uint64_t s) { Post([this, s] { Execute(core_->WorkerGone(Now(), s)); }); }) {}

  ~Impl() { Stop(); }

  Status Start() {
    CoreConfig config = options_.core;
    config.server_id = ServerId();
    config.log_id = log_->log_id();
    config.generation = log_->generation();
    config.codegen_version = spaces_->codegen_version();
    config.compiler_version = spaces_->compiler_version();
    config.builders = builders_->builders();
    if (builders_->hello().codegen_version() != config.codegen_version) {
      return FailedPrecondition(
          "whet-builder generates code of version {}, this server counts on {}; install one "
          "release of both",
          builders_->hello().codegen_version(), config.codegen_version);
    }
    WHET_ASSIGN_OR_RETURN(reader_, db::LogReader::Open(log_->path()));
    core_ = std::make_unique<ServiceCore>(config);
    info_.set_build(kVersion);
    info_.set_server_id(config.server_id);
    info_.set_log_id(config.log_id);
    info_.set_generation(config.generation);
    info_.set_codegen_version(config.codegen_version);
    info_.set_compiler_version(config.compiler_version);
    info_.set_tracker(options_.tracker);
    tracker_channel_ = rpc::Dial(options_.tracker);
    tracker_stub_ = v1::Tracker::NewStub(tracker_channel_);
    WHET_ASSIGN_OR_RETURN(listener_,
                          rpc::Listen(options_.listen, {&tuner_service_, &dispatch_service_}));
    advertise_ = options_.advertise.empty() ? listener_.address : options_.advertise;
    TakeUpLeftovers();
    loop_ = std::thread([this] { RunLoop(); });
    spdlog::info("event=server_started address={} tracker={} log={} generation={} builders={}",
                 listener_.address, options_.tracker, log_->path(), config.generation,
                 config.builders);
    return OkStatus();
  }

  const std::string& address() const { return listener_.address; }

 private:
  static int64_t Now() { return MonotonicNs(); }
  void Post(std::function<void()> work) { mailbox_.PushAlways(std::move(work)); }

  // One log on one address has one server at a time: after a restart it is the same one to the
  // tracker, which then need not wait for the leases of the former process to expire.
  std::string ServerId() const {
    const bool any_port = options_.listen.ends_with(":0");
    return any_port ? RandomHex(8)
                    : FingerprintOf(fmt::format("{} {} {}", log_->log_id(), options_.listen,
                                                options_.advertise))
                          .Hex();
  }

  // After the port is ours, before the loop begins: whoever asks for one of these jobs finds it.
  void TakeUpLeftovers() {
    StatusOr<std::vector<Leftover>> leftovers = ReadLeftovers(*reader_);
    if (!leftovers.ok()) {
      spdlog::warn("event=jobs_not_read error=\"{}\"", Message(leftovers.status()));
      return;
    }
    for (Leftover& job : *leftovers) {
      const Status taken = options_.leftovers == Leftovers::kEnd
                               ? FailedPrecondition("the server ended before the job did")
                               : TakeUp(job);
      if (taken.ok()) {
        spdlog::info("event=job_resumed job={}", job.row.job_id);
        continue;
      }
      spdlog::info("event=job_closed job={} reason=\"{}\"", job.row.job_id, Message(taken));
      job.row.state = db::JobState::kFailed;
      job.row.error = db::CleanText(
          Message(taken) + "; submit it again and it goes on from the log", db::kMaxMessageBytes);
      job.row.updated_ms = RealClock().WallMs();
      if (const Status kept = log_->AppendWait(job.row).status(); !kept.ok())
        spdlog::warn("event=job_not_closed job={} error=\"{}\"", job.row.job_id, Message(kept));
    }
  }

  Status TakeUp(const Leftover& job) {
    WHET_RETURN_IF_ERROR(Annotate(job.kept.status(), "the job cannot be taken up again"));
    WHET_ASSIGN_OR_RETURN(const std::string features,
                          spaces_->FeatureSetOf(job.kept->spec().target()));
    Actions actions;
    WHET_RETURN_IF_ERROR(
        core_->Resume(Now(), job.row.job_id, *job.kept, features, job.row.created_ms, &actions));
    Execute(std::move(actions));
    return OkStatus();
  }

  void Stop() {
    if (loop_.joinable()) {
      auto idle = std::make_shared<std::promise<void>>();
      Post([this, idle] {
        when_idle_ = idle;
        for (const v1::JobSnapshot& job : core_->Jobs(Now())) {
          Actions actions;
          if (core_->Cancel(Now(), job.job_id(), &actions).ok()) Execute(std::move(actions));
        }
        CheckIdle();
      });
      idle->get_future().wait_for(kStopLimit);
      const grpc::Status stopping(grpc::StatusCode::UNAVAILABLE, "the server is stopping");
      workers_.CloseAll(stopping);
      watchers_.EndAll(stopping);
      Post([this, stopping] {
        stopping_ = true;  // calls that come yet are refused
        for (auto& [job, calls] : submits_) {
          for (auto& call : calls) call.second->Finish(stopping);
        }
        for (auto& [job, calls] : cancels_) {
          for (auto& call : calls) call.second->Finish(stopping);
        }
        submits_.clear();
        cancels_.clear();
      });
    }
    // The loop and its lanes go on until every call has ended: calls end on them.
    if (listener_.server) {
      listener_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
      listener_.server->Wait();
    }
    if (loop_.joinable()) {
      Post([this] { stop_ = true; });
      loop_.join();
    }
    if (tracker_stream_) tracker_stream_->Cancel();
    for (auto& ended : tracker_ends_) ended.wait();
    builders_.reset();
    search_lane_.Stop();
    prepare_lane_.Stop();
    query_lane_.Stop();
    log_.reset();
    spdlog::info("event=server_stopped");
  }

  void CheckIdle() {
    if (when_idle_ && core_->open_jobs() == 0) {
      when_idle_->set_value();
      when_idle_ = nullptr;
    }
  }

  // ---- the loop: everything below runs on it unless said otherwise

  void RunLoop() {
    int64_t next_tick = 0;
    while (!stop_) {
      const int64_t deadline = std::min({next_tick, core_->NextDeadline(Now()), tracker_retry_ns_,
                                         waiting_rows_.empty() ? kNever : log_retry_ns_});
      const std::optional<std::function<void()>> work = mailbox_.Pop(deadline);
      if (work) (*work)();
      const int64_t now = Now();
      if (now >= tracker_retry_ns_) ConnectTracker(now);
      if (!waiting_rows_.empty() && now >= log_retry_ns_) AppendWaiting();
      if (now >= next_tick) {
        Execute(core_->Tick(now));
        next_tick = std::min(core_->NextDeadline(now), now + kSecond);
      }
    }
  }

  void Execute(Actions actions) {
    for (Action& action : actions) std::visit([this](auto& a) { Do(a); }, action);
  }

  void OnWorkerMessage(uint64_t session, v1::WorkerMessage message) {
    if (message.has_hello()) {
      const v1::DeviceIdentity& d = message.hello().device();
      spdlog::info("event=worker_connected worker={} key={} epoch={} kept_results={}",
                   d.worker_id(), d.key(), message.hello().lease_epoch(),
                   message.hello().unacked());
    }
    if (message.has_fetch()) SendBlob(session, message.fetch());
    Execute(core_->FromWorker(Now(), session, std::move(message)));
  }

  void SendBlob(uint64_t session, const v1::Fetch& fetch) {
    const std::shared_ptr<const std::string> blob = blobs_.Get(fetch.sha256().substr(0, 64));
    v1::ServerMessage m;
    v1::Chunk& chunk = *m.mutable_chunk();
    chunk.set_sha256(fetch.sha256().substr(0, 64));
    if (!blob || fetch.offset() > blob->size()) {
      chunk.set_error("it is not here (any more)");
      workers_.Send(session, std::move(m));
      return;
    }
    chunk.set_total(blob->size());
    for (size_t at = fetch.offset(); at < blob->size(); at += kChunkBytes) {
      chunk.set_offset(at);
      chunk.set_data(blob->substr(at, kChunkBytes));
      workers_.Send(session, m);
    }
  }

  // ---- actions of the core

  struct JobContext {
    std::mutex mu;
    std::map<uint32_t, std::shared_ptr<const Task>> tasks;
    std::map<uint32_t, db::RecordKey> keys;
    std::unique_ptr<JobSearch> search;  // of the search lane
  };

  std::shared_ptr<JobContext> ContextOf(const std::string& job) {
    auto& context = contexts_[job];
    if (!context) context = std::make_shared<JobContext>();
    return context;
  }

  void Do(PrepareTask& a) {
    prepare_lane_.Post([this, a, context = ContextOf(a.job)] {
      StatusOr<std::unique_ptr<Task>> task = spaces_->OpenTask(a.workload, a.target, a.key.threads);
      StatusOr<PreparedTask> prepared =
          task.ok() ? PrepareFromLog(**task, a, *reader_, spaces_->codegen_version())
                    : StatusOr<PreparedTask>(task.status());
      if (task.ok()) {
        const std::lock_guard lock(context->mu);
        context->tasks[a.task] = std::move(*task);
        context->keys[a.task] = a.key;
      }
      Post([this, job = a.job, index = a.task, prepared = std::move(prepared)]() mutable {
        Execute(core_->TaskPrepared(Now(), job, index, std::move(prepared)));
      });
    });
  }

  void Do(ComputeExpected& a) {
    prepare_lane_.Post([this, a] {
      StatusOr<std::string> bytes = references_->Expected(a.workload, a.seeds);
      const uint64_t size = bytes.ok() ? bytes->size() : 0;
      const std::string sha = bytes.ok() ? blobs_.Put(*std::move(bytes)) : "";
      Post([this, job = a.job, index = a.task, status = bytes.status(), sha, size] {
        Execute(core_->ExpectedReady(Now(), job, index, status, sha, size));
        blobs_.Drop(sha);
      });
    });
  }

  void Do(const JobPrepared& a) {
    const auto it = submits_.find(a.job);
    if (it == submits_.end()) return;
    for (auto& [reply, reactor] : it->second) {
      reply->set_already_measured(a.already_measured);
      reply->set_to_measure(a.to_measure);
      reactor->Finish(grpc::Status::OK);
    }
    submits_.erase(it);
  }

  void Do(StartSearch& a) {
    search_lane_.Post([this, a, context = ContextOf(a.job)] {
      std::vector<SearchTask> tasks;
      Status status;
      for (size_t i = 0; i < a.tasks.size() && status.ok(); ++i) {
        SearchTask t;
        t.index = a.tasks[i];
        t.weight = a.weights[i];
        db::RecordKey key;
        {
          const std::lock_guard lock(context->mu);
          t.task = context->tasks[t.index];
          key = context->keys[t.index];
        }
        auto log = ReadLogged(*t.task, key, *reader_, spaces_->codegen_version());
        status = log.status();
        if (log.ok()) t.log = *std::move(log);
        tasks.push_back(std::move(t));
      }
      if (status.ok()) {
        auto search = JobSearch::Create(a, std::move(tasks), spaces_->feature_count());
        status = search.status();
        if (search.ok()) context->search = *std::move(search);
      }
      Post([this, job = a.job, status] { Execute(core_->SearchStarted(Now(), job, status)); });
    });
  }

  void Do(const AskSearch& a) {
    search_lane_.Post([this, a, context = ContextOf(a.job)] {
      std::vector<Proposal> proposals;
      bool done = true;
      if (context->search) {
        proposals = context->search->Ask(a.n);
        done = proposals.empty() && context->search->Done();
      }
      Post([this, job = a.job, proposals = std::move(proposals), done]() mutable {
        Execute(core_->Proposed(Now(), job, std::move(proposals), done));
      });
    });
  }

  void Do(const TellSearch& a) {
    search_lane_.Post([a, context = ContextOf(a.job)] {
      if (!context->search) return;
      if (const Status s = context->search->Tell(a); !s.ok())
        spdlog::warn("event=search_not_told job={} error=\"{}\"", a.job, Message(s));
    });
  }

  void Do(const EndSearch& a) {
    search_lane_.Post([context = ContextOf(a.job)] { context->search.reset(); });
  }

  void Do(StartBuild& a) {
    builders_->Build(std::move(a.request), [this, build = a.build](v1::BuildReply reply) {
      BuiltObject object;
      object.failure = reply.failure();
      object.message = reply.message();
      object.initial_program = reply.initial_program();
      object.build_ns = reply.build_ns();
      object.bytes = reply.object().size();
      if (reply.failure() == v1::FAILURE_OK && object.bytes == 0)
        object.failure = v1::FAILURE_BUILD_ERROR;
      if (object.failure == v1::FAILURE_OK)
        object.sha256 = blobs_.Put(std::move(*reply.mutable_object()));
      Post([this, build, object] {
        Execute(core_->Built(Now(), build, object));
        blobs_.Drop(object.sha256);
      });
    });
  }

  void Do(const KeepBlob& a) { blobs_.Keep(a.sha256); }
  void Do(const DropBlob& a) { blobs_.Drop(a.sha256); }
  void Do(SendWorker& a) { workers_.Send(a.session, std::move(a.message)); }
  void Do(const CloseWorker& a) {
    if (!a.status.ok()) spdlog::warn("event=worker_stream_closed reason=\"{}\"", Message(a.status));
    workers_.Close(a.session, rpc::ToGrpc(a.status));
  }
  void Do(SendTracker& a) {
    if (tracker_stream_) tracker_stream_->Send(std::move(a.message));
  }

  void Do(AppendRow& a) {
    const int64_t wall = RealClock().WallMs();
    if (auto* trial = std::get_if<db::TrialRow>(&a.row)) trial->created_ms = wall;
    if (auto* job = std::get_if<db::JobRow>(&a.row)) job->updated_ms = wall;
    waiting_rows_.push_back(std::move(a));
    if (waiting_rows_.size() == 1) AppendWaiting();
  }

  // In order. A full queue or disk is waited for: what is not acknowledged is not lost, it is still
  // with its worker.
  void AppendWaiting() {
    while (!waiting_rows_.empty()) {
      const AppendRow& row = waiting_rows_.front();
      const Status queued =
          log_->Append(row.row, [this, row](const StatusOr<db::AppendVerdict>& verdict) {
            Post([this, row, verdict] { OnCommitted(row, verdict); });
          });
      if (queued.code() == absl::StatusCode::kResourceExhausted) {
        if (!log_full_) spdlog::error("event=log_not_writable error=\"{}\"", Message(queued));
        log_full_ = true;
        log_retry_ns_ = Now() + kLogRetry;
        return;
      }
      log_full_ = false;
      const uint64_t ticket = row.ticket;
      waiting_rows_.pop_front();
      if (!queued.ok()) {
        spdlog::error("event=row_refused error=\"{}\"", Message(queued));
        Execute(core_->Committed(Now(), ticket, queued));
      }
    }
  }

  void OnCommitted(const AppendRow& row, const StatusOr<db::AppendVerdict>& verdict) {
    if (verdict.status().code() == absl::StatusCode::kResourceExhausted ||
        verdict.status().code() == absl::StatusCode::kUnavailable) {
      waiting_rows_.push_front(row);
      log_retry_ns_ = Now() + kLogRetry;
      return;
    }
    if (!verdict.ok()) spdlog::error("event=row_not_kept error=\"{}\"", Message(verdict.status()));
    Execute(core_->Committed(
        Now(), row.ticket,
        verdict.ok() ? StatusOr<db::TrialStatus>(verdict->status) : verdict.status()));
  }

  void Do(const Publish& a) { watchers_.Publish(a.job, a.event, a.last); }

  void Do(const JobEnded& a) {
    spdlog::info("event=job_ended job={} state={}", a.job, v1::JobState_Name(a.state));
    contexts_.erase(a.job);
    if (const auto it = cancels_.find(a.job); it != cancels_.end()) {
      for (auto& [reply, reactor] : it->second) {
        reply->set_state(a.state);
        reactor->Finish(grpc::Status::OK);
      }
      cancels_.erase(it);
    }
    if (const auto it = submits_.find(a.job); it != submits_.end()) {
      for (auto& call : it->second) call.second->Finish(grpc::Status::OK);
      submits_.erase(it);
    }
    CheckIdle();
  }

  void Do(const ResultRefused& a) {
    spdlog::info("event=result_refused job={} task={} trial={} attempt={} reason=\"{}\"",
                 db::CleanText(a.ids.job_id(), 64), a.ids.task(), a.ids.trial(), a.ids.attempt(),
                 a.why);
  }

  // ---- tracker

  void ConnectTracker(int64_t now) {
    if (tracker_stream_) tracker_stream_->Cancel();
    const uint64_t link = ++tracker_link_;
    tracker_retry_ns_ = now + kTrackerHelloLimit;  // unless it has answered by then
    std::erase_if(tracker_ends_, [](const std::future<void>& f) {
      return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    auto ended = std::make_shared<std::promise<void>>();
    tracker_ends_.push_back(ended->get_future());
    tracker_stream_ = rpc::ClientStream<v1::LeaseRequest, v1::LeaseReply>::Start(
        [this](grpc::ClientContext* c, auto* reactor) {
          tracker_stub_->async()->Lease(c, reactor);
        },
        [this, link](v1::LeaseReply m) {
          Post([this, link, m = std::move(m)] { OnTracker(link, m); });
        },
        [this, link, ended](const grpc::Status& s) {
          Post([this, link, s] { OnTrackerLost(link, s); });
          ended->set_value();
        });
    v1::LeaseRequest m;
    v1::Present& p = *m.mutable_present();
    p.mutable_protocol()->set_min(rpc::kProtocolMin);
    p.mutable_protocol()->set_max(rpc::kProtocolMax);
    p.set_server_id(info_.server_id());
    p.set_server_address(advertise_);
    for (const v1::HeldLease& h : core_->HeldLeases()) *p.add_held() = h;
    tracker_stream_->Send(std::move(m));
  }

  void OnTracker(uint64_t link, const v1::LeaseReply& m) {
    if (link != tracker_link_) return;
    if (m.has_presented()) {
      tracker_retry_ns_ = kNever;
      tracker_said_ = false;
      spdlog::info("event=tracker_connected incarnation={}", m.presented().incarnation());
      Execute(core_->TrackerUp(Now()));
    }
    Execute(core_->FromTracker(Now(), m));
  }

  void OnTrackerLost(uint64_t link, const grpc::Status& s) {
    if (link != tracker_link_) return;
    if (!tracker_said_) spdlog::warn("event=tracker_lost error=\"{}\"", s.error_message());
    tracker_said_ = true;
    tracker_retry_ns_ = Now() + kTrackerRetry;
    Execute(core_->TrackerDown(Now()));
  }

  // ---- services; handlers run on gRPC's threads

  // What the tracker lists for a key; `done` comes on one of gRPC's threads.
  void AskTracker(const std::string& key,
                  std::function<void(StatusOr<v1::ListDevicesReply>)> done) {
    struct Call {
      grpc::ClientContext context;
      v1::ListDevicesRequest request;
      v1::ListDevicesReply reply;
    };
    auto call = std::make_shared<Call>();
    call->request.set_key(key);
    call->context.set_deadline(std::chrono::system_clock::now() + kTrackerCallLimit);
    tracker_stub_->async()->ListDevices(
        &call->context, &call->request, &call->reply,
        [this, call, done = std::move(done)](const grpc::Status& s) {
          if (s.ok()) {
            done(std::move(call->reply));
          } else {
            done(rpc::FromGrpc(s, "the tracker at " + options_.tracker));
          }
        });
  }

  class TunerService final : public v1::Tuner::CallbackService {
   public:
    explicit TunerService(Impl* impl) : impl_(impl) {}

    grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                      const v1::GetInfoRequest*, v1::ServerInfo* reply) override {
      return Handle(context, "/whet.v1.Tuner/GetInfo", [&](const rpc::Principal&, auto* reactor) {
        *reply = impl_->info_;
        reactor->Finish(grpc::Status::OK);
      });
    }

    grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                        const v1::SubmitJobRequest* request,
                                        v1::SubmitJobReply* reply) override {
      return Handle(
          context, "/whet.v1.Tuner/SubmitJob", [&](const rpc::Principal& principal, auto* reactor) {
            impl_->AskTracker(
                request->spec().key(), [this, request, reply, reactor, by = principal.name](
                                           StatusOr<v1::ListDevicesReply> devices) {
                  const StatusOr<JobTarget> target =
                      devices.ok() ? ChooseTarget(request->spec(), *devices, *impl_->spaces_)
                                   : StatusOr<JobTarget>(devices.status());
                  if (!target.ok()) {
                    reactor->Finish(rpc::ToGrpc(target.status()));
                    return;
                  }
                  impl_->Post([this, request, reply, reactor, target = *target, by] {
                    impl_->Submit(by, request->spec(), target, reply, reactor);
                  });
                });
          });
    }

    grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                     const v1::WatchJobRequest* request) override {
      Watchers::Stream* stream = impl_->watchers_.New();
      rpc::Principal principal;
      if (const grpc::Status s = rpc::Authorize(*context, "/whet.v1.Tuner/WatchJob", &principal);
          !s.ok()) {
        stream->End(s);
      } else {
        impl_->Post([impl = impl_, stream, job = request->job_id()] { impl->Watch(stream, job); });
      }
      return stream;
    }

    grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                        const v1::CancelJobRequest* request,
                                        v1::CancelJobReply* reply) override {
      return Handle(context, "/whet.v1.Tuner/CancelJob",
                    [&](const rpc::Principal& principal, auto* reactor) {
                      impl_->Post([impl = impl_, job = request->job_id(), reply, reactor,
                                   by = principal.name] { impl->Cancel(by, job, reply, reactor); });
                    });
    }

    grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                       const v1::ListJobsRequest*,
                                       v1::ListJobsReply* reply) override {
      return Handle(context, "/whet.v1.Tuner/ListJobs", [&](const rpc::Principal&, auto* reactor) {
        impl_->Post([impl = impl_, reply, reactor] {
          for (v1::JobSnapshot& job : impl->core_->Jobs(Now())) *reply->add_jobs() = std::move(job);
          reactor->Finish(grpc::Status::OK);
        });
      });
    }

    grpc::ServerUnaryReactor* GetRecords(grpc::CallbackServerContext* context,
                                         const v1::GetRecordsRequest* request,
                                         v1::GetRecordsReply* reply) override {
      return Handle(context, "/whet.v1.Tuner/GetRecords",
                    [&](const rpc::Principal&, auto* reactor) {
                      impl_->query_lane_.Post([impl = impl_, request, reply, reactor] {
                        StatusOr<v1::GetRecordsReply> found = FindRecords(*request, *impl->reader_);
                        if (found.ok()) *reply = *std::move(found);
                        reactor->Finish(rpc::ToGrpc(found.status()));
                      });
                    });
    }

    grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                          const v1::ListDevicesRequest* request,
                                          v1::ListDevicesReply* reply) override {
      return Handle(context, "/whet.v1.Tuner/ListDevices",
                    [&](const rpc::Principal&, auto* reactor) {
                      impl_->AskTracker(request->key(),
                                        [reply, reactor](StatusOr<v1::ListDevicesReply> devices) {
                                          if (devices.ok()) *reply = *std::move(devices);
                                          reactor->Finish(rpc::ToGrpc(devices.status()));
                                        });
                    });
    }

   private:
    template <typename F>
    grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context, const char* method,
                                     F&& handle) {
      auto* reactor = context->DefaultReactor();
      rpc::Principal principal;
      if (const grpc::Status s = rpc::Authorize(*context, method, &principal); s.ok()) {
        handle(principal, reactor);
      } else {
        reactor->Finish(s);
      }
      return reactor;
    }
    Impl* const impl_;
  };

  class DispatchService final : public v1::Dispatch::CallbackService {
   public:
    explicit DispatchService(Impl* impl) : impl_(impl) {}
    grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* Work(
        grpc::CallbackServerContext* context) override {
      rpc::Principal principal;
      const grpc::Status allowed = rpc::Authorize(*context, "/whet.v1.Dispatch/Work", &principal);
      spdlog::info("event=worker_stream by={} allowed={}", principal.name, allowed.ok());
      return impl_->workers_.Accept(allowed);
    }

   private:
    Impl* const impl_;
  };

  void Submit(const std::string& by, const v1::JobSpec& spec, const JobTarget& target,
              v1::SubmitJobReply* reply, grpc::ServerUnaryReactor* reactor) {
    const bool ending = stopping_ || when_idle_;
    if (const auto resumed = core_->ResumedLike(spec, target.target); resumed && !ending) {
      spdlog::info("event=job_joined job={} by={}", *resumed, by);
      reply->set_job_id(*resumed);
      reply->set_target(target.target);
      submits_[*resumed].emplace_back(reply, reactor);
      if (const auto prepared = core_->Prepared(*resumed)) Do(*prepared);
      return;
    }
    const std::string job = RandomHex(6);
    Actions actions;
    const Status s = ending ? Unavailable("the server is stopping")
                            : core_->Submit(Now(), job, spec, target.target, target.feature_set,
                                            RealClock().WallMs(), &actions);
    if (!s.ok()) {
      reactor->Finish(rpc::ToGrpc(s));
      return;
    }
    spdlog::info(
        "event=job_submitted job={} name=\"{}\" key={} tasks={} trials={} seconds={:.0f} "
        "threads={} by={}",
        job, db::CleanText(spec.name(), 200), spec.key(), spec.tasks_size(), spec.trials(),
        static_cast<double>(spec.time_limit_ns()) * 1e-9, spec.threads(), by);
    reply->set_job_id(job);
    reply->set_target(target.target);
    submits_[job].emplace_back(reply, reactor);
    Execute(std::move(actions));
  }

  void Watch(Watchers::Stream* stream, const std::string& job) {
    const StatusOr<v1::JobSnapshot> snapshot = core_->Snapshot(Now(), job);
    if (!snapshot.ok()) {
      watchers_.EndOne(stream, rpc::ToGrpc(snapshot.status()));
      return;
    }
    v1::JobEvent event;
    *event.mutable_snapshot() = *snapshot;
    watchers_.SendTo(stream, event);
    if (core_->Terminal(job)) {
      watchers_.EndOne(stream, grpc::Status::OK);
    } else {
      watchers_.Attach(stream, job);
    }
  }

  void Cancel(const std::string& by, const std::string& job, v1::CancelJobReply* reply,
              grpc::ServerUnaryReactor* reactor) {
    Actions actions;
    const Status s = core_->Cancel(Now(), job, &actions);
    if (s.ok()) spdlog::info("event=job_cancelled job={} by={}", db::CleanText(job, 64), by);
    if (!s.ok()) {
      reactor->Finish(rpc::ToGrpc(s));
    } else if (core_->Terminal(job)) {
      reply->set_state(core_->Snapshot(Now(), job)->state());
      reactor->Finish(grpc::Status::OK);
    } else if (stopping_) {
      reactor->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is stopping"));
    } else {
      cancels_[job].emplace_back(reply, reactor);
      Execute(std::move(actions));
    }
  }

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
  TunerService tuner_service_;
  DispatchService dispatch_service_;
  rpc::ServerStreams<v1::WorkerMessage, v1::ServerMessage> workers_;
  rpc::Listener listener_;
  Lane search_lane_, prepare_lane_, query_lane_;

  // Of the loop.
  std::thread loop_;
  bool stop_ = false, stopping_ = false;
  std::shared_ptr<std::promise<void>> when_idle_;
  std::unique_ptr<ServiceCore> core_;
  std::map<std::string, std::shared_ptr<JobContext>> contexts_;
  std::deque<AppendRow> waiting_rows_;
  int64_t log_retry_ns_ = 0;
  bool log_full_ = false;
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

StatusOr<std::unique_ptr<TunerServer>> TunerServer::Start(const ServerOptions& options,
                                                          std::unique_ptr<db::TuningLog> log,
                                                          std::unique_ptr<BuilderPool> builders,
                                                          const SpaceProvider* spaces,
                                                          const ReferenceProvider* references) {
  auto impl =
      std::make_unique<Impl>(options, std::move(log), std::move(builders), spaces, references);
  WHET_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<TunerServer>(new TunerServer(std::move(impl)));
}

TunerServer::TunerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TunerServer::~TunerServer() = default;
const std::string& TunerServer::address() const { return impl_->address(); }

}  // namespace whet::tuner
