// An artifact with code for several processors, from the model file to the results. whet-builder is
// started as compile starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/compile_model.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/space.h"
#include "compiler/support/version.h"
#include "compiler/target/target.h"
#include "compiler/task/workload_program.h"
#include "db/store/tuning_log.h"
#include "tests/support/test_model.h"
#include "tests/unit/db_testing.h"

namespace whet::driver {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Features(const std::string& target) {
  std::string all;
  const auto parsed = Target::Parse(target);
  EXPECT_TRUE(parsed.ok()) << target;
  for (const std::string& f : parsed.ok() ? parsed->features : std::vector<std::string>())
    all += (all.empty() ? "" : ",") + f;
  return all;
}

bool RunsHere(const std::string& target) {
  std::string missing;
  return CpuHasFeatures(Features(target), &missing);
}

std::vector<std::string> Names(const Model& m) {
  std::vector<std::string> names;
  for (const Model::Build& b : m.builds()) names.push_back(b.name);
  return names;
}

class BuildsTest : public testing::Test {
 protected:
  BuildsTest() {
    options_.model = folder_ / "m.onnx";
    testing_support::TwoConvolutions().WriteTo(options_.model);
    options_.output = folder_ / "m.so";
  }

  CompileReport Compile(const std::vector<std::string>& targets) {
    options_.target = targets[0];
    options_.more_targets.assign(targets.begin() + 1, targets.end());
    const auto report = CompileModel(options_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : CompileReport();
  }

  void ExpectRight(const std::string& build) {
    VerifyOptions verify;
    verify.model = options_.model;
    verify.artifact = options_.output;
    verify.build = build;
    verify.layers = true;
    const auto verified = VerifyArtifact(verify);
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->passed) << build << ": " << verified->first_divergent_layer;
    EXPECT_THAT(verified->build, HasSubstr(build));
  }

  db::TempFolder folder_;
  CompileOptions options_;
};

TEST_F(BuildsTest, EachProcessorGetsItsBest) {
  const CompileReport report = Compile({"x86-64-v3", "x86-64-v4", "x86-64"});
  EXPECT_EQ(report.name, "x86-64-v4");
  ASSERT_EQ(report.further.size(), 2u);
  EXPECT_EQ(report.further[1].name, "x86-64");
  struct {
    const char *processor, *build;
  } cases[] = {{"x86-64-v4+avx512vnni", "x86-64-v4"},
               {"x86-64-v3+avx512f", "x86-64-v3"},
               {"x86-64-v3", "x86-64-v3"},
               {"x86-64-v2+avx", "x86-64"},
               {"x86-64", "x86-64"}};
  for (const auto& c : cases) {
    const auto model = LoadArtifact(options_.output, {.processor = Features(c.processor) + ",x"});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->build().name, c.build) << c.processor;
    EXPECT_THAT(Names(**model), ElementsAre("x86-64-v4", "x86-64-v3", "x86-64"));
  }
  for (const char* build : {"x86-64-v4", "x86-64-v3", "x86-64"}) {
    if (RunsHere(build)) ExpectRight(build);
  }
  ExpectRight("");
  const std::string bytes = db::ReadFile(options_.output);
  EXPECT_EQ(Compile({"x86-64", "x86-64-v4", "x86-64-v3"}).name, "x86-64-v4");
  EXPECT_EQ(db::ReadFile(options_.output), bytes) << "neither time nor order shows in an artifact";
}

TEST_F(BuildsTest, WhatIsReadAlikeIsStoredOnce) {
  // The same vectors, so that weights are packed alike.
  Compile({"x86-64-v3"});
  const auto constants = [&] { return (*LoadArtifact(options_.output))->desc().constants_bytes; };
  const uint64_t one = constants();
  Compile({"x86-64-v3", "x86-64-v3+lzcnt"});
  EXPECT_EQ(constants(), one);
}

