#include "compiler/frontend/frontend.h"

#include "compiler/tflite/context.h"
#include "compiler/tflite/import.h"

namespace whet::tflite {
namespace {

std::vector<frontend::OperatorInfo> Operators() {
  std::vector<frontend::OperatorInfo> all;
  for (std::string& name : OperatorNames()) all.push_back({std::move(name), ""});
  return all;
}

}  // namespace

const frontend::Frontend& GetFrontend() {
  static constexpr frontend::Frontend kFrontend = {
      .name = "TFLite",
      // The identifier of a flatbuffer stands after the offset of its root table.
      .claim =
          [](std::string_view head, std::string_view path) {
            if (head.size() >= 8 && head.substr(4, 4) == "TFL3") return frontend::Claim::kByContent;
            return path.ends_with(".tflite") ? frontend::Claim::kByName : frontend::Claim::kNone;
          },
      .import = ImportFile,
      .operators = Operators,
  };
  return kFrontend;
}

}  // namespace whet::tflite
