#include "worker/measure/known_good.h"

#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"
#include "compiler/support/inputs.h"

namespace whet::worker {
namespace {

constexpr int64_t kKnownGoodElements = 4096;
constexpr uint64_t kKnownGoodSeeds[] = {11, 22};
constexpr double kKnownGoodLow = 0.5, kKnownGoodHigh = 2;

}  // namespace

v1::MeasureSpec KnownGoodSpec() {
  v1::MeasureSpec spec;
  const v1::BufferRole roles[] = {v1::BUFFER_INPUT, v1::BUFFER_OUTPUT, v1::BUFFER_PARAMETER};
  for (uint64_t i = 0; i < 3; ++i) {
    v1::BufferSpec& b = *spec.add_buffers();
    b.set_role(roles[i]);
    b.set_dtype(static_cast<uint32_t>(DType::kF32));
    b.add_shape(kKnownGoodElements);
    b.set_tensor_index(i);
    b.set_lo(kKnownGoodLow);
    b.set_hi(kKnownGoodHigh);
  }
  for (const uint64_t seed : kKnownGoodSeeds) spec.add_seeds(seed);
  spec.set_threads(1);
  spec.set_time_limit_ns(5 * kSecond);
  spec.set_memory_limit_bytes(int64_t{256} << 20);
  v1::MeasurePlan& plan = *spec.mutable_plan();
  plan.set_min_measured_ns(3 * kMillisecond);
  plan.set_rung2_ns(3 * kMillisecond);
  plan.set_rung3_ns(3 * kMillisecond);
  return spec;
}

std::string KnownGoodExpected() {
  std::vector<ExpectedForSeed> seeds;
  const int64_t shape[] = {kKnownGoodElements};
  for (const uint64_t seed : kKnownGoodSeeds) {
    std::vector<float> x(kKnownGoodElements), w(kKnownGoodElements);
    FillInput(DType::kF32, seed, 0, kKnownGoodLow, kKnownGoodHigh, {shape, {}}, x.data());
    FillInput(DType::kF32, seed, 2, kKnownGoodLow, kKnownGoodHigh, {shape, {}}, w.data());
    ExpectedOutput y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.expected.push_back(static_cast<double>(x[i]) * static_cast<double>(w[i]));
      y.tolerance.push_back(1e-6f);
    }
    seeds.push_back({seed, {y}});
  }
  return EncodeExpected(seeds);
}

// Refusals, and libraries that are none, say nothing about a device; nor does what the server or
// this machine's disk did.
bool FailureStreak::Suspicious(const v1::Measurement& m) {
  switch (m.failure()) {
    case v1::FAILURE_OK: failures_ = 0; return false;
    case v1::FAILURE_RUN_CRASH:
    case v1::FAILURE_RUN_TIMEOUT:
    case v1::FAILURE_WRONG_OUTPUT:
    case v1::FAILURE_INVALID_TIMING: return ++failures_ >= probe_after_;
    default: return false;
  }
}

void FailureStreak::Probed(const v1::Measurement& known_good) {
  failures_ = 0;
  unfit_ = known_good.failure() != v1::FAILURE_OK;
  reason_ = unfit_ ? known_good.message() : "";
}

}  // namespace whet::worker
