// What the runtime's thread pool costs: a phase (one barrier), a run (fork and join) of threads
// that still spin, and of threads that have gone to sleep. usage: pool_bench [THREADS [--pin]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "deploy/runtime/pool.h"

namespace {

using Clock = std::chrono::steady_clock;

double Ns(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

void Report(const char* what, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-34s median %8.0f ns, 10th percentile %8.0f, 90th %8.0f\n", what, ns[ns.size() / 2],
              ns[ns.size() / 10], ns[ns.size() * 9 / 10]);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) {
    std::fprintf(stderr, "usage: pool_bench [THREADS [--pin]]\n");
    return 2;
  }
  whet::ThreadPool pool(threads, argc > 2 && std::strcmp(argv[2], "--pin") == 0);
  std::printf("%d threads on %d processors\n", pool.threads(), whet::AvailableProcessors());
  constexpr int kPhases = 200;
  std::vector<double> phase, run, cold;
  for (int i = 0; i < 2000; ++i) {
    double ns = 0;
    pool.Parallel([&](int thread) {
      const auto begin = Clock::now();
      for (int p = 0; p < kPhases; ++p) pool.Barrier();
      if (thread == 0) ns = Ns(begin) / kPhases;
    });
    phase.push_back(ns);
  }
  for (int i = 0; i < 20000; ++i) {
    const auto begin = Clock::now();
    pool.Parallel([](int) {});
    run.push_back(Ns(begin));
  }
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto begin = Clock::now();
    pool.Parallel([](int) {});
    cold.push_back(Ns(begin));
  }
  Report("a phase", phase);
  Report("a run, threads spinning", run);
  Report("a run, threads asleep", cold);
}
