// whet log: look into a tuning log, move it between files, keep it for years.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
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
#include "db/store/maintenance.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class LogVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags
        .Positional("ACTION", &action_,
                    "best, plans, stats, check, export, import, backup, restore, prune or salvage")
        .OneOf({"best", "plans", "stats", "check", "export", "import", "backup", "restore", "prune",
                "salvage"});
    flags.Positional("FILE", &file_,
                     "for export and backup: the file to write ('-': export to standard output); "
                     "for import and restore: the file to read",
                     Flags::Need::kOptional);
    flags.Add("--db", &db_, "the tuning log").Value("FILE").Reads();
    flags.Add("--keep-days", &keep_days_, "prune: forget what is older; 0: no limit")
        .Range(0, 36500);
    flags.Add("--keep-trials", &keep_trials_, "prune: of each task the newest; 0: no limit")
        .Range(0, 1 << 30);
    flags.Add("--keep-mb", &keep_mb_, "prune: of all trials the newest; 0: no limit")
        .Range(0, 1 << 20);
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
        "backup   copy the log to a new file, also while it is being written; the copy is checked\n"
        "restore  put a copy of a backup in the log's place, which is kept under another name; "
        "results of trials that were given out before will be late\n"
        "prune    forget the oldest trials beyond the given limits, never a task's best, its "
        "default or what an open job measured\n"
        "salvage  go on with the rows that are whole, of a log that is damaged or lost its end");
    flags.Example("whet log best --db tuning.db");
    flags.Example("whet log export night.jsonl --db tuning.db");
    flags.Example("whet log backup tuning-$(date +%F).db --db tuning.db");
    flags.Example("whet log prune --keep-days 365 --keep-trials 5000 --db tuning.db");
    flags.Example("whet log best --db tuning.db --json - | jq '.tasks[] | {summary, ratio}'");
  }

  int Run() override {
    bool sound = true;
    const int code = Explain("log", Go(&sound));
    return code == kExitDone && !sound ? kExitFailed : code;
  }

 private:
  Status Go(bool* sound) {
    const bool with_file =
        action_ == "import" || action_ == "export" || action_ == "backup" || action_ == "restore";
    if (!file_.empty() && !with_file)
      return InvalidArgument("{} takes no FILE; write --db {} for another log", action_, file_);
    if (file_.empty() && (action_ == "backup" || action_ == "restore"))
      return InvalidArgument("{} needs the FILE of the backup", action_);
    WHET_RETURN_IF_ERROR(CheckDistinct("--json", json_, "FILE", file_));
    if (action_ == "import") return Import();
    if (action_ == "backup") return Backup();
    if (action_ == "restore") return Restore();
    if (action_ == "prune") return Prune();
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

  Status Backup() const {
    WHET_ASSIGN_OR_RETURN(const db::BackupReport report, db::BackupLog(db_, file_));
    for (const std::string& w : report.warnings) fmt::print(stderr, "warning: {}\n", w);
    if (TextWanted(json_))
      fmt::print("{} rows written to {} ({} bytes), read back and whole\n", report.rows, file_,
                 report.bytes);
    return WriteJson(json_, {{"rows", report.rows},
                             {"last_seq", report.last_seq},
                             {"bytes", report.bytes},
                             {"file", file_}});
  }

  Status Restore() const {
    WHET_ASSIGN_OR_RETURN(const db::RestoreReport report, db::RestoreLog(file_, db_));
    if (TextWanted(json_)) {
      fmt::print("{} rows are back in {}, as generation {}\n", report.rows, db_, report.generation);
      if (report.lost > 0)
        fmt::print("trials that were acknowledged after the backup and are lost: {}\n",
                   report.lost);
      if (!report.kept_as.empty()) fmt::print("what lay there is now {}\n", report.kept_as);
    }
    return WriteJson(json_, {{"rows", report.rows},
                             {"generation", report.generation},
                             {"lost", report.lost},
                             {"kept_as", report.kept_as}});
  }

  Status Prune() const {
    db::PruneOptions options;
    options.limits = {keep_days_ * 86'400'000, keep_trials_, keep_mb_ << 20};
    if (!options.limits.any())
      return InvalidArgument("prune needs a limit: --keep-days, --keep-trials or --keep-mb");
    options.now_ms =
        std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1);
    options.room = db::PruneOptions::Room::kGiveBack;
    WHET_RETURN_IF_ERROR(OpenLog(db_).status());  // prune makes no log
    WHET_ASSIGN_OR_RETURN(const auto log, db::TuningLog::Open(db_));
    WHET_ASSIGN_OR_RETURN(const db::PruneReport report, log->Prune(options));
    if (TextWanted(json_))
      fmt::print("{} trials and {} closed jobs forgotten; {} trials stay\n", report.forgotten,
                 report.forgotten_jobs, report.kept);
    if (keep_mb_ > 0 && report.kept_bytes > keep_mb_ << 20)
      fmt::print(stderr,
                 "warning: what stays takes {} MB: bests, defaults and open jobs are never "
                 "forgotten\n",
                 report.kept_bytes >> 20);
    if (report.damaged > 0)
      fmt::print(stderr, "warning: damaged rows, left as they are: {}; whet log check names them\n",
                 report.damaged);
    if (!report.shrunk.ok())
      fmt::print(stderr, "warning: the file stays as large as it was: {}\n",
                 Message(report.shrunk));
    return WriteJson(json_, {{"forgotten", report.forgotten},
                             {"forgotten_jobs", report.forgotten_jobs},
                             {"kept", report.kept},
                             {"kept_bytes", report.kept_bytes}});
  }

  Status Salvage() const {
    WHET_ASSIGN_OR_RETURN(const db::SalvageReport report, db::SalvageLog(db_));
    if (TextWanted(json_)) {
      for (const db::Damage& d : report.damage) fmt::print("{}: {}\n", d.where, d.what);
      if (report.salvaged) {
        fmt::print("the log goes on with {} trials, as generation {}; nothing is left of {}\n",
                   report.trials, report.generation, report.lost);
      } else {
        fmt::print("nothing is damaged or missing\n");
      }
      if (!report.kept_as.empty()) fmt::print("the damaged file is now {}\n", report.kept_as);
    }
    return WriteJson(json_, {{"salvaged", report.salvaged},
                             {"generation", report.generation},
                             {"trials", report.trials},
                             {"lost", report.lost},
                             {"kept_as", report.kept_as}});
  }

  std::string action_, file_, db_ = "tuning.db", json_;
  int64_t keep_days_ = 0, keep_trials_ = 0, keep_mb_ = 0;
};

}  // namespace

std::unique_ptr<Verb> MakeLog() { return std::make_unique<LogVerb>(); }

}  // namespace whet::driver
