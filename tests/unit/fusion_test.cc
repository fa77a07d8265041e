// Fusion: which operators share a kernel, canonical workload texts, and the data that candidates
// are checked with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/fusion/partition.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/ops/catalog.h"
#include "compiler/support/rng.h"
#include "tests/support/test_model.h"

namespace whet::fusion {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::ValueId;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

Graph Optimised(const testing_support::TestModel& m) {
  auto g = onnx::ImportBytes(m.Serialize());
  EXPECT_TRUE(g.ok()) << g.status();
  auto passes = graph::RunPasses(*g);
  EXPECT_TRUE(passes.ok()) << passes.status();
  return *std::move(g);
}

Graph Parse(std::string_view body) {
  auto g = graph::ParseGraph("graph \"g\"\n" + std::string(body), ops::Catalog());
  EXPECT_TRUE(g.ok()) << g.status();
  return g.ok() ? *std::move(g) : Graph();
}

Partition Cut(const Graph& g) {
  auto p = PartitionGraph(g);
  EXPECT_TRUE(p.ok()) << p.status();
  return p.ok() ? *std::move(p) : Partition();
}

// "Conv+Add+Relu" per group, in execution order.
std::vector<std::string> Groups(const Graph& g) {
  std::vector<std::string> names;
  const Partition p = Cut(g);
  for (const Group& group : p.groups) {
    std::string name;
    for (const WorkloadOp& o : p.tasks[group.task].workload.ops)
      name += (name.empty() ? "" : "+") + o.op->name;
    names.push_back(name);
  }
  return names;
}

std::vector<RefTensor> ModelInputs(const Graph& g) {
  std::vector<RefTensor> inputs;
  for (size_t k = 0; k < g.inputs.size(); ++k) {
    const graph::TensorType& t = g.type(g.inputs[k]);
    RefTensor r{t.dtype, t.shape, {}, {}};
    for (int64_t i = 0; i < t.num_elements(); ++i) r.value.push_back(CounterUniform(3, k, i));
    inputs.push_back(std::move(r));
  }
  return inputs;
}

// Runs the groups one after the other through their workloads' references, with physical buffers by
// storage root as the compiled model has them, and compares the graph's outputs with the evaluation
// of the graph as imported.
void ExpectGroupsComputeTheModel(const testing_support::TestModel& m) {
  auto imported = onnx::ImportBytes(m.Serialize());
  ASSERT_TRUE(imported.ok());
  auto expected = graph::EvaluateModel(*imported, ModelInputs(*imported));
  ASSERT_TRUE(expected.ok()) << expected.status();

  const Graph g = Optimised(m);
  const Partition p = Cut(g);
  std::map<ValueId, std::vector<double>> buffers;  // physical
  const std::vector<RefTensor> inputs = ModelInputs(g);
  for (size_t i = 0; i < inputs.size(); ++i) buffers[g.inputs[i]] = inputs[i].value;
  for (const Group& group : p.groups) {
    const Workload& w = p.tasks[group.task].workload;
    std::vector<std::vector<double>> in;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      const ValueId v = group.inputs[i];
      EXPECT_EQ(p.storage[v], v);
      EXPECT_EQ(w.inputs[i].constant, g.constant(v) != nullptr);
      if (g.constant(v)) {
        in.push_back(g.constant(v)->Doubles());
      } else {
        ASSERT_TRUE(buffers.count(v)) << "read before it is written";
        in.push_back(PhysicalToLogical(w.inputs[i].type, buffers[v]));
      }
    }
    auto out = EvaluateReference(w, in);
    ASSERT_TRUE(out.ok()) << out.status();
    for (size_t o = 0; o < group.outputs.size(); ++o)
      buffers[group.outputs[o]] = LogicalToPhysical(w.outputs[o].type, (*out)[o].expected);
  }
  for (size_t o = 0; o < g.outputs.size(); ++o) {
    const std::vector<double>& want = expected->values[imported->outputs[o].value].value;
    const std::vector<double>& got = buffers[p.storage[g.outputs[o].value]];
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-5) << g.outputs[o].name << " " << i;
  }
}

