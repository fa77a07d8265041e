// What the core wants done: searches, builds, rows of the log.
#include <spdlog/spdlog.h>

#include "tuner/service/server_impl.h"

namespace whet::tuner {
namespace {

constexpr int64_t kLogRetry = 500 * kMillisecond;
constexpr int64_t kPruneEvery = 3600 * kSecond;
constexpr int64_t kPruneAgain = kSecond;   // while there is more to forget
constexpr int64_t kPrunedAtOnce = 20'000;  // trials: a stop waits for no more

// The row itself is at fault, so that trying again is of no use. Everything else is the disk's or
// the log's fault, and what is not kept must not be acknowledged.
bool RowIsRefused(const Status& s) {
  return absl::IsInvalidArgument(s) || absl::IsFailedPrecondition(s);
}

}  // namespace

std::shared_ptr<TunerServer::Impl::JobContext> TunerServer::Impl::ContextOf(
    const std::string& job) {
  auto& context = contexts_[job];
  if (!context) context = std::make_shared<JobContext>();
  return context;
}

void TunerServer::Impl::Do(PrepareTask& a) {
  prepare_lane_.Post([this, a, context = ContextOf(a.job)] {
    StatusOr<std::unique_ptr<Task>> task =
        spaces_->OpenTask(a.workload, a.target, a.key.threads, MachineFor(a.key.target));
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

void TunerServer::Impl::Do(ComputeExpected& a) {
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

void TunerServer::Impl::Do(StartSearch& a) {
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

void TunerServer::Impl::Do(const AskSearch& a) {
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

void TunerServer::Impl::Do(const TellSearch& a) {
  search_lane_.Post([a, context = ContextOf(a.job)] {
    if (!context->search) return;
    if (const Status s = context->search->Tell(a); !s.ok())
      spdlog::warn("event=search_not_told job={} error=\"{}\"", a.job, Message(s));
  });
}

void TunerServer::Impl::Do(const EndSearch& a) {
  search_lane_.Post([context = ContextOf(a.job)] { context->search.reset(); });
}

std::string TunerServer::Impl::MachineFor(const std::string& feature_set) {
  const std::lock_guard lock(machines_mu_);
  std::string& figures = machines_[feature_set];
  const StatusOr<std::string> logged = reader_->FiguresOf(feature_set);
  if (logged.ok() && !logged->empty()) figures = *logged;
  return figures;
}

void TunerServer::Impl::Do(StartBuild& a) {
  if (a.request.untuned()) {
    const StatusOr<std::string> feature_set = spaces_->FeatureSetOf(a.request.target());
    if (feature_set.ok()) a.request.set_machine(MachineFor(*feature_set));
  }
  builders_->Build(std::move(a.request), [this, build = a.build](v1::BuildReply reply) {
    BuiltObject object;
    object.failure = reply.failure();
    object.message = reply.message();
    object.initial_program = reply.initial_program();
    object.trace = reply.trace();
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

void TunerServer::Impl::Do(const JobPrepared& a) {
  const auto it = submits_.find(a.job);
  if (it == submits_.end()) return;
  for (auto& [reply, reactor] : it->second) {
    reply->set_already_measured(a.already_measured);
    reply->set_to_measure(a.to_measure);
    reactor->Finish(grpc::Status::OK);
  }
  submits_.erase(it);
}

void TunerServer::Impl::Do(const JobEnded& a) {
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

void TunerServer::Impl::Do(const CloseWorker& a) {
  if (!a.status.ok()) spdlog::warn("event=worker_stream_closed reason=\"{}\"", Message(a.status));
  workers_.Close(a.session, rpc::ToGrpc(a.status));
}

void TunerServer::Impl::Do(SendTracker& a) {
  if (tracker_stream_) tracker_stream_->Send(std::move(a.message));
}

void TunerServer::Impl::Do(AppendRow& a) {
  const int64_t wall = RealClock().WallMs();
  if (auto* trial = std::get_if<db::TrialRow>(&a.row)) trial->created_ms = wall;
  if (auto* job = std::get_if<db::JobRow>(&a.row)) job->updated_ms = wall;
  if (auto* plan = std::get_if<db::PlanRow>(&a.row)) plan->created_ms = wall;
  if (auto* machine = std::get_if<db::MachineRow>(&a.row)) machine->created_ms = wall;
  waiting_rows_.emplace(next_row_++, std::move(a));
  if (waiting_rows_.size() == 1) AppendWaiting();
}

void TunerServer::Impl::AppendWaiting() {
  while (!waiting_rows_.empty()) {
    const auto& [order, row] = *waiting_rows_.begin();
    const Status queued = log_->Append(
        row.row, [this, order = order, row = row](const StatusOr<db::AppendVerdict>& verdict) {
          Post([this, order, row, verdict] { OnCommitted(order, row, verdict); });
        });
    if (!queued.ok() && !RowIsRefused(queued)) return WaitForLog(queued);
    const uint64_t ticket = row.ticket;
    waiting_rows_.erase(waiting_rows_.begin());
    if (!queued.ok()) {
      spdlog::error("event=row_refused error=\"{}\"", Message(queued));
      Execute(core_->Committed(Now(), ticket, queued));
    }
  }
}

void TunerServer::Impl::WaitForLog(const Status& why) {
  if (!log_stalled_) {
    spdlog::error("event=log_not_writable error=\"{}\"", Message(why));
    // It may be at its own limit: forget now. (kNever: without limits, or it is doing so.)
    if (next_prune_ns_ != kNever && !log_->state().ok()) next_prune_ns_ = 0;
  }
  log_stalled_ = true;
  log_retry_ns_ = Now() + kLogRetry;
}

void TunerServer::Impl::OnCommitted(int64_t order, const AppendRow& row,
                                    const StatusOr<db::AppendVerdict>& verdict) {
  // A row that refers to one that still waits is refused only because it came first.
  const bool early = !waiting_rows_.empty() && waiting_rows_.begin()->first < order;
  if (!verdict.ok() && (early || !RowIsRefused(verdict.status()))) {
    waiting_rows_.emplace(order, row);
    return WaitForLog(verdict.status());
  }
  if (verdict.ok() && log_stalled_) {
    log_stalled_ = false;
    spdlog::info("event=log_writable_again");
  }
  if (!verdict.ok()) spdlog::error("event=row_not_kept error=\"{}\"", Message(verdict.status()));
  Execute(core_->Committed(
      Now(), row.ticket,
      verdict.ok() ? StatusOr<db::TrialStatus>(verdict->status) : verdict.status()));
}

void TunerServer::Impl::PruneLog() {
  next_prune_ns_ = kNever;  // until this one has ended
  query_lane_.Post([this] {
    db::PruneOptions options;
    options.limits = options_.retention;
    options.now_ms = RealClock().WallMs();
    options.most = kPrunedAtOnce;
    const StatusOr<db::PruneReport> pruned = log_->Prune(options);
    if (!pruned.ok()) {
      spdlog::warn("event=log_not_pruned error=\"{}\"", Message(pruned.status()));
    } else if (pruned->forgotten > 0 || pruned->forgotten_jobs > 0) {
      spdlog::info("event=log_pruned trials={} jobs={} kept={}", pruned->forgotten,
                   pruned->forgotten_jobs, pruned->kept);
    }
    const bool more = pruned.ok() && pruned->more;
    Post([this, more] { next_prune_ns_ = Now() + (more ? kPruneAgain : kPruneEvery); });
  });
}

void TunerServer::Impl::Do(const ResultRefused& a) {
  spdlog::info(
      "event=result_refused job={} task={} trial={} attempt={} incarnation={} epoch={} device={} "
      "reason=\"{}\"",
      db::CleanText(a.ids.job_id(), 64), a.ids.task(), a.ids.trial(), a.ids.attempt(),
      db::CleanText(a.ids.incarnation(), 64), a.ids.lease_epoch(),
      db::CleanText(a.ids.device_id(), 64), a.why);
}

}  // namespace whet::tuner
