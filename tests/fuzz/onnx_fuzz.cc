// A model file comes from anywhere: any bytes give a graph or an error. A graph that comes out is
// small enough to be worth running through the passes, its text parses to itself, and each
// workload's text does too.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/fusion/partition.h"
#include "compiler/graph/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/ops/catalog.h"

namespace {

void Check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  whet::onnx::ImportOptions options;
  options.shapes["x"] = {1, 3, 8, 8};
  auto graph = whet::onnx::ImportBytes({reinterpret_cast<const char*>(data), size}, options);
  if (!graph.ok()) {
    options.shapes.clear();
    graph = whet::onnx::ImportBytes({reinterpret_cast<const char*>(data), size}, options);
  }
  if (!graph.ok()) return 0;
  int64_t elements = 0;
  for (const auto& v : graph->values) elements += v.type.num_elements();
  if (elements > 1 << 20) return 0;  // legal, but an iteration is to take milliseconds
  auto passes = whet::graph::RunPasses(*graph);
  if (!passes.ok()) {
    // Only limits may stop a pass on a graph that was imported.
    Check(passes.status().code() != absl::StatusCode::kInternal);
    return 0;
  }
  std::vector<whet::graph::ConstantPtr> constants;
  for (const auto& v : graph->values) {
    if (v.constant) constants.push_back(v.constant);
  }
  const std::string text = whet::graph::ToString(*graph);
  auto again = whet::graph::ParseGraph(text, whet::ops::Catalog(), constants);
  Check(again.ok() && whet::graph::ToString(*again) == text);
  auto partition = whet::fusion::PartitionGraph(*graph);
  if (!partition.ok()) {
    Check(partition.status().code() != absl::StatusCode::kInternal);
    return 0;
  }
  for (const auto& task : partition->tasks) {
    const std::string workload = task.workload.ToString();
    auto parsed = whet::fusion::Workload::Parse(workload, whet::ops::Catalog());
    Check(parsed.ok() && parsed->ToString() == workload);
    Check(whet::fusion::BuildTe(*parsed).ok());
  }
  return 0;
}