TEST(PartitionTest, GroupsComputeTheModel) {
  ExpectGroupsComputeTheModel(testing_support::BlazeFaceLike());
  ExpectGroupsComputeTheModel(testing_support::TinyClassifier());
}

TEST(PartitionTest, BlazeFaceBecomesItsConvolutions) {
  const Graph g = Optimised(testing_support::BlazeFaceLike());
  const std::vector<std::string> groups = Groups(g);
  std::map<std::string, int> count;
  for (const std::string& name : groups) ++count[name];
  // Depthwise convolutions and heads alone; each residual in the epilogue of its pointwise
  // convolution.
  EXPECT_EQ(count, (std::map<std::string, int>{{"Conv+Relu", 1},
                                               {"Conv", 5 + 4},
                                               {"Conv+Add+Relu", 2},
                                               {"Conv+Pad+Add+Relu", 3},
                                               {"MaxPool", 2},
                                               {"Concat", 2}}));
  const Partition p = Cut(g);
  int total = 0;
  for (const Task& t : p.tasks) total += t.count;
  EXPECT_EQ(total, static_cast<int>(p.groups.size()));
  EXPECT_LT(p.tasks.size(), p.groups.size());
  EXPECT_THAT(p.groups[0].label, HasSubstr("Conv_"));
}

TEST(PartitionTest, TwoReadersOfOneResultJoinWhereTheyMeet) {
  // Hard swish as exporters write it: the convolution's result is read twice, yet only inside of
  // the group.
  EXPECT_THAT(Groups(Parse("  input x: f32[1,2,4,4]\n  const w: f32[2,2,1,1] = [1.0,2.0,3.0,4.0]\n "
                           " const t: f32[] = [3.0]\n"
                           "  c: f32[1,2,4,4] = Conv(x, w) {}\n  a: f32[1,2,4,4] = Add(c, t)\n  l: "
                           "f32[1,2,4,4] = Clip(a) {max=6.0, min=0.0}\n"
                           "  y: f32[1,2,4,4] = Mul(c, l)\n  output \"y\" = y\n")),
              ElementsAre("Conv+Add+Clip+Mul"));
}

TEST(PartitionTest, AResultThatOthersReadStaysAtTheEdge) {
  const char* body =
      "  input x: f32[1,2,4,4]\n  const w: f32[2,2,1,1] = [1.0,2.0,3.0,4.0]\n  c: f32[1,2,4,4] = "
      "Conv(x, w) {}\n"
      "  r: f32[1,2,4,4] = Relu(c)\n  d: f32[1,2,4,4] = Conv(c, w) {}\n  s: f32[1,2,4,4] = Add(r, "
      "d)\n  output \"s\" = s\n";
  EXPECT_THAT(Groups(Parse(body)), ElementsAre("Conv", "Conv+Relu+Add"));
  EXPECT_THAT(
      Groups(Parse("  input x: f32[1,2,4,4]\n  const w: f32[2,2,1,1] = [1.0,2.0,3.0,4.0]\n  c: "
                   "f32[1,2,4,4] = Conv(x, w) {}\n"
                   "  r: f32[1,2,4,4] = Relu(c)\n  output \"c\" = c\n  output \"r\" = r\n")),
      ElementsAre("Conv", "Relu"));
}

TEST(PartitionTest, InjectiveOperatorsFuseAndContractionsKeepTheirInputs) {
  EXPECT_THAT(
      Groups(Parse(
          "  input x: f32[4,6]\n  a: f32[6,4] = Transpose(x) {perm=[1,0]}\n  b: f32[6,4] = Exp(a)\n"
          "  c: f32[6,2] = Slice(b) {sizes=[6,2], starts=[0,1], steps=[1,1]}\n  y: f32[6] = "
          "ReduceSum(c) {axes=[1], keepdims=0}\n  output \"y\" = y\n")),
      ElementsAre("Transpose+Exp+Slice+ReduceSum"));
  EXPECT_THAT(Groups(Parse("  input x: f32[4,6]\n  input w: f32[6,3]\n  a: f32[4,6] = Exp(x)\n  y: "
                           "f32[4,3] = MatMul(a, w)\n  output \"y\" = y\n")),
              ElementsAre("Exp", "MatMul"));
}

