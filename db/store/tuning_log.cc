// TuningLog: a bounded queue and one thread around LogWriter.
#include "db/store/tuning_log.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "db/store/log_writer.h"

namespace whet::db {
namespace {

constexpr int64_t kForgottenAtOnce = 256;  // rows of one transaction of a prune

size_t BytesOf(const Row& row) {
  struct Size {
    size_t operator()(const WorkloadRow& r) { return r.text.size(); }
    size_t operator()(const DeviceRow& r) { return r.identity.size() + r.feature_set.size(); }
    size_t operator()(const JobRow& r) { return r.spec.size(); }
    size_t operator()(const PlanRow& r) {
      return r.alternative.size() + r.parts.size() * sizeof(PlanRow::Part);
    }
    size_t operator()(const MachineRow& r) { return r.figures.size(); }
    size_t operator()(const TrialRow& r) {
      return r.trace.size() + r.key.target.size() + r.device_state.size() + r.message.size() +
             r.samples_ns.size() * sizeof(double);
    }
  };
  return sizeof(Row) + std::visit(Size(), row);
}

}  // namespace

class TuningLog::Impl {
 public:
  Impl(std::unique_ptr<LogWriter> writer, const WriterOptions& options)
      : options_(options),
        path_(writer->path()),
        meta_(writer->meta()),
        writer_(std::move(writer)),
        page_limit_(options.page_limit),
        thread_([this] { Loop(); }) {}

