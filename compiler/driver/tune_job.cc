#include "compiler/driver/tune_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>

#include "compiler/driver/interrupt.h"
#include "compiler/driver/local_servers.h"
#include "compiler/driver/names.h"
#include "compiler/driver/plan.h"
#include "compiler/driver/prepare.h"
#include "compiler/frontend/model_file.h"
#include "compiler/ops/catalog.h"
#include "compiler/support/env.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

v1::JobSpec SpecOf(const TuneOptions& o, const TuningTasks& tasks) {
  v1::JobSpec spec;
  spec.set_name(std::filesystem::path(o.model.model).filename().string());
  spec.set_key(o.key.empty() ? LocalServers::kKey : o.key);
  spec.set_threads(static_cast<uint32_t>(o.model.threads));
  spec.set_trials(o.trials);
  spec.set_time_limit_ns(static_cast<int64_t>(o.seconds * 1e9));
  spec.set_seed(o.seed);
  spec.set_strategy(o.strategy);
  if (o.model.target != "host") spec.set_target(o.model.target);
  spec.set_tasks_alike(tasks.alike);
  for (const TaskInfo& t : tasks.tasks) {
    v1::TaskSpec* task = spec.add_tasks();
    task->set_workload(t.workload);
    task->set_weight(static_cast<double>(t.count));
    task->set_name(t.name);
    task->set_op_summary(t.op_summary);
  }
  for (const db::PlanRow& row : tasks.plans) {
    v1::Plan* plan = spec.add_plans();
    plan->set_region(row.region.Hex());
    plan->set_alternative(row.alternative);
    for (const db::PlanRow::Part& p : row.parts) {
      v1::Plan::Part* part = plan->add_parts();
      part->set_workload(p.workload.Hex());
      part->set_count(p.count);
    }
  }
  return spec;
}

constexpr std::string_view kWorkloadHead = "whet-workload ";  // each one's first line begins so
constexpr size_t kMaxWorkloadsBytes = 16 << 20;

// A file of workloads one after the other, as tests and benches have them, in place of a model.
StatusOr<std::vector<TaskInfo>> ReadWorkloads(const std::string& path) {
  WHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxWorkloadsBytes));
  std::vector<fusion::Task> tasks;
  const std::string next = "\n" + std::string(kWorkloadHead);
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    ++number;
    const size_t found = text.find(next, at);
    const size_t end = found == std::string::npos ? text.size() : found + 1;
    StatusOr<fusion::Workload> w =
        fusion::Workload::Parse(std::string_view(text).substr(at, end - at), ops::Catalog());
    if (!w.ok()) return Annotate(w.status(), fmt::format("workload {} of '{}'", number, path));
    const Fingerprint print = w->fingerprint();
    const bool known = std::any_of(tasks.begin(), tasks.end(),
                                   [&](const fusion::Task& t) { return t.fingerprint == print; });
    if (!known) tasks.push_back({*w, print, 1, w->Title()});
    at = end;
  }
  return DescribeTasks(tasks, {});
}

// Cancels the job when the first signal comes, from a thread of its own while the main thread waits
// for events.
class CancelOnInterrupt {
 public:
  CancelOnInterrupt(TunerClient* client, std::string job_id)
      : client_(client), job_id_(std::move(job_id)) {
    if (pipe(stop_) == 0) thread_ = std::thread([this] { Wait(); });
  }
  ~CancelOnInterrupt() {
    if (!thread_.joinable()) return;
    close(stop_[1]);
    thread_.join();
    close(stop_[0]);
  }

 private:
  void Wait() {
    pollfd fds[2] = {{InterruptFd(), POLLIN, 0}, {stop_[0], POLLIN, 0}};
    while (poll(fds, 2, -1) < 0) {
    }
    if (!(fds[0].revents & POLLIN) || (fds[1].revents != 0)) return;
    fmt::print(
        stderr,
        "\ninterrupted; waiting for what is measured to be kept (once more to quit at once)\n");
    if (const Status s = client_->Cancel(job_id_); !s.ok())
      fmt::print(stderr, "cannot cancel the job: {}\n", Message(s));
  }

  TunerClient* const client_;
  const std::string job_id_;
  int stop_[2] = {-1, -1};
  std::thread thread_;
};