TEST(PartitionTest, MemoryHoldsTheNarrowFormOfAQuantizedResult) {
  // Both branches of a residual end in a dequantization: the one that does not take the sum leaves
  // its own to the kernel that does.
  EXPECT_THAT(Groups(Parse("  input x: u8[1,2,4,4]\n  const w: i8[2,2,1,1] = [1,2,3,4]\n"
                           "  const k: i8[2,2,1,1] = [5,6,7,8]\n  const s: f32[] = [0.5]\n"
                           "  const z: u8[] = [0]\n"
                           "  a: i32[1,2,4,4] = ConvInteger(x, w)\n"
                           "  b: u8[1,2,4,4] = Requantize(a, s, z) {hi=255, lo=0}\n"
                           "  c: f32[1,2,4,4] = DequantizeLinear(b, s, z)\n"
                           "  d: i32[1,2,4,4] = ConvInteger(x, k)\n"
                           "  e: u8[1,2,4,4] = Requantize(d, s, z) {hi=255, lo=0}\n"
                           "  f: f32[1,2,4,4] = DequantizeLinear(e, s, z)\n"
                           "  y: f32[1,2,4,4] = Add(c, f)\n  output \"y\" = y\n")),
              ElementsAre("ConvInteger+Requantize",
                          "ConvInteger+Requantize+DequantizeLinear+DequantizeLinear+Add"));
}

TEST(PartitionTest, AGateGoesIntoThePointwiseConvolutionThatReadsIt) {
  auto groups = [](const char* reader) {
    return Groups(Parse(fmt::format(
        "  input x: f32[1,2,4,4]\n  input g: f32[1,2,1,1]\n  const w: f32[2,2,1,1] = "
        "[1.0,2.0,3.0,4.0]\n  const k: f32[2,1,2,2] = [1.0,2.0,3.0,4.0,1.0,2.0,3.0,4.0]\n  m: "
        "f32[1,2,4,4] = Mul(x, g)\n{}  output \"y\" = y\n",
        reader)));
  };
  EXPECT_THAT(groups("  y: f32[1,2,4,4] = Conv(m, w) {}\n"), ElementsAre("Mul+Conv"));
  // Where elements are read for many positions, or by two readers, the product is a kernel.
  EXPECT_THAT(groups("  y: f32[1,2,4,4] = Conv(m, k) {group=2, pads=[0,0,1,1]}\n"),
              ElementsAre("Mul", "Conv"));
  EXPECT_THAT(groups("  c: f32[1,2,4,4] = Conv(m, w) {}\n  y: f32[1,2,4,4] = Add(c, m)\n"),
              ElementsAre("Mul", "Conv+Add"));
}

// Images of two channels and `size` lines, and what a depthwise convolution makes of them.
Graph DepthwiseChain(int size, const char* rest) {
  return Parse(fmt::format(
      "  input x: f32[1,2,{0},{0}]\n  const w: f32[2,2,1,1] = [1.0,2.0,3.0,4.0]\n  const k: "
      "f32[2,1,1,2] = [1.0,2.0,3.0,4.0]\n  i: f32[1,2,{0},{0}]{2} = Identity(x)\n  d: "
      "f32[1,2,{0},{0}]{2} = Conv(i, k) {{group=2, pads=[0,0,0,1]}}\n  e: f32[1,2,{0},{0}]{2} = "
      "Relu(d)\n  c: f32[1,2,{0},{0}]{2} = Conv(e, w) {{}}\n{1}  output \"y\" = y\n",
      size, rest, "<(a, b, c, d) -> (a, c, d, b)>"));
}

