#include "compiler/driver/compile_model.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "compiler/driver/interrupt.h"
#include "compiler/driver/model_request.h"
#include "compiler/driver/prepare.h"
#include "compiler/support/nameless_file.h"
#include "compiler/support/paths.h"
#include "compiler/support/subprocess.h"
#include "compiler/support/version.h"

namespace whet::driver {
namespace {

constexpr const char* kUntuned = "--untuned";  // why no record was looked up

PlanInfo Describe(const Plan& plan) {
  PlanInfo info;
  info.layouts = plan.layouts;
  info.costs = plan.costs;
  info.split = static_cast<int64_t>(plan.split.size());
  info.source = plan.source;
  info.reason = plan.why;
  if (plan.own_ns > 0 && plan.chosen_ns > 0) info.ratio = plan.chosen_ns / plan.own_ns;
  return info;
}

std::string Metadata(const std::vector<PreparedModel>& sets, const std::vector<TaskInfo>& tasks,
                     const CompileOptions& options) {
  nlohmann::json j;
  j["compiler"] = kCompilerVersion;
  j["codegen"] = kCodegenVersion;
  j["threads"] = options.threads;
  // What `whet verify` has to import the model with.
  if (!options.bind.empty()) j["bind"] = options.bind;
  if (!options.extra_outputs.empty()) j["extra_outputs"] = options.extra_outputs;
  for (const PreparedModel& m : sets) {
    nlohmann::json plan = {{"layouts", m.plan.layouts}, {"source", m.plan.source}};
    for (const graph::StoredLayout& s : m.plan.stored) {
      nlohmann::json value = {s.value, s.stored.AsPermutation()};
      if (s.copy) value.push_back(s.copy->AsPermutation());
      plan["stored"].push_back(std::move(value));
    }
    for (const Fingerprint& f : m.plan.split) plan["split"].push_back(f.Hex());
    j["plans"].push_back(std::move(plan));
  }
  for (const TaskInfo& t : tasks) {
    nlohmann::json o = {{"name", t.name},     {"op", t.op_summary}, {"workload", t.fingerprint},
                        {"source", t.source}, {"count", t.count},   {"flops", t.flops}};
    if (!t.reason.empty()) o["reason"] = t.reason;
    j["tasks"].push_back(std::move(o));
  }
  return j.dump();
}

// The builder's temporary files, removed however it ends.
struct ScratchFolder {
  ScratchFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "whet-compile-XXXXXX";
    if (mkdtemp(pattern.data())) path = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() { close(fd); }
  const int fd;
};

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The reply's peak_bytes are those of both processes while the builder runs.
StatusOr<v1::ModelBuildReply> RunBuilder(v1::ModelBuildRequest request) {
  WHET_ASSIGN_OR_RETURN(const int in_fd, NamelessFile());
  const Descriptor in(in_fd);
  WHET_ASSIGN_OR_RETURN(const int out_fd, NamelessFile());
  const Descriptor out(out_fd);
  if (!request.SerializeToFileDescriptor(in.fd)) {
    return Unavailable("cannot write {} bytes of a temporary file in '{}'; is the disk full?",
                       request.ByteSizeLong(), std::filesystem::temp_directory_path().string());
  }
  const std::string out_path = request.out_path();
  request = {};  // the weights are in the file
  malloc_trim(0);
  const int64_t held = ResidentBytes();
  const ScratchFolder scratch;
  if (scratch.path.empty())
    return Unavailable("cannot make a temporary folder in '{}'",
                       std::filesystem::temp_directory_path().string());
  SpawnOptions spawn;
  spawn.extra_env = {"TMPDIR=" + scratch.path};
  WHET_ASSIGN_OR_RETURN(spawn.program, FindProgram("whet-builder"));
  spawn.args = {"model", "/proc/self/fd/3", "/proc/self/fd/4"};
  spawn.fds = {{in.fd, 3}, {out.fd, 4}};
  spawn.stdout_to_stderr = true;
  WHET_ASSIGN_OR_RETURN(Subprocess child, Subprocess::Spawn(spawn));
  const std::string partial = fmt::format("{}.{}.partial", out_path, child.pid());
  std::optional<int> status;
  while (!status && !Interrupted()) status = child.Wait(MonotonicNs() + 50 * kMillisecond);
  if (Interrupted() && status != 0) {
    child.Kill();
    unlink(partial.c_str());
    return Status(absl::StatusCode::kCancelled, "interrupted; nothing was written");
  }
  v1::ModelBuildReply reply;
  if (!status || *status != 0 || !reply.ParseFromFileDescriptor(out.fd)) {
    return Internal("whet-builder gave no answer: it {}",
                    status ? DescribeWaitStatus(*status) : "did not end");
  }
  if (!reply.ok()) return Status(static_cast<absl::StatusCode>(reply.code()), reply.message());
  reply.set_peak_bytes(reply.peak_bytes() + held);
  return reply;
}

// What the artifact is for, the best first: more features are better, and among equally many the
// one that was named first.
StatusOr<std::vector<Target>> TargetsOf(const ModelOptions& options) {
  std::vector<std::string> texts = {options.target};
  texts.insert(texts.end(), options.more_targets.begin(), options.more_targets.end());
  std::vector<Target> targets;
  for (const std::string& text : texts) {
    WHET_ASSIGN_OR_RETURN(Target t, Target::Parse(text));
    for (const Target& other : targets) {
      if (t.FeatureSet() == other.FeatureSet())
        return InvalidArgument("--target names the instruction set {} twice", t.Name());
      if (t.arch != other.arch)
        return InvalidArgument("--target: an artifact is for one architecture, not {} and {}",
                               other.arch, t.arch);
    }
    targets.push_back(std::move(t));
  }
  std::stable_sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
    return std::pair(a.VectorBits(), a.features.size()) >
           std::pair(b.VectorBits(), b.features.size());
  });
  return targets;
}

