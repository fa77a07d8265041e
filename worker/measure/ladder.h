// How long a candidate is timed: the racing ladder. Cheap rungs drop what cannot win, the expensive
// ones are for what may.
//   rung 0  one run; slower than 3 x the incumbent: no further than rung 1's minimum
//   rung 1  3 runs, or 2 long ones that agree, and plan.min_measured_ns; minimum above 1.5 x: stop
//   rung 2  plan.rung2_ns; median (1 - 2 sigma) above 1.15 x: stop
//   rung 3  plan.rung3_ns; median (1 - 2 sigma) above 1.03 x: no pairs
//   rung 4  pairs with the baseline in a final
// Pure but for the timers passed in: tests race synthetic kernels. Runs in the candidate's process.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "proto/measure.pb.h"

namespace whet::worker {

// Runs the kernel n times back to back; the ns of all of them.
using TimeRuns = std::function<int64_t(int64_t n)>;

inline constexpr size_t kMaxTimingSamples = 4096;
inline constexpr size_t kMaxPairs = 512;
// Long enough that two clock readings (some 30 ns) vanish in it, short enough that an interrupt
// spoils one of many.
inline constexpr int64_t kSampleNs = 25'000;
inline constexpr int64_t kPairBlockNs = 250'000;

struct LadderResult {
  int rung = 0;
  bool promising = false;  // nothing dropped it: worth pairing
  int64_t runs_per_sample = 1;
  std::vector<double> samples_ns;  // per run
};
LadderResult RunLadder(const v1::MeasurePlan& plan, const TimeRuns& time);

struct PairsResult {
  std::vector<double> ratios;                     // candidate / baseline
  std::vector<double> candidate_ns, baseline_ns;  // per run, one per pair
  int64_t candidate_runs = 1, baseline_runs = 1;
};
// Alternates AB, BA, AB, ... so that drift cancels, until plan.min_pairs and plan.pairs_ns are
// reached.
PairsResult RunPairs(const v1::MeasurePlan& plan, const TimeRuns& candidate,
                     const TimeRuns& baseline);

double Median(std::vector<double> values);  // 0 for none

}  // namespace whet::worker
