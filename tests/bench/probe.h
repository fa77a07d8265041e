// What the core does at best, measured beside a kernel: its rate of fused multiply-adds, and how
// fast it reads and writes so many bytes as the kernel has to.
#pragma once
#include <immintrin.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace whet::bench {

namespace detail {
template <typename F>
double GflopsOf(int iterations, int floats, F&& run) {
  const auto t0 = std::chrono::steady_clock::now();
  run(iterations);
  const double ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - t0).count();
  return 12.0 * 2 * floats * iterations / ns;
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

// GFLOP/s of f32 of twelve independent chains, 512 bits wide where there are such registers; 0
// where there is no such instruction. About a millisecond with the default.
inline double FmaGflops(int vector_bits = 512, double iterations = 4e5) {
  const int n = static_cast<int>(iterations);
  if (vector_bits >= 512 && __builtin_cpu_supports("avx512f"))
    return detail::GflopsOf(n, 16, FmaChains512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return detail::GflopsOf(n, 8, FmaChains256);
  return 0;
}

// A register tile of 12 x 2 vectors as products of matrices have it, its operands in the
// first-level cache: in a step two loads of vectors, twelve of numbers that are repeated, 24
// multiply-adds.
constexpr int kTileRows = 12, kTileSteps = 256;
#define WHET_FMA_TILE(NAME, TARGET, TYPE, FLOATS, LOAD, STORE, SET1, FMADD)                       \
  __attribute__((target(TARGET), noinline)) inline void NAME(const float* a, const float* b,      \
                                                             float* c) {                          \
    constexpr int kRows = FLOATS == 16 ? kTileRows : kTileRows / 2;                               \
    TYPE sums[kRows][2];                                                                          \
    _Pragma("GCC unroll 12") for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = SET1(0.f); \
    for (int k = 0; k < kTileSteps; ++k) {                                                        \
      const TYPE b0 = LOAD(b + k * 2 * FLOATS), b1 = LOAD(b + k * 2 * FLOATS + FLOATS);           \
      _Pragma("GCC unroll 12") for (int r = 0; r < kRows; ++r) {                                  \
        const TYPE x = SET1(a[r * kTileSteps + k]);                                               \
        sums[r][0] = FMADD(x, b0, sums[r][0]);                                                    \
        sums[r][1] = FMADD(x, b1, sums[r][1]);                                                    \
      }                                                                                           \
    }                                                                                             \
    _Pragma("GCC unroll 12") for (int r = 0; r < kRows; ++r) {                                    \
      STORE(c + r * 2 * FLOATS, sums[r][0]);                                                      \
      STORE(c + r * 2 * FLOATS + FLOATS, sums[r][1]);                                             \
    }                                                                                             \
  }
WHET_FMA_TILE(FmaTile512, "avx512f", __m512, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps,
              _mm512_fmadd_ps)
WHET_FMA_TILE(FmaTile256, "avx2,fma", __m256, 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps,
              _mm256_fmadd_ps)
#undef WHET_FMA_TILE

// GFLOP/s of such a tile, from some 30 us of them; 0 where there is no such instruction. Beside
// FmaGflops it says whether the core's loads and first-level cache are ours alone just now: on a
// core that runs another thread too it falls to two thirds of it, and is all but equal else.
inline double TileGflops(int vector_bits = 512) {
  alignas(64) static float a[kTileRows * kTileSteps], b[2 * 16 * kTileSteps], c[kTileRows * 2 * 16];
  const bool wide = vector_bits >= 512 && __builtin_cpu_supports("avx512f");
  if (!wide && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 0;
  constexpr int kCalls = 24;
  const auto t0 = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) wide ? FmaTile512(a, b, c) : FmaTile256(a, b, c);
  const double ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - t0).count();
  return kCalls * (wide ? 4.0 * 16 : 2.0 * 8) * kTileRows * kTileSteps / ns;
}

// Reads `in` and writes `out` once, in stretches that take turns as a kernel's do; multiples of 64
// bytes. The least that any kernel with these operands takes, where it does not compute longer.
#define WHET_TOUCH(NAME, TARGET, TYPE, LOAD, STORE, ZERO, BYTES)                              \
  __attribute__((target(TARGET), noinline)) inline void NAME(const char* in, size_t in_bytes, \
                                                             char* out, size_t out_bytes) {   \
    constexpr size_t kStretch = 512;                                                          \
    const size_t most = in_bytes > out_bytes ? in_bytes : out_bytes;                          \
    const size_t turns = most / kStretch + 1;                                                 \
    const size_t reads = in_bytes / turns / 64 * 64, writes = out_bytes / turns / 64 * 64;    \
    const char* const in_end = in + in_bytes;                                                 \
    char* const out_end = out + out_bytes;                                                    \
    const TYPE zero = ZERO();                                                                 \
    for (size_t t = 0; t <= turns; ++t) {                                                     \
      const char* const r = t < turns ? in + reads : in_end;                                  \
      for (; in < r; in += BYTES) {                                                           \
        TYPE v = LOAD(reinterpret_cast<const float*>(in));                                    \
        __asm__ volatile("" : : "v"(v));                                                      \
      }                                                                                       \
      char* const w = t < turns ? out + writes : out_end;                                     \
      for (; out < w; out += BYTES) STORE(reinterpret_cast<float*>(out), zero);               \
    }                                                                                         \
    __asm__ volatile("" : : : "memory");                                                      \
  }
WHET_TOUCH(Touch512, "avx512f", __m512, _mm512_load_ps, _mm512_store_ps, _mm512_setzero_ps, 64)
WHET_TOUCH(Touch256, "avx", __m256, _mm256_load_ps, _mm256_store_ps, _mm256_setzero_ps, 32)
#undef WHET_TOUCH

inline void Touch(const void* in, size_t in_bytes, void* out, size_t out_bytes) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<char*>(out);
  if (__builtin_cpu_supports("avx512f"))
    Touch512(from, in_bytes / 64 * 64, to, out_bytes / 64 * 64);
  else if (__builtin_cpu_supports("avx"))
    Touch256(from, in_bytes / 64 * 64, to, out_bytes / 64 * 64);
}

}  // namespace whet::bench
