#include "compiler/driver/tuner_client.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <thread>

#include "proto/rpc/endpoint.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/tuner.grpc.pb.h"

namespace whet::driver {
namespace {

using SystemClock = std::chrono::system_clock;  // what gRPC's deadlines take
constexpr auto kConnectLimit = std::chrono::seconds(4);
constexpr auto kCallLimit = std::chrono::seconds(30);
constexpr auto kRetry = std::chrono::milliseconds(200);
constexpr const char kServer[] = "tuner server";
constexpr const char kTracker[] = "tracker";

std::string& BundleDir() {
  static std::string dir;
  return dir;
}

// What this process shows to other machines; null without --tls.
StatusOr<std::shared_ptr<rpc::Security>> Bundled() {
  // Never destroyed: its thread runs until the process ends.
  static auto& opened = *new std::shared_ptr<rpc::Security>;
  if (BundleDir().empty() || opened) return opened;
  // Why a peer was refused, or that the certificate ends soon: beside what a command prints.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("whet"));
  rpc::SecurityOptions options;
  options.dir = BundleDir();
  options.roles = {pki::Role::kClient, pki::Role::kAdmin};
  StatusOr<std::shared_ptr<rpc::Security>> security = rpc::Security::Open(options);
  if (!security.ok()) return Annotate(security.status(), "--tls");
  opened = *security;
  return opened;
}

StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& address, const char* what,
                                              const char* how, rpc::Peer peer, Where where) {
  if (where == Where::kHere) {
    auto channel = rpc::Dial(address);
    if (channel->WaitForConnected(SystemClock::now() + kConnectLimit)) return channel;
    return Unavailable("the {} that was started here does not answer at {}", what, address);
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size() ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return InvalidArgument("'{}' is not HOST:PORT", address);
  }
  if (const size_t digits = address.size() - colon - 1;
      digits > 5 || std::stoi(address.substr(colon + 1)) > 65535 ||
      std::stoi(address.substr(colon + 1)) == 0)
    return InvalidArgument("'{}' is not HOST:PORT: ports are numbers from 1 to 65535", address);
  WHET_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::Security> security, Bundled());
  WHET_ASSIGN_OR_RETURN(const std::string checked,
                        rpc::ParseDialAddress("the address", address, security.get()));
  auto channel = rpc::Dial(checked, security.get(), peer);
  if (!channel->WaitForConnected(SystemClock::now() + kConnectLimit)) {
    return Unavailable("cannot reach a {} at {} within {} s; is it running{}? ({})", what, address,
                       kConnectLimit.count(),
                       security ? ", with a certificate of the same CA" : ", and without --tls",
                       how);
  }
  return channel;
}

// `what` was called at `address`: whoever answered there may be something else.
Status FromGrpc(const grpc::Status& s, const char* what, const std::string& address) {
  if (s.ok()) return OkStatus();
  if (s.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return InvalidArgument(
        "{} is not the address of a {}: what answers there does not know the call; trackers and "
        "tuner servers print theirs when they start",
        address, what);
  }
  return Status(static_cast<absl::StatusCode>(s.error_code()),
                s.error_message());  // the codes are the same numbers
}

void Limit(grpc::ClientContext& context) { context.set_deadline(SystemClock::now() + kCallLimit); }

}  // namespace

void UseBundle(const std::string& dir) { BundleDir() = dir; }

struct TunerClient::Impl {
  std::unique_ptr<v1::Tuner::Stub> stub;
  std::string address;
  std::chrono::milliseconds reconnect_limit;

  template <typename Request, typename Reply>
  StatusOr<Reply> Call(grpc::Status (v1::Tuner::Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Reply*),
                       const Request& request) {
    grpc::ClientContext context;
    Limit(context);
    Reply reply;
    WHET_RETURN_IF_ERROR(
        FromGrpc((stub.get()->*method)(&context, request, &reply), kServer, address));
    return reply;
  }
};

TunerClient::TunerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TunerClient::~TunerClient() = default;

