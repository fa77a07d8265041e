#include "deploy/runtime/pool.h"

#include <pthread.h>
#include <sched.h>

namespace whet {
namespace {

constexpr int kSpins = 20000;  // some 50 microseconds: longer than the serial gap between two phases

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void PinTo(int index) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  int skip = count > 0 ? index % count : 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool pin) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i, pin] {
      if (pin) PinTo(i);
      Work(i);
    });
  }
  if (pin) PinTo(0);
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::Part(int thread) const {
  const int64_t count = threads();
  const int64_t begin = n_ * thread / count, end = n_ * (thread + 1) / count;
  if (begin < end) call_(function_, thread, begin, end);
}

void ThreadPool::RunParts(int64_t n, void* f) {
  function_ = f;
  n_ = n;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);  // a worker that is about to sleep sees the new round
    round_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  Part(0);
  for (int i = 0; running_.load(std::memory_order_acquire) != 0; ++i) {
    if (i < kSpins) {
      Pause();
    } else {
      sched_yield();
    }
  }
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  while (true) {
    for (int i = 0; i < kSpins && round_.load(std::memory_order_acquire) == seen && !stop_; ++i) Pause();
    if (round_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != seen || stop_; });
    }
    if (stop_) return;
    seen = round_.load(std::memory_order_acquire);
    Part(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace whet