TEST(PartitionTest, ADepthwiseConvolutionOfALargeImageJoinsThePointwiseOneThatReadsIt) {
  constexpr char kCopy[] = "  y: f32[1,2,400,400] = Identity(c)\n";
  EXPECT_THAT(Groups(DepthwiseChain(400, kCopy)),
              ElementsAre("Identity", "Conv+Relu+Conv", "Identity"));
  // A small one stays near anyway, and what others read is written.
  EXPECT_THAT(Groups(DepthwiseChain(300, "  y: f32[1,2,300,300] = Identity(c)\n")),
              ElementsAre("Identity", "Conv+Relu", "Conv", "Identity"));
  EXPECT_THAT(Groups(DepthwiseChain(400,
                                    "  a: f32[1,2,400,400]<(a, b, c, d) -> (a, c, d, b)> "
                                    "= Add(c, e)\n  y: f32[1,2,400,400] = "
                                    "Identity(a)\n")),
              ElementsAre("Identity", "Conv+Relu", "Conv+Add", "Identity"));
}

TEST(PartitionTest, NothingIsComputedInFrontOfAGate) {
  auto groups = [](const char* image) {
    return Groups(Parse(fmt::format(
        "  input x: f32[1,4,2,2]\n  input g: f32[1,2,1,1]\n  const w: f32[2,2,1,1] = "
        "[1.0,2.0,3.0,4.0]\n{}  m: f32[1,2,4,4] = Mul(p, g)\n  y: f32[1,2,4,4] = Conv(m, w) {{}}\n"
        "  output \"y\" = y\n",
        image)));
  };
  // What moves data is read where it lies; what computes would be computed for each block of output
  // channels, also behind what moves data.
  EXPECT_THAT(groups("  s: f32[1,2,2,2] = Slice(x) {starts=[0,1,0,0], sizes=[1,2,2,2], "
                     "steps=[1,1,1,1]}\n  p: f32[1,2,4,4] = Pad(s) {pads=[0,0,1,1,0,0,1,1]}\n"),
              ElementsAre("Slice+Pad+Mul+Conv"));
  EXPECT_THAT(groups("  e: f32[1,4,2,2] = Exp(x)\n  s: f32[1,2,2,2] = Slice(e) {starts=[0,1,0,0], "
                     "sizes=[1,2,2,2], steps=[1,1,1,1]}\n  p: f32[1,2,4,4] = Pad(s) "
                     "{pads=[0,0,1,1,0,0,1,1]}\n"),
              ElementsAre("Exp", "Slice+Pad+Mul+Conv"));
  EXPECT_THAT(groups("  s: f32[1,2,2,2] = Slice(x) {starts=[0,1,0,0], sizes=[1,2,2,2], "
                     "steps=[1,1,1,1]}\n  q: f32[1,2,4,4] = Pad(s) {pads=[0,0,1,1,0,0,1,1]}\n  "
                     "p: f32[1,2,4,4] = HardSwish(q)\n"),
              ElementsAre("Slice+Pad+HardSwish", "Mul+Conv"));
}

TEST(PartitionTest, OnlyWhatIsReadElementByElementMayBeOverwritten) {
  const Partition p = Cut(Parse(
      "  input x: f32[1,2,4,4]\n  input r: f32[1,2,4,4]\n  input s: f32[1,2,1,1]\n  const w: "
      "f32[2,2,1,1] = [1.0,2.0,3.0,4.0]\n  c: f32[1,2,4,4] = Conv(x, w) {}\n  e: f32[1,2,4,4] = "
      "Exp(r)\n  a: f32[1,2,4,4] = Add(c, e)\n  m: f32[1,2,4,4] = Mul(a, s)\n  y: f32[1,2,4,4] = "
      "Sub(m, x)\n  z: f32[1,2,4,4] = Mul(r, r)\n  q: f32[1,2,4,4] = Softmax(z) {axis=3}\n  t: "
      "f32[1,2,4,4] = Add(q, x)\n  output \"y\" = y\n  output \"t\" = t\n"));
  ASSERT_EQ(p.groups.size(), 2u);
  // Of x (convolved, and subtracted), w, r (element by element), s (repeated).
  const Group& conv = p.groups[0];
  ASSERT_EQ(conv.overwritable.size(), 1u);
  EXPECT_EQ(p.tasks[conv.task].workload.inputs.size(), 4u);
  EXPECT_EQ(conv.inputs[conv.overwritable[0]], 1) << "r is the graph's second value";
  // Of r (reduced) and x.
  const Group& softmax = p.groups[1];
  ASSERT_EQ(softmax.overwritable.size(), 1u);
  EXPECT_EQ(softmax.inputs[softmax.overwritable[0]], 0);
}

