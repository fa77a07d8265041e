#include "compiler/frontend/frontend.h"

#include "compiler/onnx/import.h"

namespace whet::onnx {

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
  };
  return kFrontend;
}

}  // namespace whet::onnx