StatusOr<std::unique_ptr<TunerClient>> TunerClient::Connect(
    const std::string& address, std::chrono::milliseconds reconnect_limit, Where where) {
  WHET_ASSIGN_OR_RETURN(
      const auto channel,
      Dial(address, kServer, "tuner-server --tracker :9190 --listen 127.0.0.1:9191 --db tuning.db",
           rpc::Peer::kServer, where));
  auto impl = std::make_unique<Impl>();
  impl->stub = v1::Tuner::NewStub(channel);
  impl->address = address;
  impl->reconnect_limit = reconnect_limit;
  return std::unique_ptr<TunerClient>(new TunerClient(std::move(impl)));
}

StatusOr<v1::ServerInfo> TunerClient::Info() {
  return impl_->Call(&v1::Tuner::Stub::GetInfo, v1::GetInfoRequest());
}

StatusOr<v1::SubmitJobReply> TunerClient::Submit(const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  return impl_->Call(&v1::Tuner::Stub::SubmitJob, request);
}

Status TunerClient::Cancel(const std::string& job_id) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  return impl_->Call(&v1::Tuner::Stub::CancelJob, request).status();
}

StatusOr<v1::ListJobsReply> TunerClient::Jobs() {
  return impl_->Call(&v1::Tuner::Stub::ListJobs, v1::ListJobsRequest());
}

StatusOr<v1::GetRecordsReply> TunerClient::Records(const v1::GetRecordsRequest& request) {
  return impl_->Call(&v1::Tuner::Stub::GetRecords, request);
}

StatusOr<v1::GetPlansReply> TunerClient::Plans(const v1::GetPlansRequest& request) {
  return impl_->Call(&v1::Tuner::Stub::GetPlans, request);
}

StatusOr<v1::ListDevicesReply> TunerClient::Devices(const std::string& key) {
  v1::ListDevicesRequest request;
  request.set_key(key);
  return impl_->Call(&v1::Tuner::Stub::ListDevices, request);
}

StatusOr<v1::JobSnapshot> TunerClient::Watch(
    const std::string& job_id, const std::function<void(const v1::JobEvent&)>& on_event,
    const std::function<bool()>& give_up) {
  v1::JobSnapshot last;
  constexpr std::chrono::steady_clock::time_point kNotLost;
  auto lost = kNotLost;
  while (true) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    const auto reader = impl_->stub->WatchJob(&context, request);
    v1::JobEvent event;
    while (reader->Read(&event)) {
      lost = kNotLost;
      if (event.has_snapshot()) last = event.snapshot();
      on_event(event);
    }
    const Status end = FromGrpc(reader->Finish(), kServer, impl_->address);
    if (last.state() >= v1::JOB_DONE) return last;
    const std::string why = end.ok() ? "it closed the stream" : Message(end);
    if (end.code() == absl::StatusCode::kNotFound && !last.job_id().empty()) {
      return Unavailable(
          "the server at {} was restarted and no longer has this job; what was measured is in its "
          "log: run the same command again, it measures what is missing",
          impl_->address);
    }
    if (!end.ok() && end.code() != absl::StatusCode::kUnavailable) return end;
    const auto now = std::chrono::steady_clock::now();
    if (lost == kNotLost) lost = now;
    if (give_up()) return Unavailable("the server at {} is gone: {}", impl_->address, why);
    if (now - lost >= impl_->reconnect_limit) {
      return Unavailable(
          "the server at {} has been away for {:.0f} s ({}); started again on the same log it goes "
          "on with job {}: run the same command again then to see it through",
          impl_->address, std::chrono::duration<double>(now - lost).count(), why, job_id);
    }
    std::this_thread::sleep_for(kRetry);
  }
}

StatusOr<v1::ListDevicesReply> TrackerDevices(const std::string& address, const std::string& key) {
  WHET_ASSIGN_OR_RETURN(const auto channel,
                        Dial(address, kTracker, "rpc-tracker --listen 127.0.0.1:9190",
                             rpc::Peer::kTracker, Where::kFleet));
  const auto stub = v1::Tracker::NewStub(channel);
  grpc::ClientContext context;
  Limit(context);
  v1::ListDevicesRequest request;
  request.set_key(key);
  v1::ListDevicesReply reply;
  WHET_RETURN_IF_ERROR(FromGrpc(stub->ListDevices(&context, request, &reply), kTracker, address));
  return reply;
}

}  // namespace whet::driver