TEST(PartitionTest, DearScalarsAreNotRecomputed) {
  // A gate: sigmoid of one value per channel, multiplied into the image.
  EXPECT_THAT(Groups(Parse("  input x: f32[1,2,4,4]\n  input g: f32[1,2,1,1]\n  s: f32[1,2,1,1] = "
                           "Sigmoid(g)\n  y: f32[1,2,4,4] = Mul(x, s)\n  output \"y\" = y\n")),
              ElementsAre("Sigmoid", "Mul"));
  EXPECT_THAT(Groups(Parse("  input x: f32[2,4]\n  y: f32[3,2,4] = Expand(x) {shape=[3,2,4]}\n  z: "
                           "f32[3,2,4] = Relu(y)\n  output \"z\" = z\n")),
              ElementsAre("Expand+Relu"));
}

TEST(PartitionTest, LongChainsStayWithinTheCaps) {
  std::string body = "  input x0: f32[8]\n";
  for (int i = 0; i < 100; ++i)
    body += fmt::format("  x{}: f32[8] = {}(x{})\n", i + 1, i % 2 ? "Exp" : "Neg", i);
  body += "  output \"y\" = x100\n";
  const Partition p = Cut(Parse(body));
  size_t ops = 0;
  for (const Group& g : p.groups) {
    EXPECT_LE(p.tasks[g.task].workload.ops.size(), static_cast<size_t>(kMaxOps));
    ops += g.nodes.size();
  }
  EXPECT_EQ(ops, 100u);
}

TEST(PartitionTest, RefusesWhatThePassesHaveNotPrepared) {
  Graph g =
      Parse("  input x: f32[2]\n  r: f32[2] = Relu(x)\n  output \"a\" = r\n  output \"b\" = r\n");
  EXPECT_THAT(Message(PartitionGraph(g).status()), HasSubstr("graph output 'b' shares its bytes"));
  g = Parse(
      "  input x: f32[0,2]\n  r: f32[2] = ReduceSum(x) {axes=[0], keepdims=0}\n"
      "  output \"a\" = r\n");
  EXPECT_THAT(Message(PartitionGraph(g).status()), HasSubstr("is f32[0,2], which has no elements"));
}

TEST(PartitionTest, RunsNothingForResultsWithoutElements) {
  const Graph g = Parse(
      "  input x: f32[0,2]\n  input y: f32[2]\n  r: f32[0,2] = Relu(x)\n  s: f32[2] = Relu(y)\n"
      "  output \"a\" = r\n  output \"b\" = s\n");
  const auto p = PartitionGraph(g);
  ASSERT_TRUE(p.ok()) << p.status();
  ASSERT_EQ(p->groups.size(), 1U);
  EXPECT_EQ(p->tasks[0].workload.outputs[0].type.ToString(), "f32[2]");
}

TEST(WorkloadTest, NamesAndOperandOrderDoNotMatter) {
  auto text = [](const char* body) { return Cut(Parse(body)).tasks[0].workload.ToString(); };
  const std::string one = text(
      "  input x: f32[1,2,4,4]\n  input r: f32[1,2,4,4]\n  const w: f32[2,2,1,1] = "
      "[1.0,2.0,3.0,4.0]\n"
      "  c: f32[1,2,4,4] = Conv(x, w) {} \"first\"\n  s: f32[1,2,4,4] = Add(c, r)\n  y: "
      "f32[1,2,4,4] = Relu(s)\n  output \"y\" = y\n");
  EXPECT_EQ(one,
            text("  input other: f32[1,2,4,4]\n  input image: f32[1,2,4,4]\n  const weights: "
                 "f32[2,2,1,1] = [9.0,9.0,9.0,9.0]\n"
                 "  k: f32[1,2,4,4] = Conv(image, weights) {group=1} \"second\"\n  s: f32[1,2,4,4] "
                 "= Add(other, k)\n  z: f32[1,2,4,4] = Relu(s)\n  output \"out\" = z\n"));
  EXPECT_EQ(one,
            "whet-workload 1\ninput f32[1,2,4,4]\ninput const f32[2,2,1,1]\ninput f32[1,2,4,4]\n"
            "op Conv.1(0, 1) {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]}\nop "
            "Add.1(3, 2)\nop Relu.1(4)\noutput 5 f32[1,2,4,4]\n");
  // Subtraction does not commute, and whether an input is constant matters.
  const char* sub =
      "  input a: f32[2]\n  const b: f32[2] = [1.0,2.0]\n  y: f32[2] = Sub({}, {})\n  output \"y\" "
      "= y\n";
  EXPECT_NE(text(fmt::format(fmt::runtime(sub), "a", "b").c_str()),
            text(fmt::format(fmt::runtime(sub), "b", "a").c_str()));
}

