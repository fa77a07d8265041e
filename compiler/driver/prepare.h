// A model file, imported, specialised, optimised and cut into tasks: what compile, inspect, verify
// and tune start from.
#pragma once
#include <functional>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/plan.h"
#include "compiler/driver/records.h"
#include "compiler/fusion/partition.h"
#include "compiler/graph/graph.h"
#include "compiler/target/target.h"

namespace whet::driver {

struct PreparedModel {
  Target target;
  int64_t file_nodes = 0;     // after import, before the passes
  std::string imported_text;  // of the graph then, if wanted
  Plan plan;                  // how it is cut
  graph::Graph graph;         // after the passes
  fusion::Partition partition;
};

// As imported: no pass has run.
StatusOr<graph::Graph> ImportModel(const ModelOptions& options);

// After the graph passes, cut into tasks.
struct CutModel {
  graph::Graph graph;
  fusion::Partition partition;
};
// By the plan; where it says that layouts are selected, those that the tasks' times prefer are
// taken and noted in it, unless it is an artifact's. `records` may be null.
StatusOr<CutModel> Cut(const graph::Graph& imported, const Target& target,
                       const ModelOptions& options, Records* records, Plan& plan);

// Where the options say that records are looked up; null: nowhere.
StatusOr<std::unique_ptr<Records>> OpenRecords(const ModelOptions& options);

// `records` may be null: then the plan is the one that needs no measurements.
StatusOr<PreparedModel> PrepareModel(const ModelOptions& options, Records* records);
// One per set of shapes. The tasks of all are those of the first one's partition, which the groups
// of the others refer to as well; a task counts as often as all of them together run it.
StatusOr<std::vector<PreparedModel>> PrepareSets(const ModelOptions& options, Records* records);

// Of each task.
StatusOr<std::vector<TaskRecord>> FindRecords(const PreparedModel& model, Records* records,
                                              int threads);

// One line per task, with its record; `records` may be empty.
std::vector<TaskInfo> DescribeTasks(const std::vector<fusion::Task>& tasks,
                                    const std::vector<TaskRecord>& records);

// "face_detection" of "models/face-detection.onnx": letters, digits and '_'.
std::string ModelName(const std::string& path);

}  // namespace whet::driver
