// What clients, workers and the tracker say to the server.
#include <spdlog/spdlog.h>

#include <chrono>

#include "compiler/support/env.h"
#include "proto/rpc/access.h"
#include "tuner/service/server_impl.h"

namespace whet::tuner {
namespace {

constexpr int64_t kTrackerRetry = 500 * kMillisecond;
constexpr int64_t kTrackerHelloLimit = 5 * kSecond;
constexpr auto kTrackerCallLimit = std::chrono::seconds(4);

}  // namespace

class TunerServer::Impl::TunerService final : public v1::Tuner::CallbackService {
 public:
  explicit TunerService(Impl* impl) : impl_(impl) {}

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context, const v1::GetInfoRequest*,
                                    v1::ServerInfo* reply) override {
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
              request->spec().key(), [this, request, reply, reactor,
                                      by = principal.name](StatusOr<v1::ListDevicesReply> devices) {
                const StatusOr<JobTarget> target =
                    devices.ok() ? ChooseTarget(request->spec(), *devices, *impl_->spaces_)
                                 : StatusOr<JobTarget>(devices.status());
                if (!target.ok()) {
                  reactor->Finish(rpc::ToGrpc(target.status()));
                  return;
                }
                {
                  const std::lock_guard lock(impl_->machines_mu_);
                  for (const v1::DeviceEntry& d : devices->devices()) {
                    if (!d.device().machine().empty() && !d.device().emulated())
                      impl_->machines_.emplace(d.device().feature_set(), d.device().machine());
                  }
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
    return Handle(context, "/whet.v1.Tuner/GetRecords", [&](const rpc::Principal&, auto* reactor) {
      impl_->query_lane_.Post([impl = impl_, request, reply, reactor] {
        StatusOr<v1::GetRecordsReply> found = FindRecords(*request, *impl->reader_);
        if (found.ok()) *reply = *std::move(found);
        reactor->Finish(rpc::ToGrpc(found.status()));
      });
    });
  }

  grpc::ServerUnaryReactor* GetPlans(grpc::CallbackServerContext* context,
                                     const v1::GetPlansRequest* request,
                                     v1::GetPlansReply* reply) override {
    return Handle(context, "/whet.v1.Tuner/GetPlans", [&](const rpc::Principal&, auto* reactor) {
      impl_->query_lane_.Post([impl = impl_, request, reply, reactor] {
        StatusOr<v1::GetPlansReply> found = FindPlans(*request, *impl->reader_);
        if (found.ok()) *reply = *std::move(found);
        reactor->Finish(rpc::ToGrpc(found.status()));
      });
    });
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesReply* reply) override {
    return Handle(context, "/whet.v1.Tuner/ListDevices", [&](const rpc::Principal&, auto* reactor) {
      impl_->AskTracker(request->key(), [reply, reactor](StatusOr<v1::ListDevicesReply> devices) {
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

class TunerServer::Impl::DispatchService final : public v1::Dispatch::CallbackService {
 public:
  explicit DispatchService(Impl* impl) : impl_(impl) {}
  grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* Work(
      grpc::CallbackServerContext* context) override {
    rpc::Principal principal;
    const grpc::Status allowed = rpc::Authorize(*context, "/whet.v1.Dispatch/Work", &principal);
    spdlog::info("event=worker_stream by={} allowed={}", principal.name, allowed.ok());
    return impl_->workers_.Accept(allowed, std::move(principal));
  }

 private:
  Impl* const impl_;
};

std::unique_ptr<grpc::Service> TunerServer::Impl::MakeTunerService() {
  return std::make_unique<TunerService>(this);
}

std::unique_ptr<grpc::Service> TunerServer::Impl::MakeDispatchService() {
  return std::make_unique<DispatchService>(this);
}

void TunerServer::Impl::ConnectTracker(int64_t now) {
  if (tracker_stream_) tracker_stream_->Cancel();
  const uint64_t link = ++tracker_link_;
  tracker_retry_ns_ = now + kTrackerHelloLimit;  // unless it has answered by then
  std::erase_if(tracker_ends_, [](const std::future<void>& f) {
    return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  auto ended = std::make_shared<std::promise<void>>();
  tracker_ends_.push_back(ended->get_future());
  tracker_stream_ = rpc::ClientStream<v1::LeaseRequest, v1::LeaseReply>::Start(
      [this](grpc::ClientContext* c, auto* reactor) { tracker_stub_->async()->Lease(c, reactor); },
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

void TunerServer::Impl::OnTracker(uint64_t link, const v1::LeaseReply& m) {
  if (link != tracker_link_) return;
  if (m.has_presented()) {
    tracker_retry_ns_ = kNever;
    tracker_said_ = false;
    spdlog::info("event=tracker_connected incarnation={}", m.presented().incarnation());
    Execute(core_->TrackerUp(Now()));
  }
  Execute(core_->FromTracker(Now(), m));
}

void TunerServer::Impl::OnTrackerLost(uint64_t link, const grpc::Status& s) {
  if (link != tracker_link_) return;
  if (!tracker_said_) spdlog::warn("event=tracker_lost error=\"{}\"", s.error_message());
  tracker_said_ = true;
  tracker_retry_ns_ = Now() + kTrackerRetry;
  Execute(core_->TrackerDown(Now()));
}

void TunerServer::Impl::AskTracker(const std::string& key,
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

void TunerServer::Impl::Submit(const std::string& by, const v1::JobSpec& spec,
                               const JobTarget& target, v1::SubmitJobReply* reply,
                               grpc::ServerUnaryReactor* reactor) {
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

void TunerServer::Impl::Watch(Watchers::Stream* stream, const std::string& job) {
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

void TunerServer::Impl::Cancel(const std::string& by, const std::string& job,
                               v1::CancelJobReply* reply, grpc::ServerUnaryReactor* reactor) {
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

}  // namespace whet::tuner
