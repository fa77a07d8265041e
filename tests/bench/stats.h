// Medians and their intervals. Pure functions, but for the generator that a bootstrap draws from.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "compiler/support/rng.h"

namespace whet::bench {

struct Interval {
  double median = 0, low = 0, high = 0;  // low and high: 95 %
};

inline double MedianOf(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// By order statistics: ranks n/2 -+ 0.98 sqrt(n), which hold the median in 95 of 100 cases whatever
// the distribution.
inline Interval MedianInterval(std::vector<double> v) {
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  const auto n = static_cast<double>(v.size());
  const double reach = 0.98 * std::sqrt(n);
  const auto at = [&](double i) { return v[static_cast<size_t>(std::clamp(i, 0.0, n - 1))]; };
  return {MedianOf(v), at(std::floor(n / 2 - reach)), at(std::ceil(n / 2 + reach))};
}

inline std::vector<double> Ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> r;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) r.push_back(a[i] / b[i]);
  return r;
}

// A function of the medians of several samples, by 400 resamplings of each: its value for the
// samples themselves, and the interval.
inline Interval Bootstrap(const std::vector<std::vector<double>>& samples, uint64_t seed,
                          const std::function<double(const std::vector<double>&)>& f) {
  constexpr int kDraws = 400;
  std::vector<double> medians;
  for (const auto& s : samples) medians.push_back(MedianOf(s));
  Interval r;
  r.median = f(medians);
  Rng rng(seed);
  std::vector<double> values, drawn;
  for (int d = 0; d < kDraws; ++d) {
    for (size_t i = 0; i < samples.size(); ++i) {
      drawn.clear();
      for (size_t k = 0; k < samples[i].size(); ++k)
        drawn.push_back(
            samples[i][static_cast<size_t>(rng.Below(static_cast<int64_t>(samples[i].size())))]);
      medians[i] = MedianOf(drawn);
    }
    values.push_back(f(medians));
  }
  std::sort(values.begin(), values.end());
  r.low = values[kDraws / 40];
  r.high = values[kDraws - 1 - kDraws / 40];
  return r;
}

inline double GeometricMean(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += std::log(x);
  return v.empty() ? 0 : std::exp(sum / static_cast<double>(v.size()));
}

}  // namespace whet::bench
