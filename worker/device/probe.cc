#include "worker/device/probe.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "compiler/support/env.h"
#include "deploy/runtime/pool.h"

namespace whet::worker {
namespace {

using Clock = std::chrono::steady_clock;

double NsOf(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// Twelve chains, which hide the latency of two units, kept apart so that each is a register:
// Fma##NAME(n) does 12 n multiply-adds of vectors. Loads##NAME reads `bytes`, a multiple of eight
// vectors, `times` times.
#define WHET_PROBE(NAME, TARGET, TYPE, CLASS, FMA)                                               \
  TARGET __attribute__((noinline)) void Fma##NAME(int n) {                                       \
    const TYPE a = TYPE{} + 1.0f, b = TYPE{} + 0.5f;                                             \
    TYPE c0 = b, c1 = b, c2 = b, c3 = b, c4 = b, c5 = b, c6 = b, c7 = b, c8 = b, c9 = b;         \
    TYPE c10 = b, c11 = b;                                                                       \
    for (int i = 0; i < n; ++i) {                                                                \
      c0 = FMA(c0, a, b), c1 = FMA(c1, a, b), c2 = FMA(c2, a, b), c3 = FMA(c3, a, b);            \
      c4 = FMA(c4, a, b), c5 = FMA(c5, a, b), c6 = FMA(c6, a, b), c7 = FMA(c7, a, b);            \
      c8 = FMA(c8, a, b), c9 = FMA(c9, a, b), c10 = FMA(c10, a, b), c11 = FMA(c11, a, b);        \
      __asm__ volatile("" : "+" CLASS(c0), "+" CLASS(c1), "+" CLASS(c2), "+" CLASS(c3));         \
      __asm__ volatile("" : "+" CLASS(c4), "+" CLASS(c5), "+" CLASS(c6), "+" CLASS(c7));         \
      __asm__ volatile("" : "+" CLASS(c8), "+" CLASS(c9), "+" CLASS(c10), "+" CLASS(c11));       \
    }                                                                                            \
  }                                                                                              \
  TARGET __attribute__((noinline)) void Loads##NAME(const void* from, size_t bytes, int times) { \
    for (int t = 0; t < times; ++t) {                                                            \
      const TYPE* p = static_cast<const TYPE*>(from);                                            \
      for (const TYPE* end = p + bytes / sizeof(TYPE); p < end; p += 8) {                        \
        const TYPE x0 = p[0], x1 = p[1], x2 = p[2], x3 = p[3];                                   \
        const TYPE x4 = p[4], x5 = p[5], x6 = p[6], x7 = p[7];                                   \
        __asm__ volatile("" : : CLASS(x0), CLASS(x1), CLASS(x2), CLASS(x3));                     \
        __asm__ volatile("" : : CLASS(x4), CLASS(x5), CLASS(x6), CLASS(x7));                     \
      }                                                                                          \
    }                                                                                            \
  }
using Vector128 = float __attribute__((vector_size(16)));
#if defined(__x86_64__)
#define WHET_PLAIN(a, b, c) ((a) * (b) + (c))
WHET_PROBE(Plain, , Vector128, "x", WHET_PLAIN)
WHET_PROBE(128, __attribute__((target("avx2,fma"))), __m128, "x", _mm_fmadd_ps)
WHET_PROBE(256, __attribute__((target("avx2,fma"))), __m256, "x", _mm256_fmadd_ps)
WHET_PROBE(512, __attribute__((target("avx512f"))), __m512, "v", _mm512_fmadd_ps)
#undef WHET_PLAIN
#else
#define WHET_FUSED(a, b, c) ((a) * (b) + (c))  // contracted to one instruction
WHET_PROBE(Plain, , Vector128, "w", WHET_FUSED)
#undef WHET_FUSED
#endif
#undef WHET_PROBE

struct Width {
  int floats;
  double Machine::* gflops;
  void (*fma)(int);
  void (*loads)(const void*, size_t, int);
};

// The widest last.
std::vector<Width> Widths() {
  std::vector<Width> w = {{4, &Machine::fma128_gflops, FmaPlain, LoadsPlain}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    w[0] = {4, &Machine::fma128_gflops, Fma128, Loads128};
    w.push_back({8, &Machine::fma256_gflops, Fma256, Loads256});
    if (__builtin_cpu_supports("avx512f"))
      w.push_back({16, &Machine::fma512_gflops, Fma512, Loads512});
  }
#endif
  return w;
}

void DependentAdditions(int n) {
  // Not of a constant: some processors add those without waiting.
  uint64_t x = 1, y = 3;
  __asm__ volatile("" : "+r"(y));
  for (int i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      x += y;
      __asm__ volatile("" : "+r"(x));
    }
  }
}

