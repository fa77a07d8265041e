#include "compiler/driver/log_view.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

Json FailuresJson(const std::array<int64_t, db::kFailureKinds>& counts) {
  Json failures = Json::object();
  for (int k = 1; k < db::kFailureKinds; ++k) {  // 0 is no failure
    if (counts[static_cast<size_t>(k)] > 0)
      failures[std::string(db::FailureName(static_cast<db::FailureKind>(k)))] =
          counts[static_cast<size_t>(k)];
  }
  return failures;
}

Json TaskKeyJson(const db::TaskStats& t) {
  return {{"workload", t.key.workload.Hex()},
          {"summary", t.op_summary},
          {"target", t.key.target},
          {"threads", t.key.threads},
          {"cache_mode", std::string(db::CacheModeName(t.key.cache_mode))},
          {"codegen_version", t.codegen_version},
          {"trials", t.trials}};
}

std::string Ms(double ns) { return ns > 0 ? fmt::format("{:.4f}", ns * 1e-6) : "-"; }

}  // namespace

StatusOr<std::unique_ptr<db::LogReader>> OpenLog(const std::string& path) {
  WHET_ASSIGN_OR_RETURN(auto log, db::LogReader::Open(path));
  for (const std::string& w : log->warnings()) fmt::print(stderr, "warning: {}\n", w);
  return log;
}

StatusOr<Json> BestJson(db::LogReader& log) {
  WHET_ASSIGN_OR_RETURN(const db::LogStats stats, log.Stats());
  Json tasks = Json::array();
  for (const db::TaskStats& t : stats.tasks) {
    Json task = TaskKeyJson(t);
    task["default_ms"] = t.default_median_ns * 1e-6;
    if (t.best) {
      WHET_ASSIGN_OR_RETURN(const db::TrialRow row, log.Trial(t.best->seq));
      // On the default's scale, as `whet tune` has it: the two were measured side by side, while
      // their own medians are of different moments.
      task["best_ms"] =
          (t.default_median_ns > 0 ? t.best->ratio * t.default_median_ns : t.best_median_ns) * 1e-6;
      task["ratio"] = t.best->ratio;
      task["evidence_rows"] = t.best->evidence_rows;
      task["trace"] = row.trace;
    } else {
      task["best_ms"] = nullptr;
      task["miss"] = std::string(db::MissName(t.miss));
      task["why"] = t.why;
    }
    tasks.push_back(std::move(task));
  }
  return Json{{"log_id", log.log_id()},
              {"generation", log.generation()},
              {"damaged_rows", stats.damaged_rows},
              {"tasks", tasks}};
}

void PrintBest(const Json& best) {
  fmt::print("{:>10} {:>10} {:>7} {:>7}  task\n", "default ms", "best ms", "ratio", "trials");
  for (const Json& t : best["tasks"]) {
    const bool won = t.contains("trace");
    fmt::print(
        "{:>10} {:>10} {:>7} {:>7}  {} ({} thread{}){}\n", Ms(t["default_ms"].get<double>() * 1e6),
        won ? Ms(t["best_ms"].get<double>() * 1e6) : "-",
        won ? fmt::format("{:.3f}", t["ratio"].get<double>()) : "-", t["trials"].get<int64_t>(),
        t["summary"].get<std::string>(), t["threads"].get<int>(),
        t["threads"].get<int>() == 1 ? "" : "s", won ? "" : ": " + t["why"].get<std::string>());
  }
  if (best["tasks"].empty()) fmt::print("the log has no trials\n");
}

StatusOr<Json> PlansJson(db::LogReader& log) {
  WHET_ASSIGN_OR_RETURN(const db::Plans plans, log.FindPlans());
  Json regions = Json::array();
  for (const db::PlanRow& row : plans.rows) {
    const std::string region = row.region.Hex();
    if (regions.empty() || regions.back()["region"] != region) {
      // A fused workload has a summary, a network has none.
      const StatusOr<db::WorkloadRow> workload = log.Workload(row.region);
      regions.push_back({{"region", region},
                         {"summary", workload.ok() ? workload->op_summary : "network"},
                         {"alternatives", Json::array()}});
    }
    Json parts = Json::array();
    int64_t runs = 0;
    for (const db::PlanRow::Part& p : row.parts) {
      WHET_ASSIGN_OR_RETURN(const db::WorkloadRow workload, log.Workload(p.workload));
      parts.push_back(
          {{"workload", p.workload.Hex()}, {"summary", workload.op_summary}, {"count", p.count}});
      runs += p.count;
    }
    regions.back()["alternatives"].push_back(
        {{"name", row.alternative}, {"runs", runs}, {"parts", parts}});
  }
  return Json{{"log_id", log.log_id()}, {"damaged_rows", plans.damaged_rows}, {"regions", regions}};
}

