// Frames between a program and its zygotes: any bytes give frames or an error, a frame never takes
// more bytes than there are, and encoding a decoded frame gives its bytes back.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/support/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  while (!bytes.empty()) {
    size_t used = 0;
    auto frame = whet::DecodeFrame(bytes, 4096, &used);
    if (!frame.ok()) return 0;
    if (used < whet::kFrameHeaderBytes || used > bytes.size()) std::abort();
    if (whet::EncodeFrame(frame->type, frame->payload) != bytes.substr(0, used)) std::abort();
    bytes.remove_prefix(used);
  }
  return 0;
}