// Reads all of it, piece by piece: the median of the pieces' rates, which another process that
// takes the processor for a while does not move.
double ReadGbps(void (*loads)(const void*, size_t, int), const char* from, size_t bytes) {
  constexpr size_t kPiece = size_t{4} << 20;
  if (bytes < 2 * kPiece) {
    const int times = static_cast<int>(std::max<size_t>(1, (size_t{1} << 20) / bytes));
    loads(from, bytes, 1);
    return static_cast<double>(bytes) * times / NsOf([&] { loads(from, bytes, times); });
  }
  std::vector<double> gbps;
  for (size_t at = 0; at + kPiece <= bytes; at += kPiece)
    gbps.push_back(kPiece / NsOf([&] { loads(from + at, kPiece, 1); }));
  std::nth_element(gbps.begin(), gbps.begin() + static_cast<ptrdiff_t>(gbps.size() / 2),
                   gbps.end());
  return gbps[gbps.size() / 2];
}

struct Freed {
  void operator()(void* p) const { std::free(p); }
};

double ForkJoinNs(int processors) {
  constexpr int kRuns = 200;
  ThreadPool pool(processors);
  if (pool.threads() <= 1) return 1;
  std::vector<double> ns;
  for (int i = 0; i < kRuns; ++i) ns.push_back(NsOf([&] { pool.Parallel([](int) {}); }));
  std::nth_element(ns.begin(), ns.begin() + kRuns / 2, ns.end());
  return std::max(1.0, ns[kRuns / 2]);
}

}  // namespace

Machine ProbeMachine(int processors) {
  constexpr int kRounds = 4;
  constexpr size_t kMost = size_t{96} << 20, kLine = 4096;
  const Target host = Target::Host();
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const size_t memory = pages > 0 && page > 0 ? static_cast<size_t>(pages) * page : kMost;
  const auto l1 = static_cast<size_t>(host.l1d_bytes), l2 = static_cast<size_t>(host.l2_bytes);
  const auto l3 = static_cast<size_t>(host.l3_bytes);
  // A share of a large L3 is what one core gets of it where others use it too.
  struct Level {
    double Machine::* gbps;
    size_t bytes;
  };
  const Level levels[] = {{&Machine::l1_gbps, l1 / 2},
                          {&Machine::l2_gbps, std::max(l2 / 2, l1)},
                          {&Machine::l3_gbps, std::min(l2 * 4, std::max(l3 / 2, l2 * 2))},
                          {&Machine::dram_gbps, std::min(kMost, std::max(l3 * 2, l2 * 8))}};
  size_t room = kLine;
  for (const Level& level : levels) room = std::max(room, level.bytes);
  room = std::max(std::min(room, memory / 8) / kLine * kLine, kLine);
  const std::unique_ptr<char, Freed> buffer(static_cast<char*>(std::aligned_alloc(kLine, room)));
  Machine m = Machine::Typical(host);
  if (!buffer) return m;
  std::fill_n(buffer.get(), room, char{1});
  const std::vector<Width> widths = Widths();
  Machine best;
  best.fork_join_ns = ForkJoinNs(processors);
  const auto start = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    // On a machine that is busy: what there is will do.
    if (round > 0 && Clock::now() - start > std::chrono::seconds(1)) break;
    constexpr int kIterations = 20'000;
    best.clock_ghz = std::max(best.clock_ghz,
                              16.0 * kIterations / NsOf([&] { DependentAdditions(kIterations); }));
    for (const Width& w : widths) {
      const double ns = NsOf([&] { w.fma(kIterations); });
      best.*w.gflops = std::max(best.*w.gflops, 2.0 * 12 * w.floats * kIterations / ns);
    }
    for (const Level& level : levels) {
      const size_t bytes = std::max(std::min(level.bytes, room) / kLine * kLine, kLine);
      best.*level.gbps =
          std::max(best.*level.gbps, ReadGbps(widths.back().loads, buffer.get(), bytes));
    }
  }
  // What is farther away is no faster, whatever noise says.
  best.l2_gbps = std::min(best.l2_gbps, best.l1_gbps);
  best.l3_gbps = std::min(best.l3_gbps, best.l2_gbps);
  best.dram_gbps = std::min(best.dram_gbps, best.l3_gbps);
  // Bounds of belief are those of the text form.
  const auto checked = Machine::Parse(best.ToString());
  return checked.ok() ? *checked : m;
}

StatusOr<Machine> ProbedOnce(const std::string& path, const std::string& identity, int processors) {
  const StatusOr<std::string> text = ReadFile(path, 16 << 10);
  if (text.ok()) {
    const size_t line = text->find('\n');
    if (line != std::string::npos && text->substr(0, line) == identity) {
      auto known = Machine::Parse(text->substr(line + 1));
      if (known.ok()) return known;
    }
  }
  const Machine m = ProbeMachine(processors);
  WHET_RETURN_IF_ERROR(WriteFile(path, identity + "\n" + m.ToString(), Sync::kDurable));
  return m;
}

}  // namespace whet::worker
