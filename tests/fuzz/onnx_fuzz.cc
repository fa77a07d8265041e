// A model file comes from anywhere: any bytes give a graph or an error. Models that speak of
// external data are read from a folder that has such a file beside them and secrets around it. A
// graph that comes out is small enough to be worth running through the passes, its text parses to
// itself, and each workload's text does too.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "compiler/fusion/partition.h"
#include "compiler/graph/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/ops/catalog.h"

namespace {

void Check(bool ok) {
  if (!ok) std::abort();
}

constexpr std::string_view kSecret = "never to be read";

// outer/secret, outer/models/{m.onnx, w.bin, link -> ../secret}; removed at exit.
class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "whet-fuzz-XXXXXX";
    Check(mkdtemp(pattern.data()) != nullptr);
    outer_ = pattern;
    std::filesystem::create_directory(outer_ + "/models");
    std::ofstream(outer_ + "/secret") << kSecret;
    std::ofstream(outer_ + "/models/w.bin") << std::string(4096, '\1');
    std::filesystem::create_symlink("../secret", outer_ + "/models/link");
  }
  ~Folder() { std::filesystem::remove_all(outer_); }
  std::string Write(std::string_view model) const {
    std::string path = outer_ + "/models/m.onnx";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << model;
    return path;
  }

 private:
  std::string outer_;
};

whet::StatusOr<whet::graph::Graph> Import(std::string_view model,
                                          const whet::onnx::ImportOptions& options) {
  if (model.find("location") == std::string_view::npos)
    return whet::onnx::ImportBytes(model, options);
  static const Folder folder;
  auto graph = whet::onnx::ImportFile(folder.Write(model), options);
  if (!graph.ok()) return graph;
  for (const auto& v : graph->values)
    Check(!v.constant || v.constant->bytes().find(kSecret.substr(0, 4)) == std::string::npos ||
          model.find(kSecret.substr(0, 4)) != std::string_view::npos);
  return graph;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  whet::onnx::ImportOptions options;
  options.max_nodes = 2000;
  options.shapes["x"] = {1, 3, 8, 8};
  const std::string_view model(reinterpret_cast<const char*>(data), size);
  auto graph = Import(model, options);
  if (!graph.ok()) {
    options.shapes.clear();
    graph = Import(model, options);
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
