// Timing an artifact on this machine: many single runs after a warm-up, and two artifacts against
// each other in interleaved blocks. Monotonic clock; the caller holds the device lock
// (device_lock.h) while these run.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/driver/artifact_io.h"

namespace whet::driver {

struct TimingOptions {
  double seconds = 1;  // of measured runs
  int64_t least_runs = 20;
  int64_t most_runs = 100000;
  int64_t runs = 0;  // exactly so many when not 0
  double warm_up_seconds = 0.2;
};

struct Timing {
  std::vector<double> run_ms;  // one per run, in order
  double min_ms = 0, median_ms = 0, p90_ms = 0;
  std::vector<std::vector<double>> step_ms;  // with profiling: per step, one per run
};

enum class Profile { kNo, kYes };
// False from `keep_going` ends early (Ctrl-C); what was measured by then is returned.
Timing TimeRuns(Instance& instance, const Buffers& buffers, const TimingOptions& options,
                Profile profile, const std::function<bool()>& keep_going);

// A and B alternating in blocks of at least `block_ms` each.
struct Comparison {
  std::vector<double> a_ms, b_ms;  // per block: mean of one run
  double a_median_ms = 0, b_median_ms = 0;
  double a_spread = 0, b_spread = 0;  // (p90 - p10) / median
  double ratio = 0, ratio_low = 0,
         ratio_high = 0;  // median of a/b pair by pair, and its 95 % interval
};
Comparison Interleave(const std::function<void()>& a, const std::function<void()>& b, int pairs,
                      double block_ms);

// Order statistics; `values` is not empty. Quantile interpolates between neighbours.
double Quantile(std::vector<double> values, double q);
inline double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }
// A distribution-free 95 % interval of the median from order statistics (binomial, normal
// approximation).
std::pair<double, double> MedianInterval(std::vector<double> values);

}  // namespace whet::driver
