// Results that take the bytes of an operand which nothing reads later, from the graph to the
// runtime: less memory, and the same numbers as without and as the reference's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/builder/model_build.h"
#include "compiler/codegen/model_builder.h"
#include "compiler/driver/model_request.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/loop/parse.h"
#include "compiler/ops/catalog.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/model.h"

namespace whet {
namespace {

struct Case {
  graph::Graph original, optimised;
  fusion::Partition partition;
};

Case Cut(const std::string& body) {
  Case c;
  auto g = graph::ParseGraph("graph \"g\"\n" + body, ops::Catalog());
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return c;
  c.original = c.optimised = *std::move(g);
  const auto passes = graph::RunPasses(c.optimised);
  EXPECT_TRUE(passes.ok()) << passes.status();
  auto p = fusion::PartitionGraph(c.optimised);
  EXPECT_TRUE(p.ok()) << p.status();
  if (p.ok()) c.partition = *std::move(p);
  return c;
}

float Drawn(size_t tensor, int64_t i) {
  return static_cast<float>(CounterUniform(5, tensor, static_cast<uint64_t>(i))) - 0.5F;
}

using Outputs = std::vector<std::vector<float>>;

Outputs Run(const std::shared_ptr<const Model>& model, const graph::Graph& g) {
  std::vector<std::vector<float>> inputs, outputs;
  std::vector<std::vector<int64_t>> shapes;
  for (size_t k = 0; k < g.inputs.size(); ++k) {
    shapes.push_back(g.type(g.inputs[k]).shape);
    auto& x = inputs.emplace_back();
    for (int64_t i = 0; i < g.type(g.inputs[k]).num_elements(); ++i) x.push_back(Drawn(k, i));
  }
  for (const graph::GraphOutput& o : g.outputs)
    outputs.emplace_back(static_cast<size_t>(g.type(o.value).num_elements()));
  std::string error;
  const auto set = Model::ForShapes(model, shapes, &error);
  EXPECT_TRUE(set) << error;
  if (!set) return outputs;
  Instance instance(set, 1);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (auto& x : inputs) in.push_back(x.data());
  for (auto& y : outputs) out.push_back(y.data());
  instance.Run(in, out);
  return outputs;
}

void ExpectReference(const Outputs& got, const graph::Graph& g) {
  std::vector<graph::RefTensor> in;
  for (size_t k = 0; k < g.inputs.size(); ++k) {
    auto& x = in.emplace_back(
        graph::RefTensor{g.type(g.inputs[k]).dtype, g.type(g.inputs[k]).shape, {}, {}});
    for (int64_t i = 0; i < g.type(g.inputs[k]).num_elements(); ++i) x.value.push_back(Drawn(k, i));
  }
  const auto want = graph::EvaluateModel(g, std::move(in));
  ASSERT_TRUE(want.ok()) << want.status();
  for (size_t o = 0; o < g.outputs.size(); ++o) {
    const std::vector<double>& y = want->values[g.outputs[o].value].value;
    ASSERT_EQ(got[o].size(), y.size());
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(got[o][i], y[i], 1e-4) << "output " << o << ", element " << i;
  }
}

// Builds all sets of shapes into one library, with reuse and without, and runs both.
void ExpectReuse(std::vector<Case> sets) {
  for (size_t i = 1; i < sets.size(); ++i) fusion::ShareTasks(sets[0].partition, sets[i].partition);
  std::string folder = std::filesystem::temp_directory_path() / "whet-reuse-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  int64_t arena[2] = {0, 0};
  std::vector<Outputs> results[2];
  for (const bool reuse : {false, true}) {
    std::vector<Case> built = sets;
    for (Case& c : built) {
      for (fusion::Group& group : c.partition.groups) {
        if (!reuse) group.overwritable.clear();
      }
    }
    v1::ModelBuildRequest request;
    request.set_name("reuse");
    request.set_target(Target::Host().ToString());
    request.set_out_path(fmt::format("{}/m{}.so", folder, reuse ? 1 : 0));
    const std::vector<std::string> traces(built[0].partition.tasks.size());
    ASSERT_TRUE(
        driver::FillModelRequest(built[0].optimised, built[0].partition, traces, request).ok());
    for (size_t i = 1; i < built.size(); ++i)
      ASSERT_TRUE(driver::AddModelVariant(built[i].optimised, built[i].partition, request).ok());
    const std::string path = request.out_path();
    const auto stats = builder::BuildModelOf(std::move(request));
    ASSERT_TRUE(stats.ok()) << stats.status();
    arena[reuse ? 1 : 0] = stats->arena_bytes;
    std::string error;
    const auto model = Model::Load(path, &error);
    ASSERT_TRUE(model) << error;
    for (const Case& c : sets) results[reuse ? 1 : 0].push_back(Run(model, c.original));
  }
  std::filesystem::remove_all(folder);
  EXPECT_LT(arena[1], arena[0]);
  EXPECT_EQ(results[1], results[0]);
  for (size_t i = 0; i < sets.size(); ++i) ExpectReference(results[1][i], sets[i].original);
}

std::string Weights(const std::string& name, const std::string& shape, int64_t count) {
  std::string text = fmt::format("  const {}: f32[{}] = [", name, shape);
  for (int64_t i = 0; i < count; ++i)
    text += fmt::format("{}{:.2f}", i ? "," : "", static_cast<double>(i * 7 % 11 - 5) / 20);
  return text + "]\n";
}

TEST(ReuseTest, ChainOfResidualConvolutions) {
  std::string body = "  input x: f32[1,4,9,9]\n" + Weights("w", "12,4,1,1", 48) +
                     "  r0: f32[1,12,9,9] = Conv(x, w) {}\n";
  for (int i = 0; i < 3; ++i) {
    body +=
        Weights(fmt::format("u{}", i), "8,12,3,3", 864) +
        Weights(fmt::format("v{}", i), "12,8,1,1", 96) +
        fmt::format(
            "  a{0}: f32[1,8,9,9] = Conv(r{0}, u{0}) {{pads=[1,1,1,1]}}\n  b{0}: f32[1,8,9,9] = "
            "Relu(a{0})\n  c{0}: f32[1,12,9,9] = Conv(b{0}, v{0}) {{}}\n  r{1}: f32[1,12,9,9] = "
            "Add(c{0}, r{0})\n",
            i, i + 1);
  }
  ExpectReuse({Cut(body + "  y: f32[1,12,4,4] = MaxPool(r3) {kernel=[2,2], strides=[2,2]}\n"
                          "  output \"y\" = y\n")});
}

TEST(ReuseTest, AddOfAReshapedOperand) {
  ExpectReuse({Cut("  input x: f32[18,16]\n" + Weights("w", "16,40", 640) +
                   Weights("u", "40,8", 320) + Weights("v", "8,40", 320) +
                   "  r: f32[18,40] = MatMul(x, w)\n  v1: f32[3,6,40] = Reshape(r) "
                   "{shape=[3,6,40]}\n  s: f32[18,8] = MatMul(r, u)\n  t: f32[18,40] = "
                   "MatMul(s, v)\n  t1: f32[3,6,40] = Reshape(t) {shape=[3,6,40]}\n  a: "
                   "f32[3,6,40] = Sub(v1, t1)\n  y: f32[3,6,8] = MatMul(a, u)\n  output \"y\" = "
                   "y\n")});
}

TEST(ReuseTest, OneOperandTwice) {
  ExpectReuse(
      {Cut("  input x: f32[18,16]\n" + Weights("w", "16,40", 640) + Weights("u", "40,3", 120) +
           "  m: f32[18,40] = MatMul(x, w)\n"
           "  q: f32[18] = ReduceSum(m) {axes=[1], keepdims=0}\n"
           "  d: f32[18,40] = Mul(m, m)\n"
           "  y: f32[18,3] = MatMul(d, u)\n"
           "  output \"q\" = q\n  output \"y\" = y\n")});
}

TEST(ReuseTest, SoftmaxWithAResidual) {
  ExpectReuse({Cut("  input x: f32[18,16]\n" + Weights("w", "16,40", 640) +
                   Weights("u", "40,40", 1600) + Weights("v", "40,3", 120) +
                   "  r: f32[18,40] = MatMul(x, w)\n  m: f32[18,40] = MatMul(r, u)\n  q: "
                   "f32[18,40] = Softmax(m) {axis=1}\n  t: f32[18,40] = Add(q, r)\n  y: f32[18,3] "
                   "= MatMul(t, v)\n  output \"y\" = y\n")});
}

TEST(ReuseTest, TwoSetsOfShapes) {
  auto set = [](int rows) {
    return Cut(fmt::format("  input x: f32[{},16]\n", rows) + Weights("w", "16,40", 640) +
               Weights("u", "40,40", 1600) + Weights("v", "40,3", 120) +
               fmt::format("  r: f32[{0},40] = MatMul(x, w)\n  m: f32[{0},40] = MatMul(r, u)\n  n: "
                           "f32[{0},40] = MatMul(m, u)\n  t: f32[{0},40] = Add(n, r)\n  y: "
                           "f32[{0},3] = MatMul(t, v)\n  output \"y\" = y\n",
                           rows));
  };
  std::vector<Case> sets;
  sets.push_back(set(7));
  sets.push_back(set(21));
  ExpectReuse(std::move(sets));
}

// A schedule whose last vector reaches back over elements that it has written already: in its
// operand's bytes it would take its own results for the operand.
TEST(ReuseTest, KernelsThatWriteElementsAgainKeepToTheirOwnBytes) {
  auto build = [](const char* element, const std::string& path) {
    auto program = [](const char* index, const char* value) {
      return *loop::Parse(fmt::format(
          "program p\ninput x: f32 global[10]\noutput y: f32 global[10]\nfor i in [0, 4)\n  for j "
          "in [0, 4)\n    block b(v:10 = {0}) if {0} < 10\n      y[v] = {1}\n",
          index, value));
    };
    const schedule::Trace trace{"", 1, {}, {{"annotate", 1, {"i", "partition", "0"}}}};
    codegen::ModelSpec spec;
    spec.name = "again";
    spec.target = Target::Host();
    const std::string none(32, '0');
    spec.tasks.push_back({none, program("i * 4 + j", "x[v]"), trace});
    spec.tasks.push_back({none, program(element, "x[v] + 1f"), trace});
    using enum codegen::TensorKind;
    for (const auto& [kind, name] :
         {std::pair{kInput, "x"}, {kOutput, "y"}, {kInternal, ""}, {kInternal, ""}})
      spec.tensors.push_back({kind, DType::kF32, {10}, 40, name, "", -1});
    spec.steps = {{0, {0, 2}, "", {}}, {1, {2, 3}, "", {0}}, {0, {3, 1}, "", {}}};
    return codegen::BuildModel(std::move(spec), path);
  };
  std::string folder = std::filesystem::temp_directory_path() / "whet-reuse-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const auto& [element, arena] : {std::pair{"i * 4 + j", 64}, {"min(i * 4, 6) + j", 128}}) {
    const std::string path = fmt::format("{}/{}.so", folder, arena);
    const auto stats = build(element, path);
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_EQ(stats->arena_bytes, arena) << element;
    std::string error;
    const auto model = Model::Load(path, &error);
    ASSERT_TRUE(model) << error;
    std::vector<float> x(10), y(10), want(10);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = Drawn(0, static_cast<int64_t>(i));
      want[i] = x[i] + 1;
    }
    Instance(model, 1).Run({x.data()}, {y.data()});
    EXPECT_EQ(y, want) << element;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace whet
