#include "compiler/support/inputs.h"

#include <cmath>
#include <cstring>

#include "compiler/support/half.h"

namespace whet {
namespace {

template <typename T, typename F>
void Fill(void* out, uint64_t begin, uint64_t count, F&& value) {
  char* p = static_cast<char*>(out);
  for (uint64_t i = 0; i < count; ++i) {
    const T v = value(begin + i);
    std::memcpy(p + i * sizeof(T), &v, sizeof(T));
  }
}

template <typename T>
T Load(const void* data, uint64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return v;
}

}  // namespace

void FillUniform(DType dtype, uint64_t seed, uint64_t tensor, double lo, double hi, uint64_t begin, uint64_t count, void* out) {
  const bool ranged = lo < hi;
  auto real = [&](uint64_t i) {
    const float u = CounterUniform(seed, tensor, i);
    if (!ranged) return u;
    const double v = lo + (static_cast<double>(u) + 1) / 2 * (hi - lo);
    return static_cast<float>(v);
  };
  auto whole = [&](int64_t low, uint64_t span) {
    return [=](uint64_t i) { return low + static_cast<int64_t>(CounterBits(seed, tensor, i) % span); };
  };
  // Bounds come from a peer: anything that is not a sensible range means the default one.
  int64_t low = -128;
  uint64_t span = 256;
  if (dtype == DType::kU8) low = 0;
  if (ranged && std::abs(lo) <= 0x1.0p53 && std::abs(hi) <= 0x1.0p53 && std::floor(hi) > std::ceil(lo)) {
    low = static_cast<int64_t>(std::ceil(lo));
    span = static_cast<uint64_t>(static_cast<int64_t>(std::floor(hi)) - low);
  }
  switch (dtype) {
    case DType::kBool: return Fill<uint8_t>(out, begin, count, [&](uint64_t i) { return static_cast<uint8_t>(CounterBits(seed, tensor, i) & 1); });
    case DType::kI8: return Fill<int8_t>(out, begin, count, whole(low, span));
    case DType::kU8: return Fill<uint8_t>(out, begin, count, whole(low, span));
    case DType::kI32: return Fill<int32_t>(out, begin, count, whole(low, span));
    case DType::kI64: return Fill<int64_t>(out, begin, count, whole(low, span));
    case DType::kF16: return Fill<uint16_t>(out, begin, count, [&](uint64_t i) { return F32ToF16(real(i)); });
    case DType::kBF16: return Fill<uint16_t>(out, begin, count, [&](uint64_t i) { return F32ToBF16(real(i)); });
    case DType::kF32: return Fill<float>(out, begin, count, real);
    case DType::kF64: return Fill<double>(out, begin, count, [&](uint64_t i) { return static_cast<double>(real(i)); });
  }
}

double ElementAsDouble(DType dtype, const void* data, uint64_t i) {
  switch (dtype) {
    case DType::kBool: return Load<uint8_t>(data, i);
    case DType::kI8: return Load<int8_t>(data, i);
    case DType::kU8: return Load<uint8_t>(data, i);
    case DType::kI32: return Load<int32_t>(data, i);
    case DType::kI64: return static_cast<double>(Load<int64_t>(data, i));
    case DType::kF16: return F16ToF32(Load<uint16_t>(data, i));
    case DType::kBF16: return BF16ToF32(Load<uint16_t>(data, i));
    case DType::kF32: return Load<float>(data, i);
    case DType::kF64: return Load<double>(data, i);
  }
  return 0;
}

}  // namespace whet
