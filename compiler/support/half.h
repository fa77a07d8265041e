// Half-precision conversions, round to nearest even; the same bits on every machine. Stateless.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "compiler/support/dtype.h"

namespace whet {

inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float BF16ToF32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1.0p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

inline uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (magnitude < 0x38800000) {                       // below 2^-14: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1.0p24f;
    const uint32_t floor = static_cast<uint32_t>(scaled);
    const float rest = scaled - static_cast<float>(floor);
    const uint32_t up = rest > 0.5f || (rest == 0.5f && (floor & 1)) ? 1 : 0;
    return static_cast<uint16_t>(sign | (floor + up));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

// The f32 next to `v` towards zero, with its last bit set when that is not exact ("round to odd"):
// rounding the result once more, to a half precision, is as rounding `v` itself.
inline float F64ToF32Odd(double v) {
  const float f = static_cast<float>(v);
  if (std::isnan(v) || static_cast<double>(f) == v) return f;
  auto bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(v)) --bits;
  return std::bit_cast<float>(bits | 1);
}

// The nearest value of a float type, ties to even.
inline double RoundToFloat(DType t, double v) {
  switch (t) {
    case DType::kF32: return static_cast<float>(v);
    case DType::kF16: return F16ToF32(F32ToF16(F64ToF32Odd(v)));
    case DType::kBF16: return BF16ToF32(F32ToBF16(F64ToF32Odd(v)));
    default: return v;
  }
}

}  // namespace whet
