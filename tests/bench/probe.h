// What the core does at best, measured beside a kernel: its rate of fused multiply-adds.
#pragma once
#include <immintrin.h>

#include <chrono>

namespace whet::bench {

// GFLOP/s of f32 of twelve independent chains, 512 bits wide where there are such registers; 0
// where there is no such instruction. About a millisecond.
namespace detail {
template <int kIterations, typename F>
double GflopsOf(int floats, F&& run) {
  const auto t0 = std::chrono::steady_clock::now();
  run(kIterations);
  const double ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - t0).count();
  return 12.0 * 2 * floats * kIterations / ns;
}
}  // namespace detail

#define WHET_FMA_CHAINS(NAME, TARGET, TYPE, SET1, FMADD)                                          \
  __attribute__((target(TARGET), noinline)) inline void NAME(int n) {                             \
    const TYPE a = SET1(1.0f), b = SET1(0.5f);                                                    \
    TYPE c0 = b, c1 = b, c2 = b, c3 = b, c4 = b, c5 = b, c6 = b, c7 = b, c8 = b, c9 = b, c10 = b, \
         c11 = b;                                                                                 \
    for (int i = 0; i < n; ++i) {                                                                 \
      c0 = FMADD(c0, a, b), c1 = FMADD(c1, a, b), c2 = FMADD(c2, a, b);                           \
      c3 = FMADD(c3, a, b), c4 = FMADD(c4, a, b), c5 = FMADD(c5, a, b);                           \
      c6 = FMADD(c6, a, b), c7 = FMADD(c7, a, b), c8 = FMADD(c8, a, b);                           \
      c9 = FMADD(c9, a, b), c10 = FMADD(c10, a, b), c11 = FMADD(c11, a, b);                       \
      __asm__ volatile("" : "+v"(c0), "+v"(c1), "+v"(c2), "+v"(c3), "+v"(c4), "+v"(c5));          \
      __asm__ volatile("" : "+v"(c6), "+v"(c7), "+v"(c8), "+v"(c9), "+v"(c10), "+v"(c11));        \
    }                                                                                             \
  }
WHET_FMA_CHAINS(FmaChains512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
WHET_FMA_CHAINS(FmaChains256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
#undef WHET_FMA_CHAINS

inline double FmaGflops(int vector_bits = 512) {
  if (vector_bits >= 512 && __builtin_cpu_supports("avx512f"))
    return detail::GflopsOf<400000>(16, FmaChains512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return detail::GflopsOf<400000>(8, FmaChains256);
  return 0;
}

}  // namespace whet::bench
