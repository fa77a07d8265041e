#include "compiler/driver/compile_model.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "compiler/driver/interrupt.h"
#include "compiler/driver/prepare.h"
#include "compiler/graph/evaluate.h"
#include "compiler/support/nameless_file.h"
#include "compiler/support/paths.h"
#include "compiler/support/subprocess.h"
#include "compiler/support/version.h"
#include "proto/model.pb.h"

namespace whet::driver {
namespace {

// Tensors and steps of the request. Values that share bytes (views) share a tensor.
class RequestWriter {
 public:
  RequestWriter(const PreparedModel& m, const std::vector<TaskRecord>& records,
                v1::ModelBuildRequest& out)
      : m_(m), g_(m.graph), out_(out) {
    for (size_t i = 0; i < m.partition.tasks.size(); ++i) {
      v1::ModelTask* t = out.add_tasks();
      t->set_workload(m.partition.tasks[i].workload.ToString());
      t->set_trace(records[i].trace);
    }
  }

  Status Run() {
    for (graph::ValueId v : g_.inputs)
      Add(v, v1::ModelTensor::INPUT, g_.values[v].name, g_.type(v).shape);
    for (const graph::GraphOutput& o : g_.outputs) {
      const graph::ValueId root = m_.partition.storage[o.value];
      if (tensor_of_.count(root))
        return Internal("output '{}' shares its bytes with another input or output", o.name);
      Add(root, v1::ModelTensor::OUTPUT, o.name, g_.type(o.value).shape);
    }
    for (const fusion::Group& group : m_.partition.groups) {
      v1::ModelStep* step = out_.add_steps();
      step->set_task(group.task);
      step->set_label(group.label);
      for (const auto* values : {&group.inputs, &group.outputs}) {
        for (graph::ValueId v : *values) step->add_tensors(Tensor(v));
      }
    }
    return OkStatus();
  }

 private:
  uint32_t Add(graph::ValueId v, v1::ModelTensor::Kind kind, const std::string& name,
               const std::vector<int64_t>& shape) {
    v1::ModelTensor* t = out_.add_tensors();
    t->set_kind(kind);
    t->set_dtype(static_cast<uint32_t>(g_.type(v).dtype));
    for (int64_t d : shape) t->add_shape(d);
    t->set_bytes_size(g_.type(v).bytes());
    t->set_name(name);
    if (kind == v1::ModelTensor::CONSTANT) {
      const graph::TensorType& type = g_.type(v);
      t->set_data(type.IsRowMajor() ? g_.constant(v)->bytes()
                                    : fusion::PhysicalBytes(type, g_.constant(v)->Doubles()));
    }
    return tensor_of_[v] = static_cast<uint32_t>(out_.tensors_size() - 1);
  }

  uint32_t Tensor(graph::ValueId v) {
    auto it = tensor_of_.find(v);
    if (it != tensor_of_.end()) return it->second;
    return Add(v, g_.constant(v) ? v1::ModelTensor::CONSTANT : v1::ModelTensor::INTERNAL, "",
               g_.type(v).PhysicalShape());
  }

  const PreparedModel& m_;
  const graph::Graph& g_;
  v1::ModelBuildRequest& out_;
  std::map<graph::ValueId, uint32_t> tensor_of_;
};

std::string Metadata(const std::vector<TaskInfo>& tasks, const CompileOptions& options) {
  nlohmann::json j;
  j["compiler"] = kCompilerVersion;
  j["codegen"] = kCodegenVersion;
  j["threads"] = options.threads;
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

StatusOr<v1::ModelBuildReply> RunBuilder(const v1::ModelBuildRequest& request) {
  WHET_ASSIGN_OR_RETURN(const int in_fd, NamelessFile());
  const Descriptor in(in_fd);
  WHET_ASSIGN_OR_RETURN(const int out_fd, NamelessFile());
  const Descriptor out(out_fd);
  if (!request.SerializeToFileDescriptor(in.fd)) {
    return Unavailable("cannot write {} bytes of a temporary file in '{}'; is the disk full?",
                       request.ByteSizeLong(), std::filesystem::temp_directory_path().string());
  }
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
  const std::string partial = fmt::format("{}.{}.partial", request.out_path(), child.pid());
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
  return reply;
}

}  // namespace

StatusOr<CompileReport> CompileModel(const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  WHET_ASSIGN_OR_RETURN(PreparedModel m, PrepareModel(options));
  ModelOptions lookup = options;
  if (!options.use_records) lookup.db.clear(), lookup.server.clear();
  WHET_ASSIGN_OR_RETURN(std::vector<TaskRecord> records, FindRecords(m, lookup));
  CompileReport report;
  report.tasks = DescribeTasks(m, records);
  for (const TaskInfo& t : report.tasks) (t.source == "tuned" ? report.tuned : report.untuned) += 1;

  v1::ModelBuildRequest request;
  request.set_name(options.name.empty() ? ModelName(options.model) : options.name);
  request.set_target(m.target.ToString());
  request.set_metadata(Metadata(report.tasks, options));
  request.set_out_path(std::filesystem::absolute(options.output).string());
  WHET_RETURN_IF_ERROR(RequestWriter(m, records, request).Run());
  WHET_ASSIGN_OR_RETURN(v1::ModelBuildReply reply, RunBuilder(request));

  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  report.peak_bytes = std::max<int64_t>(own.ru_maxrss * 1024, reply.peak_bytes());
  report.arena_bytes = reply.arena_bytes();
  report.artifact_bytes = static_cast<int64_t>(std::filesystem::file_size(options.output));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

StatusOr<ModelInfo> InspectModel(const ModelOptions& options) {
  WHET_ASSIGN_OR_RETURN(PreparedModel m, PrepareModel(options));
  WHET_ASSIGN_OR_RETURN(std::vector<TaskRecord> records, FindRecords(m, options));
  ModelInfo info;
  auto describe = [&](const std::string& name, graph::ValueId v) {
    return ValueInfo{name, std::string(ToString(m.graph.type(v).dtype)), m.graph.type(v).shape};
  };
  for (graph::ValueId v : m.graph.inputs)
    info.inputs.push_back(describe(m.graph.values[v].name, v));
  for (const graph::GraphOutput& o : m.graph.outputs)
    info.outputs.push_back(describe(o.name, o.value));
  info.tasks = DescribeTasks(m, records);
  info.nodes = m.file_nodes;
  for (const graph::Value& v : m.graph.values) {
    if (v.constant) info.parameter_bytes += static_cast<int64_t>(v.constant->bytes().size());
  }
  for (const TaskInfo& t : info.tasks) info.flops += t.flops * t.count;
  return info;
}

}  // namespace whet::driver
