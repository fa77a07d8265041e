// Randomness. `Rng` is a small sequential generator (SplitMix64; Steele, Lea, Flood 2014) for
// search and tests: same seed, same sequence, on every machine. `CounterUniform` is the
// counter-based generator that measurement inputs come from: element i of tensor t under seed s has
// one value, which server and worker compute alone, in any order.
#pragma once
#include <cstdint>

namespace whet {

inline uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return SplitMix(state_ += 0x9e3779b97f4a7c15ULL); }
  // In [0, bound); bound > 0. The bias of the modulo is below 2^-40 for the bounds used here.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }  // [0, 1)
  uint64_t state() const { return state_; }

 private:
  uint64_t state_;
};

inline uint64_t CounterBits(uint64_t seed, uint64_t tensor, uint64_t element) {
  return SplitMix(SplitMix(seed ^ (tensor * 0xd1342543de82ef95ULL)) ^ element);
}

// A multiple of 2^-23 in [-1, 1): exact in f32.
inline float CounterUniform(uint64_t seed, uint64_t tensor, uint64_t element) {
  const auto bits = static_cast<int32_t>(CounterBits(seed, tensor, element) >> 40);  // 24 bits
  return static_cast<float>(bits - (1 << 23)) * 0x1.0p-23f;
}

}  // namespace whet
