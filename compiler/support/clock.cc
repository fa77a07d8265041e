#include "compiler/support/clock.h"

#include <algorithm>
#include <chrono>

namespace whet {
namespace {

class SystemClock : public Clock {
 public:
  int64_t NowNs() const override { return MonotonicNs(); }
  int64_t WallMs() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const Clock& RealClock() {
  static const SystemClock clock;
  return clock;
}

int PollTimeoutMs(int64_t now_ns, int64_t deadline_ns) {
  if (deadline_ns == kNever) return -1;
  if (deadline_ns <= now_ns) return 0;
  return static_cast<int>(
      std::min<int64_t>((deadline_ns - now_ns + kMillisecond - 1) / kMillisecond, 1'000'000'000));
}

}  // namespace whet
