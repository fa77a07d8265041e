// A model file comes from anywhere: any bytes give a graph or an error. A graph that comes out is
// small enough to be worth running through the passes and the partition.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/fusion/partition.h"
#include "compiler/graph/passes.h"
#include "compiler/ops/catalog.h"
#include "compiler/tflite/import.h"

namespace {

void Check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto graph = whet::tflite::ImportBytes({reinterpret_cast<const char*>(data), size});
  if (!graph.ok()) {
    Check(graph.status().code() != absl::StatusCode::kInternal);
    return 0;
  }
  int64_t elements = 0;
  for (const auto& v : graph->values) elements += v.type.num_elements();
  if (elements > 1 << 20) return 0;  // legal, but an iteration is to take milliseconds
  auto passes = whet::graph::RunPasses(*graph);
  if (!passes.ok()) {
    // Only limits may stop a pass on a graph that was imported.
    Check(passes.status().code() != absl::StatusCode::kInternal);
    return 0;
  }
  auto partition = whet::fusion::PartitionGraph(*graph);
  if (!partition.ok()) {
    Check(partition.status().code() != absl::StatusCode::kInternal);
    return 0;
  }
  for (const auto& task : partition->tasks) Check(whet::fusion::BuildTe(task.workload).ok());
  return 0;
}
