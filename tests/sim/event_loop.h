// Simulated time: what happens when, in one thread. Two things at one moment happen in the order in
// which they were asked for.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace whet::testing {

class EventLoop {
 public:
  int64_t now() const { return now_; }
  void At(int64_t when, std::function<void()> what) {
    events_.emplace(std::pair(std::max(when, now_), order_++), std::move(what));
  }
  void After(int64_t delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // The next event, if there is one up to `limit`; else time goes on to the limit.
  bool Step(int64_t limit) {
    if (events_.empty() || events_.begin()->first.first > limit) {
      now_ = std::max(now_, limit);
      return false;
    }
    auto node = events_.extract(events_.begin());
    now_ = node.key().first;
    ++steps_;
    node.mapped()();
    return true;
  }
  uint64_t steps() const { return steps_; }

 private:
  int64_t now_ = 0;
  uint64_t order_ = 0, steps_ = 0;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
};

}  // namespace whet::testing