// Imports the model, cuts it for the target and adds it to the request: the first to be added is
// the request's own, the others are further builds.
StatusOr<TargetReport> PrepareFor(const Target& target, const CompileOptions& options,
                                  v1::ModelBuildRequest& request) {
  ModelOptions one = options;
  one.target = target.ToString();
  std::unique_ptr<Records> log;
  if (options.use_records) {
    WHET_ASSIGN_OR_RETURN(log, OpenRecords(options));
  }
  WHET_ASSIGN_OR_RETURN(const std::vector<PreparedModel> sets, PrepareSets(one, log.get()));
  const PreparedModel& m = sets[0];
  WHET_ASSIGN_OR_RETURN(std::vector<TaskRecord> records,
                        FindRecords(m, log.get(), options.threads));
  std::string machine;
  if (log) {
    WHET_ASSIGN_OR_RETURN(machine, log->Machine(m.target.FeatureSet()));
  }
  log.reset();
  TargetReport report;
  report.name = target.Name();
  report.target = one.target;
  report.plan = Describe(m.plan);
  if (!options.use_records) {  // whether there is a log does not matter
    for (TaskRecord& r : records) r.reason = kUntuned;
    if (!report.plan.reason.empty()) report.plan.reason = kUntuned;
  }
  report.tasks = DescribeTasks(m.partition.tasks, records);
  for (const TaskInfo& t : report.tasks) (t.source == "tuned" ? report.tuned : report.untuned) += 1;
  const std::string metadata = Metadata(sets, report.tasks, options);
  std::vector<std::string> traces;
  for (const TaskRecord& r : records) traces.push_back(r.trace);
  if (request.target().empty()) {
    request.set_target(one.target);
    request.set_metadata(metadata);
    request.set_machine(machine);
    WHET_RETURN_IF_ERROR(FillModelRequest(m.graph, m.partition, traces, request));
    for (size_t i = 1; i < sets.size(); ++i)
      WHET_RETURN_IF_ERROR(AddModelVariant(sets[i].graph, sets[i].partition, request));
    return report;
  }
  v1::ModelBuild& build = *request.add_builds();
  build.set_target(one.target);
  build.set_metadata(metadata);
  build.set_machine(machine);
  WHET_RETURN_IF_ERROR(FillModelBuild(m.graph, m.partition, traces, request, build));
  for (size_t i = 1; i < sets.size(); ++i)
    WHET_RETURN_IF_ERROR(AddModelVariant(sets[i].graph, sets[i].partition, request, build));
  return report;
}

}  // namespace

