// What a correct candidate answers: per seed and output an f64 value and an f32 tolerance for each
// element. Made by the server's reference, content-addressed, checked by the runner outside the
// candidate's process.
//   layout (little endian): magic 'WHEX', version u32, seeds u32, outputs u32, then per seed:
//   seed u64, and per output: count u64, count x f64 expected, count x f32 tolerance, padding to 8
// A view borrows the bytes; parsing checks every size against them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/dtype.h"
#include "compiler/support/status.h"

namespace whet {

struct ExpectedOutput {
  std::vector<double> expected;
  std::vector<float> tolerance;  // |got - expected| <= tolerance; not negative; 0: exactly
};
struct ExpectedForSeed {
  uint64_t seed = 0;
  std::vector<ExpectedOutput> outputs;
};

std::string EncodeExpected(const std::vector<ExpectedForSeed>& seeds);

class ExpectedView {
 public:
  struct Output {
    std::span<const double> expected;
    std::span<const float> tolerance;
  };
  // `bytes` must be 8-byte aligned and stay. DataLoss names what does not fit.
  static StatusOr<ExpectedView> Parse(std::string_view bytes);

  size_t seeds() const { return seeds_.size(); }
  uint64_t seed(size_t s) const { return seeds_[s].seed; }
  size_t outputs() const { return seeds_.empty() ? 0 : seeds_[0].outputs.size(); }
  const Output& output(size_t s, size_t o) const { return seeds_[s].outputs[o]; }

 private:
  struct Seed {
    uint64_t seed;
    std::vector<Output> outputs;
  };
  std::vector<Seed> seeds_;
};

// Compares `data` (of `dtype`) with one output. OK, or InvalidArgument naming the first wrong
// element, its value, the expected one, the tolerance, and how many are wrong. NaN is wrong unless
// NaN is expected or the tolerance is infinite.
Status CompareOutput(const ExpectedView::Output& expected, DType dtype, const void* data,
                     std::string_view name);

}  // namespace whet
