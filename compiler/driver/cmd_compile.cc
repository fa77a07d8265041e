// whet compile: a model into a shared library.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/driver/interrupt.h"
#include "compiler/driver/model_flags.h"
#include "compiler/driver/output_file.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"
#include "compiler/support/content_cache.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class CompileVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Positional("MODEL", &model_.options.model, "an ONNX or TFLite model").Reads();
    flags.Add("-o,--out", &output_, "the shared library to write").Value("FILE").Writes();
    model_.AllowTargets();
    model_.Declare(flags);
    flags
        .Add("--name", &name_,
             "of the exported function whet_model_<name>_v1; default: from the model's file name")
        .Value("NAME");
    flags.Add("--untuned", &untuned_, "default schedules for every task, whatever the log holds");
    model_.DeclareLayouts(flags);
    flags
        .Add("--object-cache", &object_cache_,
             "folder of objects that earlier compilations made; 'off': compile everything; default "
             "$XDG_CACHE_HOME/whet/objects or ~/.cache/whet/objects")
        .Value("DIR|off");
    flags.Add("--object-cache-mb", &object_cache_mb_, "how large that may become, in MiB")
        .Range(1, 1 << 20);
    flags.Add("--explain", &explain_, "list every task with the schedule it got, and why");
    flags.Json(&json_);
    flags.Notes(
        "A record is used only where the log's paired measurements say that it beats the default "
        "schedule. The same log gives\nthe same bytes. With several --target, each has schedules "
        "of its "
        "own, from records of its instruction set;\nweights that two of them read alike are stored "
        "once.\nCode of tasks that were compiled before comes out of the object cache; the "
        "artifact is the "
        "same.");
    flags.Example("whet compile model.onnx --db tuning.db -o model.so");
    flags.Example("whet compile model.onnx --shape x=1,3,320,640 -o model.so --explain");
    flags.Example("whet compile vad.onnx --bind sr=16000 --bind batch=1 -o vad.so");
    flags.Example(
        "whet compile model.onnx --db tuning.db --target x86-64-v3 --target x86-64-v4 -o model.so");
    flags.Example(
        "whet compile model.onnx --server 127.0.0.1:9191 --target 'cpu -arch=x86_64 "
        "-mattr=+avx,+avx2,+fma' -o model.so");
  }

  int Run() override { return Explain("compile", Go()); }

 private:
  Status Go() {
    WatchInterrupts();
    WHET_RETURN_IF_ERROR(model_.Resolve());
    if (output_.empty())
      return InvalidArgument("-o FILE is missing: where to write the shared library{}",
                             model_.options.extra_outputs.empty()
                                 ? ""
                                 : "; --output names values of the model, not the file");
    WHET_RETURN_IF_ERROR(CheckReplaceable(output_));
    CompileOptions options;
    static_cast<ModelOptions&>(options) = model_.options;
    options.output = output_;
    options.name = name_;
    options.use_records = !untuned_;
    if (object_cache_ != "off")
      options.object_cache = object_cache_.empty() ? ObjectCacheDir() : object_cache_;
    options.object_cache_bytes = object_cache_mb_ << 20;
    WHET_ASSIGN_OR_RETURN(const CompileReport report, CompileModel(options));
    if (TextWanted(json_)) Print(report);
    Json json = {{"tasks", report.tuned + report.untuned},
                 {"tuned", report.tuned},
                 {"untuned", Missing(report)},
                 {"seconds", report.seconds},
                 {"peak_bytes", report.peak_bytes},
                 {"artifact_bytes", report.artifact_bytes},
                 {"arena_bytes", report.arena_bytes},
                 {"cached_objects", report.cached_objects},
                 {"output", output_},
                 {"target", report.target},
                 {"plan", PlanJson(report.plan)},
                 {"schedules", Schedules(report)}};
    for (const TargetReport& t : report.further) {
      json["further_targets"].push_back({{"target", t.target},
                                         {"tasks", t.tuned + t.untuned},
                                         {"tuned", t.tuned},
                                         {"untuned", Missing(t)},
                                         {"plan", PlanJson(t.plan)},
                                         {"schedules", Schedules(t)}});
    }
    return WriteJson(json_, json);
  }

  static Json Schedules(const TargetReport& r) {
    Json tasks = Json::array();
    for (const TaskInfo& t : r.tasks) tasks.push_back(TaskJson(t));
    return tasks;
  }

  static Json Missing(const TargetReport& r) {
    Json missing = Json::array();
    for (const TaskInfo& t : r.tasks) {
      if (t.source == "default") missing.push_back({{"name", t.name}, {"reason", t.reason}});
    }
    return missing;
  }

  void Print(const CompileReport& r) const {
    fmt::print("{} of {} tasks tuned; {} written to {} in {:.1f} s, {} of memory at the peak\n",
               r.tuned, r.tuned + r.untuned, BytesText(static_cast<double>(r.artifact_bytes)),
               output_, r.seconds, BytesText(static_cast<double>(r.peak_bytes)));
    if (!r.further.empty()) fmt::print("for {}:\n", r.name);
    PrintSchedules(r);
    for (const TargetReport& t : r.further) {
      fmt::print("for {}: {} of {} tasks tuned\n", t.name, t.tuned, t.tuned + t.untuned);
      PrintSchedules(t);
    }
  }

  void PrintSchedules(const TargetReport& r) const {
    if (explain_ || r.plan.source != "default") fmt::print("  plan: {}\n", PlanText(r.plan));
    if (explain_) return PrintTasks(r.tasks);
    std::map<std::string, std::vector<std::string>> by_reason;
    for (const TaskInfo& t : r.tasks) {
      if (t.source == "default")
        by_reason[t.reason].push_back(t.op_summary.empty() ? t.name : t.op_summary);
    }
    for (const auto& [reason, tasks] : by_reason) {
      if (by_reason.size() == 1 && static_cast<int64_t>(tasks.size()) == r.tuned + r.untuned) {
        fmt::print("  not tuned: all of them: {}\n", reason);
        continue;
      }
      for (const std::string& task : tasks) fmt::print("  not tuned: {}: {}\n", task, reason);
    }
  }

  ModelFlags model_;
  std::string output_, name_, json_, object_cache_;
  int64_t object_cache_mb_ = kObjectCacheBytes >> 20;
  bool untuned_ = false, explain_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeCompile() { return std::make_unique<CompileVerb>(); }

}  // namespace whet::driver
