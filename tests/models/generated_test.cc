// Generated networks through the whole compiler: the artifact against the reference evaluation of
// the model, within the bound that the operators' own error analysis gives. Small ones always, the
// sizes that people deploy with --gtest_filter=*Large* (label slow).
#include <gtest/gtest.h>

#include <filesystem>

#include "compiler/driver/compile_model.h"
#include "tests/models/generated.h"
#include "tests/models/model_figures.h"

namespace whet::testing_support {
namespace {

struct Case {
  std::string name;
  int64_t batch;
};

class InFolder {
 protected:
  void MakeFolder() {
    std::string folder = std::filesystem::temp_directory_path() / "whet-models-XXXXXX";
    ASSERT_TRUE(mkdtemp(folder.data()));
    folder_ = folder;
  }
  ~InFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  // Of `name`.onnx, by default schedules.
  driver::CompileOptions Options(const std::string& name) const {
    driver::CompileOptions options;
    options.model = folder_ + "/" + name + ".onnx";
    options.output = folder_ + "/model.so";
    options.use_records = false;
    return options;
  }
  std::string folder_;
};

class GeneratedModel : public InFolder, public testing::Test {
 protected:
  void SetUp() override { MakeFolder(); }
};

class Generated : public InFolder, public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { MakeFolder(); }
  void CompileAndVerify() {
    const auto model = Generate(GetParam().name, GetParam().batch);
    ASSERT_TRUE(model.ok()) << model.status();
    model->WriteTo(folder_ + "/model.onnx");
    driver::CompileOptions compile = Options("model");
    compile.threads = 2;
    const auto report = driver::CompileModel(compile);
    ASSERT_TRUE(report.ok()) << report.status();
    driver::VerifyOptions verify;
    verify.model = compile.model;
    verify.artifact = compile.output;
    verify.threads = 2;
    ExpectReference(verify);
  }
};

std::vector<Case> Cases(bool large) {
  std::vector<Case> cases;
  for (const std::string& name : GeneratedNames()) {
    if (name.starts_with("tiny_") == large) continue;
    cases.push_back({name, 1});
    cases.push_back({name, 4});
  }
  return cases;
}
std::string NameOf(const testing::TestParamInfo<Case>& info) {
  return info.param.name + "_batch" + std::to_string(info.param.batch);
}

TEST_P(Generated, ComputesWhatTheModelSays) { CompileAndVerify(); }
INSTANTIATE_TEST_SUITE_P(Tiny, Generated, testing::ValuesIn(Cases(false)), NameOf);
INSTANTIATE_TEST_SUITE_P(Large, Generated, testing::ValuesIn(Cases(true)), NameOf);

// Rounding decides what 1 / ((x + 1e8) - 1e8) is, so that anything will do there, and nowhere else.
// `other`: the artifact is of another model, which gives NaN for both outputs.
TEST_F(GeneratedModel, WhereRoundingDecidesAnythingIsRightAndNowhereElse) {
  const std::vector<double> large = {1e8}, minus = {-1};
  for (bool other : {false, true}) {
    TestModel right(13), wrong(13);
    right.Input("x", {64}).Constant("c", DType::kF32, {1}, large);
    right.Node("Add", {"x", "c"}, {"sum"});
    right.Node("Sub", {"sum", "c"}, {"d"});
    right.Node("Reciprocal", {"d"}, {"undecided"});
    right.Node("Exp", {"x"}, {"decided"});
    right.Output("undecided").Output("decided");
    wrong.Input("x", {64}).Constant("c", DType::kF32, {1}, minus);
    wrong.Node("Abs", {"x"}, {"a"});
    wrong.Node("Sub", {"c", "a"}, {"d"});
    wrong.Node("Sqrt", {"d"}, {"undecided"});
    wrong.Node("Neg", {"undecided"}, {"decided"});
    wrong.Output("undecided").Output("decided");
    right.WriteTo(folder_ + "/right.onnx");
    wrong.WriteTo(folder_ + "/other.onnx");
    const driver::CompileOptions compile = Options(other ? "other" : "right");
    const auto report = driver::CompileModel(compile);
    ASSERT_TRUE(report.ok()) << report.status();
    driver::VerifyOptions verify;
    verify.model = folder_ + "/right.onnx";
    verify.artifact = compile.output;
    const auto result = driver::VerifyArtifact(verify);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->passed, !other);
    EXPECT_EQ(result->outputs[0].outside, 0);
    EXPECT_EQ(result->outputs[1].outside, other ? 64 : 0);
  }
}

// 52 convolutions, a pool and a product; 6.5 MB hold the largest block's input and output.
TEST_F(GeneratedModel, MobileNetV2TakesFewKernelsNoCopiesAndLittleMemory) {
  const auto model = Generate("mobilenetv2");
  ASSERT_TRUE(model.ok()) << model.status();
  model->WriteTo(folder_ + "/model.onnx");
  const driver::CompileOptions compile = Options("model");
  const auto report = driver::CompileModel(compile);
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectFewKernels(compile, *report, 54);
  EXPECT_GT(report->arena_bytes, 0);
  EXPECT_LE(report->arena_bytes, 6'500'000);
}

TEST(Generator, GivesTheSameBytesAndRefusesWhatItDoesNotKnow) {
  EXPECT_EQ(Generate("tiny_resnet18")->Serialize(), Generate("tiny_resnet18")->Serialize());
  EXPECT_NE(Generate("tiny_resnet18", 2)->Serialize(), Generate("tiny_resnet18")->Serialize());
  EXPECT_FALSE(Generate("resnet19").ok());
  EXPECT_FALSE(Generate("tiny_resnet18", 0).ok());
}

}  // namespace
}  // namespace whet::testing_support
