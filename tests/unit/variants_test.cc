// A model for several sets of input shapes, from the file to the runtime: one library, tasks and
// weights shared. One build per process, since lld is in it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/builder/model_build.h"
#include "compiler/driver/model_request.h"
#include "compiler/graph/passes.h"
#include "compiler/onnx/import.h"
#include "deploy/runtime/model.h"
#include "tests/support/test_model.h"

namespace whet {
namespace {

constexpr int64_t kIn = 32, kOut = 64;

struct OneSet {
  graph::Graph graph;
  fusion::Partition partition;
};

StatusOr<OneSet> Cut(const std::string& model, int64_t batch) {
  onnx::ImportOptions options;
  options.shapes["x"] = {batch, kIn};
  OneSet set;
  WHET_ASSIGN_OR_RETURN(set.graph, onnx::ImportBytes(model, options));
  WHET_RETURN_IF_ERROR(graph::RunPasses(set.graph).status());
  WHET_ASSIGN_OR_RETURN(set.partition, fusion::PartitionGraph(set.graph));
  return set;
}

TEST(ModelVariantsTest, OneLibraryForSeveralShapes) {
  testing_support::TestModel m(13);
  m.SymbolicInput("x", {"batch", std::to_string(kIn)}).Weights("w", {kIn, kOut});
  m.Node("MatMul", {"x", "w"}, {"y"});
  m.Output("y");
  auto small = Cut(m.Serialize(), 4), large = Cut(m.Serialize(), 16), again = Cut(m.Serialize(), 4);
  ASSERT_TRUE(small.ok() && large.ok() && again.ok()) << small.status() << large.status();
  fusion::ShareTasks(small->partition, large->partition);
  fusion::ShareTasks(small->partition, again->partition);
  ASSERT_EQ(small->partition.tasks.size(), 2u);
  EXPECT_EQ(small->partition.tasks[0].count, 2);
  EXPECT_EQ(large->partition.groups[0].task, 1);

  v1::ModelBuildRequest request;
  request.set_name("variants");
  request.set_target(Target::Host().ToString());
  std::string folder = std::filesystem::temp_directory_path() / "whet-variants-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/m.so";
  request.set_out_path(path);
  ASSERT_TRUE(driver::FillModelRequest(small->graph, small->partition, {"", ""}, request).ok());
  ASSERT_TRUE(driver::AddModelVariant(large->graph, large->partition, request).ok());
  // The weights are sent once.
  for (const v1::ModelTensor& t : request.variants(0).tensors()) EXPECT_TRUE(t.data().empty());
  const auto stats = builder::BuildModelOf(std::move(request));
  ASSERT_TRUE(stats.ok()) << stats.status();

  std::string error;
  const auto model = Model::Load(path, &error);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(model) << error;
  ASSERT_EQ(model->variants().size(), 1u);
  EXPECT_EQ(model->desc().constants, model->variants()[0]->desc().constants);
  std::vector<double> w;
  for (const graph::Value& v : small->graph.values) {
    if (v.constant) w = v.constant->Doubles();
  }
  ASSERT_EQ(w.size(), static_cast<size_t>(kIn * kOut));
  for (const int64_t batch : {4, 16}) {
    const std::vector<int64_t> shape = {batch, kIn};
    const auto set = Model::ForShapes(model, {{shape}}, &error);
    ASSERT_TRUE(set) << error;
    std::vector<float> x(static_cast<size_t>(batch * kIn)), y(static_cast<size_t>(batch * kOut));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    Instance instance(set, 1);
    ASSERT_EQ(instance.error(), "");
    instance.Run({x.data()}, {y.data()});
    for (int64_t r = 0; r < batch; ++r) {
      for (int64_t c = 0; c < kOut; ++c) {
        double want = 0;
        for (int64_t k = 0; k < kIn; ++k) want += x[r * kIn + k] * w[k * kOut + c];
        EXPECT_NEAR(y[r * kOut + c], want, 1e-4) << "batch " << batch << ", " << r << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace whet
