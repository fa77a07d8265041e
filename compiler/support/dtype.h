// Element types. The names are the ones in workload text, traces and `--json` output; the order is
// part of the artifact's interface (whet_dtype), so new ones are appended.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/support/status.h"

namespace whet {

#define WHET_DTYPES(X) \
  X(kBool, "bool", 1)  \
  X(kI8, "i8", 1)      \
  X(kU8, "u8", 1)      \
  X(kI32, "i32", 4)    \
  X(kI64, "i64", 8)    \
  X(kF16, "f16", 2)    \
  X(kBF16, "bf16", 2)  \
  X(kF32, "f32", 4)    \
  X(kF64, "f64", 8)    \
  X(kI16, "i16", 2)    \
  X(kU16, "u16", 2)    \
  X(kU32, "u32", 4)    \
  X(kU64, "u64", 8)

enum class DType : uint8_t {
#define X(id, name, bytes) id,
  WHET_DTYPES(X)
#undef X
};

inline constexpr uint32_t kNumDTypes = 0
#define X(id, name, bytes) +1
    WHET_DTYPES(X)
#undef X
    ;

int64_t SizeOf(DType t);  // bytes
std::string_view ToString(DType t);
StatusOr<DType> ParseDType(std::string_view text);
inline bool IsFloat(DType t) {
  return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32 || t == DType::kF64;
}
inline bool IsHalf(DType t) { return t == DType::kF16 || t == DType::kBF16; }
// Integers without a sign, bool among them.
inline bool IsUnsigned(DType t) {
  return t == DType::kBool || t == DType::kU8 || t == DType::kU16 || t == DType::kU32 ||
         t == DType::kU64;
}

}  // namespace whet