// The worker needs a moment to register with the tracker.
StatusOr<v1::SubmitJobReply> SubmitWhenReady(TunerClient& client, const v1::JobSpec& spec,
                                             LocalServers* local) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(local ? 15 : 0);
  while (true) {
    StatusOr<v1::SubmitJobReply> reply = client.Submit(spec);
    if (reply.ok() || reply.status().code() != absl::StatusCode::kNotFound ||
        std::chrono::steady_clock::now() >= until)
      return reply;
    if (Interrupted())
      return Status(absl::StatusCode::kCancelled, "interrupted; nothing was measured");
    WHET_RETURN_IF_ERROR(local->Failure());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

int64_t TuneReport::failed() const {
  int64_t n = 0;
  for (const v1::FailureCount& f : job.failed()) n += f.count();
  return n;
}

double TuneReport::seconds() const { return static_cast<double>(job.elapsed_ns()) * 1e-9; }

double TuneReport::verified_per_second() const {
  return seconds() > 0 ? static_cast<double>(job.verified()) / seconds() : 0;
}

bool TuneReport::has_winner() const {
  for (const v1::TaskProgress& t : job.tasks()) {
    if (t.default_ns() > 0 || t.best_ns() > 0) return true;
  }
  return false;
}

StatusOr<TuningTasks> FindTuningTasks(const TuneOptions& o) {
  std::regex pattern;
  try {
    pattern = std::regex(o.task_pattern, std::regex::ECMAScript);
  } catch (const std::regex_error& e) {
    return InvalidArgument("--tasks '{}' is not a regular expression: {}", o.task_pattern,
                           e.what());
  }
  TuningTasks found;
  Alternatives all;
  if (frontend::ReadHead(o.model.model, kWorkloadHead.size()) == kWorkloadHead) {
    found.alike = true;
    if (o.alternatives)
      return InvalidArgument("--alternatives is for models; '{}' is a list of workloads",
                             o.model.model);
    WHET_ASSIGN_OR_RETURN(all.tasks, ReadWorkloads(o.model.model));
  } else {
    WHET_ASSIGN_OR_RETURN(all, ListAlternatives(o.model, o.alternatives));
  }
  std::set<Fingerprint> known;
  for (const TaskInfo& t : all.tasks) {
    if (!std::regex_search(t.name, pattern) && !std::regex_search(t.op_summary, pattern)) continue;
    found.tasks.push_back(t);
    known.insert(FingerprintOf(t.workload));
  }
  if (all.tasks.empty()) return InvalidArgument("the model has no tasks: there is nothing to tune");
  if (found.tasks.empty())
    return InvalidArgument(
        "--tasks '{}' fits none of the model's {} tasks; whet inspect lists them", o.task_pattern,
        all.tasks.size());
  for (const db::PlanRow& plan : all.plans) {
    if (std::all_of(plan.parts.begin(), plan.parts.end(),
                    [&](const db::PlanRow::Part& p) { return known.contains(p.workload); }))
      found.plans.push_back(plan);
  }
  return found;
}

StatusOr<TuneReport> Tune(const TuneOptions& o, const TuningTasks& tasks) {
  WatchInterrupts();
  std::unique_ptr<LocalServers> local;
  if (o.model.server.empty()) {
    LocalServersOptions servers;
    servers.db = o.model.db;
    servers.state_dir = o.state_dir;
    WHET_ASSIGN_OR_RETURN(local, LocalServers::Start(servers));
  }
  WHET_ASSIGN_OR_RETURN(
      const auto client,
      TunerClient::Connect(local ? local->server() : o.model.server, std::chrono::seconds(30),
                           local ? Where::kHere : Where::kFleet));
  WHET_ASSIGN_OR_RETURN(const v1::SubmitJobReply submitted,
                        SubmitWhenReady(*client, SpecOf(o, tasks), local.get()));
  TuneReport report;
  report.alternatives = o.alternatives;
  report.target = submitted.target();
  report.already_measured = submitted.already_measured();
  {
    const CancelOnInterrupt cancel(client.get(), submitted.job_id());
    Progress progress(o.progress);
    auto on_event = [&](const v1::JobEvent& e) {
      if (e.has_snapshot()) progress.Show(e.snapshot());
    };
    bool said = false;
    auto give_up = [&] {
      if (Interrupted() || (local && !local->Failure().ok())) return true;
      if (!said) {
        progress.Clear();
        fmt::print(stderr, "the server at {} is away; trying to reach it again\n",
                   local ? local->server() : o.model.server);
      }
      said = true;
      return false;
    };
    StatusOr<v1::JobSnapshot> last = client->Watch(submitted.job_id(), on_event, give_up);
    if (!last.ok() && local) WHET_RETURN_IF_ERROR(local->Failure());
    if (!last.ok() && Interrupted()) {
      return Status(absl::StatusCode::kCancelled,
                    fmt::format("interrupted while the server was away: job {} was not cancelled",
                                submitted.job_id()));
    }
    WHET_RETURN_IF_ERROR(last.status());
    report.job = *std::move(last);
  }
  report.interrupted = Interrupted();
  const v1::JobState state = report.job.state();
  if (state == v1::JOB_FAILED) return Internal("the job failed: {}", report.job.error());
  if (state == v1::JOB_CANCELLED && !report.interrupted) {
    return Unavailable(
        "the job was cancelled on the server (somebody ended it, or the server was stopped); what "
        "was measured is in the log: run the same command again, it measures what is missing");
  }
  if (state == v1::JOB_NO_DEVICE) return NotFound("no device took the job: {}", report.job.error());
  return report;
}

Json TuneJson(const TuneReport& r) {
  Json failed = Json::object();
  for (const v1::FailureCount& f : r.job.failed()) failed[f.kind()] = f.count();
  Json tasks = Json::array();
  for (const v1::TaskProgress& t : r.job.tasks()) {
    Json task = {{"name", t.name()},
                 {"workload", t.workload_fingerprint()},
                 {"weight", t.weight()},
                 {"trials", t.trials()},
                 {"failed", t.failed()},
                 {"default_ms", t.default_ns() > 0 ? Json(t.default_ns() * 1e-6) : Json()},
                 {"best_ms", t.best_ns() > 0 ? Json(t.best_ns() * 1e-6) : Json()},
                 {"ratio", t.best_ratio() > 0 ? Json(t.best_ratio()) : Json()},
                 {"trials_to_best", t.trials_to_best()}};
    if (!t.error().empty()) task["error"] = t.error();
    tasks.push_back(std::move(task));
  }
  return {{"job", r.job.job_id()},
          {"target", r.target},
          {"trials", r.trials()},
          {"trials_in_log", r.job.trials_done()},
          {"verified", r.job.verified()},
          {"failed", failed},
          {"seconds", r.seconds()},
          {"verified_per_second", r.verified_per_second()},
          {"default_total_ms", r.job.default_total_ns() * 1e-6},
          {"best_total_ms", r.job.best_total_ns() * 1e-6},
          {"interrupted", r.interrupted},
          {"tasks", tasks}};
}

void PrintTune(const TuneReport& r) {
  fmt::print("{:>10} {:>10} {:>7} {:>7} {:>6}  task\n", "default ms", "best ms", "ratio", "trials",
             "weight");
  std::vector<std::string> names;
  for (const v1::TaskProgress& t : r.job.tasks()) names.push_back(t.name());
  const std::string path = CommonPath(names);
  for (const v1::TaskProgress& t : r.job.tasks()) {
    auto ms = [](double ns) {
      return ns > 0 ? fmt::format("{:.4f}", ns * 1e-6) : std::string("-");
    };
    fmt::print("{:>10} {:>10} {:>7} {:>7} {:>6g}  {}{}\n", ms(t.default_ns()), ms(t.best_ns()),
               t.best_ratio() > 0 ? fmt::format("{:.3f}", t.best_ratio()) : "-", t.trials(),
               t.weight(), WithoutPath(t.name(), path), t.error().empty() ? "" : ": " + t.error());
  }
  fmt::print(
      "{} trials in {:.1f} s ({} were in the log), {} verified ({:.1f} per second), {} failed",
      r.trials(), r.seconds(), r.job.trials_before(), r.job.verified(), r.verified_per_second(),
      r.failed());
  for (const v1::FailureCount& f : r.job.failed())
    fmt::print("{}{} {}", &f == &r.job.failed(0) ? ": " : ", ", f.count(), f.kind());
  fmt::print("\n");
  if (r.job.default_total_ns() > 0 && r.job.best_total_ns() > 0) {
    fmt::print("sum over the tasks{}: {:.4f} -> {:.4f} ms, {:.2f} times as fast\n",
               r.alternatives ? ", those of all alternatives" : "", r.job.default_total_ns() * 1e-6,
               r.job.best_total_ns() * 1e-6, r.job.default_total_ns() / r.job.best_total_ns());
  }
}

}  // namespace whet::driver
