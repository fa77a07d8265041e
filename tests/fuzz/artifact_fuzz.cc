// What the runtime reads of a library before the dynamic loader sees it: any bytes give a
// descriptor's name or a reason.
#include <cstdlib>

#include "deploy/runtime/elf_symbol.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const whet::fuzz::MemoryFile file(data, size);
  std::string error;
  const std::string name = whet::FindDescriptorSymbol(file.path(), &error);
  if (name.empty() == error.empty()) std::abort();
  return 0;
}