TEST(WorkloadTest, OneInputUsedTwiceIsOneInput) {
  const Partition p =
      Cut(Parse("  input x: f32[2]\n  y: f32[2] = Mul(x, x)\n  output \"y\" = y\n"));
  EXPECT_EQ(p.tasks[0].workload.inputs.size(), 1u);
  EXPECT_THAT(p.tasks[0].workload.ToString(), HasSubstr("Mul.1(0, 0)"));
}

TEST(WorkloadTest, PrintsWhatItParsesAndCountsWork) {
  const Partition p = Cut(Optimised(testing_support::BlazeFaceLike()));
  for (const Task& t : p.tasks) {
    const std::string text = t.workload.ToString();
    auto again = Workload::Parse(text, ops::Catalog());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->ToString(), text);
    EXPECT_EQ(again->fingerprint(), t.fingerprint);
    EXPECT_EQ(again->flops(), t.workload.flops());
    EXPECT_TRUE(BuildTe(*again).ok());
  }
  const Workload& stem = p.tasks[p.groups[0].task].workload;
  EXPECT_EQ(stem.Title(), "Conv+Relu 1x3x32x32 -> 1x8x16x16");
  EXPECT_EQ(stem.flops(), 16 * 16 * 8 * (2 * 3 * 25 + 1) + 16 * 16 * 8);
  EXPECT_EQ(stem.bytes(), 4 * (3 * 32 * 32 + 8 * 3 * 25 + 8 + 8 * 16 * 16));
  EXPECT_THAT(stem.ToString(), HasSubstr("input f32[1,3,32,32]<(a, b, c, d) -> (a, c, d, b)>\n"));
}

TEST(WorkloadTest, BadTextsAreRefusedWithThePlace) {
  auto error = [](const std::string& text) {
    return Message(Workload::Parse(text, ops::Catalog()).status());
  };
  const std::string head = "whet-workload 1\ninput f32[2]\n";
  EXPECT_THAT(error(""), HasSubstr("expected 'whet-workload'"));
  EXPECT_THAT(error("whet-workload 2\n"), HasSubstr("expected '1'"));
  EXPECT_THAT(error(head), HasSubstr("an operator and an output at least"));
  EXPECT_THAT(error(head + "op Relu.9(0)\noutput 1 f32[2]\n"),
              HasSubstr("Relu has version '9', this program knows 1"));
  EXPECT_THAT(error(head + "op Frobnicate.1(0)\n"),
              HasSubstr("line 3, column 16: unknown operator 'Frobnicate.1'"));
  EXPECT_THAT(error(head + "op Flatten.1(0)\n"), HasSubstr("unknown operator"));
  EXPECT_THAT(error(head + "op Relu.1(1)\n"), HasSubstr("value 1 is not defined"));
  EXPECT_THAT(error(head + "op Relu.1(0)\noutput 1 f32[3]\n"),
              HasSubstr("output 1 is f32[2], not f32[3]"));
  EXPECT_THAT(error(head + "op Relu.1(0)\noutput 0 f32[2]\n"), HasSubstr("must be computed"));
  EXPECT_THAT(error(head + "op Relu.1(0)\noutput 1 f32[2]\noutput 1 f32[2]\n"), HasSubstr("twice"));
  EXPECT_THAT(error(head + "op Relu.1(0) {alpha=1}\n"), HasSubstr("Relu has no attribute 'alpha'"));
  EXPECT_THAT(error("whet-workload 1\ninput f32[0]\n"), HasSubstr("no elements"));
  EXPECT_THAT(error(head + "op Relu.1(0)\noutput 1 f32[2]\nleft over"),
              HasSubstr("expected 'input', 'op' or 'output'"));
  EXPECT_THAT(error(std::string(kMaxTextBytes + 1, ' ')), HasSubstr("the limit is"));
  std::string many = "whet-workload 1\ninput f32[2]\n";
  for (int i = 0; i <= kMaxOps; ++i) many += fmt::format("op Relu.1({})\n", i);
  EXPECT_THAT(error(many + fmt::format("output {} f32[2]\n", kMaxOps)),
              HasSubstr("more than 64 operators"));
}

