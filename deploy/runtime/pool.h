// A team of threads. Parallel(f) runs f(thread) once on every thread, the caller being thread 0,
// and returns when all are done; inside, Barrier() separates the phases of a kernel. One region
// therefore covers a whole run of a model, and a phase costs one barrier, not a fork and a join.
// Waiting threads spin for a moment (the serial gap between two phases is short), then sleep in the
// kernel; with more threads than processors they sleep at once. One thread means no threads, no
// atomics and no locks. Not reentrant.
//
// A pool may be an instance's own or shared by any number of instances and models. Regions that
// callers start at the same time run one after the other, in the order in which they asked: the
// processors are the pool's, and two regions at once would only be slower. Whoever waits sleeps. A
// pool of one thread has nothing to share: its callers do not wait for each other.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace whet {

class ThreadPool {
 public:
  // threads >= 1. With `pin`, thread i (the caller is thread 0) stays on the i-th processor the
  // process may use; the caller is the thread that makes the pool. When the system refuses a thread
  // the pool is smaller than asked and error() says so.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  const std::string& error() const { return error_; }

  template <typename F>  // void(int thread)
  void Parallel(F&& f) {
    if (threads_ == 1) {
      f(0);
      return;
    }
    const uint32_t turn = TakeTurn();
    call_ = [](void* self, int thread) {
      (*static_cast<std::remove_reference_t<F>*>(self))(thread);
    };
    function_ = &f;
    Start();
    f(0);
    Barrier();
    PassTurn(turn);
  }

  // Inside Parallel: returns once every thread has called it. What was written before it is visible
  // after it.
  void Barrier();

  // The part of [0, extent) that is `thread`'s: contiguous, sizes differ by one at most.
  static int64_t PartBegin(int64_t extent, int thread, int threads) {
    return extent / threads * thread + extent % threads * thread / threads;
  }

 private:
  uint32_t TakeTurn();
  void PassTurn(uint32_t turn);
  void Start();
  void Work(int thread);
  // Returns once `word` is no longer `old`.
  void WaitUntilChanged(const std::atomic<uint32_t>& word, uint32_t old) const;

  // Constant after construction.
  std::vector<std::thread> workers_;
  int threads_ = 1;
  int64_t spin_ns_ = 0;
  std::string error_;
  // What to give back to the thread that was pinned.
  bool pinned_ = false;
  pthread_t caller_ = {};
  cpu_set_t caller_affinity_ = {};

  // Written by the caller whose turn it is before round_ is raised.
  void (*call_)(void*, int) = nullptr;
  void* function_ = nullptr;
  bool stop_ = false;

  alignas(64) std::atomic<uint32_t> next_turn_{0};
  std::atomic<uint32_t> turn_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // of the barrier
  alignas(64) std::atomic<int> arrived_{0};
};

// The processors this process may use.
int AvailableProcessors();
// Keeps the calling thread on the index-th of them (modulo their number); false when the system
// refuses.
bool PinToProcessor(int index);

}  // namespace whet
