// One tuning job from the client's side: cut the model into tasks (or take a file of workloads as
// they are), submit them, watch, cancel on
// Ctrl-C. Shared by `whet tune` and the demo. Main thread only.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/progress.h"
#include "compiler/driver/tuner_client.h"
#include "db/record/record.h"

namespace whet::driver {

struct TuneOptions {
  ModelOptions model;  // `server` empty: everything is started here, the log is `db`
  std::string key;     // of the devices; empty: the local worker's
  std::string state_dir;
  int64_t trials = 0;  // total wanted in the log; 0: by time only
  double seconds = 0;  // 0: by trials only
  uint64_t seed = 1;
  std::string strategy;       // empty: the server's choice
  std::string task_pattern;   // regular expression on names and summaries; empty: all
  bool alternatives = false;  // also the tasks of the network's alternatives, see driver/plan.h
  Progress::Style progress = Progress::Style::kLines;
};

struct TuneReport {
  v1::JobSnapshot job;
  std::string target;  // that the devices have
  int64_t already_measured = 0;
  bool interrupted = false;
  bool alternatives = false;  // the job had the tasks of alternatives too
  int64_t trials() const { return job.trials_done() - job.trials_before(); }  // of this job
  int64_t failed() const;
  // From the first measurement to the end of the finals.
  double seconds() const;
  // Distinct schedules that gave the right answer and were timed for at least 3 ms, over seconds().
  double verified_per_second() const;
  bool has_winner() const;  // at least one task has a valid time
};

// What a job would hold: the model's tasks, filtered by the pattern, and what the plan table gets
// to know of it.
struct TuningTasks {
  std::vector<TaskInfo> tasks;
  std::vector<db::PlanRow> plans;  // those all of whose parts are among the tasks
  bool alike = false;              // of a list of workloads: none counts more for taking longer
};
StatusOr<TuningTasks> FindTuningTasks(const TuneOptions& options);

// Starts the servers if none is named, submits, waits. A job that failed as a whole is an error;
// single failed trials and tasks are in the report. Call before the process has threads.
StatusOr<TuneReport> Tune(const TuneOptions& options, const TuningTasks& tasks);

nlohmann::ordered_json TuneJson(const TuneReport& report);
void PrintTune(const TuneReport& report);

}  // namespace whet::driver
