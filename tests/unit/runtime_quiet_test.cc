// A run allocates nothing and takes no lock. Allocation functions and locks of the C library are
// replaced here by ones that count; this program is not built with sanitizers, which replace them
// as well.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "deploy/runtime/model.h"
#include "deploy/runtime/whet_runtime.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0}, locks{0};

void Count(std::atomic<int64_t>& what) {
  if (counting.load(std::memory_order_relaxed)) ++what;
}

}  // namespace

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
  Count(allocations);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  Count(allocations);
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  Count(allocations);
  return __libc_realloc(p, n);
}
void* memalign(size_t alignment, size_t n) {
  Count(allocations);
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  Count(allocations);
  return __libc_memalign(alignment, n);
}
int posix_memalign(void** p, size_t alignment, size_t n) {
  Count(allocations);
  *p = __libc_memalign(alignment, n);
  return *p ? 0 : ENOMEM;
}

#define LOCK(name, type)                                                               \
  int name(type* lock) noexcept {                                                      \
    static const auto own = reinterpret_cast<int (*)(type*)>(dlsym(RTLD_NEXT, #name)); \
    Count(locks);                                                                      \
    return own(lock);                                                                  \
  }
LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
LOCK(pthread_spin_lock, pthread_spinlock_t)

}  // extern "C"

namespace whet {
namespace {

std::string Artifact(const std::string& name) {
  return std::string(std::getenv("WHET_TEST_ARTIFACTS")) + "/" + name + ".so";
}

// What happens in f on all threads.
template <typename F>
std::pair<int64_t, int64_t> Counted(const F& f) {
  allocations = locks = 0;
  counting = true;
  f();
  counting = false;
  return {allocations.load(), locks.load()};
}

constexpr std::pair<int64_t, int64_t> kNothing = {0, 0};

TEST(QuietTest, TheCountersCount) {
  std::mutex mutex;
  int* leaked = nullptr;
  const auto counted = Counted([&] {
    leaked = new int(1);
    const std::lock_guard lock(mutex);
  });
  EXPECT_EQ(counted.first, 1);
  EXPECT_EQ(counted.second, 1);
  delete leaked;
}

TEST(QuietTest, RunsNeitherAllocateNorLock) {
  std::string error;
  const auto model = Model::Load(Artifact("phases"), &error);
  ASSERT_TRUE(model) << error;
  alignas(64) static float x[1001], y[1001];
  alignas(64) static double sum;
  std::iota(std::begin(x), std::end(x), 0.0f);
  const std::vector<const void*> in = {x}, shifted_in = {x + 1};
  const std::vector<void*> out = {y, &sum}, shifted_out = {y + 1, &sum};
  for (int threads : {1, 2, 3}) {
    const auto pool = std::make_shared<ThreadPool>(threads);
    Instance own(model, threads), shared(model, pool);
    for (Instance* instance : {&own, &shared}) {
      EXPECT_EQ(Counted([&] {
                  for (int i = 0; i < 500; ++i) instance->Run(in, out);
                }),
                kNothing)
          << threads << " threads";
      // Copies of what is not aligned are made once.
      instance->Run(shifted_in, shifted_out);
      EXPECT_EQ(Counted([&] {
                  for (int i = 0; i < 500; ++i) {
                    instance->Run(shifted_in, shifted_out);
                    instance->Run(in, out);
                  }
                }),
                kNothing)
          << threads << " threads";
    }
  }
}

TEST(QuietTest, NeitherDoSessions) {
  alignas(64) const int32_t x[4] = {1, 10, 100, 1000};
  alignas(64) int32_t y[3] = {};
  const void* in[] = {x};
  void* out[] = {y};
  for (int threads : {1, 2}) {
    whet_session* s = whet_session_open(Artifact("prepack").c_str(), threads);
    ASSERT_NE(s, nullptr) << whet_last_error();
    EXPECT_EQ(Counted([&] {
                for (int i = 0; i < 500; ++i) whet_session_run(s, in, out);
              }),
              kNothing);
    EXPECT_EQ(y[0], 4321);
    whet_session_close(s);
  }
}

}  // namespace
}  // namespace whet
