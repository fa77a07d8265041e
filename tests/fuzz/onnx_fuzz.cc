// A model file is untrusted: any bytes give a graph or an error that says what is wrong. Folding may take memory and time
// up to the importer's own caps, so the fuzzer's limits are far above one small model's.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/onnx/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto graph = whet::onnx::ImportBytes({reinterpret_cast<const char*>(data), size});
  if (!graph.ok() && graph.status().message().empty()) std::abort();
  return 0;
}
