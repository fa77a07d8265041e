// Timing of contenders in turn, in one process, so that what a machine's clock does between two
// moments meets all of them alike. Each round times every contender once, in an order drawn anew,
// and the rate of fused multiply-adds; a comparison is the ratio of two times of one round. Rounds
// in which the core was shared with something else, by a probe that knows none of the contenders,
// are left out and repeated.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "compiler/support/rng.h"
#include "tests/bench/probe.h"

namespace whet::bench {

enum class Caches {
  kWarm,   // an untimed call of the same contender comes before a timed one of less than 20 ms
  kTurns,  // what the others left behind
};

struct Interleaving {
  Caches caches = Caches::kWarm;
  double seconds = 0.4;  // of timed calls, for each contender
  int least_rounds = 11, most_rounds = 400;
  double sample_us = 60;  // calls shorter than that are timed several at a time
};

struct Timed {
  int calls = 1;           // in a sample
  std::vector<double> us;  // of one call, by round
};

struct Rounds {
  std::vector<Timed> timed;        // as the functions were given
  std::vector<double> fma_gflops;  // by round
  int disturbed = 0;               // rounds that were left out
};

// Is the core ours? A tile of multiply-adds reaches nearly as much as such instructions alone, as
// long as nothing else uses the core's loads and caches.
class Calm {
 public:
  explicit Calm(int vector_bits) : vector_bits_(vector_bits) {}
  bool Now(double fma_gflops) {
    constexpr double kAsGood = 0.93;
    if (fma_gflops <= 0) return true;
    const double share = TileGflops(vector_bits_) / fma_gflops;
    best_ = std::max(best_, std::min(share, 1.0));
    return share >= kAsGood * best_;
  }

 private:
  const int vector_bits_;
  double best_ = 0;  // in this run
};

inline Rounds Interleave(const std::vector<std::function<void()>>& run, const Interleaving& o,
                         Rng& rng, int vector_bits, Calm& calm) {
  using Clock = std::chrono::steady_clock;
  auto time = [](const std::function<void()>& f, int calls) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) f();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  };
  Rounds r;
  constexpr double kLongUs = 2e4;  // as long: caches at its start no longer matter
  double round_us = 0;
  std::vector<size_t> order;
  std::vector<double> once_us;
  for (const auto& f : run) {
    Timed t;
    double us = time(f, 1);
    for (int i = 0; i < 3 && us < kLongUs; ++i) us = std::min(us, time(f, 1));
    t.calls = us >= o.sample_us ? 1 : static_cast<int>(o.sample_us / std::max(us, 0.02)) + 1;
    round_us += us * t.calls;
    order.push_back(order.size());
    once_us.push_back(us);
    r.timed.push_back(t);
  }
  const double wanted = o.seconds * 1e6 * static_cast<double>(run.size()) / round_us;
  const int rounds =
      static_cast<int>(std::min<double>(std::max<double>(wanted, o.least_rounds), o.most_rounds));
  // A machine that is never calm is measured as it is.
  constexpr int kPatience = 6;
  double fma = FmaGflops(vector_bits, 1e5);
  bool calm_before = calm.Now(fma);
  for (int kept = 0; kept < rounds;) {
    for (size_t i = order.size(); i-- > 1;)
      std::swap(order[i], order[static_cast<size_t>(rng.Below(static_cast<int64_t>(i) + 1))]);
    std::vector<double> us(run.size());
    for (size_t i : order) {
      if (o.caches == Caches::kWarm && once_us[i] < kLongUs) run[i]();
      us[i] = time(run[i], r.timed[i].calls);
    }
    const double fma_after = FmaGflops(vector_bits, 1e5);
    const bool calm_after = calm.Now(fma_after);
    if ((calm_before && calm_after) || r.disturbed >= kPatience * rounds) {
      for (size_t i = 0; i < run.size(); ++i) r.timed[i].us.push_back(us[i]);
      r.fma_gflops.push_back(fma);
      ++kept;
    } else {
      ++r.disturbed;
    }
    fma = fma_after;
    calm_before = calm_after;
  }
  return r;
}

}  // namespace whet::bench
