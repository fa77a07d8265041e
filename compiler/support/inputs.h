// The data that candidates are measured and checked on. Server and worker each make it from (seed, tensor, element), so no
// input travels and none can be prepared for. Also reading outputs back as f64 for comparison. Pure functions.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "compiler/support/dtype.h"
#include "compiler/support/rng.h"

namespace whet {

// Elements [begin, begin + count) of tensor `tensor`, as `dtype`, to `out` (count * SizeOf(dtype) bytes).
//   floats    CounterUniform in [-1, 1), scaled to [lo, hi) when lo < hi, then rounded to the type
//   integers  lo + bits mod (hi - lo); without a range the whole of i8 and u8, [-128, 128) for i32 and i64
//   bool      one bit
void FillUniform(DType dtype, uint64_t seed, uint64_t tensor, double lo, double hi, uint64_t begin, uint64_t count, void* out);

// Element `i` of an array of `dtype` as f64; exact for every type but i64 beyond 2^53.
double ElementAsDouble(DType dtype, const void* data, uint64_t i);

}  // namespace whet
