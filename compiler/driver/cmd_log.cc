// whet log: look into a tuning log, move it between files.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "compiler/driver/log_view.h"
#include "compiler/driver/output_file.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class LogVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Positional("ACTION", &action_, "best, plans, stats, check, export, import or salvage")
        .OneOf({"best", "plans", "stats", "check", "export", "import", "salvage"});
    flags.Positional(
        "FILE", &file_,
        "for export: the file to write, '-' for standard output; for import: the file to read",
        Flags::Need::kOptional);
    flags.Add("--db", &db_, "the tuning log").Value("FILE").Reads();
    flags.Json(&json_);
    flags.Notes(
        "best     per task the default's and the best record's time, or why no record beats the "
        "default\n"
        "plans    the alternatives of networks and of fused tasks, and what they consist of\n"
        "stats    trials and failures, by task and kind\n"
        "check    read and verify every row; exits 1 when something is damaged\n"
        "export   every whole row as JSON Lines; damaged ones are named and left out\n"
        "import   add an exported file's rows: they guide a search, and are never used before they "
        "are measured here\n"
        "salvage  go on with a log that lost its last rows (a copy restored, a disk that failed)");
    flags.Example("whet log best --db tuning.db");
    flags.Example("whet log export night.jsonl --db tuning.db");
    flags.Example("whet log best --db tuning.db --json - | jq '.tasks[] | {summary, ratio}'");
  }

  int Run() override {
    bool sound = true;
    const int code = Explain("log", Go(&sound));
    return code == kExitDone && !sound ? kExitFailed : code;
  }

 private:
  Status Go(bool* sound) {
    if (!file_.empty() && action_ != "import" && action_ != "export")
      return InvalidArgument("{} takes no FILE; write --db {} for another log", action_, file_);
    WHET_RETURN_IF_ERROR(CheckDistinct("--json", json_, "FILE", file_));
    if (action_ == "import") return Import();
    if (action_ == "salvage") return Salvage();
    WHET_ASSIGN_OR_RETURN(const auto log, OpenLog(db_));
    if (action_ == "export") return Export(*log);
    if (action_ == "check") return Check(*log, sound);
    const bool best = action_ == "best", plans = action_ == "plans";
    WHET_ASSIGN_OR_RETURN(const Json json, best    ? BestJson(*log)
                                           : plans ? PlansJson(*log)
                                                   : StatsJson(*log));
    if (TextWanted(json_)) (best ? PrintBest : plans ? PrintPlans : PrintStats)(json);
    if (const auto damaged = json["damaged_rows"].get<int64_t>(); damaged > 0)
      fmt::print(stderr, "warning: damaged rows, left out: {}; whet log check names them\n",
                 damaged);
    return WriteJson(json_, json);
  }

  Status Check(db::LogReader& log, bool* sound) const {
    WHET_ASSIGN_OR_RETURN(const db::VerifyReport report, log.Verify());
    *sound = report.ok();
    Json damage = Json::array();
    for (const db::Damage& d : report.damage) {
      if (TextWanted(json_)) fmt::print("{}: {}\n", d.where, d.what);
      damage.push_back({{"where", d.where}, {"what", d.what}});
    }
    const bool tail = report.high_water == db::VerifyReport::Mark::kChecked;
    if (TextWanted(json_))
      fmt::print("{} rows, {} damaged{}\n", report.rows, report.damaged,
                 tail ? "" : "; the end is unproven: the high-water file is missing");
    return WriteJson(json_, {{"rows", report.rows},
                             {"damaged", report.damaged},
                             {"end_checked", tail},
                             {"damage", damage}});
  }

  Status Export(db::LogReader& log) const {
    if (file_.empty()) return InvalidArgument("export needs a FILE, or '-' for standard output");
    WHET_RETURN_IF_ERROR(CheckNotRead(file_, {db_}));
    WHET_ASSIGN_OR_RETURN(const db::VerifyReport report, log.Verify());
    for (const db::Damage& d : report.damage)
      fmt::print(stderr, "warning: damaged and left out: {}: {}\n", d.where, d.what);
    if (file_ == "-") return log.Export(std::cout, db::OnDamage::kSkip).status();
    std::ofstream out(file_, std::ios::binary);
    if (!out) return InvalidArgument("cannot write '{}': {}", file_, std::strerror(errno));
    WHET_ASSIGN_OR_RETURN(const int64_t rows, log.Export(out, db::OnDamage::kSkip));
    out.close();
    if (!out) return InvalidArgument("cannot write '{}': {}", file_, std::strerror(errno));
    if (TextWanted(json_)) fmt::print("{} rows written to {}\n", rows, file_);
    return WriteJson(json_, {{"rows", rows}, {"damaged", report.damaged}, {"file", file_}});
  }

  Status Import() const {
    if (file_.empty()) return InvalidArgument("import needs the FILE to read");
    // Before a log is made for it.
    if (access(file_.c_str(), R_OK) != 0)
      return InvalidArgument("cannot read '{}': {}", file_, std::strerror(errno));
    if (std::error_code ignored; std::filesystem::is_directory(file_, ignored))
      return InvalidArgument("cannot read '{}': it is a folder", file_);
    WHET_ASSIGN_OR_RETURN(const auto log, db::TuningLog::Open(db_));
    WHET_ASSIGN_OR_RETURN(const db::ImportReport report, log->Import(file_));
    if (TextWanted(json_))
      fmt::print("{} lines read, {} rows added, {} were there already\n", report.lines,
                 report.added, report.repeated);
    return WriteJson(
        json_, {{"rows", report.lines}, {"added", report.added}, {"repeated", report.repeated}});
  }

  Status Salvage() const {
    WHET_ASSIGN_OR_RETURN(const auto before, OpenLog(db_));  // also: there is such a log
    db::WriterOptions options;
    options.lost_tail = db::WriterOptions::LostTail::kSalvage;
    WHET_ASSIGN_OR_RETURN(const auto log, db::TuningLog::Open(db_, options));
    const bool salvaged = log->generation() != before->generation();
    if (TextWanted(json_))
      fmt::print("{}\n", salvaged ? "the log goes on without the missing rows, as generation " +
                                        log->generation()
                                  : "nothing is missing at the log's end");
    return WriteJson(json_, {{"salvaged", salvaged}, {"generation", log->generation()}});
  }

  std::string action_, file_, db_ = "tuning.db", json_;
};

}  // namespace

std::unique_ptr<Verb> MakeLog() { return std::make_unique<LogVerb>(); }

}  // namespace whet::driver
