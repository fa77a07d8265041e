// Simulated fleets, many seeds of them: every promise is checked, and every seed is run twice,
// which must give the same history byte for byte. A seed that fails is printed with the command
// that runs it alone.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <atomic>
#include <fstream>
#include <iostream>
#include <mutex>

#include "compiler/support/config.h"
#include "tests/sim/fleet_sim.h"

namespace {

using namespace whet;
using namespace whet::testing;

thread_local uint64_t seed_under_way = 0;

// An abort of the code under test says whose it was.
void SaySeed(int signal) {
  char text[64];
  char* at = text + sizeof text;
  *--at = '\n';
  for (uint64_t s = seed_under_way; s > 0 || at == text + sizeof text - 1; s /= 10)
    *--at = static_cast<char>('0' + s % 10);
  static constexpr char kWhat[] = "crashed in seed ";
  if (write(STDERR_FILENO, kWhat, sizeof kWhat - 1) < 0 ||
      write(STDERR_FILENO, at, static_cast<size_t>(text + sizeof text - at)) < 0)
    _exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

struct Outcome {
  uint64_t hash = 0;
  std::vector<std::string> wrong;
  std::map<std::string, int64_t> faults;
  int64_t rows = 0, jobs = 0;
};

Outcome RunOnce(uint64_t seed, double minutes, std::string* trace) {
  seed_under_way = seed;
  Sim sim(ChaosOptions(seed, minutes));
  sim.set_trace(trace);
  sim.RunChaos(minutes);
  Outcome r;
  r.hash = sim.trace_hash();
  r.faults = sim.faults;
  r.rows = static_cast<int64_t>(sim.rows.size());
  r.wrong = sim.troubles;
  if (sim.overlapping_runs > 0) r.wrong.push_back("P4: a worker was told to run two at once");
  const History history = sim.TakeHistory();
  r.jobs = static_cast<int64_t>(history.jobs.size());
  for (const Violation& v : CheckHistory(history))
    r.wrong.push_back(fmt::format("P{}: {}", v.promise, v.what));
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "sim_run simulates fleets under faults, one for each seed, and checks what was promised.");
  std::string seeds = "1..100", trace_path, wire_path;
  double minutes = 10;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  app.add_option("--seeds", seeds, "one seed, or A..B with both ends")->capture_default_str();
  app.add_option("--minutes", minutes, "simulated minutes of each")
      ->check(CLI::Range(0.1, 10'000.0))
      ->capture_default_str();
  app.add_option("--threads", threads, "seeds that run at the same time")
      ->check(CLI::Range(1u, 256u))
      ->capture_default_str();
  app.add_option("--trace", trace_path, "write what happens in one seed to this file");
  app.add_option("--wire", wire_path,
                 "instead: write the messages of a small fleet without faults to this file, for "
                 "tests/golden/wire");
  if (const auto exit = ParseProgram(app, argc, argv)) return *exit;
  if (!wire_path.empty()) {
    std::string wire;
    Sim sim({.workers = 1, .tasks = 1, .proposals = 3});
    sim.set_wire(&wire);
    sim.Run(60 * kSecond);
    std::ofstream(wire_path) << wire;
    return sim.ended_ == v1::JOB_DONE ? 0 : 1;
  }
  const size_t dots = seeds.find("..");
  char* end = nullptr;
  const uint64_t first = std::strtoull(seeds.c_str(), &end, 10);
  const bool first_read = end != seeds.c_str() && (*end == '\0' || end == seeds.c_str() + dots);
  const char* rest = dots == std::string::npos ? seeds.c_str() : seeds.c_str() + dots + 2;
  const uint64_t last = std::strtoull(rest, &end, 10);
  if (!first_read || end == rest || *end != '\0' || last < first) {
    std::fprintf(stderr, "error: --seeds '%s' is neither N nor A..B\n", seeds.c_str());
    return 2;
  }
  std::signal(SIGABRT, SaySeed);
  std::signal(SIGSEGV, SaySeed);

  std::atomic<uint64_t> next{first};
  std::mutex mu;
  int64_t failed = 0, rows = 0, jobs = 0;
  std::map<std::string, int64_t> faults;
  const auto work = [&] {
    for (uint64_t seed = next++; seed <= last; seed = next++) {
      std::string trace;
      Outcome r = RunOnce(seed, minutes, trace_path.empty() ? nullptr : &trace);
      const Outcome again = RunOnce(seed, minutes, nullptr);
      if (again.hash != r.hash)
        r.wrong.push_back(
            fmt::format("P18: run twice, its traces are {:016x} and {:016x}", r.hash, again.hash));
      const std::lock_guard lock(mu);
      if (!trace_path.empty()) std::ofstream(trace_path) << trace;
      rows += r.rows;
      jobs += r.jobs;
      for (const auto& [fault, n] : r.faults) faults[fault] += n;
      if (r.wrong.empty()) continue;
      ++failed;
      for (size_t i = 0; i < r.wrong.size() && i < 10; ++i)
        std::cout << "seed " << seed << " " << r.wrong[i] << "\n";
      std::cout << "seed " << seed << " has " << r.wrong.size()
                << " violations; alone: sim_run --seeds " << seed << " --minutes " << minutes
                << " --trace FILE" << std::endl;
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
  for (std::thread& t : pool) t.join();
  std::cout << last - first + 1 << " seeds of " << minutes
            << " simulated minutes, each twice: " << failed << " failed; " << jobs << " jobs, "
            << rows << " rows; faults:";
  for (const auto& [fault, n] : faults) std::cout << " " << fault << "=" << n;
  std::cout << std::endl;
  if (rows == 0) {
    std::cout << "error: nothing was measured, so nothing was tested\n";
    return 1;
  }
  return failed == 0 ? 0 : 1;
}
