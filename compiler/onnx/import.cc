#include "compiler/onnx/import.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <filesystem>

#include "compiler/frontend/model_file.h"
#include "compiler/onnx/importer.h"

namespace whet::onnx {
namespace {

using graph::Graph;
using onnx_schema::ModelProto;

Status Parse(std::string_view bytes, ModelProto* model) {
  if (bytes.empty()) return InvalidArgument("the file is empty");
  if (static_cast<int64_t>(bytes.size()) > kMaxFileBytes)
    return ResourceExhausted("{} bytes exceed the limit of {}", bytes.size(), kMaxFileBytes);
  // A damaged file is reported once, by us, and not a second time by the library on standard error.
  google::protobuf::LogSilencer quiet;
  if (!model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument(
        "it is no ONNX model, or it is truncated, damaged or nested too deeply ({} bytes)",
        bytes.size());
  }
  return OkStatus();
}

StatusOr<Graph> ImportMessage(std::string_view bytes, const ImportOptions& options) {
  ModelProto model;
  WHET_RETURN_IF_ERROR(Parse(bytes, &model));
  return Importer(model, options, ExternalData()).Run();
}

StatusOr<Graph> ImportPath(const std::string& path, const ImportOptions& options) {
  WHET_ASSIGN_OR_RETURN(std::string bytes, frontend::ReadModelFile(path, kMaxFileBytes));
  ModelProto model;
  WHET_RETURN_IF_ERROR(Parse(bytes, &model));
  bytes = {};  // the message has its own copy of the weights, which the graph takes over
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return Importer(model, options,
                  ExternalData(folder.empty() ? "." : folder.string(), options.writes))
      .Run();
}

}  // namespace

StatusOr<Graph> ImportBytes(std::string_view model, const ImportOptions& options) {
  auto g = ImportMessage(model, options);
  if (!g.ok()) return Annotate(g.status(), "model");
  return g;
}

StatusOr<Graph> ImportFile(const std::string& path, const ImportOptions& options) {
  auto g = ImportPath(path, options);
  if (!g.ok()) return Annotate(g.status(), fmt::format("model '{}'", path));
  return g;
}

}  // namespace whet::onnx
