// Deals trials to the tasks of a job. Every task first gets its share of seeds, in turn; then
// slices go to the task where a trial is expected to save most of the model's time:
//   gain = w * [ a * recent + (1 - a) * min(g / t, g - floor) ] * p / cost
// w the task's count in the model, g its best latency, t its trials, recent its gain per trial over
// the last two slices, floor what it cannot beat (roofline, or half the time at the throughput of
// the best similar task), p the chance that an untried point improves, cost the seconds of a trial.
// Unlike g / t alone it stops feeding tasks that have arrived. (Ansor's and MetaSchedule's rules,
// with floor, p and cost added.)
//
// `total_trials` is the number wanted in the log for these tasks, rows that are there included: a
// rerun tops up. Owned by the job; not thread-safe; holds no clock: the seconds of a trial are
// told.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "tuner/search/task_search.h"

namespace whet::search {

struct SchedulerOptions {
  // Nullopt: until every task has stopped, or the caller's time is up.
  std::optional<int> total_trials;
  int slice = 16;  // trials dealt to a task at once; smaller with a small budget
  int seeds = 16;  // trials of every task before gains are compared; likewise
  double alpha = 0.2;
};

struct TaskWeight {
  double weight = 1;    // how often the model runs it
  double flops = 0;     // 0 when unknown
  std::string tag;      // tasks of one tag are similar: operator kind
  double floor_ns = 0;  // roofline; 0 when unknown
};

struct Assignment {
  int task = 0;
  Point point;
};

class TaskScheduler {
 public:
  explicit TaskScheduler(SchedulerOptions options) : options_(options) {}

  // Tasks are added before the first Ask(); the search must outlive this. Returns the task's
  // number.
  int AddTask(TaskSearch* search, TaskWeight weight);

  // At most n; fewer when the budget ends or all that is left is pending.
  std::vector<Assignment> Ask(int n);
  // seconds: what the trial cost the device and the builder together; 0 keeps the former estimate.
  Status Tell(int task, const Point& point, const Outcome& outcome, double seconds);

  // Nothing is pending, and the budget is used up or every task has stopped.
  bool Done() const;
  int trials() const;  // in all, the log's included
  int pending() const;
  // Sum of weight * best over the tasks that have a success, in ns.
  double WeightedBestNs() const;
  // The formula above, for explanation; higher is served first. The task must have a success.
  double Gain(int task) const;

 private:
  struct Task {
    TaskSearch* search;
    TaskWeight weight;
    double seconds = 0;  // per trial, smoothed; 0 until told
  };
  int Budget() const;  // trials that may still be asked for
  int SeedQuota() const;
  int SliceLength() const;
  // The task to serve next, or -1. `blocked` have nothing to give now.
  int Choose(const std::vector<bool>& blocked) const;
  double Floor(int task) const;
  double MeanSeconds() const;

  const SchedulerOptions options_;
  std::vector<Task> tasks_;
  int current_ = -1;
  int slice_left_ = 0;
};

}  // namespace whet::search