  ~Impl() {
    {
      const std::lock_guard lock(mu_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  Status Append(Row row, AppendCallback done) {
    WHET_RETURN_IF_ERROR(std::visit([](auto& r) { return Normalize(r); }, row));
    const size_t bytes = BytesOf(row);
    {
      const std::lock_guard lock(mu_);
      WHET_RETURN_IF_ERROR(read_only_);
      if (queue_.size() >= options_.queue_rows || queued_bytes_ + bytes > options_.queue_bytes) {
        return ResourceExhausted(
            "tuning log '{}': {} rows ({} bytes) wait to be committed, the limits are {} and {}; "
            "retry "
            "later",
            path_, queue_.size(), queued_bytes_, options_.queue_rows, options_.queue_bytes);
      }
      queue_.push_back({std::move(row), std::move(done), nullptr, bytes});
      queued_bytes_ += bytes;
    }
    wake_.notify_all();
    return OkStatus();
  }

  // Runs `task` on the writer thread, after everything that was appended before.
  void RunOnThread(std::function<void()> task) {
    std::promise<void> finished;
    {
      const std::lock_guard lock(mu_);
      queue_.push_back({std::nullopt, nullptr,
                        [&] {
                          task();
                          finished.set_value();
                        },
                        0});
    }
    wake_.notify_all();
    finished.get_future().wait();
  }

  StatusOr<ImportReport> Import(const std::string& jsonl_path) {
    std::ifstream in(jsonl_path, std::ios::binary);
    if (!in) return NotFound("'{}' cannot be read", jsonl_path);
    if (in.peek(); in.bad()) return InvalidArgument("'{}' cannot be read", jsonl_path);  // a folder
    WHET_RETURN_IF_ERROR(state());
    StatusOr<ImportReport> report = Unavailable("not started");
    RunOnThread([&] {
      report = writer_->Import(in, jsonl_path);
      // A bad file says nothing about the log.
      if (!absl::IsInvalidArgument(report.status())) Judge(report.status());
    });
    return report;
  }

  StatusOr<PruneReport> Prune(const PruneOptions& options) {
    // A full disk is no reason not to try: to forget makes room.
    if (const Status now = state(); absl::IsDataLoss(now)) return now;
    PruneReport report;
    WHET_ASSIGN_OR_RETURN(const RetentionPlan plan, PlanPrune(options, report));
    std::vector<ForgottenTrace> batch;
    int64_t rows = 0;
    for (size_t i = 0; i < plan.traces.size() && !report.more; ++i) {
      batch.push_back(plan.traces[i]);
      rows += static_cast<int64_t>(batch.back().seqs.size());
      if (rows < kForgottenAtOnce && i + 1 < plan.traces.size()) continue;
      WHET_ASSIGN_OR_RETURN(const int64_t n, OnWriter([&](LogWriter& writer) {
                              return writer.Forget(batch, plan.as_of_seq);
                            }));
      report.forgotten += n;
      report.more = report.forgotten >= options.most && i + 1 < plan.traces.size();
      batch.clear();
      rows = 0;
    }
    report.kept = plan.kept_trials + plan.trials - report.forgotten;
    report.kept_bytes = plan.kept_bytes;
    if (report.more) return report;
    if (!plan.idle_jobs.empty()) {
      WHET_ASSIGN_OR_RETURN(report.forgotten_jobs, OnWriter([&](LogWriter& writer) {
                              return writer.ForgetJobs(plan.idle_jobs, plan.as_of_seq);
                            }));
    }
    if (options.room == PruneOptions::Room::kGiveBack && report.forgotten > 0) {
      RunOnThread([&] { report.shrunk = writer_->Shrink(); });
    }
    return report;
  }

  Status state() const {
    const std::lock_guard lock(mu_);
    return read_only_;
  }

  void SetPageLimit(int64_t pages) {
    RunOnThread([&] { page_limit_ = pages; });
  }

  const std::string& path() const { return path_; }
  const LogMeta& meta() const { return meta_; }

 private:
  struct Item {
    std::optional<Row> row;
    AppendCallback done;
    std::function<void()> task;  // instead of a row
    size_t bytes = 0;
  };

  StatusOr<RetentionPlan> PlanPrune(const PruneOptions& options, PruneReport& report) {
    WHET_ASSIGN_OR_RETURN(const auto reader, LogReader::Open(path_));
    WHET_ASSIGN_OR_RETURN(const std::vector<JobRow> jobs, reader->Jobs(OnDamage::kSkip));
    RetentionPlanner planner(jobs);
    WHET_ASSIGN_OR_RETURN(report.damaged, reader->ForEachTrial(nullptr, [&](const TrialRow& row) {
      planner.Add(row);
      return true;
    }));
    RetentionPlan plan = planner.Plan(options.limits, options.now_ms);
    // A row that cannot be read may be of any job.
    if (report.damaged > 0) plan.idle_jobs.clear();
    return plan;
  }

  StatusOr<int64_t> OnWriter(const std::function<StatusOr<int64_t>(LogWriter&)>& work) {
    StatusOr<int64_t> result = Unavailable("not started");
    RunOnThread([&] { result = work(*writer_); });
    return result;
  }

  void Loop() {
    while (true) {
      std::vector<Item> batch;
      {
        std::unique_lock lock(mu_);
        const auto ready = [&] { return stopping_ || !queue_.empty(); };
        if (read_only_.ok()) {
          wake_.wait(lock, ready);
        } else {
          wake_.wait_for(lock, options_.full_retry, ready);
        }
        if (stopping_ && queue_.empty()) return;
        batch = TakeBatch();
      }
      if (!batch.empty() && batch.front().task) {
        batch.front().task();
        continue;
      }
      Status status = writer_->SetPageLimit(page_limit_);
      if (status.ok() && !state().ok() && !absl::IsDataLoss(state())) status = writer_->Probe();
      if (!batch.empty()) {
        CommitBatch(batch, status);
      } else if (!absl::IsDataLoss(state())) {
        Judge(status);
      }
    }
  }

  // Rows up to the next task, or that task alone.
  std::vector<Item> TakeBatch() {
    std::vector<Item> batch;
    while (!queue_.empty() && batch.size() < options_.batch_rows) {
      const bool is_task = queue_.front().task != nullptr;
      if (is_task && !batch.empty()) break;
      queued_bytes_ -= queue_.front().bytes;
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
      if (is_task) break;
    }
    return batch;
  }

  void CommitBatch(const std::vector<Item>& batch, const Status& ready) {
    std::vector<const Row*> rows;
    for (const Item& item : batch) rows.push_back(&*item.row);
    using Verdicts = std::vector<StatusOr<AppendVerdict>>;
    const StatusOr<Verdicts> verdicts =
        ready.ok() ? writer_->Commit(rows) : StatusOr<Verdicts>(ready);
    Judge(verdicts.status());
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].done) batch[i].done(verdicts.ok() ? (*verdicts)[i] : state());
    }
    if (!verdicts.ok()) FailQueued();
  }

