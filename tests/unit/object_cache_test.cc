// Compiling with objects of earlier compilations: the same artifact, faster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "compiler/driver/compile_model.h"
#include "compiler/support/content_cache.h"
#include "tests/support/test_model.h"
#include "tests/unit/db_testing.h"

namespace whet::driver {
namespace {

namespace fs = std::filesystem;

class ObjectCacheTest : public testing::Test {
 protected:
  ObjectCacheTest() {
    options_.model = folder_ / "m.onnx";
    testing_support::TwoConvolutions().WriteTo(options_.model);
    options_.output = folder_ / "m.so";
    options_.object_cache = folder_ / "objects";
    options_.object_cache_bytes = 1 << 24;
  }

  // The artifact's bytes, and how many objects came out of the cache.
  std::string Compile(int64_t* cached) {
    const auto report = CompileModel(options_);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return "";
    *cached = report->cached_objects;
    tasks_ = static_cast<int64_t>(report->tasks.size());
    return db::ReadFile(options_.output);
  }

  db::TempFolder folder_;
  CompileOptions options_;
  int64_t tasks_ = 0;
};

TEST_F(ObjectCacheTest, TheSameArtifactWithAndWithout) {
  int64_t cached = -1;
  const std::string cold = Compile(&cached);
  EXPECT_EQ(cached, 0);
  EXPECT_EQ(Compile(&cached), cold);
  EXPECT_EQ(cached, tasks_);
  options_.object_cache.clear();
  EXPECT_EQ(Compile(&cached), cold);
  EXPECT_EQ(cached, 0);
  VerifyOptions verify;
  verify.model = options_.model;
  verify.artifact = options_.output;
  const auto verified = VerifyArtifact(verify);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->passed);
}

TEST_F(ObjectCacheTest, OtherTargetsAndSchedulesAreOthers) {
  int64_t cached = -1;
  options_.target = "x86-64-v3";
  Compile(&cached);
  options_.target = "x86-64-v3 -l2=1048576";  // another best estimate
  Compile(&cached);
  EXPECT_EQ(cached, 0);
  options_.target = "x86-64-v4";
  options_.more_targets = {"x86-64-v3"};
  Compile(&cached);
  EXPECT_EQ(cached, tasks_) << "those of the first compilation";
}

TEST_F(ObjectCacheTest, DamagedObjectsAreMadeAgain) {
  int64_t cached = -1;
  const std::string cold = Compile(&cached);
  for (const auto& e : fs::directory_iterator(options_.object_cache)) {
    if (e.path().extension() != ".entry") continue;
    std::fstream file(e.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-20, std::ios::end);
    file.put(static_cast<char>(0x7f));
  }
  EXPECT_EQ(Compile(&cached), cold);
  EXPECT_EQ(cached, 0);
  EXPECT_EQ(Compile(&cached), cold);
  EXPECT_EQ(cached, tasks_);
}

TEST_F(ObjectCacheTest, ItKeepsItsSize) {
  int64_t cached = -1;
  options_.object_cache_bytes = 1;
  Compile(&cached);
  EXPECT_EQ(ContentCache::Open(options_.object_cache, 1)->Measure().entries, 0);
}

}  // namespace
}  // namespace whet::driver
