#include "compiler/frontend/frontend.h"

#include "compiler/onnx/import.h"
#include "compiler/ops/catalog.h"

namespace whet::onnx {
namespace {

std::vector<frontend::OperatorInfo> Operators() {
  std::vector<frontend::OperatorInfo> all;
  for (const graph::OpRecord* op : ops::Catalog().All()) {
    if (!op->importable) continue;
    all.push_back({op->name, op->note});
  }
  return all;
}

}  // namespace

// A protobuf message has no signature: what no other frontend recognizes is read as ONNX, and the
// error says so when it is not.
const frontend::Frontend& GetFrontend() {
  static constexpr frontend::Frontend kFrontend = {
      .name = "ONNX",
      .claim =
          [](std::string_view, std::string_view path) {
            return path.ends_with(".onnx") ? frontend::Claim::kByName : frontend::Claim::kPossible;
          },
      .import = ImportFile,
      .operators = Operators,
  };
  return kFrontend;
}

}  // namespace whet::onnx
