#include "compiler/driver/prepare.h"

#include <cctype>
#include <cstdio>
#include <filesystem>

#include "compiler/driver/tuner_client.h"
#include "compiler/frontend/frontend.h"
#include "compiler/graph/passes.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/version.h"
#include "compiler/task/workload_program.h"
#include "db/store/tuning_log.h"

namespace whet::driver {
namespace {

StatusOr<std::vector<TaskRecord>> FromLog(const PreparedModel& m, const ModelOptions& options) {
  WHET_ASSIGN_OR_RETURN(
      std::unique_ptr<db::LogReader> log,
      db::LogReader::Open(options.db, {.check = db::ReaderOptions::Check::kFull}));
  for (const std::string& w : log->warnings()) fmt::print(stderr, "warning: {}\n", w);
  std::vector<TaskRecord> records;
  for (const fusion::Task& t : m.partition.tasks) {
    WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(t.workload.ToString()));
    db::BestQuery query;
    query.key = {t.fingerprint, m.target.FeatureSet(), options.threads, db::CacheMode::kWarm};
    query.codegen_version = kCodegenVersion;
    query.initial_program = schedule::DigestOf(w.program);
    WHET_ASSIGN_OR_RETURN(db::Best best, log->FindBest(query));
    TaskRecord r;
    if (best.record) {
      r.trace = best.record->row.trace;
      r.best_ns = best.record->row.median_ns;
      r.ratio = best.record->ratio;
      r.default_ns = r.ratio > 0 ? r.best_ns / r.ratio : 0;
    } else {
      r.reason = best.why;
    }
    records.push_back(std::move(r));
  }
  return records;
}

StatusOr<std::vector<TaskRecord>> FromServer(const PreparedModel& m, const ModelOptions& options) {
  v1::GetRecordsRequest request;
  for (const fusion::Task& t : m.partition.tasks) {
    WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(t.workload.ToString()));
    v1::RecordQuery* q = request.add_queries();
    q->set_workload_fingerprint(t.fingerprint.Hex());
    q->set_feature_set(m.target.FeatureSet());
    q->set_threads(static_cast<uint32_t>(options.threads));
    q->set_codegen_version(kCodegenVersion);
    q->set_initial_program(schedule::DigestOf(w.program).Hex());
  }
  WHET_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, TunerClient::Connect(options.server));
  WHET_ASSIGN_OR_RETURN(v1::GetRecordsReply reply, client->Records(request));
  if (reply.records_size() != request.queries_size())
    return Unavailable("server '{}' answered {} of {} queries", options.server,
                       reply.records_size(), request.queries_size());
  std::vector<TaskRecord> records;
  for (const v1::RecordReply& r : reply.records()) {
    TaskRecord out;
    out.reason = r.why();
    if (r.found()) {
      out.trace = r.trace();
      out.best_ns = r.median_ns();
      out.ratio = r.ratio();
      out.default_ns = out.ratio > 0 ? out.best_ns / out.ratio : 0;
    }
    records.push_back(std::move(out));
  }
  return records;
}

Status Optimise(graph::Graph& g, const std::string& dump_after) {
  graph::PassOptions passes;
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

}  // namespace

StatusOr<graph::Graph> ImportModel(const ModelOptions& options) {
  frontend::ImportOptions import;
  import.shapes = options.shapes;
  import.bind = options.bind;
  import.outputs = options.extra_outputs;
  return frontend::ImportFile(options.model, import);
}

StatusOr<PreparedModel> PrepareModel(const ModelOptions& options) {
  PreparedModel m;
  WHET_ASSIGN_OR_RETURN(m.target, Target::Parse(options.target));
  WHET_ASSIGN_OR_RETURN(m.graph, ImportModel(options));
  m.file_nodes = static_cast<int64_t>(m.graph.nodes.size());
  if (options.graph_text) m.imported_text = graph::ToString(m.graph);
  WHET_RETURN_IF_ERROR(Optimise(m.graph, options.dump_after));
  WHET_ASSIGN_OR_RETURN(m.partition, fusion::PartitionGraph(m.graph));
  return m;
}

StatusOr<std::vector<PreparedModel>> PrepareSets(const ModelOptions& options) {
  WHET_ASSIGN_OR_RETURN(PreparedModel first, PrepareModel(options));
  std::vector<PreparedModel> sets;
  sets.push_back(std::move(first));
  for (const auto& shapes : options.more_shapes) {
    ModelOptions one = options;
    one.shapes = shapes;
    WHET_ASSIGN_OR_RETURN(PreparedModel m, PrepareModel(one));
    fusion::ShareTasks(sets[0].partition, m.partition);
    sets.push_back(std::move(m));
  }
  return sets;
}

StatusOr<std::vector<TaskRecord>> FindRecords(const PreparedModel& m, const ModelOptions& options) {
  if (!options.server.empty()) return FromServer(m, options);
  if (!options.db.empty()) return FromLog(m, options);
  std::vector<TaskRecord> none(m.partition.tasks.size());
  for (TaskRecord& r : none) r.reason = "no tuning log given";
  return none;
}

std::vector<TaskInfo> DescribeTasks(const PreparedModel& m,
                                    const std::vector<TaskRecord>& records) {
  std::vector<TaskInfo> out;
  for (size_t i = 0; i < m.partition.tasks.size(); ++i) {
    const fusion::Task& t = m.partition.tasks[i];
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