TEST_F(BuildsTest, SetsOfShapesAreThereForEachProcessor) {
  testing_support::TestModel m(13);
  m.SymbolicInput("x", {"batch", "32"}).Weights("w", {32, 48});
  m.Node("MatMul", {"x", "w"}, {"y"});
  m.Output("y");
  std::ofstream(options_.model, std::ios::binary) << m.Serialize();
  options_.shapes["x"] = {4, 32};
  options_.more_shapes = {{{"x", {16, 32}}}};
  Compile({"x86-64-v4", "x86-64-v3"});
  for (const char* build : {"x86-64-v4", "x86-64-v3"}) {
    if (!RunsHere(build)) continue;
    const auto model = LoadArtifact(options_.output, {.build = build});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ((*model)->variants().size(), 1u);
    EXPECT_EQ((*model)->variants()[0]->desc().constants, (*model)->desc().constants);
    EXPECT_EQ((*model)->variants()[0]->inputs()[0].shape[0], 16);
    ExpectRight(build);
  }
}

TEST_F(BuildsTest, EachHasTheRecordsOfItsInstructionSet) {
  options_.db = folder_ / "tuning.db";
  const auto info = InspectModel({.model = options_.model});
  ASSERT_TRUE(info.ok()) << info.status();
  const Target v3 = *Target::Parse("x86-64-v3");
  {
    auto log = db::TuningLog::Open(options_.db);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->AppendWait(db::SampleJob()).ok());
    ASSERT_TRUE((*log)->AppendWait(db::SampleDevice()).ok());
    int64_t number = 0;
    for (const TaskInfo& t : info->tasks) {
      ASSERT_TRUE((*log)->AppendWait(db::WorkloadRow{t.workload, t.op_summary}).ok());
      const auto opened = task::OpenWorkload(t.workload);
      schedule::Space space(opened->program, v3);
      db::TrialRow row = db::SampleTrial((*log)->generation(), ++number);
      row.key = {FingerprintOf(t.workload), v3.FeatureSet(), 1, db::CacheMode::kTurns};
      row.initial_program = schedule::DigestOf(opened->program);
      row.codegen_version = kCodegenVersion;
      row.trace = space.Apply(space.Default())->trace().ToString();
      row.is_default = false;
      row.baseline_ratio = 0.5;
      const auto verdict = (*log)->AppendWait(row);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
    }
  }
  const CompileReport report = Compile({"x86-64-v3", "x86-64-v4"});
  EXPECT_EQ(report.tuned, 0);
  ASSERT_EQ(report.further.size(), 1u);
  EXPECT_EQ(report.further[0].tuned, static_cast<int64_t>(report.further[0].tasks.size()));
  if (RunsHere("x86-64-v3")) ExpectRight("x86-64-v3");
}

TEST_F(BuildsTest, TargetsThatDoNotGoTogetherAreRefused) {
  options_.target = "x86-64-v3";
  options_.more_targets = {"x86-64-v3 -l2=1048576"};
  EXPECT_THAT(CompileModel(options_).status().message(),
              HasSubstr("names the instruction set x86-64-v3 twice"));
  options_.more_targets = {"aarch64"};
  EXPECT_THAT(CompileModel(options_).status().message(), HasSubstr("for one architecture"));
  options_.more_targets = {"x86-64-v5"};
  EXPECT_THAT(CompileModel(options_).status().message(),
              HasSubstr("neither 'host' nor one of x86-64, x86-64-v2, x86-64-v3, x86-64-v4"));
}

TEST(TargetTest, ShortNamesComeBack) {
  for (const char* name : {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v3+avxvnni",
                           "x86-64-v2+avx", "aarch64", "aarch64+neon"}) {
    const auto t = Target::Parse(name);
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(t->Name(), name);
    EXPECT_EQ(Target::Parse(t->ToString())->ToString(), t->ToString());
  }
  EXPECT_EQ(Target::Parse(Target::Host().Name())->FeatureSet(), Target::Host().FeatureSet());
  EXPECT_EQ(Target::Parse("x86-64-v3 -l2=1048576")->l2_bytes, 1 << 20);
  EXPECT_EQ(Target::Parse("x86-64-v3")->VectorBits(), 256);
  EXPECT_EQ(Target::Parse("x86-64-v4")->VectorBits(), 512);
  for (const char* bad : {"x86-64-v4+", "x86-64-v4++fma", "x86-64-v5", "", "x86-64 fma"})
    EXPECT_FALSE(Target::Parse(bad).ok()) << bad;
}

}  // namespace
}  // namespace whet::driver
