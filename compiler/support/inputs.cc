#include "compiler/support/inputs.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "compiler/support/half.h"

namespace whet {
namespace {

// Calls value(logical index) for each element in physical order and stores the result as T.
template <typename T, typename F>
void Fill(const InputLayout& layout, void* out, F&& value) {
  char* p = static_cast<char*>(out);
  const size_t rank = layout.shape.size();
  std::vector<int64_t> strides(layout.logical_strides.begin(), layout.logical_strides.end());
  if (strides.size() != rank) {
    strides.assign(rank, 1);
    for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * layout.shape[d];
  }
  const int64_t inner = rank == 0 ? 1 : layout.shape[rank - 1];
  const int64_t inner_stride = rank == 0 ? 0 : strides[rank - 1];
  std::vector<int64_t> at(rank, 0);
  for (int64_t d : layout.shape) {
    if (d <= 0) return;
  }
  int64_t base = 0;
  while (true) {
    for (int64_t i = 0; i < inner; ++i) {
      const T v = value(static_cast<uint64_t>(base + i * inner_stride));
      std::memcpy(p, &v, sizeof(T));
      p += sizeof(T);
    }
    size_t d = rank > 0 ? rank - 1 : 0;
    while (d > 0 && ++at[d - 1] == layout.shape[d - 1]) {
      base -= strides[d - 1] * (at[d - 1] - 1);
      at[d - 1] = 0;
      --d;
    }
    if (d == 0) return;
    base += strides[d - 1];
  }
}

template <typename T>
T Load(const void* data, uint64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return v;
}

}  // namespace

void FillInput(DType dtype, uint64_t seed, uint64_t tensor, double lo, double hi,
               const InputLayout& layout, void* out) {
  // Bounds come from a peer: anything that is not a sensible range means the default one.
  if (!(lo < hi) || std::abs(lo) > 0x1.0p53 || std::abs(hi) > 0x1.0p53) {
    lo = IsFloat(dtype) ? -1 : IsUnsigned(dtype) ? 0 : -128;
    hi = IsFloat(dtype) ? 1 : dtype == DType::kBool ? 2 : IsUnsigned(dtype) ? 256 : 128;
  }
  auto real = [&](uint64_t e) {
    return lo + (static_cast<double>(CounterUniform(seed, tensor, e)) + 1) / 2 * (hi - lo);
  };
  auto whole = [&](uint64_t e) { return static_cast<int64_t>(std::floor(real(e))); };
  switch (dtype) {
    case DType::kBool:
      return Fill<uint8_t>(layout, out,
                           [&](uint64_t e) { return static_cast<uint8_t>(whole(e) != 0); });
    case DType::kI8:
      return Fill<int8_t>(layout, out, [&](uint64_t e) { return static_cast<int8_t>(whole(e)); });
    case DType::kU8:
      return Fill<uint8_t>(layout, out, [&](uint64_t e) { return static_cast<uint8_t>(whole(e)); });
    case DType::kI16:
      return Fill<int16_t>(layout, out, [&](uint64_t e) { return static_cast<int16_t>(whole(e)); });
    case DType::kU16:
      return Fill<uint16_t>(layout, out,
                            [&](uint64_t e) { return static_cast<uint16_t>(whole(e)); });
    case DType::kU32:
      return Fill<uint32_t>(layout, out,
                            [&](uint64_t e) { return static_cast<uint32_t>(whole(e)); });
    case DType::kU64:
      return Fill<uint64_t>(layout, out,
                            [&](uint64_t e) { return static_cast<uint64_t>(whole(e)); });
    case DType::kI32:
      return Fill<int32_t>(layout, out, [&](uint64_t e) { return static_cast<int32_t>(whole(e)); });
    case DType::kI64: return Fill<int64_t>(layout, out, whole);
    case DType::kF16:
      return Fill<uint16_t>(layout, out,
                            [&](uint64_t e) { return F32ToF16(static_cast<float>(real(e))); });
    case DType::kBF16:
      return Fill<uint16_t>(layout, out,
                            [&](uint64_t e) { return F32ToBF16(static_cast<float>(real(e))); });
    case DType::kF32:
      return Fill<float>(layout, out, [&](uint64_t e) { return static_cast<float>(real(e)); });
    case DType::kF64: return Fill<double>(layout, out, real);
  }
}

double ElementAsDouble(DType dtype, const void* data, uint64_t i) {
  switch (dtype) {
    case DType::kBool: return Load<uint8_t>(data, i);
    case DType::kI8: return Load<int8_t>(data, i);
    case DType::kU8: return Load<uint8_t>(data, i);
    case DType::kI16: return Load<int16_t>(data, i);
    case DType::kU16: return Load<uint16_t>(data, i);
    case DType::kI32: return Load<int32_t>(data, i);
    case DType::kU32: return Load<uint32_t>(data, i);
    case DType::kU64: return static_cast<double>(Load<uint64_t>(data, i));
    case DType::kI64: return static_cast<double>(Load<int64_t>(data, i));
    case DType::kF16: return F16ToF32(Load<uint16_t>(data, i));
    case DType::kBF16: return BF16ToF32(Load<uint16_t>(data, i));
    case DType::kF32: return Load<float>(data, i);
    case DType::kF64: return Load<double>(data, i);
  }
  return 0;
}

}  // namespace whet
