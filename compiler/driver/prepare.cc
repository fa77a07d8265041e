#include "compiler/driver/prepare.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "compiler/frontend/frontend.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/structure.h"

namespace whet::driver {
namespace {

bool SameInputs(const graph::Graph& a, const graph::Graph& b) {
  return std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                    [&](graph::ValueId x, graph::ValueId y) { return a.type(x) == b.type(y); });
}

// Whether the partition is what the plan foresaw; a release that cuts networks in another way may
// have written the rows.
bool IsAsPlanned(const PreparedModel& m) {
  return m.plan.source != "measured" || PartsOf(m.partition) == m.plan.parts;
}

}  // namespace

StatusOr<graph::Graph> ImportModel(const ModelOptions& options) {
  frontend::ImportOptions import;
  import.shapes = options.shapes;
  import.bind = options.bind;
  import.artifact = options.shapes_of;
  import.outputs = options.extra_outputs;
  import.writes = options.writes;
  return frontend::ImportFile(options.model, import);
}

Status ApplyLayouts(graph::Graph& g, const Plan& plan, const std::string& dump_after) {
  graph::PassOptions passes;
  WHET_ASSIGN_OR_RETURN(passes.layout_cost, LayoutCostOf(plan.layouts));
  if (!dump_after.empty()) {
    WHET_RETURN_IF_ERROR(graph::CheckPassNames({&dump_after, 1}));
    passes.dump = [&](std::string_view pass, const graph::Graph& now) {
      if (pass == dump_after)
        fmt::print(stderr, "# after graph pass {}\n{}", pass, graph::ToString(now));
    };
  }
  WHET_ASSIGN_OR_RETURN(const std::vector<graph::PassResult> results, graph::RunPasses(g, passes));
  bool changed = dump_after.empty();
  for (const graph::PassResult& r : results) changed |= r.name == dump_after && r.changed;
  if (!changed) fmt::print(stderr, "# graph pass {} changed nothing\n", dump_after);
  return OkStatus();
}

StatusOr<std::unique_ptr<Records>> OpenRecords(const ModelOptions& options) {
  if (!options.server.empty()) return OpenServerRecords(options.server);
  if (!options.db.empty()) return OpenLogRecords(options.db);
  return std::unique_ptr<Records>();
}

StatusOr<PreparedModel> PrepareModel(const ModelOptions& options, Records* records) {
  PreparedModel m;
  WHET_ASSIGN_OR_RETURN(m.target, Target::Parse(options.target));
  WHET_ASSIGN_OR_RETURN(const graph::Graph imported, ImportModel(options));
  m.file_nodes = static_cast<int64_t>(imported.nodes.size());
  if (options.graph_text) m.imported_text = graph::ToString(imported);
  m.plan.why = Records::kNone;
  if (!options.layouts.empty() || !options.split.empty()) {
    m.plan.source = "given";
    m.plan.why.clear();
    if (!options.layouts.empty()) m.plan.layouts = options.layouts;
    m.plan.split = options.split;
  } else if (records != nullptr) {
    WHET_ASSIGN_OR_RETURN(m.plan, ChoosePlan(graph::StructureOf(imported), *records,
                                             m.target.FeatureSet(), options.threads));
  }
  while (true) {
    m.graph = imported;
    WHET_RETURN_IF_ERROR(ApplyLayouts(m.graph, m.plan, options.dump_after));
    WHET_ASSIGN_OR_RETURN(m.partition, fusion::PartitionGraph(m.graph, m.plan.split));
    if (IsAsPlanned(m)) return m;
    m.plan = {};
    m.plan.why = "the network is cut in another way than when its alternatives were measured";
  }
}

StatusOr<std::vector<PreparedModel>> PrepareSets(const ModelOptions& options, Records* records) {
  WHET_ASSIGN_OR_RETURN(PreparedModel first, PrepareModel(options, records));
  std::vector<PreparedModel> sets;
  sets.push_back(std::move(first));
  for (const auto& shapes : options.more_shapes) {
    ModelOptions one = options;
    one.shapes = shapes;
    WHET_ASSIGN_OR_RETURN(PreparedModel m, PrepareModel(one, records));
    for (size_t i = 0; i < sets.size(); ++i) {
      if (SameInputs(sets[i].graph, m.graph))
        return InvalidArgument("--shape: sets {} and {} of shapes are the same; leave one out",
                               i + 1, sets.size() + 1);
    }
    fusion::ShareTasks(sets[0].partition, m.partition);
    sets.push_back(std::move(m));
  }
  return sets;
}

StatusOr<std::vector<TaskRecord>> FindRecords(const PreparedModel& m, Records* records,
                                              int threads) {
  if (records == nullptr) {
    TaskRecord none;
    none.reason = Records::kNone;
    return std::vector<TaskRecord>(m.partition.tasks.size(), none);
  }
  std::vector<std::string> workloads;
  for (const fusion::Task& t : m.partition.tasks) workloads.push_back(t.workload.ToString());
  return records->Find(workloads, m.target.FeatureSet(), threads);
}

std::vector<TaskInfo> DescribeTasks(const std::vector<fusion::Task>& tasks,
                                    const std::vector<TaskRecord>& records) {
  std::vector<TaskInfo> out;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const fusion::Task& t = tasks[i];
    TaskInfo info;
    info.name = t.label;
    info.op_summary = t.workload.Title();
    info.workload = t.workload.ToString();
    info.fingerprint = t.fingerprint.Hex();
    info.flops = t.workload.flops();
    info.count = t.count;
    if (i < records.size()) {
      const TaskRecord& r = records[i];
      info.source = r.trace.empty() ? "default" : "tuned";
      info.reason = r.reason;
      info.default_ns = r.default_ns;
      info.best_ns = r.best_ns;
      info.ratio = r.ratio;
    }
    out.push_back(std::move(info));
  }
  return out;
}

std::string ModelName(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name.empty() ? "model" : name.substr(0, 100);
}

}  // namespace whet::driver
