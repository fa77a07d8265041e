#include "deploy/runtime/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace whet {
namespace {

// Longer than the gap between two phases or two runs in a row, shorter than anyone would notice on
// a busy machine.
constexpr int64_t kSpinNs = 50'000;
// After so long without news the waiting thread also offers its processor: the one it waits for may
// have been put behind it on the same processor, and would otherwise wait out the whole spin.
constexpr int64_t kYieldAfterNs = 2'000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// What the process was given, asked once: a pinned thread, and those it starts, see less.
const cpu_set_t& Allowed() {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    return set;
  }();
  return allowed;
}

}  // namespace

int AvailableProcessors() { return std::max(CPU_COUNT(&Allowed()), 1); }

bool PinToProcessor(int index) {
  const cpu_set_t& allowed = Allowed();
  int skip = index % std::max(CPU_COUNT(&allowed), 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
  }
  return false;
}

ThreadPool::ThreadPool(int threads, bool pin) {
  threads_ = std::max(threads, 1);
  Allowed();  // before anyone is pinned
  spin_ns_ = threads_ <= AvailableProcessors() ? kSpinNs : 0;
  try {
    for (int i = 1; i < threads_; ++i) {
      workers_.emplace_back([this, i, pin] {
        if (pin) PinToProcessor(i);
        Work(i);
      });
    }
  } catch (const std::system_error& e) {
    // Those that exist have not begun anything: they see the final count when the first round
    // starts.
    error_ = "only " + std::to_string(workers_.size() + 1) + " of " + std::to_string(threads) +
             " threads could be started: " + e.what();
    threads_ = static_cast<int>(workers_.size()) + 1;
  }
  if (pin) {
    caller_ = pthread_self();
    pthread_getaffinity_np(caller_, sizeof caller_affinity_, &caller_affinity_);
    pinned_ = PinToProcessor(0);
  }
}

ThreadPool::~ThreadPool() {
  if (pinned_ && pthread_equal(caller_, pthread_self())) {
    pthread_setaffinity_np(caller_, sizeof caller_affinity_, &caller_affinity_);
  }
  if (workers_.empty()) return;
  stop_ = true;
  Start();
  for (std::thread& t : workers_) t.join();
}

uint32_t ThreadPool::TakeTurn() {
  const uint32_t mine = next_turn_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t now; (now = turn_.load(std::memory_order_acquire)) != mine;)
    turn_.wait(now, std::memory_order_acquire);
  return mine;
}

void ThreadPool::PassTurn(uint32_t turn) {
  turn_.store(turn + 1, std::memory_order_release);
  turn_.notify_all();
}

void ThreadPool::Start() {
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

void ThreadPool::Barrier() {
  if (threads_ == 1) return;
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    generation_.notify_all();
    return;
  }
  WaitUntilChanged(generation_, generation);
}

void ThreadPool::WaitUntilChanged(const std::atomic<uint32_t>& word, uint32_t old) const {
  if (word.load(std::memory_order_acquire) != old) return;
  if (spin_ns_ > 0) {
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::nanoseconds waited{0};
    do {
      for (int i = 0; i < 16; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        Pause();
      }
      if (waited.count() > kYieldAfterNs) sched_yield();
      waited = std::chrono::steady_clock::now() - begin;
    } while (waited.count() < spin_ns_);
  }
  word.wait(old, std::memory_order_acquire);
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitUntilChanged(round_, seen);
    ++seen;  // the next round cannot start before this thread has met the closing barrier of this
             // one
    if (stop_) return;
    call_(function_, thread);
    Barrier();
  }
}

}  // namespace whet
