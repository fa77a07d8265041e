// whet inspect: what a file is. A model, an artifact and a tuning log are told apart by their first
// bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/compile_model.h"
#include "compiler/driver/log_view.h"
#include "compiler/driver/model_flags.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"
#include "compiler/frontend/model_file.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

Json TensorsJson(std::span<const whet_tensor> tensors) {
  Json list = Json::array();
  for (const whet_tensor& t : tensors) {
    list.push_back({{"name", t.name},
                    {"dtype", DTypeName(t.dtype)},
                    {"shape", std::vector<int64_t>(t.shape, t.shape + t.rank)}});
  }
  return list;
}

Json ValuesJson(const std::vector<ValueInfo>& values) {
  Json list = Json::array();
  for (const ValueInfo& v : values)
    list.push_back({{"name", v.name}, {"dtype", v.dtype}, {"shape", v.shape}});
  return list;
}

void PrintValues(const char* what, const Json& values) {
  for (const Json& v : values) {
    const auto shape = v["shape"].get<std::vector<int64_t>>();
    fmt::print("{:<8} '{}' {} {}\n", what, v["name"].get<std::string>(),
               v["dtype"].get<std::string>(), ShapeText(shape));
  }
}

// What follows a number that is a sum where there are further sets of shapes.
std::string OfAll(const Json& further) {
  return further.empty() ? "" : fmt::format(" for {} sets of shapes together", further.size() + 1);
}

// The distinct tasks of all sets of shapes, in order of first use, named after that; and how many
// kernels one run of each set launches, together.
Json TasksOf(const Model& model, int64_t* launches) {
  Json tasks = Json::array();
  std::map<std::string, size_t> known;
  std::vector<const Model*> sets = {&model};
  for (const auto& v : model.variants()) sets.push_back(v.get());
  for (const Model* set : sets) {
    const whet_model& m = set->desc();
    for (uint32_t i = 0; i < m.n_steps; ++i) {
      const std::string workload = m.kernels[m.steps[i].kernel].workload;
      const auto [it, fresh] = known.try_emplace(workload, tasks.size());
      if (fresh)
        tasks.push_back({{"name", m.steps[i].label}, {"workload", workload}, {"count", 0}});
      tasks[it->second]["count"] = tasks[it->second]["count"].get<int64_t>() + 1;
    }
    *launches += m.n_steps;
  }
  return tasks;
}

class InspectVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags
        .Positional("FILE", &model_flags_.options.model,
                    "an ONNX or TFLite model, a compiled model (.so) or a tuning log")
        .Reads();
    model_flags_.Declare(flags);
    flags.Add("--graph", &model_flags_.options.graph_text,
              "for a model: the graph's text as imported and after all passes");
    model_flags_.DeclareLayouts(flags);
    flags.Json(&json_);
    flags.Notes(
        "For a model: inputs, outputs, and the fused tasks with their work, how often each runs, "
        "and whether the log has a\nrecord that beats the default schedule.");
    flags.Example("whet inspect model.onnx --db tuning.db");
    flags.Example("whet inspect model.onnx --graph");
    flags.Example("whet inspect face.so");
    flags.Example("whet inspect face.so --target x86-64-v3");
    flags.Example("whet inspect tuning.db --json -");
  }

  int Run() override { return Explain("inspect", Go()); }

 private:
  Status Go() {
    const std::string& file = model_flags_.options.model;
    const std::string head = frontend::ReadHead(file, 16);
    const bool artifact = head.starts_with(
        "\x7f"
        "ELF");
    if (!artifact && !head.starts_with("SQLite format 3")) return InspectModelFile();
    if (const std::string flag = model_flags_.GivenForModels(); !flag.empty())
      return InvalidArgument("{} is for models; '{}' is {}", flag, file,
                             artifact ? "a compiled model" : "a tuning log");
    if (artifact) return InspectArtifact();
    if (model_flags_.TargetGiven())
      return InvalidArgument("--target is for models and artifacts; '{}' is a tuning log", file);
    return InspectLog();
  }

  Status InspectArtifact() const {
    LoadOptions load;
    if (model_flags_.TargetGiven()) load.build = model_flags_.options.target;
    WHET_ASSIGN_OR_RETURN(const auto model, LoadArtifact(model_flags_.options.model, load));
    const whet_model& m = model->desc();
    Json builds = Json::array();
    for (const Model::Build& b : model->builds())
      builds.push_back({{"name", b.name},
                        {"target", b.target},
                        {"missing", b.missing},
                        {"used", &b == &model->build()}});
    uint64_t scratch = 0;
    for (uint32_t k = 0; k < m.n_kernels; ++k)
      scratch = std::max(scratch, m.kernels[k].scratch_bytes);
    int64_t launches = 0;
    const Json tasks = TasksOf(*model, &launches);
    Json metadata = Json::parse(m.metadata, nullptr, false);
    if (metadata.is_discarded()) metadata = m.metadata;
    Json further = Json::array();  // sets of input shapes
    for (const auto& v : model->variants()) further.push_back(TensorsJson(v->inputs()));
    const Json json = {{"kind", "artifact"},
                       {"name", m.name},
                       {"target", m.target},
                       {"features", m.features},
                       {"builds", builds},
                       {"inputs", TensorsJson(model->inputs())},
                       {"outputs", TensorsJson(model->outputs())},
                       {"further_inputs", further},
                       {"launches", launches},
                       {"tasks", tasks},
                       {"arena_bytes", m.arena_bytes},
                       {"scratch_bytes", scratch},
                       {"packed_bytes", m.packed_bytes},
                       {"constants_bytes", m.constants_bytes},
                       {"metadata", metadata}};
    if (TextWanted(json_)) {
      fmt::print("artifact '{}' for {}\n", m.name, m.target);
      if (builds.size() > 1) PrintBuilds(*model);
      PrintValues("input", json["inputs"]);
      PrintValues("output", json["outputs"]);
      for (const Json& inputs : further) PrintValues("or input", inputs);
      fmt::print(
          "memory   of each instance {} and {} for each thread; shared: packed weights {}, "
          "constants {}\n",
          BytesText(static_cast<double>(m.arena_bytes)), BytesText(static_cast<double>(scratch)),
          BytesText(static_cast<double>(m.packed_bytes)),
          BytesText(static_cast<double>(m.constants_bytes)));
      fmt::print("{} tasks, {} kernel launches{}\n", tasks.size(), launches, OfAll(further));
      std::vector<std::string> labels;
      for (uint32_t i = 0; i < m.n_steps; ++i) labels.emplace_back(m.steps[i].label);
      const std::string path = CommonPath(labels);
      for (size_t i = 0; i < labels.size(); ++i)
        fmt::print("{:>5}  {}\n", i, WithoutPath(labels[i], path));
    }
    return WriteJson(json_, json);
  }

  static void PrintBuilds(const Model& model) {
    for (const Model::Build& b : model.builds())
      fmt::print("code     {}{}\n", b.name,
                 !b.missing.empty()     ? "; this machine lacks " + b.missing
                 : &b == &model.build() ? "; used here, and what follows is about it"
                                        : "");
  }

  Status InspectLog() const {
    WHET_ASSIGN_OR_RETURN(const auto log, OpenLog(model_flags_.options.model));
    WHET_ASSIGN_OR_RETURN(Json json, StatsJson(*log));
    json["kind"] = "log";
    if (TextWanted(json_)) {
      fmt::print("tuning log {}\n", json["log_id"].get<std::string>());
      PrintStats(json);
    }
    return WriteJson(json_, json);
  }

  Status InspectModelFile() {
    WHET_RETURN_IF_ERROR(model_flags_.Resolve());
    WHET_ASSIGN_OR_RETURN(const ModelInfo info, InspectModel(model_flags_.options));
    Json tasks = Json::array();
    for (const TaskInfo& t : info.tasks) tasks.push_back(TaskJson(t));
    Json further = Json::array();
    for (const auto& inputs : info.further_inputs) further.push_back(ValuesJson(inputs));
    Json json = {{"kind", "model"},
                 {"inputs", ValuesJson(info.inputs)},
                 {"outputs", ValuesJson(info.outputs)},
                 {"further_inputs", further},
                 {"nodes", info.nodes},
                 {"parameter_bytes", info.parameter_bytes},
                 {"flops", info.flops},
                 {"launches", info.launches},
                 {"plan", PlanJson(info.plan)},
                 {"tasks", tasks}};
    if (model_flags_.options.graph_text)
      json["graph"] = {{"before", info.graph_before}, {"after", info.graph_after}};
    if (TextWanted(json_)) {
      fmt::print("model    {} nodes, {} of weights, {:.1f} MFLOP, {} tasks, {} kernel launches{}\n",
                 info.nodes, BytesText(static_cast<double>(info.parameter_bytes)),
                 static_cast<double>(info.flops) * 1e-6, info.tasks.size(), info.launches,
                 OfAll(further));
      PrintValues("input", json["inputs"]);
      PrintValues("output", json["outputs"]);
      for (const Json& inputs : further) PrintValues("or input", inputs);
      fmt::print("plan     {}\n", PlanText(info.plan));
      if (model_flags_.options.graph_text) {
        const char* first = further.empty() ? "" : ", for the first set of shapes";
        fmt::print("\n# as imported{}\n{}\n# after the passes{}\n{}", first, info.graph_before,
                   first, info.graph_after);
      } else {
        PrintTasks(info.tasks);
      }
    }
    return WriteJson(json_, json);
  }

  ModelFlags model_flags_;
  std::string json_;
};

}  // namespace

std::unique_ptr<Verb> MakeInspect() { return std::make_unique<InspectVerb>(); }

}  // namespace whet::driver
