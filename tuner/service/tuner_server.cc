#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "tuner/service/server_impl.h"

namespace whet::tuner {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr auto kStopLimit = std::chrono::seconds(7);

}  // namespace

Status TunerServer::Impl::Start() {
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
  // All of it is read once, so that damage is said before anything rests on it.
  WHET_ASSIGN_OR_RETURN(reader_,
                        db::LogReader::Open(log_->path(), {db::ReaderOptions::Check::kFull}));
  for (const std::string& damage : reader_->warnings())
    spdlog::warn("event=log_damaged what=\"{}\"", damage);
  if (!reader_->warnings().empty()) {
    spdlog::warn(
        "event=log_damaged advice=\"such rows are left out; stop the server and run: whet "
        "log salvage --db {}\"",
        log_->path());
  }
  core_ = std::make_unique<ServiceCore>(config);
  info_.set_build(kVersion);
  info_.set_server_id(config.server_id);
  info_.set_log_id(config.log_id);
  info_.set_generation(config.generation);
  info_.set_codegen_version(config.codegen_version);
  info_.set_compiler_version(config.compiler_version);
  info_.set_tracker(options_.tracker);
  tracker_channel_ =
      rpc::Dial(options_.tracker, options_.listening.security.get(), rpc::Peer::kTracker);
  tracker_stub_ = v1::Tracker::NewStub(tracker_channel_);
  WHET_ASSIGN_OR_RETURN(
      listener_, rpc::Listen(options_.listen, {tuner_service_.get(), dispatch_service_.get()},
                             options_.listening));
  advertise_ = options_.advertise.empty() ? listener_.address : options_.advertise;
  if (advertise_.ends_with(":0"))
    advertise_.replace(advertise_.size() - 2, 2,
                       listener_.address.substr(listener_.address.rfind(':')));
  TakeUpLeftovers();
  if (!options_.retention.any()) next_prune_ns_ = kNever;
  loop_ = std::thread([this] { RunLoop(); });
  spdlog::info("event=server_started address={} tracker={} log={} generation={} builders={}",
               listener_.address, options_.tracker, log_->path(), config.generation,
               config.builders);
  return OkStatus();
}

std::string TunerServer::Impl::ServerId() const {
  const bool any_port = options_.listen.ends_with(":0");
  return any_port ? RandomHex(8)
                  : FingerprintOf(fmt::format("{} {} {}", log_->log_id(), options_.listen,
                                              options_.advertise))
                        .Hex();
}

void TunerServer::Impl::TakeUpLeftovers() {
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
    job.row.error = db::CleanText(Message(taken) + "; submit it again and it goes on from the log",
                                  db::kMaxMessageBytes);
    job.row.updated_ms = RealClock().WallMs();
    if (const Status kept = log_->AppendWait(job.row).status(); !kept.ok())
      spdlog::warn("event=job_not_closed job={} error=\"{}\"", job.row.job_id, Message(kept));
  }
}

Status TunerServer::Impl::TakeUp(const Leftover& job) {
  WHET_RETURN_IF_ERROR(Annotate(job.kept.status(), "the job cannot be taken up again"));
  WHET_ASSIGN_OR_RETURN(const std::string features,
                        spaces_->FeatureSetOf(job.kept->spec().target()));
  Actions actions;
  WHET_RETURN_IF_ERROR(
      core_->Resume(Now(), job.row.job_id, *job.kept, features, job.row.created_ms, &actions));
  Execute(std::move(actions));
  return OkStatus();
}

void TunerServer::Impl::Stop() {
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
  listener_.Stop(std::chrono::seconds(2));
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

void TunerServer::Impl::CheckIdle() {
  if (when_idle_ && core_->open_jobs() == 0) {
    when_idle_->set_value();
    when_idle_ = nullptr;
  }
}

void TunerServer::Impl::RunLoop() {
  int64_t next_tick = 0;
  while (!stop_) {
    const int64_t deadline =
        std::min({next_tick, core_->NextDeadline(Now()), tracker_retry_ns_,
                  waiting_rows_.empty() ? kNever : log_retry_ns_, next_prune_ns_});
    const std::optional<std::function<void()>> work = mailbox_.Pop(deadline);
    if (work) (*work)();
    const int64_t now = Now();
    if (now >= tracker_retry_ns_) ConnectTracker(now);
    if (!waiting_rows_.empty() && now >= log_retry_ns_) AppendWaiting();
    if (now >= next_prune_ns_) PruneLog();
    if (now >= next_tick) {
      Execute(core_->Tick(now));
      next_tick = std::min(core_->NextDeadline(now), now + kSecond);
    }
  }
}

void TunerServer::Impl::Execute(Actions actions) {
  for (Action& action : actions) std::visit([this](auto& a) { Do(a); }, action);
}

void TunerServer::Impl::OnWorkerMessage(uint64_t session, v1::WorkerMessage message) {
  if (message.has_hello()) {
    const v1::DeviceIdentity& d = message.hello().device();
    spdlog::info("event=worker_connected worker={} key={} epoch={} kept_results={}", d.worker_id(),
                 d.key(), message.hello().lease_epoch(), message.hello().unacked());
  }
  if (message.has_fetch()) SendBlob(session, message.fetch());
  Execute(core_->FromWorker(Now(), session, std::move(message)));
}

void TunerServer::Impl::SendBlob(uint64_t session, const v1::Fetch& fetch) {
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
  const size_t left = blob->size() - fetch.offset();
  const size_t end =
      fetch.offset() + (fetch.max_bytes() == 0 ? left : std::min<size_t>(left, fetch.max_bytes()));
  for (size_t at = fetch.offset(); at < end; at += kChunkBytes) {
    chunk.set_offset(at);
    chunk.set_data(blob->substr(at, std::min(kChunkBytes, end - at)));
    workers_.Send(session, m);
  }
}

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