StatusOr<CompileReport> CompileModel(const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  WHET_ASSIGN_OR_RETURN(const std::vector<Target> targets, TargetsOf(options));
  v1::ModelBuildRequest request;
  request.set_name(options.name.empty() ? ModelName(options.model) : options.name);
  request.set_out_path(std::filesystem::absolute(options.output).string());
  if (!options.object_cache.empty()) {
    request.set_cache_dir(std::filesystem::absolute(options.object_cache).string());
    request.set_cache_bytes(options.object_cache_bytes);
  }
  request.set_threads(static_cast<uint32_t>(options.threads));
  WHET_ASSIGN_OR_RETURN(TargetReport least, PrepareFor(targets.back(), options, request));
  std::vector<TargetReport> best_first;
  for (size_t i = 0; i + 1 < targets.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(TargetReport one, PrepareFor(targets[i], options, request));
    best_first.push_back(std::move(one));
  }
  best_first.push_back(std::move(least));
  CompileReport report;
  static_cast<TargetReport&>(report) = std::move(best_first[0]);
  report.further.assign(std::make_move_iterator(best_first.begin() + 1),
                        std::make_move_iterator(best_first.end()));
  WHET_ASSIGN_OR_RETURN(v1::ModelBuildReply reply, RunBuilder(std::move(request)));

  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  report.peak_bytes = std::max<int64_t>(own.ru_maxrss * 1024, reply.peak_bytes());
  report.arena_bytes = reply.arena_bytes();
  report.cached_objects = reply.cached_objects();
  report.artifact_bytes = static_cast<int64_t>(std::filesystem::file_size(options.output));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

StatusOr<ModelInfo> InspectModel(const ModelOptions& options) {
  WHET_ASSIGN_OR_RETURN(const std::unique_ptr<Records> log, OpenRecords(options));
  WHET_ASSIGN_OR_RETURN(const std::vector<PreparedModel> sets, PrepareSets(options, log.get()));
  const PreparedModel& m = sets[0];
  WHET_ASSIGN_OR_RETURN(std::vector<TaskRecord> records,
                        FindRecords(m, log.get(), options.threads));
  ModelInfo info;
  info.plan = Describe(m.plan);
  auto describe = [](const graph::Graph& g, const std::string& name, graph::ValueId v) {
    return ValueInfo{name, std::string(ToString(g.type(v).dtype)), g.type(v).shape};
  };
  for (const PreparedModel& set : sets) {
    std::vector<ValueInfo>& inputs = &set == &m ? info.inputs : info.further_inputs.emplace_back();
    for (graph::ValueId v : set.graph.inputs)
      inputs.push_back(describe(set.graph, set.graph.values[v].name, v));
    info.launches += static_cast<int64_t>(set.partition.groups.size());
  }
  for (const graph::GraphOutput& o : m.graph.outputs)
    info.outputs.push_back(describe(m.graph, o.name, o.value));
  info.tasks = DescribeTasks(m.partition.tasks, records);
  info.nodes = m.file_nodes;
  for (const graph::Value& v : m.graph.values) {
    if (v.constant) info.parameter_bytes += static_cast<int64_t>(v.constant->bytes().size());
  }
  for (const TaskInfo& t : info.tasks) info.flops += t.flops * t.count;
  info.graph_before = std::move(m.imported_text);
  if (options.graph_text) info.graph_after = graph::ToString(m.graph);
  return info;
}

}  // namespace whet::driver
