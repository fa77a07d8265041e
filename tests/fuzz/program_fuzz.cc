// A loop program's text: any bytes give a program or an error; what parses prints to a text that
// parses to the same text; and a program that verifies goes through the interpreter and every
// lowering pass without a crash.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "compiler/loop/parse.h"
#include "compiler/loop/verify.h"
#include "tests/fuzz/run_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto program = whet::loop::Parse({reinterpret_cast<const char*>(data), size});
  if (!program.ok()) return 0;
  const std::string text = whet::loop::ToString(*program);
  auto again = whet::loop::Parse(text);
  if (!again.ok() || whet::loop::ToString(*again) != text)
    whet::fuzz::Fail("parse(print(x)) != x", text);
  if (!whet::loop::Verify(*program).ok() || !whet::fuzz::IsSmall(*program)) return 0;
  // Errors are fine here: a program that is not a schedule of anything may read outside its
  // buffers.
  (void)whet::fuzz::RunBlocks(*program);
  (void)whet::fuzz::RunLowered(*program);
  return 0;
}