Workload ConvWorkload() {
  auto w = Workload::Parse(
      "whet-workload 1\ninput f32[1,16,6,6]<(a, b, c, d) -> (a, c, d, b)>\ninput const "
      "f32[8,16,3,3]\ninput const f32[8]\n"
      "op Conv.1(0, 1, 2) {pads=[1,1,1,1]}\nop Relu.1(3)\noutput 4 f32[1,8,6,6]<(a, b, c, d) -> "
      "(a, c, d, b)>\n",
      ops::Catalog());
  EXPECT_TRUE(w.ok()) << w.status();
  return *w;
}

TEST(ReferenceDataTest, InputsDependOnTheSeedAndNotOnTheLayout) {
  const Workload w = ConvWorkload();
  Workload row_major = w;
  row_major.inputs[0].type.layout = expr::IndexMap::Identity(4);
  EXPECT_EQ(MakeInputs(w, 1), MakeInputs(row_major, 1));
  EXPECT_NE(MakeInputs(w, 1), MakeInputs(w, 2));
  const auto inputs = MakeInputs(w, 1);
  EXPECT_EQ(inputs[0][5], CounterUniform(1, 0, 5));
  const double scale = std::sqrt(3.0 / (16 * 9));
  for (double v : inputs[1]) EXPECT_LE(std::fabs(v), scale * 1.0001);
}

TEST(ReferenceDataTest, RootsSeePositiveNumbers) {
  auto w = Workload::Parse(
      "whet-workload 1\ninput f32[64]\ninput const f32[1]\nop Add.1(0, 1)\nop Sqrt.1(2)\noutput 3 "
      "f32[64]\n",
      ops::Catalog());
  ASSERT_TRUE(w.ok());
  auto r = EvaluateReference(*w, MakeInputs(*w, 9));
  ASSERT_TRUE(r.ok());
  for (double v : (*r)[0].expected) EXPECT_TRUE(std::isfinite(v));
}

TEST(ReferenceDataTest, TheToleranceCatchesOneMissingTerm) {
  const Workload w = ConvWorkload();
  auto in = MakeInputs(w, 1);
  auto right = EvaluateReference(w, in);
  ASSERT_TRUE(right.ok());
  // One weight of 144 per output left out.
  in[1][(3 * 16 + 7) * 9 + 4] = 0;
  auto wrong = EvaluateReference(w, in);
  int caught = 0;
  for (int64_t i = 3 * 36; i < 4 * 36; ++i)
    caught +=
        std::fabs((*wrong)[0].expected[i] - (*right)[0].expected[i]) > (*right)[0].tolerance[i];
  // Elements that relu makes zero hide it.
  EXPECT_GE(caught, 10);
  for (size_t i = 0; i < (*right)[0].tolerance.size(); ++i)
    EXPECT_LT((*right)[0].tolerance[i], 2e-4);
}

TEST(ReferenceDataTest, LayoutsArePermutationsThereAndBack) {
  graph::TensorType t = graph::TensorType::Of(DType::kF32, {1, 2, 2, 3});
  t.layout = graph::ChannelsLast();
  std::vector<double> logical;
  for (int i = 0; i < 12; ++i) logical.push_back(i);
  const std::vector<double> physical = LogicalToPhysical(t, logical);
  EXPECT_THAT(physical, ElementsAre(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11));
  EXPECT_EQ(PhysicalToLogical(t, physical), logical);
  EXPECT_EQ(PhysicalBytes(t, logical), graph::WriteDoubles(DType::kF32, physical));
}

