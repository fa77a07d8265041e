// What instances share: threads, weights, memory in huge pages; and what happens when they run at
// the same time. .ci/run runs this under the thread sanitizer, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "deploy/runtime/model.h"
#include "deploy/runtime/whet_runtime.h"

namespace whet {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string Artifact(const std::string& name) {
  return std::string(std::getenv("WHET_TEST_ARTIFACTS")) + "/" + name + ".so";
}

std::shared_ptr<const Model> Load(const std::string& name, const LoadOptions& options = {}) {
  std::string error;
  auto model = Model::Load(Artifact(name), options, &error);
  EXPECT_TRUE(model) << error;
  return model;
}

// Whether `runs` runs of phases.so are right.
bool PhasesRunRight(Instance& instance, int runs) {
  std::vector<float> x(1000), y(1000);
  std::iota(x.begin(), x.end(), 0.0f);
  double sum = 0;
  bool right = instance.error().empty();
  for (int round = 0; round < runs && right; ++round) {
    std::fill(y.begin(), y.end(), 0.0f);
    instance.Run({x.data()}, {y.data(), &sum});
    for (int i = 0; i < 1000; ++i) right &= y[i] == 2.0f * (999 - i) + 1;
    right &= sum == 1000.0 * 999 + 1000;
  }
  return right;
}

bool MatVecRunsRight(Instance& instance, int runs) {
  const int32_t x[4] = {1, 10, 100, 1000};
  bool right = instance.error().empty();
  for (int round = 0; round < runs && right; ++round) {
    int32_t y[3] = {};
    instance.Run({x}, {y});
    right &= y[0] == 4321 && y[1] == 8765 && y[2] == 13209;
  }
  return right;
}

constexpr int kRuns = 100;

TEST(SharingTest, ModelsOnOnePoolRunInTurn) {
  const auto phases = Load("phases"), prepack = Load("prepack");
  for (int threads : {1, 2, 4}) {
    const auto pool = std::make_shared<ThreadPool>(threads);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&, i] {
        Instance instance(i % 2 ? phases : prepack, pool);
        wrong += i % 2 ? !PhasesRunRight(instance, kRuns) : !MatVecRunsRight(instance, kRuns);
      });
    }
    for (std::thread& t : callers) t.join();
    EXPECT_EQ(wrong.load(), 0) << threads << " threads";
  }
}

