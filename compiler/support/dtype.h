// Element types. The names are the ones in workload text, traces and `--json` output.
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
  X(kF64, "f64", 8)

enum class DType : uint8_t {
#define X(id, name, bytes) id,
  WHET_DTYPES(X)
#undef X
};

int64_t SizeOf(DType t);  // bytes
std::string_view ToString(DType t);
StatusOr<DType> ParseDType(std::string_view text);
inline bool IsFloat(DType t) {
  return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32 || t == DType::kF64;
}

}  // namespace whet
