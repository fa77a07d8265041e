#include "compiler/driver/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace whet::driver {
namespace {

using Clock = std::chrono::steady_clock;

double Ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

void WarmUp(const std::function<void()>& run, double seconds) {
  const auto begin = Clock::now();
  do {
    run();
  } while (Ms(Clock::now() - begin) < seconds * 1e3);
}

// Mean of one run over a block of a whole number of them.
double Block(const std::function<void()>& run, double block_ms) {
  const auto begin = Clock::now();
  int64_t runs = 0;
  double elapsed = 0;
  do {
    run();
    ++runs;
    elapsed = Ms(Clock::now() - begin);
  } while (elapsed < block_ms);
  return elapsed / static_cast<double>(runs);
}

}  // namespace

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

std::pair<double, double> MedianInterval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double reach = 1.96 * std::sqrt(n) / 2;
  const auto low = static_cast<int64_t>(std::floor(n / 2 - reach)),
             high = static_cast<int64_t>(std::ceil(n / 2 + reach));
  const auto last = static_cast<int64_t>(values.size()) - 1;
  return {values[static_cast<size_t>(std::clamp<int64_t>(low, 0, last))],
          values[static_cast<size_t>(std::clamp<int64_t>(high, 0, last))]};
}

Timing TimeRuns(Instance& instance, const Buffers& buffers, const TimingOptions& options,
                Profile profile, const std::function<bool()>& keep_going) {
  Timing t;
  instance.Bind(buffers.inputs(), buffers.outputs());
  WarmUp([&] { instance.Execute(); }, options.warm_up_seconds);
  if (profile == Profile::kYes) t.step_ms.resize(instance.model().desc().n_steps);
  std::vector<double> step_ns;
  const auto begin = Clock::now();
  auto enough = [&] {
    const auto done = static_cast<int64_t>(t.run_ms.size());
    if (options.runs > 0) return done >= options.runs;
    return done >= options.most_runs ||
           (done >= options.least_runs && Ms(Clock::now() - begin) >= options.seconds * 1e3);
  };
  while (!enough() && (t.run_ms.empty() || keep_going())) {
    step_ns.assign(step_ns.size(), 0);
    const auto start = Clock::now();
    if (profile == Profile::kYes) {
      instance.RunProfiled(buffers.inputs(), buffers.outputs(), step_ns);
    } else {
      instance.Execute();
    }
    t.run_ms.push_back(Ms(Clock::now() - start));
    for (size_t i = 0; i < t.step_ms.size(); ++i) t.step_ms[i].push_back(step_ns[i] * 1e-6);
  }
  t.min_ms = Quantile(t.run_ms, 0);
  t.median_ms = Median(t.run_ms);
  t.p90_ms = Quantile(t.run_ms, 0.9);
  return t;
}

Comparison Interleave(const std::function<void()>& a, const std::function<void()>& b, int pairs,
                      double block_ms) {
  Comparison c;
  WarmUp(a, 0.1);
  WarmUp(b, 0.1);
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    // Who goes first alternates, so that a drift favours neither.
    const bool a_first = i % 2 == 0;
    const double first = Block(a_first ? a : b, block_ms),
                 second = Block(a_first ? b : a, block_ms);
    c.a_ms.push_back(a_first ? first : second);
    c.b_ms.push_back(a_first ? second : first);
    ratios.push_back(c.a_ms.back() / c.b_ms.back());
  }
  c.a_median_ms = Median(c.a_ms);
  c.b_median_ms = Median(c.b_ms);
  c.a_spread = (Quantile(c.a_ms, 0.9) - Quantile(c.a_ms, 0.1)) / c.a_median_ms;
  c.b_spread = (Quantile(c.b_ms, 0.9) - Quantile(c.b_ms, 0.1)) / c.b_median_ms;
  c.ratio = Median(ratios);
  std::tie(c.ratio_low, c.ratio_high) = MedianInterval(ratios);
  return c;
}

}  // namespace whet::driver
