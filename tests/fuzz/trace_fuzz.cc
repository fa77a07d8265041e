// A trace's text may come from a peer or an old log: parsing any bytes gives a trace or an error, and whatever parses
// prints to a text that parses to the same text again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/schedule/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto trace = whet::schedule::Trace::Parse({reinterpret_cast<const char*>(data), size});
  if (!trace.ok()) return 0;
  const std::string text = trace->ToString();
  auto again = whet::schedule::Trace::Parse(text);
  if (!again.ok() || again->ToString() != text) std::abort();
  return 0;
}
