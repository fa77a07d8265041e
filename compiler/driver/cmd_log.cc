// whet log: look into a tuning log, move it between files.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "compiler/driver/log_view.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class LogVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Positional("ACTION", &action_, "best, stats, check, export or import")
        .OneOf({"best", "stats", "check", "export", "import"});
    flags.Positional(
        "FILE", &file_,
        "for export: the file to write, '-' for standard output; for import: the file to read",
        Flags::Need::kOptional);
    flags.Add("--db", &db_, "the tuning log").Value("FILE");
    flags.Add("--skip-damaged", &skip_damaged_,
              "export the rows that are whole, leave damaged ones out");
    flags.Json(&json_);
    flags.Notes(
        "best    per task the default's and the best record's time, or why no record beats the "
        "default\n"
        "stats   trials and failures, by task and kind\n"
        "check   read and verify every row; exits 1 when something is damaged\n"
        "export  the whole log as JSON Lines\n"
        "import  add an exported file's rows: they guide a search, and are never used before they "
        "are measured here");
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
    if (action_ == "import") return Import();
    WHET_ASSIGN_OR_RETURN(const auto log, OpenLog(db_));
    if (action_ == "export") return Export(*log);
    if (action_ == "check") return Check(*log, sound);
    const bool best = action_ == "best";
    WHET_ASSIGN_OR_RETURN(const Json json, best ? BestJson(*log) : StatsJson(*log));
    if (TextWanted(json_)) (best ? PrintBest : PrintStats)(json);
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
    const db::OnDamage on_damage = skip_damaged_ ? db::OnDamage::kSkip : db::OnDamage::kRefuse;
    if (file_ == "-") return log.Export(std::cout, on_damage).status();
    std::ofstream out(file_, std::ios::binary);
    if (!out) return InvalidArgument("cannot write '{}': {}", file_, std::strerror(errno));
    WHET_ASSIGN_OR_RETURN(const int64_t rows, log.Export(out, on_damage));
    out.close();
    if (!out) return InvalidArgument("cannot write '{}': {}", file_, std::strerror(errno));
    if (TextWanted(json_)) fmt::print("{} rows written to {}\n", rows, file_);
    return WriteJson(json_, {{"rows", rows}, {"file", file_}});
  }

  Status Import() const {
    if (file_.empty()) return InvalidArgument("import needs the FILE to read");
    WHET_ASSIGN_OR_RETURN(const auto log, db::TuningLog::Open(db_));
    WHET_ASSIGN_OR_RETURN(const db::ImportReport report, log->Import(file_));
    if (TextWanted(json_))
      fmt::print("{} rows read, {} added, {} were there already\n", report.lines, report.added,
                 report.repeated);
    return WriteJson(
        json_, {{"rows", report.lines}, {"added", report.added}, {"repeated", report.repeated}});
  }

  std::string action_, file_, db_ = "tuning.db", json_;
  bool skip_damaged_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeLog() { return std::make_unique<LogVerb>(); }

}  // namespace whet::driver
