// The search of one job: a TaskSearch for each of its tasks, one cost model, and the scheduler that
// deals trials to them. Turns points into traces and back. Owned and used by the service's search
// thread alone; the tasks' spaces may be read by others meanwhile.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "db/record/record.h"
#include "tuner/model/cost_model.h"
#include "tuner/search/task_scheduler.h"
#include "tuner/search/task_search.h"
#include "tuner/service/core.h"
#include "tuner/task/task.h"

namespace whet::tuner {

// A row of the log as the search sees it; nullopt: it says nothing about the candidate (its device
// was lost, it is late).
std::optional<search::LoggedTrial> ToLoggedTrial(const Task& task, const db::TrialRow& row);

struct SearchTask {
  uint32_t index = 0;  // in the job
  std::shared_ptr<const Task> task;
  double weight = 1;
  std::vector<search::LoggedTrial> log;
};

class JobSearch {
 public:
  static StatusOr<std::unique_ptr<JobSearch>> Create(const StartSearch& start,
                                                     std::vector<SearchTask> tasks,
                                                     int feature_count);

  // At most n. A point whose trace cannot be made is told as failed and passed over.
  std::vector<Proposal> Ask(int n);
  Status Tell(const TellSearch& told);
  // Nothing is pending, and the budget is used up or every task has stopped.
  bool Done() const { return scheduler_.Done(); }

 private:
  JobSearch(search::SchedulerOptions options, int feature_count)
      : model_(feature_count), scheduler_(options) {}

  struct Pending {
    int task;  // in scheduler_
    search::Point point;
  };
  std::vector<SearchTask> tasks_;
  model::CostModel model_;
  std::vector<std::unique_ptr<search::TaskSearch>> searches_;
  search::TaskScheduler scheduler_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_token_ = 1;
};

}  // namespace whet::tuner
