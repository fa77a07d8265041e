// Artifacts' inputs and outputs as files, names, durations, statistics of timings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/flags.h"
#include "compiler/driver/names.h"
#include "compiler/driver/timing.h"
#include "compiler/support/names.h"
#include "deploy/runtime/npy.h"

namespace whet::driver {
namespace {

using ::testing::HasSubstr;

class DriverIoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/whet-io-XXXXXX";
    ASSERT_TRUE(mkdtemp(name));
    dir_ = name;
    auto model = LoadArtifact(std::string(std::getenv("WHET_TEST_ARTIFACTS")) + "/phases.so");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string File(const std::string& name) const { return dir_ + "/" + name; }
  Status Fill(const std::vector<std::string>& specs) {
    Buffers buffers(*model_);
    return FillInputs(*model_, specs, "", MissingInputs::kError, &buffers);
  }

  std::string dir_;
  std::shared_ptr<const Model> model_;
};

TEST_F(DriverIoTest, InputsAreCheckedAndNamed) {
  const std::vector<float> x(1000, 1.5f);
  ASSERT_EQ(WriteNpy(File("x.npy"), WHET_F32, {100, 10}, x.data()), "");
  ASSERT_EQ(WriteNpy(File("flat.npy"), WHET_F32, {1000}, x.data()), "");
  const std::vector<int32_t> integers(1000);
  ASSERT_EQ(WriteNpy(File("i.npy"), WHET_I32, {100, 10}, integers.data()), "");
  EXPECT_TRUE(Fill({"x=" + File("x.npy")}).ok());
  EXPECT_TRUE(Fill({File("x.npy")}).ok());
  EXPECT_THAT(Message(Fill({})), HasSubstr("input 'x' f32 100x10 is missing"));
  EXPECT_THAT(Message(Fill({File("flat.npy")})),
              HasSubstr("has shape 1000; input 'x' needs 100x10"));
  EXPECT_THAT(Message(Fill({File("i.npy")})), HasSubstr("holds i32; input 'x' needs f32"));
  EXPECT_THAT(Message(Fill({"z=" + File("x.npy")})),
              HasSubstr("the model has no input 'z'; it has 'x' f32 100x10"));
  EXPECT_THAT(Message(Fill({File("x.npy"), File("x.npy")})), HasSubstr("names 'x' twice"));
  EXPECT_THAT(Message(Fill({File("absent.npy")})), HasSubstr("cannot open"));
}

TEST_F(DriverIoTest, OutputsAreWrittenUnderSafeNames) {
  const std::vector<float> x(1000, 1.0f);
  ASSERT_EQ(WriteNpy(File("x.npy"), WHET_F32, {100, 10}, x.data()), "");
  Buffers buffers(*model_);
  ASSERT_TRUE(FillInputs(*model_, {File("x.npy")}, "", MissingInputs::kError, &buffers).ok());
  auto instance = MakeInstance(model_, 1);
  ASSERT_TRUE(instance.ok());
  (*instance)->Run(buffers.inputs(), buffers.outputs());
  const auto paths = WriteOutputs(*model_, buffers, File("new/folder"));
  ASSERT_TRUE(paths.ok()) << paths.status();
  ASSERT_EQ(paths->size(), 2u);
  EXPECT_EQ((*paths)[0], File("new/folder/scores_y_0.npy"));
  NpyArray sum;
  ASSERT_EQ(ReadNpy((*paths)[1], &sum), "");
  EXPECT_EQ(sum.shape, std::vector<int64_t>{});
  EXPECT_EQ(*reinterpret_cast<const double*>(sum.bytes.data()), 3000);
  EXPECT_THAT(Message(WriteOutputs(*model_, buffers, File("x.npy")).status()),
              HasSubstr("cannot make the folder"));
}

TEST_F(DriverIoTest, TimingReportsWhatWasAskedFor) {
  Buffers buffers(*model_);
  auto instance = MakeInstance(model_, 1);
  ASSERT_TRUE(instance.ok());
  TimingOptions options;
  options.runs = 25;
  options.warm_up_seconds = 0;
  const Timing t = TimeRuns(**instance, buffers, options, Profile::kYes, [] { return true; });
  EXPECT_EQ(t.run_ms.size(), 25u);
  EXPECT_LE(t.min_ms, t.median_ms);
  EXPECT_LE(t.median_ms, t.p90_ms);
  ASSERT_EQ(t.step_ms.size(), 3u);
  EXPECT_EQ(t.step_ms[0].size(), 25u);
  const Timing stopped = TimeRuns(**instance, buffers, options, Profile::kNo, [] { return false; });
  EXPECT_EQ(stopped.run_ms.size(), 1u);
}

TEST(DriverStatisticsTest, QuantilesAndIntervals) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Quantile({0, 10}, 0.9), 9);
  EXPECT_EQ(Quantile({7}, 0.9), 7);
  std::vector<double> v;
  for (int i = 1; i <= 30; ++i) v.push_back(i);
  const auto [low, high] = MedianInterval(v);
  EXPECT_EQ(low,
            10);  // order statistics 10 and 22 of 30: the interval holds the median 97 times of 100
  EXPECT_EQ(high, 22);
}