TEST(ReferenceDataTest, WrongInputsAreErrors) {
  const Workload w = ConvWorkload();
  EXPECT_FALSE(EvaluateReference(w, {}).ok());
  auto in = MakeInputs(w, 1);
  in[0].pop_back();
  EXPECT_THAT(Message(EvaluateReference(w, in).status()),
              HasSubstr("input 0 has 575 elements, not 576"));
}

std::vector<std::string> Names(const std::vector<Task>& tasks) {
  std::vector<std::string> names;
  for (const Task& t : tasks) names.push_back(t.workload.Title());
  return names;
}

TEST(PartitionTest, AFusedGroupCanBeTakenApartAroundItsAnchor) {
  const Graph g = Parse(
      "  input x: f32[1,2,4,4]\n  input s: f32[1,2,1,1]\n  input r: f32[1,2,4,4]\n  const w: "
      "f32[2,2,1,1] = [1.0,2.0,3.0,4.0]\n  m: f32[1,2,4,4] = Mul(x, s)\n  c: f32[1,2,4,4] = "
      "Conv(m, w) {}\n  a: f32[1,2,4,4] = Add(c, r)\n  y: f32[1,2,4,4] = Relu(a)\n  output "
      "\"y\" = y\n");
  const Partition fused = Cut(g);
  const auto conv = std::find_if(fused.groups.begin(), fused.groups.end(),
                                 [](const Group& group) { return group.nodes.size() == 4; });
  ASSERT_NE(conv, fused.groups.end());
  const std::vector<Task> parts = SplitOf(g, *conv);
  EXPECT_THAT(Names(parts), ElementsAre("Mul 1x2x1x1 -> 1x2x4x4", "Conv 1x2x4x4 -> 1x2x4x4",
                                        "Add+Relu 1x2x4x4 -> 1x2x4x4"));

  const auto apart = PartitionGraph(g, {fused.tasks[conv->task].fingerprint});
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->groups.size(), fused.groups.size() + 2);
  // The parts are the tasks that were announced, each after what it reads.
  std::set<ValueId> written(g.inputs.begin(), g.inputs.end());
  std::map<Fingerprint, int> count;
  for (const Group& group : apart->groups) {
    ++count[apart->tasks[group.task].fingerprint];
    for (ValueId v : group.inputs) EXPECT_TRUE(g.constant(v) || written.count(v)) << group.label;
    written.insert(group.outputs.begin(), group.outputs.end());
  }
  for (const Task& t : parts) EXPECT_EQ(count[t.fingerprint], t.count) << t.workload.Title();
  // Other workloads stay as they are.
  EXPECT_EQ(PartitionGraph(g, {FingerprintOf("another")})->groups.size(), fused.groups.size());
}

TEST(PartitionTest, TwoConvolutionsOfOneGroupComeApartBetweenThem) {
  const Graph g = DepthwiseChain(400, "  y: f32[1,2,400,400] = Identity(c)\n");
  const std::vector<Task> parts = SplitOf(g, Cut(g).groups[1]);
  EXPECT_THAT(Names(parts), ElementsAre("Conv+Relu 1x2x400x400 -> 1x2x400x400",
                                        "Conv 1x2x400x400 -> 1x2x400x400"));
}

TEST(PartitionTest, GroupsWithoutAnAnchorOrOfOneNodeHaveNoParts) {
  const Graph chain = Parse(
      "  input x: f32[4,4]\n  a: f32[4,4] = Exp(x)\n  y: f32[4,4] = Neg(a)\n  output \"y\" = y\n");
  EXPECT_TRUE(SplitOf(chain, Cut(chain).groups[0]).empty());
  const Graph alone = Parse(
      "  input x: f32[4,4]\n  input w: f32[4,4]\n  y: f32[4,4] = MatMul(x, w)\n  output \"y\" = "
      "y\n");
  EXPECT_TRUE(SplitOf(alone, Cut(alone).groups[0]).empty());
}

}  // namespace
}  // namespace whet::fusion