void PrintPlans(const Json& plans) {
  for (const Json& r : plans["regions"]) {
    fmt::print("{}  {}\n", r["region"].get<std::string>(), r["summary"].get<std::string>());
    for (const Json& a : r["alternatives"]) {
      fmt::print("  {:<14} {:>4} tasks, {:>4} runs", a["name"].get<std::string>(),
                 a["parts"].size(), a["runs"].get<int64_t>());
      if (a["parts"].size() <= 3) {
        for (const Json& p : a["parts"])
          fmt::print("{}{} x {}", &p == &a["parts"].front() ? ": " : ", ",
                     p["count"].get<int64_t>(), p["summary"].get<std::string>());
      }
      fmt::print("\n");
    }
  }
  if (plans["regions"].empty()) fmt::print("the log has no plans\n");
}

StatusOr<Json> StatsJson(db::LogReader& log) {
  WHET_ASSIGN_OR_RETURN(const db::LogStats stats, log.Stats());
  Json tasks = Json::array();
  for (const db::TaskStats& t : stats.tasks) {
    Json task = TaskKeyJson(t);
    task["failed"] = FailuresJson(t.by_failure);
    task["late"] = t.late;
    task["imported"] = t.imported;
    tasks.push_back(std::move(task));
  }
  Json machines = Json::array();
  WHET_ASSIGN_OR_RETURN(const std::vector<db::KnownMachine> known, log.Machines());
  for (const db::KnownMachine& m : known) {
    machines.push_back({{"device_id", m.device.device_id},
                        {"key", m.device.device_key},
                        {"feature_set", m.device.feature_set},
                        {"figures", m.machine.figures}});
  }
  const int64_t rows = stats.trials + stats.late + stats.imported;
  return Json{{"log_id", log.log_id()},
              {"generation", log.generation()},
              {"machines", machines},
              {"trials", stats.trials},
              {"failed", FailuresJson(stats.by_failure)},
              {"late", stats.late},
              {"imported", stats.imported},
              {"buried", stats.buried},
              {"bytes", stats.bytes},
              {"free_bytes", stats.free_bytes},
              {"journal_bytes", stats.journal_bytes},
              {"bytes_per_trial", rows > 0 ? stats.bytes / rows : 0},
              {"first_ms", stats.first_ms},
              {"last_ms", stats.last_ms},
              {"damaged_rows", stats.damaged_rows},
              {"tasks", tasks}};
}

void PrintStats(const Json& stats) {
  fmt::print("{} trials of {} tasks, {} late, {} imported, {} damaged rows\n",
             stats["trials"].get<int64_t>(), stats["tasks"].size(), stats["late"].get<int64_t>(),
             stats["imported"].get<int64_t>(), stats["damaged_rows"].get<int64_t>());
  fmt::print("{} bytes in use, {} a trial; {} free, {} in the write-ahead log; {} trials buried\n",
             stats["bytes"].get<int64_t>(), stats["bytes_per_trial"].get<int64_t>(),
             stats["free_bytes"].get<int64_t>(), stats["journal_bytes"].get<int64_t>(),
             stats["buried"].get<int64_t>());
  for (const auto& [kind, count] : stats["failed"].items())
    fmt::print("  failed, {}: {}\n", kind, count.get<int64_t>());
  for (const Json& m : stats["machines"])
    fmt::print("machine {}: {}\n", m["device_id"].get<std::string>(),
               m["figures"].get<std::string>());
  for (const Json& t : stats["tasks"]) {
    std::string failed;
    for (const auto& [kind, count] : t["failed"].items())
      failed +=
          fmt::format("{}{} {}", failed.empty() ? "; failed: " : ", ", count.get<int64_t>(), kind);
    fmt::print("{:>7}  {}{}\n", t["trials"].get<int64_t>(), t["summary"].get<std::string>(),
               failed);
  }
}

}  // namespace whet::driver
