// A rate limit: `rate` tokens a second, `burst` of them at once. Not guarded.
#pragma once
#include <algorithm>
#include <cstdint>

namespace whet::rpc {

struct TokenBucket {
  double rate, burst;
  double tokens = burst;
  int64_t last_ns = 0;

  // Whether there was one; `now_ns` is monotonic.
  bool Take(int64_t now_ns) {
    if (last_ns != 0)
      tokens = std::min(burst, tokens + rate * 1e-9 * static_cast<double>(now_ns - last_ns));
    last_ns = now_ns;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  }
  bool Full(int64_t now_ns) const {
    return tokens + rate * 1e-9 * static_cast<double>(now_ns - last_ns) >= burst;
  }
};

}  // namespace whet::rpc
