#include "compiler/driver/prepare.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "compiler/driver/task_layouts.h"
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

StatusOr<CutModel> Cut(const graph::Graph& imported, const Target& target,
                       const ModelOptions& options, Records* records, Plan& plan) {
  const std::string& dump_after = options.dump_after;
  graph::PassOptions passes;
  WHET_ASSIGN_OR_RETURN(passes.layout_cost, LayoutCostOf(plan.layouts));
  std::vector<std::string> before, after;  // layouts are assigned
  for (const graph::Pass& p : graph::Passes())
    (p.name == "assign-layouts" || !after.empty() ? after : before).emplace_back(p.name);
  bool dumped = dump_after.empty();
  const auto dump = [&](std::string_view pass, const graph::Graph& now) {
    if (pass != dump_after) return;
    dumped = true;
    fmt::print(stderr, "# after graph pass {}\n{}", pass, graph::ToString(now));
  };
  if (!dumped) {
    WHET_RETURN_IF_ERROR(graph::CheckPassNames({&dump_after, 1}));
    passes.dump = dump;
  }
  graph::Graph start = imported;
  WHET_RETURN_IF_ERROR(graph::RunPasses(start, before, passes).status());
  auto cut = [&](const std::vector<graph::StoredLayout>& stored, bool last) -> StatusOr<CutModel> {
    CutModel m{start, {}};
    graph::PassOptions own = passes;
    if (!last) own.dump = nullptr;
    if (!stored.empty()) own.stored = &stored;
    WHET_RETURN_IF_ERROR(graph::RunPasses(m.graph, after, own).status());
    WHET_ASSIGN_OR_RETURN(
        m.partition, fusion::PartitionGraph(m.graph, last ? plan.split : std::set<Fingerprint>()));
    return m;
  };
  if (plan.layouts == kLayoutNames[0] && !options.as_compiled) {
    // A plan that was measured is of layouts that were listed before there were records.
    if (plan.source == "measured") records = nullptr;
    WHET_ASSIGN_OR_RETURN(CutModel first, cut({}, /*last=*/false));
    auto times = [&] {
      return TaskTimes::Of(target, options.threads, records, first.partition.tasks);
    };
    CutModel second;
    auto other =
        [&](const std::vector<graph::StoredLayout>& s) -> StatusOr<const fusion::Partition*> {
      WHET_ASSIGN_OR_RETURN(second, cut(s, /*last=*/false));
      return &second.partition;
    };
    WHET_ASSIGN_OR_RETURN(TaskLayouts chosen,
                          LayoutsByTasks(start, first.graph, first.partition, times, other));
    plan.stored = std::move(chosen.stored);
    plan.costs = chosen.costs;
    if (plan.split.empty() && dumped)
      return plan.stored.empty() ? std::move(first) : std::move(second);
  }
  WHET_ASSIGN_OR_RETURN(CutModel m, cut(plan.stored, /*last=*/true));
  if (!dumped) fmt::print(stderr, "# graph pass {} changed nothing\n", dump_after);
  return m;
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
    m.plan.stored = options.stored;
    m.plan.split = options.split;
  } else if (records != nullptr) {
    WHET_ASSIGN_OR_RETURN(m.plan, ChoosePlan(graph::StructureOf(imported), *records,
                                             m.target.FeatureSet(), options.threads));
  }
  while (true) {
    WHET_ASSIGN_OR_RETURN(CutModel cut, Cut(imported, m.target, options, records, m.plan));
    m.graph = std::move(cut.graph);
    m.partition = std::move(cut.partition);
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
