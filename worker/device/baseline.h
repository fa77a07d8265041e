// How fast this device is now, in one number: the time of a fixed kernel that comes with the
// worker. Boards of unequal speed are compared by time relative to their own, and a board whose
// number drifts is throttled, shared or failing. The kernel multiplies small f32 matrices in
// 128-bit vectors, which lie in the first-level cache: it follows the clock and the share of a core
// that one gets, and asks no processor for what another lacks.
#pragma once
#include <cstdint>
#include <optional>

namespace whet::worker {

// Of the kernel and of how it is timed: times of two versions are not compared.
inline constexpr uint32_t kBaselineVersion = 1;

// The median of some runs, in nanoseconds per run: some ten milliseconds on the calling thread's
// core. Nothing when the answer is wrong, which is worse than slow.
std::optional<double> TimeBaseline();

}  // namespace whet::worker
