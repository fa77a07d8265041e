// NumPy .npy files, versions 1 to 3, little endian, C order. Standard library only; errors as text,
// an empty text is success. bf16 has no .npy form: callers widen it to f32. Stateless; safe from
// any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace whet {

struct NpyArray {
  uint32_t dtype = 7;  // whet_dtype; f32
  std::vector<int64_t> shape;
  std::string bytes;
};

// At most 4 GiB and 16 dimensions.
std::string ReadNpy(const std::string& path, NpyArray* out);
std::string WriteNpy(const std::string& path, uint32_t dtype, const std::vector<int64_t>& shape,
                     const void* data);

}  // namespace whet
