// Time, behind a seam. Every duration, lease and deadline uses the monotonic clock; the wall clock
// is information in records and decides nothing. Core state machines do not even hold a Clock:
// `now` is passed in; loops and adapters do. RealClock is stateless and safe from any thread;
// FakeClock too (one atomic).
#pragma once
#include <atomic>
#include <cstdint>

namespace whet {

inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kNever = INT64_MAX;  // as a deadline

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;   // monotonic, arbitrary origin
  virtual int64_t WallMs() const = 0;  // since 1970; for people
};

const Clock& RealClock();
int64_t MonotonicNs();

class FakeClock : public Clock {
 public:
  explicit FakeClock(int64_t now_ns = kSecond) : now_ns_(now_ns) {}
  int64_t NowNs() const override { return now_ns_; }
  int64_t WallMs() const override { return now_ns_ / kMillisecond; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_;
};

// From monotonic `now_ns` to `deadline_ns` as a poll() timeout: rounded up, -1 for kNever, 0 when
// it has passed.
int PollTimeoutMs(int64_t now_ns, int64_t deadline_ns);

}  // namespace whet
