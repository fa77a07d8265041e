// What `whet log` and `whet inspect DB` print about a tuning log: as JSON, and as tables for
// people. Reads only.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>

#include "compiler/support/status.h"
#include "db/store/tuning_log.h"

namespace whet::driver {

// Opens for reading and prints the log's warnings on standard error.
StatusOr<std::unique_ptr<db::LogReader>> OpenLog(const std::string& path);

// Per task: key, trials, the default's and the best record's times, the winning trace, or why there
// is none.
StatusOr<nlohmann::ordered_json> BestJson(db::LogReader& log);
void PrintBest(const nlohmann::ordered_json& best);

// The plan table: by region its alternatives and the tasks that they consist of.
StatusOr<nlohmann::ordered_json> PlansJson(db::LogReader& log);
void PrintPlans(const nlohmann::ordered_json& plans);

// Counts: trials, failures by kind, per task.
StatusOr<nlohmann::ordered_json> StatsJson(db::LogReader& log);
void PrintStats(const nlohmann::ordered_json& stats);

}  // namespace whet::driver
