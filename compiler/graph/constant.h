// Constant tensors: immutable bytes in row-major order, shared between graphs, passes and the
// artifact writer (weights are large and never copied). Elements are little-endian, as on every
// host we support; f16 and bf16 as stored.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph/tensor_type.h"
#include "compiler/support/fingerprint.h"

namespace whet::graph {

class Constant;
// Shared because values of several graphs, and the artifact, refer to the same weights for as long
// as each needs them.
using ConstantPtr = std::shared_ptr<const Constant>;

class Constant {
 public:
  // `bytes` has exactly the size of the type (checked).
  static StatusOr<ConstantPtr> Make(DType dtype, std::vector<int64_t> shape, std::string bytes);
  static ConstantPtr OfInts(std::vector<int64_t> shape, std::span<const int64_t> values);  // i64
  // i64 or u64, the latter by its bits; shape and count agree (a bug otherwise).
  static ConstantPtr OfWords(DType dtype, std::vector<int64_t> shape,
                             std::span<const int64_t> values);
  // Values are rounded to the element type; shape and count agree (a bug otherwise).
  static ConstantPtr OfDoubles(DType dtype, std::vector<int64_t> shape,
                               std::span<const double> values);

  Constant(DType dtype, std::vector<int64_t> shape, std::string bytes);
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::string& bytes() const { return bytes_; }
  int64_t num_elements() const { return static_cast<int64_t>(bytes_.size()) / SizeOf(dtype_); }
  TensorType type() const { return TensorType::Of(dtype_, shape_); }
  const Fingerprint& hash() const;  // of type and bytes; computed once, on first use
  std::vector<double> Doubles() const;
  // Exact for integer types but u64 from 2^63 on, which saturates; floats are truncated.
  std::vector<int64_t> Ints() const;
  // The bits of an i64 or u64.
  std::vector<int64_t> Words() const;
  bool AllEqual(double v) const;  // every element is `v` (0.0 equals -0.0); false when empty

 private:
  const DType dtype_;
  const std::vector<int64_t> shape_;
  const std::string bytes_;
  mutable std::once_flag hashed_;
  mutable Fingerprint hash_;
};

// Element conversion. Floats round to nearest even and overflow to infinity; integers truncate and
// saturate, NaN is 0; bool is "not zero".
std::vector<double> ReadDoubles(DType dtype, std::string_view bytes);
std::string WriteDoubles(DType dtype, std::span<const double> values);
double RoundTo(DType dtype, double v);  // the nearest value of the type, by the rules above

}  // namespace whet::graph
