// The first bytes of a connection: any bytes get a verdict, a verdict other than "more" never
// changes with what follows, and only what begins like a TLS handshake is handed on.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/rpc/client_hello.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using whet::rpc::Hello;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Hello whole = whet::rpc::InspectHello(bytes);
  if (whole == Hello::kTls13 && (size < 9 || data[0] != 22 || data[5] != 1)) std::abort();
  for (const size_t part : {size_t{0}, size_t{1}, size_t{5}, size / 2, size - size / 4}) {
    if (part > size) continue;
    const Hello verdict = whet::rpc::InspectHello(bytes.substr(0, part));
    if (verdict != Hello::kMore && verdict != whole) std::abort();
  }
  return 0;
}
