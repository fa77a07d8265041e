// Whole models in half precisions, as exporters write them: from the file to the runtime, within
// the bounds of the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "compiler/builder/model_build.h"
#include "compiler/driver/model_request.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/model.h"
#include "tests/support/test_model.h"

namespace whet {
namespace {

using testing_support::TestModel;

// The output's elements; `x` in, of the input's type.
std::vector<double> Compiled(const graph::Graph& imported, DType t, const std::vector<double>& x) {
  graph::Graph g = imported;
  EXPECT_TRUE(graph::RunPasses(g).ok());
  const auto partition = fusion::PartitionGraph(g);
  EXPECT_TRUE(partition.ok()) << partition.status();
  if (!partition.ok()) return {};
  std::string folder = std::filesystem::temp_directory_path() / "whet-half-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  v1::ModelBuildRequest request;
  request.set_name("half");
  request.set_target(Target::Host().ToString());
  const std::string path = folder + "/m.so";
  request.set_out_path(path);
  const std::vector<std::string> default_schedules(partition->tasks.size());
  EXPECT_TRUE(driver::FillModelRequest(g, *partition, default_schedules, request).ok());
  const auto stats = builder::BuildModelOf(std::move(request));
  EXPECT_TRUE(stats.ok()) << stats.status();
  std::string error;
  const auto model = Model::Load(path, &error);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(model) << error;
  if (!model) return {};
  const std::string in = graph::WriteDoubles(t, x);
  std::string out(static_cast<size_t>(model->outputs()[0].bytes), '\0');
  Instance instance(model, 1);
  EXPECT_EQ(instance.error(), "");
  instance.Run({in.data()}, {out.data()});
  return graph::ReadDoubles(t, out);
}

// Input "x" and one output, both of type t. `most` bounds the tolerance, so that the test says
// something where errors add up.
void ExpectReference(const TestModel& m, DType t, double most) {
  const auto g = onnx::ImportBytes(m.Serialize());
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->type(g->outputs[0].value).dtype, t);
  std::vector<double> x(static_cast<size_t>(g->type(g->inputs[0]).num_elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = graph::RoundTo(t, 2 * CounterUniform(7, 0, i) - 1);
  graph::EvaluateOptions options;
  options.want_err = true;
  const auto e = graph::EvaluateModel(*g, {{t, g->type(g->inputs[0]).shape, x, {}}}, options);
  ASSERT_TRUE(e.ok()) << e.status();
  const graph::RefTensor& want = e->values[g->outputs[0].value];
  const std::vector<double> got = Compiled(*g, t, x);
  ASSERT_EQ(got.size(), want.value.size());
  for (int64_t i = 0; i < want.size(); ++i) {
    const double off = std::fabs(got[static_cast<size_t>(i)] - want.value[static_cast<size_t>(i)]);
    EXPECT_LE(off, graph::ToleranceAt(want, i)) << "element " << i;
    EXPECT_LE(off, most) << "element " << i;
  }
}

class HalfModelTest : public testing::TestWithParam<DType> {};

TEST_P(HalfModelTest, ConvolutionalNetworkMeetsItsReference) {
  const DType t = GetParam();
  const std::vector<double> variance = {0.5, 1, 1.5, 2, 0.75, 1.25, 1, 1};
  TestModel m(13);
  m.Input("x", {1, 3, 8, 8}, t).Weights("w", {8, 3, 3, 3}, t).Weights("b", {8}, t);
  m.Weights("scale", {8}, t).Weights("shift", {8}, t).Weights("mean", {8}, t);
  m.Constant("variance", t, {8}, variance).Weights("up", {8, 4, 2, 2}, t);
  m.Weights("fc", {64, 5}, t).Weights("fc_bias", {5}, t);
  m.Node("Conv", {"x", "w", "b"}, {"c"}).Ints("pads", {1, 1, 1, 1});
  m.Node("BatchNormalization", {"c", "scale", "shift", "mean", "variance"}, {"n"});
  m.Node("Relu", {"n"}, {"r"});
  m.Node("AveragePool", {"r"}, {"a"}).Ints("kernel_shape", {2, 2}).Ints("strides", {2, 2});
  m.Node("ConvTranspose", {"a", "up"}, {"u"}).Ints("strides", {2, 2});
  m.Node("MaxPool", {"u"}, {"p"}).Ints("kernel_shape", {2, 2}).Ints("strides", {2, 2});
  m.Node("GlobalAveragePool", {"p"}, {"mean_of"});
  m.Node("Mul", {"p", "mean_of"}, {"s"});
  m.Node("Flatten", {"s"}, {"f"});
  m.Node("Gemm", {"f", "fc", "fc_bias"}, {"l"});
  m.Node("Softmax", {"l"}, {"y"});
  m.Output("y");
  ExpectReference(m, t, t == DType::kF16 ? 0.002 : 0.016);
}

TEST_P(HalfModelTest, AttentionBlockMeetsItsReference) {
  const DType t = GetParam();
  const std::vector<double> scale = {0.25}, root = {std::sqrt(2)}, one = {1}, half = {0.5};
  TestModel m(17);
  m.Input("x", {1, 6, 16}, t);
  for (const char* w : {"wq", "wk", "wv", "wo"}) m.Weights(w, {16, 16}, t);
  for (const char* w : {"g", "h"}) m.Weights(w, {16}, t);
  m.Constant("scale", t, {}, scale).Constant("root", t, {}, root);
  m.Constant("one", t, {}, one).Constant("half", t, {}, half);
  m.Node("LayerNormalization", {"x", "g", "h"}, {"n"});
  m.Node("MatMul", {"n", "wq"}, {"q"});
  m.Node("MatMul", {"n", "wk"}, {"k"});
  m.Node("MatMul", {"n", "wv"}, {"v"});
  m.Node("Transpose", {"k"}, {"kt"}).Ints("perm", {0, 2, 1});
  m.Node("MatMul", {"q", "kt"}, {"scores"});
  m.Node("Mul", {"scores", "scale"}, {"scaled"});
  m.Node("Softmax", {"scaled"}, {"weights"}).Int("axis", -1);
  m.Node("MatMul", {"weights", "v"}, {"seen"});
  m.Node("MatMul", {"seen", "wo"}, {"o"});
  m.Node("Add", {"x", "o"}, {"sum"});
  m.Node("Div", {"sum", "root"}, {"d"});
  m.Node("Erf", {"d"}, {"e"});
  m.Node("Add", {"e", "one"}, {"e1"});
  m.Node("Mul", {"sum", "e1"}, {"se"});
  m.Node("Mul", {"se", "half"}, {"gelu"});
  m.Node("ReduceMean", {"gelu"}, {"y"}).Ints("axes", {1});
  m.Output("y");
  ExpectReference(m, t, t == DType::kF16 ? 0.002 : 0.016);
}

INSTANTIATE_TEST_SUITE_P(All, HalfModelTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(ToString(info.param)); });

}  // namespace
}  // namespace whet
