// What the log and the compiler know of a task before its job begins, and what the server answers
// to questions about records. Functions of a reader and a provider; called on the service's own
// threads, never on the loop.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "db/store/tuning_log.h"
#include "tuner/service/core.h"
#include "tuner/service/job_search.h"
#include "tuner/task/task.h"

namespace whet::tuner {

StatusOr<PreparedTask> PrepareFromLog(const Task& task, const PrepareTask& request,
                                      db::LogReader& log, int64_t codegen_version);

StatusOr<std::vector<search::LoggedTrial>> ReadLogged(const Task& task, const db::RecordKey& key,
                                                      db::LogReader& log, int64_t codegen_version);

StatusOr<v1::GetRecordsReply> FindRecords(const v1::GetRecordsRequest& request, db::LogReader& log);
StatusOr<v1::GetPlansReply> FindPlans(const v1::GetPlansRequest& request, db::LogReader& log);

// Which target a job is built for, from its spec and the devices of its key.
struct JobTarget {
  std::string target, feature_set;
};
StatusOr<JobTarget> ChooseTarget(const v1::JobSpec& spec, const v1::ListDevicesReply& devices,
                                 const SpaceProvider& spaces);

}  // namespace whet::tuner
