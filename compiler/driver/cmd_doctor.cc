// whet doctor: what this machine can do, what is off, and how to fix it.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "compiler/driver/doctor.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

class DoctorVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags
        .Add("--state-dir", &state_dir_,
             "state folder to look at; default $XDG_STATE_HOME/whet or ~/.local/state/whet")
        .Value("DIR");
    flags.Json(&json_);
    flags.Notes(
        "Prints a line per finding: `ok`, `note` (slower or less safe than it could be, with the "
        "fix) or `FAIL` (whet cannot\nwork like this). Exits 1 when something fails.");
    flags.Example("whet doctor");
    flags.Example("whet doctor --json - | jq '.findings[] | select(.level != \"ok\")'");
  }

  int Run() override {
    const std::vector<Finding> findings = Examine(state_dir_);
    bool failed = false;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding& f : findings) {
      failed |= f.level == Finding::Level::kFail;
      list.push_back(
          {{"what", f.what}, {"level", LevelName(f.level)}, {"value", f.value}, {"fix", f.fix}});
      if (!TextWanted(json_)) continue;
      fmt::print("{:<4}  {:<20} {}\n",
                 f.level == Finding::Level::kFail ? "FAIL" : LevelName(f.level), f.what, f.value);
      if (!f.fix.empty()) fmt::print("      {:<20} -> {}\n", "", f.fix);
    }
    if (const int code = Explain("doctor", WriteJson(json_, {{"ok", !failed}, {"findings", list}}));
        code != kExitDone)
      return code;
    return failed ? kExitFailed : kExitDone;
  }

 private:
  std::string state_dir_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeDoctor() { return std::make_unique<DoctorVerb>(); }

}  // namespace whet::driver
