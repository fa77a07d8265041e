// A bounded queue between threads that produce events and one loop that consumes them. Thread-safe.
// The bound is for producers that can be told to wait or be refused; internal events (TryPush
// ignored by nobody) use PushAlways.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "compiler/support/clock.h"

namespace whet {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity = 100'000) : capacity_(capacity) {}

  bool TryPush(T item) {
    const std::lock_guard lock(mu_);
    if (items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    ready_.notify_one();
    return true;
  }
  void PushAlways(T item) {
    const std::lock_guard lock(mu_);
    items_.push_back(std::move(item));
    ready_.notify_one();
  }
  // Nothing when none comes before the deadline (monotonic).
  std::optional<T> Pop(int64_t deadline_ns) {
    std::unique_lock lock(mu_);
    while (items_.empty()) {
      const int64_t now = MonotonicNs();
      if (now >= deadline_ns) return std::nullopt;
      if (deadline_ns == kNever) {
        ready_.wait(lock);
      } else {
        ready_.wait_for(lock, std::chrono::nanoseconds(deadline_ns - now));
      }
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  const size_t capacity_;
  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<T> items_;
};

}  // namespace whet