TEST(DriverStatisticsTest, InterleavingSeesAFactorOfTwo) {
  // Work, not sleep: the same loop once and twice.
  volatile double sink = 0;
  auto work = [&](int n) {
    for (int i = 0; i < n; ++i) sink = sink + 1;
  };
  const Comparison c = Interleave([&] { work(10000); }, [&] { work(20000); }, 11, 0.5);
  EXPECT_EQ(c.a_ms.size(), 11u);
  EXPECT_GT(c.ratio, 0.3);
  EXPECT_LT(c.ratio, 0.8);
  EXPECT_LE(c.ratio_low, c.ratio);
  EXPECT_GE(c.ratio_high, c.ratio);
}

TEST(DriverShapesTest, ShapesAreWrittenInOneWay) {
  const auto sets = ParseShapes({"x=1,3,0", "a=b=2x4", "x=2,3,0"});
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(*sets, (std::vector<ShapeSet>{{{"x", {1, 3, 0}}, {"a=b", {2, 4}}},
                                          {{"x", {2, 3, 0}}, {"a=b", {2, 4}}}}));
  for (const char* bad :
       {"x=2,3,", "x=", "x=,2", "x=2,,3", "x=-1", "x=2.5", "x=99999999999999999999"})
    EXPECT_THAT(Message(ParseShapes({bad}).status()), HasSubstr("is not a dimension")) << bad;
  for (const char* bad : {"x", "=2", ""})
    EXPECT_THAT(Message(ParseShapes({bad}).status()), HasSubstr("is not NAME=D,D,...")) << bad;
}

TEST(DriverNamesTest, SuggestionsFileNamesAndUnits) {
  EXPECT_EQ(Suggestion("bnech", {"bench", "run"}), " (did you mean 'bench'?)");
  EXPECT_EQ(Suggestion("zzzzzz", {"bench", "run"}), "");
  EXPECT_EQ(Suggestion("z", {"x", "run"}), "");
  EXPECT_EQ(ListOf({"a", "b"}), "a, b");
  EXPECT_THAT(ListOf(std::vector<std::string>(23, "a")), HasSubstr(", a, a and 3 more"));
  EXPECT_EQ(FileNameFor("Identity_1:0"), "Identity_1_0");
  EXPECT_EQ(FileNameFor("../../etc/passwd"), ".._.._etc_passwd");
  EXPECT_EQ(FileNameFor(".."), "output");
  EXPECT_EQ(BytesText(500), "500 B");
  EXPECT_EQ(BytesText(3 << 20), "3.0 MiB");
  EXPECT_EQ(ParseSeconds("90"), 90);
  EXPECT_EQ(ParseSeconds("1.5m"), 90);
  EXPECT_EQ(ParseSeconds("2h"), 7200);
  EXPECT_LT(ParseSeconds("soon"), 0);
  EXPECT_LT(ParseSeconds("-1"), 0);
  EXPECT_LT(ParseSeconds("5 parsecs"), 0);
}

TEST(DriverNamesTest, WhatAllNodeNamesBeginWithIsLeftOutForPeople) {
  const std::vector<std::string> labels = {"net/block_1/conv+net/block_1/relu", "net/block_2/conv"};
  EXPECT_EQ(CommonPath(labels), "net/");
  EXPECT_EQ(WithoutPath(labels[0], "net/"), "block_1/conv+block_1/relu");
  EXPECT_EQ(CommonPath({"conv1", "conv2"}), "");
  EXPECT_EQ(CommonPath({}), "");
  EXPECT_EQ(WithoutPath("conv1+net/relu", "net/"), "conv1+relu");
  EXPECT_EQ(WithoutPath("net/", "net/"), "net/");
}

}  // namespace
}  // namespace whet::driver