  // What waits behind a batch that failed fails with it: a row must not be committed before one
  // that was appended earlier, which it may refer to. Nothing comes in meanwhile.
  void FailQueued() {
    std::deque<Item> rows, tasks;
    Status why;
    {
      const std::lock_guard lock(mu_);
      for (Item& item : queue_) (item.task ? tasks : rows).push_back(std::move(item));
      queue_ = std::move(tasks);
      queued_bytes_ = 0;
      why = read_only_;
    }
    for (const Item& item : rows) {
      if (item.done) item.done(why);
    }
  }

  // The state of the log after a transaction. Trouble with the disk makes it read-only until a
  // probe succeeds; damage does so for good.
  void Judge(const Status& status) {
    const std::lock_guard lock(mu_);
    if (status.ok()) {
      read_only_ = OkStatus();
      return;
    }
    read_only_ =
        Status(status.code(),
               fmt::format("{}; the log is read-only {}", Message(status),
                           absl::IsDataLoss(status)
                               ? "from here on"
                               : fmt::format("until this is over (tried every {} ms), nothing of "
                                             "the last batch was acknowledged",
                                             options_.full_retry.count())));
  }

  const WriterOptions options_;
  const std::string path_;
  const LogMeta meta_;                       // as opened: the ids do not change while open
  const std::unique_ptr<LogWriter> writer_;  // used by thread_ only

  mutable std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Item> queue_;
  size_t queued_bytes_ = 0;
  Status read_only_ = OkStatus();
  bool stopping_ = false;

  std::atomic<int64_t> page_limit_;
  std::thread thread_;  // last: it uses all of the above
};

StatusOr<std::unique_ptr<TuningLog>> TuningLog::Open(const std::string& path,
                                                     const WriterOptions& options) {
  WHET_ASSIGN_OR_RETURN(std::unique_ptr<LogWriter> writer, LogWriter::Open(path, options));
  return std::unique_ptr<TuningLog>(
      new TuningLog(std::make_unique<Impl>(std::move(writer), options)));
}

TuningLog::TuningLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TuningLog::~TuningLog() = default;

Status TuningLog::Append(Row row, AppendCallback done) {
  return impl_->Append(std::move(row), std::move(done));
}

StatusOr<AppendVerdict> TuningLog::AppendWait(Row row) {
  std::promise<StatusOr<AppendVerdict>> promise;
  WHET_RETURN_IF_ERROR(impl_->Append(
      std::move(row), [&](const StatusOr<AppendVerdict>& verdict) { promise.set_value(verdict); }));
  return promise.get_future().get();
}

Status TuningLog::Flush() {
  impl_->RunOnThread([] {});
  return impl_->state();
}

StatusOr<ImportReport> TuningLog::Import(const std::string& p) { return impl_->Import(p); }
StatusOr<PruneReport> TuningLog::Prune(const PruneOptions& options) {
  return impl_->Prune(options);
}
Status TuningLog::state() const { return impl_->state(); }
void TuningLog::SetPageLimit(int64_t pages) { impl_->SetPageLimit(pages); }
const std::string& TuningLog::path() const { return impl_->path(); }
const std::string& TuningLog::log_id() const { return impl_->meta().log_id; }
const std::string& TuningLog::generation() const { return impl_->meta().generation; }

}  // namespace whet::db
