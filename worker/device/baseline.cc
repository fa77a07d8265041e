#include "worker/device/baseline.h"

#include <algorithm>
#include <array>
#include <memory>

#include "compiler/support/clock.h"

namespace whet::worker {
namespace {

// Three of 48 x 48 are 27 KiB.
constexpr int kSide = 48;
constexpr int kLanes = 4;
constexpr int kTimesPerRun = 16;
constexpr int kRuns = 21;
using Lanes4 = float __attribute__((vector_size(16)));

struct Matrices {
  alignas(64) std::array<float, kSide * kSide> a;
  alignas(64) std::array<Lanes4, kSide * kSide / kLanes> b, c;
};

// c = a b, four rows by eight columns at a time. Small whole numbers: every sum is exact in any
// order, contracted or not.
__attribute__((noinline)) void Multiply(Matrices* m) {
  const Lanes4* const b = m->b.data();
  constexpr int kRow = kSide / kLanes;  // vectors
  for (int i = 0; i < kSide; i += 4) {
    for (int j = 0; j < kRow; j += 2) {
      Lanes4 sum[4][2] = {};
      for (int k = 0; k < kSide; ++k) {
        const Lanes4 b0 = b[k * kRow + j], b1 = b[k * kRow + j + 1];
        for (int r = 0; r < 4; ++r) {
          const float a = m->a[static_cast<size_t>((i + r) * kSide + k)];
          sum[r][0] += a * b0;
          sum[r][1] += a * b1;
        }
      }
      for (int r = 0; r < 4; ++r) {
        m->c[static_cast<size_t>((i + r) * kRow + j)] = sum[r][0];
        m->c[static_cast<size_t>((i + r) * kRow + j + 1)] = sum[r][1];
      }
    }
  }
  __asm__ volatile("" : : "r"(m) : "memory");
}

int ValueA(int i, int k) { return (i * 7 + k * 3) % 5 - 2; }
int ValueB(int k, int j) { return (k * 5 + j * 11) % 7 - 3; }

bool IsRight(const Matrices& m) {
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      int want = 0;
      for (int k = 0; k < kSide; ++k) want += ValueA(i, k) * ValueB(k, j);
      const auto at = static_cast<size_t>(i * kSide + j);
      if (m.c[at / kLanes][at % kLanes] != static_cast<float>(want)) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<double> TimeBaseline() {
  const auto m = std::make_unique<Matrices>();
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const auto at = static_cast<size_t>(i * kSide + j);
      m->a[at] = static_cast<float>(ValueA(i, j));
      m->b[at / kLanes][at % kLanes] = static_cast<float>(ValueB(i, j));
    }
  }
  for (int t = 0; t < 2 * kTimesPerRun; ++t) Multiply(m.get());
  std::array<int64_t, kRuns> ns;
  for (int64_t& run : ns) {
    const int64_t start = MonotonicNs();
    for (int t = 0; t < kTimesPerRun; ++t) Multiply(m.get());
    run = MonotonicNs() - start;
  }
  if (!IsRight(*m)) return std::nullopt;
  std::nth_element(ns.begin(), ns.begin() + kRuns / 2, ns.end());
  return static_cast<double>(std::max<int64_t>(ns[kRuns / 2], 1));
}

}  // namespace whet::worker
