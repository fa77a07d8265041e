// whet tune: search for the fastest schedule of each task of a model by measuring candidates.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "compiler/driver/model_flags.h"
#include "compiler/driver/output_file.h"
#include "compiler/driver/report.h"
#include "compiler/driver/tune_job.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

constexpr int64_t kQuickTrials = 32, kFullTrials = 256;  // per task

class TuneVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags
        .Positional("MODEL", &model_.options.model,
                    "an ONNX or TFLite model, or a file of workloads as a tuning log has them")
        .Reads();
    model_.Declare(flags);
    flags
        .Add("--trials", &options_.trials,
             "total number of trials wanted in the log for these tasks; what is there counts")
        .Range(0, 1'000'000'000);
    flags.Add("--time", &time_, "stop after so long; with --trials: at whichever comes first")
        .Value("SECONDS");
    flags
        .Add("--effort", &effort_,
             "a budget when neither --trials nor --time is given: 32 or 256 trials per task")
        .OneOf({"quick", "full"});
    flags
        .Add("--key", &options_.key,
             "key of the devices to measure on; without --server: this machine")
        .Value("KEY");
    flags.Add("--tasks", &options_.task_pattern, "only tasks whose name or summary fits")
        .Value("REGEX");
    flags.Add("--alternatives", &options_.alternatives,
              "also tune the tasks of other ways to compute the network (one layout for all "
              "images, fused groups in parts), so that compile can choose by measured times");
    flags.Add("--seed", &seed_, "seed of the search").Range(0, INT64_MAX);
    flags.Add("--strategy", &options_.strategy, "how candidates are chosen")
        .OneOf({"evolutionary", "random"});
    flags.Add("--state-dir", &options_.state_dir, "state folder of the local worker").Value("DIR");
    flags.Add("--dry-run", &dry_run_, "list the tasks and the budget, measure nothing");
    flags.Json(&json_);
    flags.Notes(
        "Without --server a tuner server, a tracker and a worker for this machine are started for "
        "the duration, and --db names\n"
        "the log (default tuning.db). Every candidate's result is checked before it is timed; each "
        "trial is kept in the log,\n"
        "so that a rerun continues, and Ctrl-C loses nothing. Exits 1 when no task got a valid "
        "time.");
    flags.Example("whet tune model.onnx --db tuning.db --time 3m");
    flags.Example("whet tune model.onnx --shape x=1,3,224,224 --trials 2000");
    flags.Example("whet tune model.onnx --key rpi4 --server 127.0.0.1:9191 --effort full");
  }

  int Run() override {
    bool winner = true;
    const int code = Explain("tune", Go(&winner));
    if (code == kExitDone && !winner) {
      fmt::print(stderr, "whet tune: no task got a valid time\n");
      return kExitFailed;
    }
    return code;
  }

 private:
  Status Go(bool* winner) {
    WHET_RETURN_IF_ERROR(model_.Resolve());
    options_.model = model_.options;
    if (options_.model.server.empty() && options_.model.db.empty()) options_.model.db = "tuning.db";
    WHET_RETURN_IF_ERROR(Annotate(CheckNotRead(json_, {options_.model.db}), "--json"));
    if (options_.model.server.empty() && !options_.key.empty()) {
      return InvalidArgument(
          "--key '{}' without --server: keys belong to a server's tracker; leave it out to measure "
          "on this machine",
          options_.key);
    }
    if (!options_.model.server.empty() && options_.key.empty())
      return InvalidArgument("--server needs --key; whet devices --server {} lists the keys",
                             options_.model.server);
    options_.seed = static_cast<uint64_t>(seed_);
    if (!time_.empty()) {
      options_.seconds = ParseSeconds(time_);
      if (!(options_.seconds > 0))
        return InvalidArgument("--time '{}' is not a duration; write 90, 90s, 3m or 1h", time_);
    }
    WHET_ASSIGN_OR_RETURN(const TuningTasks found, FindTuningTasks(options_));
    const std::vector<TaskInfo>& tasks = found.tasks;
    if (options_.trials == 0 && options_.seconds == 0) {
      options_.trials =
          static_cast<int64_t>(tasks.size()) * (effort_ == "full" ? kFullTrials : kQuickTrials);
    }
    if (dry_run_) return DryRun(tasks);
    options_.progress = Progress::ForStderr();
    if (TextWanted(json_))
      fmt::print(stderr, "{} task{}, {}, seed {}\n", tasks.size(), tasks.size() == 1 ? "" : "s",
                 Budget(), options_.seed);
    WHET_ASSIGN_OR_RETURN(const TuneReport report, Tune(options_, found));
    *winner = report.has_winner();
    if (TextWanted(json_)) PrintTune(report);
    WHET_RETURN_IF_ERROR(WriteJson(json_, TuneJson(report)));
    return report.interrupted ? Status(absl::StatusCode::kCancelled,
                                       "interrupted; what was measured is in the log")
                              : OkStatus();
  }

  std::string Budget() const {
    std::string text;
    if (options_.trials > 0) text = fmt::format("up to {} trials in the log", options_.trials);
    if (options_.seconds > 0)
      text += fmt::format("{}at most {}", text.empty() ? "" : ", ",
                          Progress::Minutes(options_.seconds));
    return text;
  }

  Status DryRun(std::vector<TaskInfo> tasks) const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (TaskInfo& t : tasks) {
      t.reason.clear();  // no log was asked
      list.push_back(TaskJson(t));
    }
    if (TextWanted(json_)) {
      PrintTasks(tasks);
      fmt::print("{} task{}, {}, seed {}; nothing was measured\n", tasks.size(),
                 tasks.size() == 1 ? "" : "s", Budget(), options_.seed);
    }
    return WriteJson(json_, {{"trials", options_.trials},
                             {"seconds", options_.seconds},
                             {"seed", options_.seed},
                             {"tasks", list}});
  }

  ModelFlags model_;
  TuneOptions options_;
  std::string time_, effort_ = "quick", json_;
  int64_t seed_ = 1;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeTune() { return std::make_unique<TuneVerb>(); }

}  // namespace whet::driver
