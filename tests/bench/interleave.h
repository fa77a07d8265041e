// Timing of contenders in turn, in one process, so that what a machine's clock does between two
// moments meets all of them alike. Each round times every contender once, in an order drawn anew,
// and the rate of fused multiply-adds; a comparison is the ratio of two times of one round.
#pragma once
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
};

inline Rounds Interleave(const std::vector<std::function<void()>>& run, const Interleaving& o,
                         Rng& rng, int vector_bits) {
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
  for (int k = 0; k < rounds; ++k) {
    r.fma_gflops.push_back(FmaGflops(vector_bits, 1e5));
    for (size_t i = order.size(); i-- > 1;)
      std::swap(order[i], order[static_cast<size_t>(rng.Below(static_cast<int64_t>(i) + 1))]);
    for (size_t i : order) {
      if (o.caches == Caches::kWarm && once_us[i] < kLongUs) run[i]();
      r.timed[i].us.push_back(time(run[i], r.timed[i].calls));
    }
  }
  return r;
}

}  // namespace whet::bench
