#include "worker/measure/ladder.h"

#include <algorithm>
#include <cmath>

namespace whet::worker {
namespace {

constexpr int64_t kMaxRunsPerSample = 1 << 20;
// Two runs that take this long together and agree need no third for rung 1. A single one may have
// been stopped in the middle: 63 ms were once the record of a kernel of 1.5.
constexpr int64_t kLongEnoughForTwoRuns = 30'000'000;
constexpr double kAgree = 1.25;

int64_t RunsFor(double ns_per_run, int64_t block_ns) {
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(static_cast<double>(block_ns) / std::max(ns_per_run, 1.0))), 1,
      kMaxRunsPerSample);
}

struct Calibration {
  double ns;     // of one run
  int64_t runs;  // as few as it takes to see them
};
Calibration Calibrate(const TimeRuns& time) {
  for (int64_t n = 1;; n *= 4) {
    const int64_t ns = std::max<int64_t>(time(n), 1);
    if (ns >= kSampleNs / 2 || n >= kMaxRunsPerSample)
      return {static_cast<double>(ns) / static_cast<double>(n), n};
  }
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] +
          *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle))) /
         2;
}

LadderResult RunLadder(const v1::MeasurePlan& plan, const TimeRuns& time) {
  LadderResult r;
  const double incumbent = plan.final() ? 0 : plan.incumbent_ns();
  const double noise = 1 - 2 * std::clamp(plan.sigma(), 0.0, 0.2);
  time(1);  // warm-up: pages, caches, branch predictors
  const Calibration seen = Calibrate(time);
  r.runs_per_sample = RunsFor(seen.ns, kSampleNs);
  int64_t total_ns = 0;
  if (seen.runs == 1 && r.runs_per_sample == 1) {  // that was a sample
    r.samples_ns.push_back(seen.ns);
    total_ns = static_cast<int64_t>(seen.ns);
  }
  auto agree = [&] {
    const auto [least, most] = std::minmax_element(r.samples_ns.begin(), r.samples_ns.end());
    return r.samples_ns.size() > 1 && *most <= kAgree * *least;
  };
  // Adds samples until so much has been measured. At least three runs, or two long ones that agree.
  auto sample_until = [&](int64_t ns) {
    while (r.samples_ns.size() < kMaxTimingSamples) {
      const auto runs = static_cast<int64_t>(r.samples_ns.size()) * r.runs_per_sample;
      if (total_ns >= ns && (runs >= 3 || (total_ns >= kLongEnoughForTwoRuns && agree()))) return;
      const int64_t sample = std::max<int64_t>(time(r.runs_per_sample), 1);
      // The calibration was interrupted: so many short samples would not make up the time.
      if (sample < kSampleNs / 4 && r.samples_ns.size() < 3 &&
          r.runs_per_sample < kMaxRunsPerSample) {
        r.runs_per_sample = RunsFor(
            static_cast<double>(sample) / static_cast<double>(r.runs_per_sample), kSampleNs);
        r.samples_ns.clear();
        total_ns = 0;
        continue;
      }
      total_ns += sample;
      r.samples_ns.push_back(static_cast<double>(sample) / static_cast<double>(r.runs_per_sample));
    }
  };
  sample_until(std::max<int64_t>(plan.min_measured_ns(), 1));
  const double first = r.samples_ns.front(),
               least = *std::min_element(r.samples_ns.begin(), r.samples_ns.end());
  if (incumbent > 0 && std::min(first, least) > 3 * incumbent) return r;
  r.rung = 1;
  if (incumbent > 0 && least > 1.5 * incumbent) return r;
  sample_until(plan.rung2_ns());
  r.rung = 2;
  if (incumbent > 0 && Median(r.samples_ns) * noise > 1.15 * incumbent) return r;
  sample_until(plan.rung3_ns());
  r.rung = 3;
  r.promising = incumbent <= 0 || Median(r.samples_ns) * noise <= 1.03 * incumbent;
  return r;
}

PairsResult RunPairs(const v1::MeasurePlan& plan, const TimeRuns& candidate,
                     const TimeRuns& baseline) {
  PairsResult r;
  candidate(1);
  r.candidate_runs = RunsFor(Calibrate(candidate).ns, kPairBlockNs);
  baseline(1);
  r.baseline_runs = RunsFor(Calibrate(baseline).ns, kPairBlockNs);
  // Each block begins with one run that is not timed: the other kernel has just evicted this one's
  // data.
  auto block = [](const TimeRuns& time, int64_t runs) {
    time(1);
    return static_cast<double>(std::max<int64_t>(time(runs), 1)) / static_cast<double>(runs);
  };
  double total_ns = 0;
  const size_t min_pairs = std::min<size_t>(std::max<uint32_t>(plan.min_pairs(), 1), kMaxPairs);
  while (r.ratios.size() < kMaxPairs &&
         (r.ratios.size() < min_pairs || total_ns < static_cast<double>(plan.pairs_ns()))) {
    double a = 0, b = 0;
    if (r.ratios.size() % 2 == 0) {
      a = block(candidate, r.candidate_runs);
      b = block(baseline, r.baseline_runs);
    } else {
      b = block(baseline, r.baseline_runs);
      a = block(candidate, r.candidate_runs);
    }
    total_ns +=
        a * static_cast<double>(r.candidate_runs) + b * static_cast<double>(r.baseline_runs);
    r.candidate_ns.push_back(a);
    r.baseline_ns.push_back(b);
    r.ratios.push_back(a / b);
  }
  return r;
}

}  // namespace whet::worker
