// Input files of `whet run`: any bytes give an array whose byte count fits its shape, or a reason;
// what was read can be written and read again, the same.
#include <cstdlib>

#include "deploy/runtime/model.h"
#include "deploy/runtime/npy.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const whet::fuzz::MemoryFile file(data, size);
  whet::NpyArray array;
  if (!whet::ReadNpy(file.path(), &array).empty()) return 0;
  int64_t elements = 1;
  for (int64_t d : array.shape) elements *= d;
  const auto bytes = static_cast<size_t>(elements * whet::DTypeBytes(array.dtype));
  if (array.bytes.size() != bytes || bytes > size) std::abort();
  const whet::fuzz::MemoryFile copy(nullptr, 0);
  whet::NpyArray again;
  if (!whet::WriteNpy(copy.path(), array.dtype, array.shape, array.bytes.data()).empty())
    std::abort();
  if (!whet::ReadNpy(copy.path(), &again).empty()) std::abort();
  if (again.shape != array.shape || again.bytes != array.bytes || again.dtype != array.dtype)
    std::abort();
  return 0;
}