TEST(SharingTest, InstancesOfOneModelWithThreadsOfTheirOwnRunSideBySide) {
  const auto model = Load("phases");
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&, i] {
      Instance instance(model, 1 + i);
      wrong += !PhasesRunRight(instance, kRuns);
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(SharingTest, RegionsOfOnePoolNeverOverlap) {
  ThreadPool pool(3);
  std::atomic<int> inside{0}, wrong{0}, regions{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < kRuns; ++round) {
        pool.Parallel([&](int thread) {
          if (thread == 0 && inside.exchange(1) != 0) ++wrong;
          pool.Barrier();
          if (inside.load() != 1) ++wrong;
          pool.Barrier();
          if (thread == 0) {
            inside = 0;
            ++regions;
          }
        });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(regions.load(), 4 * kRuns);
}

TEST(SharingTest, PackedWeightsAreTheModels) {
  const auto model = Load("prepack");
  EXPECT_EQ(model->shared_bytes(), 0);
  std::vector<std::unique_ptr<Instance>> instances(4);
  std::vector<std::thread> makers;
  for (auto& i : instances) makers.emplace_back([&] { i = std::make_unique<Instance>(model, 1); });
  for (std::thread& t : makers) t.join();
  EXPECT_EQ(model->shared_bytes(), 48);
  for (const auto& i : instances) {
    EXPECT_EQ(i->memory_bytes(), 0) << "no arena, no scratch, and the weights are not its own";
    EXPECT_TRUE(MatVecRunsRight(*i, 1));
  }
  instances[0].reset();
  EXPECT_TRUE(MatVecRunsRight(*instances[1], 1));

  // Those that a caller brings are its own.
  const auto candidate = Load("candidate");
  Instance a(candidate, 1), b(candidate, 1);
  alignas(64) const int32_t ones[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  alignas(64) const int32_t twos[12] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  a.Prepack({ones});
  b.Prepack({twos});
  alignas(64) const int32_t x[4] = {1, 1, 1, 1};
  alignas(64) int32_t y[3] = {};
  a.Run({x}, {y});
  EXPECT_EQ(y[0], 4);
  b.Run({x}, {y});
  EXPECT_EQ(y[0], 8);
  EXPECT_EQ(candidate->shared_bytes(), 0);
  EXPECT_EQ(a.memory_bytes(), 4096);
}

TEST(SharingTest, WeightsInHugePagesGiveTheSameResults) {
  const auto model = Load("heavy", {.huge_pages = true}), plain = Load("heavy");
  const size_t n = model->inputs()[0].bytes / 4;
  std::vector<float> x(n, 1), y(n);
  for (const auto& m : {model, plain}) {
    Instance instance(m, 2);
    std::fill(y.begin(), y.end(), 0.0f);
    instance.Run({x.data()}, {y.data()});
    EXPECT_EQ(y[0], 6);
    EXPECT_EQ(y[1], 7);
    EXPECT_EQ(y[2], 1);
    EXPECT_EQ(y[n - 1], 8);
  }
  EXPECT_EQ(plain->shared_bytes(), 0);
  EXPECT_EQ(plain->huge_pages_note(), "");
  const auto bytes = static_cast<int64_t>(n * 4);
  if (model->desc().constants == plain->desc().constants) {  // where the system has none
    EXPECT_THAT(model->huge_pages_note(), HasSubstr("the weights stay where they are"));
    EXPECT_EQ(model->shared_bytes(), 0);
  } else {
    EXPECT_THAT(model->huge_pages_note(), AnyOf("", HasSubstr("bytes of weights into huge pages")));
    EXPECT_EQ(model->shared_bytes(), bytes) << "without what no step reads";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(model->desc().constants) % (2 << 20), 0u);
  }
  const auto light = Load("variants", {.huge_pages = true});
  EXPECT_THAT(light->huge_pages_note(), HasSubstr("do not fill a huge page"));
}

TEST(SharingTest, SessionsShareAPoolAndAModel) {
  whet_pool* pool = whet_pool_create(2, 0);
  ASSERT_NE(pool, nullptr) << whet_last_error();
  whet_session_options o = {};
  o.size = sizeof o;
  o.pool = pool;
  whet_session* first = whet_session_open_with(Artifact("prepack").c_str(), &o);
  ASSERT_NE(first, nullptr) << whet_last_error();
  o.like = first;
  whet_session* second = whet_session_open_with(nullptr, &o);
  ASSERT_NE(second, nullptr) << whet_last_error();
  EXPECT_STREQ(whet_session_target(second), "cpu -arch=test");
  uint64_t shared = 0;
  EXPECT_EQ(whet_session_memory(second, &shared), 0u);
  EXPECT_EQ(shared, 48u);
  EXPECT_STREQ(whet_session_huge_pages_note(second), "");
  whet_pool_release(pool);  // the sessions have it
  whet_session_close(first);
  const int32_t x[4] = {1, 0, 0, 0};
  int32_t y[3] = {};
  const void* in[] = {x};
  void* out[] = {y};
  EXPECT_EQ(whet_session_run(second, in, out), 0) << whet_last_error();
  EXPECT_EQ(y[1], 5);
  whet_session_close(second);
}

TEST(SharingTest, OptionsThatDoNotGoTogetherAreRefused) {
  const std::string path = Artifact("builds");
  whet_session_options o = {};
  const auto refused = [&](const char* file) {
    whet_session* s = whet_session_open_with(file, &o);
    EXPECT_EQ(s, nullptr);
    whet_session_close(s);
    return std::string(whet_last_error());
  };
  EXPECT_THAT(refused(path.c_str()), HasSubstr("the options have 0 bytes, this runtime knows"));
  o.size = sizeof o + 8;
  EXPECT_THAT(refused(path.c_str()), HasSubstr("this runtime knows"));
  o.size = sizeof o;
  EXPECT_THAT(refused(nullptr), HasSubstr("path is a null pointer"));
  o.threads = -1;
  EXPECT_THAT(refused(path.c_str()), HasSubstr("threads is -1, allowed are 1 to 1024"));
  o.threads = 2;
  whet_pool* pool = whet_pool_create(2, 0);
  o.pool = pool;
  EXPECT_THAT(refused(path.c_str()), HasSubstr("with `pool` the threads are there"));
  o.threads = 0;
  o.target = "none";
  EXPECT_THAT(refused(path.c_str()), HasSubstr("has no code for 'none'"));
  o.target = "least";
  whet_session* s = whet_session_open_with(path.c_str(), &o);
  ASSERT_NE(s, nullptr) << whet_last_error();
  EXPECT_STREQ(whet_session_target(s), "least");
  o.like = s;
  EXPECT_THAT(refused(nullptr), HasSubstr("with `like` the model is there"));
  whet_session_close(s);
  whet_pool_release(pool);
  EXPECT_EQ(whet_pool_create(0, 0), nullptr);
}

}  // namespace
}  // namespace whet
