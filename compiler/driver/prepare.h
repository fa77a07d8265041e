// A model file, imported, specialised, optimised and cut into tasks: what compile, inspect, verify
// and tune start from.
#pragma once
#include <functional>

#include "compiler/driver/compile_model.h"
#include "compiler/fusion/partition.h"
#include "compiler/graph/graph.h"
#include "compiler/target/target.h"

namespace whet::driver {

struct PreparedModel {
  Target target;
  int64_t file_nodes = 0;     // after import, before the passes
  std::string imported_text;  // of the graph then, if wanted
  graph::Graph graph;         // after the passes
  fusion::Partition partition;
};

// As imported: no pass has run.
StatusOr<graph::Graph> ImportModel(const ModelOptions& options);
StatusOr<PreparedModel> PrepareModel(const ModelOptions& options);
// One per set of shapes. The tasks of all are those of the first one's partition, which the groups
// of the others refer to as well; a task counts as often as all of them together run it.
StatusOr<std::vector<PreparedModel>> PrepareSets(const ModelOptions& options);

// The best record of each task, from a tuning log or a server, or why there is none.
struct TaskRecord {
  std::string trace;  // empty: the default schedule
  std::string reason;
  double default_ns = 0, best_ns = 0, ratio = 0;
};
StatusOr<std::vector<TaskRecord>> FindRecords(const PreparedModel& model,
                                              const ModelOptions& options);

// One line per distinct task, with its record.
std::vector<TaskInfo> DescribeTasks(const PreparedModel& model,
                                    const std::vector<TaskRecord>& records);

// "face_detection" of "models/face-detection.onnx": letters, digits and '_'.
std::string ModelName(const std::string& path);

}  // namespace whet::driver
