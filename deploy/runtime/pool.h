// A pool of threads for phases: Run(n, f) calls f(thread, begin, end) on static, contiguous parts of [0, n), the caller
// taking the first part, and returns when all are done. Waiting threads spin for a moment, then sleep. One thread means
// no threads at all. Not reentrant; one Run at a time (an Instance owns its pool or is given one).
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace whet {

class ThreadPool {
 public:
  // threads >= 1. With `pin`, thread i stays on the i-th processor the process may use.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  template <typename F>  // void(int thread, int64_t begin, int64_t end)
  void Run(int64_t n, F&& f) {
    if (workers_.empty() || n <= 1) {
      f(0, int64_t{0}, n);
      return;
    }
    call_ = [](void* self, int thread, int64_t begin, int64_t end) {
      (*static_cast<std::remove_reference_t<F>*>(self))(thread, begin, end);
    };
    RunParts(n, &f);
  }

 private:
  void RunParts(int64_t n, void* f);
  void Work(int thread);
  void Part(int thread) const;

  std::vector<std::thread> workers_;  // constant after construction

  void (*call_)(void*, int, int64_t, int64_t) = nullptr;  // written before round_ is raised
  void* function_ = nullptr;
  int64_t n_ = 0;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace whet
