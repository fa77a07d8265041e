// The data that candidates are measured and checked on. Server and worker each make it from (seed,
// tensor, element), so no input travels and none can be prepared for. Also reading outputs back as
// f64 for comparison. Pure functions.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "compiler/support/dtype.h"
#include "compiler/support/rng.h"

namespace whet {

// A tensor as a kernel reads it: physical shape, and for each physical axis how far one step along
// it moves the logical row-major index (empty: physical order is logical order). A permutation or a
// blocked layout has such strides, so data depends on the logical position only and two layouts of
// one tensor hold the same values.
struct InputLayout {
  std::span<const int64_t> shape;
  std::span<const int64_t> logical_strides;
};

// Writes the whole tensor to `out`. Logical element e is lo + (u + 1) / 2 * (hi - lo) with u =
// CounterUniform(seed, tensor, e), computed in f64; integers (and bool) take the floor. A range
// that is empty or not finite means [-1, 1) for floats, [0, 2) for bool, [-128, 128) for integers,
// [0, 256) for unsigned ones.
void FillInput(DType dtype, uint64_t seed, uint64_t tensor, double lo, double hi,
               const InputLayout& layout, void* out);

// Element `i` of an array of `dtype` as f64; exact for every type but 64-bit integers beyond 2^53.
double ElementAsDouble(DType dtype, const void* data, uint64_t i);

}  // namespace whet
