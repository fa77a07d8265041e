// One tuning job from the client's side: cut the model into tasks, submit them, watch, cancel on
// Ctrl-C. Shared by `whet tune` and the demo. Main thread only.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/progress.h"
#include "compiler/driver/tuner_client.h"

namespace whet::driver {

struct TuneOptions {
  ModelOptions model;  // `server` empty: everything is started here, the log is `db`
  std::string key;     // of the devices; empty: the local worker's
  std::string state_dir;
  int64_t trials = 0;  // total wanted in the log; 0: by time only
  double seconds = 0;  // 0: by trials only
  uint64_t seed = 1;
  std::string strategy;      // empty: the server's choice
  std::string task_pattern;  // regular expression on names and summaries; empty: all
  Progress::Style progress = Progress::Style::kLines;
};

struct TuneReport {
  v1::JobSnapshot job;
  std::string target;  // that the devices have
  int64_t already_measured = 0;
  bool interrupted = false;
  int64_t trials() const { return job.trials_done() - job.trials_before(); }  // of this job
  int64_t failed() const;
  // From the first measurement to the end of the finals.
  double seconds() const;
  // Distinct schedules that gave the right answer and were timed for at least 3 ms, over seconds().
  double verified_per_second() const;
  bool has_winner() const;  // at least one task has a valid time
};

// The tasks that a job would hold: those with a choice, filtered by the pattern.
StatusOr<std::vector<TaskInfo>> TuningTasks(const TuneOptions& options);

// Starts the servers if none is named, submits, waits. A job that failed as a whole is an error;
// single failed trials and tasks are in the report. Call before the process has threads.
StatusOr<TuneReport> Tune(const TuneOptions& options, const std::vector<TaskInfo>& tasks);

nlohmann::ordered_json TuneJson(const TuneReport& report);
void PrintTune(const TuneReport& report);

}  // namespace whet::driver
