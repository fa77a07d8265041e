#include "compiler/driver/model_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/names.h"
#include "compiler/driver/plan.h"
#include "compiler/support/names.h"
#include "compiler/target/target.h"
#include "deploy/runtime/cpu_features.h"

namespace whet::driver {
namespace {

// NAME=VALUE. Values hold no '=', names may.
Status ParseBind(const std::string& text, std::map<std::string, std::string>* bind) {
  const size_t eq = text.rfind('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == text.size())
    return InvalidArgument("--bind '{}' is not NAME=VALUE; write for example --bind sr=16000",
                           text);
  const std::string name = text.substr(0, eq);
  if (!bind->emplace(name, text.substr(eq + 1)).second)
    return InvalidArgument("--bind names '{}' twice", name);
  return OkStatus();
}

// Code for a feature that the runtime cannot check could be started where it does not run.
Status CheckTarget(const std::string& text) {
  WHET_ASSIGN_OR_RETURN(const Target target, Target::Parse(text));
  const std::vector<std::string> known = KnownCpuFeatures(target.arch);
  for (const std::string& f : target.features) {
    if (std::find(known.begin(), known.end(), f) != known.end()) continue;
    return InvalidArgument("--target: unknown feature '{}' of {}{}; known are {}", f, target.arch,
                           Suggestion(f, known), Join(known));
  }
  return OkStatus();
}

}  // namespace

void ModelFlags::Declare(Flags& flags, Needs needs) {
  flags_ = &flags;
  flags
      .Add("--shape", &shapes_,
           needs == Needs::kShapes
               ? "shape of an input: of an artifact for several sets of shapes, the one that is "
                 "meant; repeated, once per input"
               : "shape of an input with symbolic dimensions; repeated, once per input; an input "
                 "that occurs again starts another set of shapes, which the artifact holds too")
      .Value("NAME=D,D,...");
  flags
      .Add("--bind", &bind_,
           "the value of an input, which becomes a constant, or of a symbolic dimension; may be "
           "repeated")
      .Value("NAME=VALUE");
  flags
      .Add("--output", &options.extra_outputs,
           "an intermediate value to give out besides the model's own outputs; may be repeated")
      .Value("NAME");
  if (needs == Needs::kShapes) {
    flags.Add("--threads", &threads_, "threads to run on").Range(1, 1024);
    return;
  }
  const std::string what =
      "what to compile for: 'host' (the default), a level as x86-64-v3, or target text as "
      "`whet doctor` prints it";
  if (several_targets_) {
    flags
        .Add(
            "--target", &targets_,
            what + "; repeated: the artifact holds code for each, and takes the best where it runs")
        .Value("TARGET");
  } else {
    flags.Add("--target", &options.target, what).Value("TARGET");
  }
  flags
      .Add("--threads", &threads_,
           "the number of threads that schedules are estimated, looked up and measured for")
      .Range(1, 1024);
  flags.Add("--db", &options.db, "tuning log").Value("FILE").Reads();
  flags.Add("--server", &options.server, "tuner server that holds the log").Value("HOST:PORT");
  flags
      .Add("--dump-after", &options.dump_after,
           "print the graph to stderr after this graph pass; an unknown name lists the passes")
      .Value("PASS");
}

void ModelFlags::DeclareLayouts(Flags& flags) {
  flags
      .Add("--layouts", &options.layouts,
           "layouts of images: 'selected' by bytes and operations, by the tasks' times where "
           "layouts meet, or one for all where operators can; default: what the log's measurements "
           "of whole networks say, else 'selected'")
      .OneOf({std::begin(kLayoutNames), std::end(kLayoutNames)});
}

Status ModelFlags::Resolve() {
  if (!options.db.empty() && !options.server.empty())
    return InvalidArgument("--db and --server exclude each other: a server has its own log");
  WHET_ASSIGN_OR_RETURN(const std::vector<ShapeSet> sets, ParseShapes(shapes_));
  options.shapes = sets[0];
  options.more_shapes.assign(sets.begin() + 1, sets.end());
  options.bind.clear();
  for (const std::string& b : bind_) WHET_RETURN_IF_ERROR(ParseBind(b, &options.bind));
  options.threads = static_cast<int>(threads_);
  options.writes = flags_->Written();
  if (!targets_.empty()) {
    options.target = targets_[0];
    options.more_targets.assign(targets_.begin() + 1, targets_.end());
  }
  for (const std::string& t : options.more_targets) WHET_RETURN_IF_ERROR(CheckTarget(t));
  return CheckTarget(options.target);
}

nlohmann::ordered_json PlanJson(const PlanInfo& p) {
  nlohmann::ordered_json json = {{"layouts", p.layouts}, {"split", p.split}, {"source", p.source}};
  if (!p.reason.empty()) json["reason"] = p.reason;
  if (p.ratio > 0) json["ratio"] = p.ratio;
  if (p.costs.tasks > 0) {
    json["layout_costs"] = {{"tasks", p.costs.tasks},
                            {"ms", p.costs.ns * 1e-6},
                            {"other_tasks", p.costs.other_tasks},
                            {"other_ms", p.costs.other_ns * 1e-6},
                            {"taken", p.costs.taken}};
  }
  return json;
}

std::string PlanText(const PlanInfo& p) {
  std::string text = fmt::format("layouts {}", p.layouts);
  if (p.costs.tasks > 0) {
    const LayoutCosts& c = p.costs;
    const std::string roofline = fmt::format("{} tasks of {:.4g} ms", c.tasks, 1e-6 * c.ns),
                      other = fmt::format("{} of {:.4g} ms", c.other_tasks, 1e-6 * c.other_ns);
    text += fmt::format(", where they meet {} rather than {}", c.taken ? other : roofline,
                        c.taken ? roofline : other);
  }
  if (p.split > 0) text += fmt::format(", {} fused workloads taken apart", p.split);
  if (p.source == "measured" && p.ratio > 0)
    text += fmt::format(" ({:.2f} x the default's time by the log)", p.ratio);
  return p.reason.empty() ? text : text + " (" + p.reason + ")";
}

std::string ModelFlags::GivenForModels() const {
  for (const char* flag : {"--shape", "--bind", "--output", "--threads", "--db", "--server",
                           "--dump-after", "--layouts", "--graph"}) {
    if (flags_->OnCommandLine(flag)) return flag;
  }
  return "";
}

nlohmann::ordered_json TaskJson(const TaskInfo& t) {
  nlohmann::ordered_json json = {
      {"name", t.name},   {"summary", t.op_summary}, {"workload", t.fingerprint},
      {"flops", t.flops}, {"count", t.count},        {"source", t.source}};
  if (!t.reason.empty()) json["reason"] = t.reason;
  if (t.ratio > 0) {
    json["ratio"] = t.ratio;
    json["default_ms"] = t.default_ns * 1e-6;
    json["best_ms"] = t.best_ns * 1e-6;
  }
  return json;
}

void PrintTasks(const std::vector<TaskInfo>& tasks) {
  fmt::print("{:>9} {:>5}  {:<8} task\n", "MFLOP", "count", "schedule");
  for (const TaskInfo& t : tasks) {
    const std::string record = t.ratio > 0 ? fmt::format(" ({:.2f} x the default's time)", t.ratio)
                               : t.reason.empty() ? ""
                                                  : " (" + t.reason + ")";
    fmt::print("{:>9.3f} {:>5}  {:<8} {}{}\n", static_cast<double>(t.flops) * 1e-6, t.count,
               t.source, t.op_summary.empty() ? t.name : t.op_summary, record);
  }
}

}  // namespace whet::driver
