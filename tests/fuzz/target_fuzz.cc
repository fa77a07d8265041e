// A target's text comes from devices and command lines: any bytes give a target or an error, and
// printing a target gives a text that parses to itself.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "compiler/target/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto target = whet::Target::Parse({reinterpret_cast<const char*>(data), size});
  if (!target.ok()) return 0;
  const std::string text = target->ToString();
  auto again = whet::Target::Parse(text);
  if (!again.ok() || again->ToString() != text) std::abort();
  return 0;
}
