// Layouts of whole graphs: what the selection chooses, and that it chooses the cheapest.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "compiler/graph/layout_cost.h"
#include "compiler/graph/min_sum.h"
#include "compiler/graph/structure.h"
#include "compiler/support/rng.h"
#include "tests/unit/graph_testing.h"

namespace whet::graph {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PassTest, LayoutsFlowAndTransposesBecomeViews) {
  // The usual exporter's frame around a convolution: channels-last in and out.
  constexpr char kText[] =
      "graph \"g\"\n  input x: f32[1,4,4,8]\n  const w: f32[2,8,1,1] = "
      "[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]\n"
      "  a: f32[1,8,4,4] = Transpose(x) {perm=[0,3,1,2]}\n  c: f32[1,2,4,4] = Conv(a, w) {}\n  r: "
      "f32[1,2,4,4] = Relu(c)\n"
      "  t: f32[1,4,4,2] = Transpose(r) {perm=[0,2,3,1]}\n  y: f32[1,32] = Reshape(t) "
      "{shape=[1,32]}\n  output \"y\" = y\n";
  const std::string out = After(kText, {"assign-layouts", "mark-views", "separate-outputs"});
  EXPECT_THAT(out, HasSubstr("a: f32[1,8,4,4]<(a, b, c, d) -> (a, c, d, b)> = view Transpose(x)"));
  EXPECT_THAT(out, HasSubstr("r: f32[1,2,4,4]<(a, b, c, d) -> (a, c, d, b)> = Relu(c)"));
  EXPECT_THAT(out, HasSubstr("t: f32[1,4,4,2] = view Transpose(r)"));
  EXPECT_THAT(out, HasSubstr("y: f32[1,32] = view Reshape(t)"));
  EXPECT_THAT(out, Not(HasSubstr("Identity")));
}

TEST(PassTest, ForeignLayoutsAreCopiedOnce) {
  constexpr char kText[] =
      "graph \"g\"\n  input x: f32[1,8,4,4]\n  const w: f32[2,8,1,1] = "
      "[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]\n"
      "  const v: f32[1,8,1,1] = [2.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]\n"
      "  c: f32[1,2,4,4] = Conv(x, w) {}\n  d: f32[1,1,4,4] = Conv(x, v) {}\n  e: f32[1,3,4,4] = "
      "Concat(c, d) {axis=1}\n  output \"y\" = e\n";
  const std::string out = After(kText, {"assign-layouts", "mark-views", "separate-outputs"});
  EXPECT_THAT(
      out, HasSubstr("x_channels_last: f32[1,8,4,4]<(a, b, c, d) -> (a, c, d, b)> = Identity(x)"));
  EXPECT_THAT(out, HasSubstr("Conv(x_channels_last, w)"));
  EXPECT_THAT(out, HasSubstr("Conv(x_channels_last, v)"));
  EXPECT_THAT(out, Not(HasSubstr("x_channels_last_1")));
  // What is read last writes the output as its reader wants it.
  EXPECT_THAT(out, HasSubstr("e: f32[1,3,4,4] = Concat(c, d)"));
  EXPECT_THAT(out, HasSubstr("output \"y\" = e\n"));
}

TEST(PassTest, EqualBytesHaveOneLayout) {
  // One pixel: channels-last and row-major are the same, so nothing is copied and no layout is
  // spelled.
  const std::string out = After(
      "graph \"g\"\n  input x: f32[1,8,1,1]\n  const w: f32[2,8,1,1] = "
      "[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]\n"
      "  c: f32[1,2,1,1] = Conv(x, w) {}\n  output \"y\" = c\n",
      {"assign-layouts", "mark-views", "separate-outputs"});
  EXPECT_THAT(out, HasSubstr("c: f32[1,2,1,1] = Conv(x, w)"));
  EXPECT_THAT(out, Not(HasSubstr("Identity")));
}

TEST(PassTest, TransposesOfMatrixOperandsAreViewsWhereRowsStayRows) {
  // Heads of an attention: a transpose that keeps the last dimension costs nothing; one that turns
  // rows into columns is a copy, once.
  const std::string out = After(
      "graph \"g\"\n  input x: f32[1,64,4,32]\n  r: f32[1,64,4,32] = Relu(x)\n  q: f32[1,4,64,32] "
      "= Transpose(r) {perm=[0,2,1,3]}\n  k: f32[1,4,32,64] = Transpose(r) {perm=[0,2,3,1]}\n  s: "
      "f32[1,4,64,64] = MatMul(q, k)\n  y: f32[1,4,64,32] = MatMul(s, q)\n  output \"y\" = y\n",
      {"assign-layouts", "mark-views"});
  EXPECT_THAT(out,
              HasSubstr("q: f32[1,4,64,32]<(a, b, c, d) -> (a, c, b, d)> = view Transpose(r)"));
  EXPECT_THAT(out, HasSubstr("k: f32[1,4,32,64] = Transpose(r)"));
  EXPECT_THAT(out, Not(HasSubstr("Identity")));
}

// A cost under which every layout of every value has a price of its own.
class DrawnCost : public LayoutCost {
 public:
  explicit DrawnCost(int seed) : seed_(seed) {}
  double Compute(const OpView& v, const TensorType& out) const override {
    return Draw(v.op->name + out.ToString());
  }
  double Read(const OpView& v, int input, const TensorType& in,
              const TensorType& out) const override {
    return Draw(fmt::format("{} {} {} {}", v.op->name, input, in.ToString(), out.ToString()));
  }
  double Copy(const TensorType& from, const TensorType& to) const override {
    return Draw(from.ToString() + " to " + to.ToString()) / 2;
  }

 private:
  double Draw(const std::string& what) const {
    return static_cast<double>(FingerprintOf(fmt::format("{} {}", seed_, what)).hi % 1000);
  }
  const int seed_;
};

TEST(MinSumTest, EliminationFindsTheCheapestAssignment) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MinSum problem;
    const int n = 7;
    auto draw = [&](int a, int b, int x) {
      return std::floor(CounterUniform(seed, static_cast<uint64_t>(a * 16 + b), x) * 100);
    };
    for (int v = 0; v < n; ++v) problem.AddVariable(2 + v % 2);
    for (int a = 0; a < n; ++a) {
      for (int b : {a, (a + 1) % n, (a + 3) % n}) {
        const int size = (2 + a % 2) * (2 + b % 2);
        std::vector<double> costs;
        for (int x = 0; x < size; ++x) costs.push_back(draw(a, b, x));
        problem.AddCost(a, b, costs);
      }
    }
    bool exact = false;
    const std::vector<int> got = problem.Solve(&exact);
    EXPECT_TRUE(exact);
    double best = HUGE_VAL;
    std::vector<int> values(n, 0);
    while (true) {
      best = std::min(best, problem.CostOf(values));
      int v = 0;
      while (v < n && ++values[v] == 2 + v % 2) values[v++] = 0;
      if (v == n) break;
    }
    EXPECT_EQ(problem.CostOf(got), best) << seed;
  }
}

TEST(PassTest, NoUniformLayoutIsCheaperThanTheSelectedOne) {
  constexpr char kText[] =
      "graph \"g\"\n  input x: f32[1,8,16,16]\n  a: f32[1,8,16,16] = Relu(x)\n  b: f32[1,8,16,16] "
      "= Neg(a)\n  c: f32[1,8,8,8] = MaxPool(b) {kernel=[2,2], strides=[2,2]}\n  d: f32[1,8,8,8] = "
      "MaxPool(a) {kernel=[2,2], strides=[2,2]}\n  e: f32[1,8,8,8] = Add(c, d)\n  f: f32[1,8,8,8] "
      "= "
      "Exp(e)\n  output \"y\" = f\n";
  for (int seed = 0; seed < 20; ++seed) {
    const DrawnCost cost(seed);
    Graph g = Parse(kText);
    double selected = 0;
    ASSERT_TRUE(SelectLayouts(g, cost, &selected).ok());
    EXPECT_TRUE(Verify(g).ok());
    for (const expr::IndexMap& layout : {expr::IndexMap::Identity(4), ChannelsLast()}) {
      Graph u = Parse(kText);
      double sum = 0;
      for (const Node& n : u.nodes) {
        TensorType out = u.type(n.outputs[0]);
        out.layout = layout;
        sum += cost.Compute(u.View(n), out);
        for (size_t i = 0; i < n.inputs.size(); ++i) {
          TensorType in = u.type(n.inputs[i]);
          in.layout = layout;
          sum += cost.Read(u.View(n), static_cast<int>(i), in, out);
        }
      }
      // The graph's input and output are row-major.
      TensorType in = u.type(u.inputs[0]), out = u.type(u.outputs[0].value);
      const TensorType in_rows = in, out_rows = out;
      in.layout = out.layout = layout;
      if (!layout.IsIdentity()) sum += cost.Copy(in_rows, in) + cost.Copy(out, out_rows);
      EXPECT_LE(selected, sum) << seed;
    }
  }
}

TEST(PassTest, AUniformLayoutIsThatOfEveryImageBetweenInputsAndOutputs) {
  constexpr char kText[] =
      "graph \"g\"\n  input x: f32[1,8,16,16]\n  a: f32[1,8,16,16] = Relu(x)\n  c: f32[1,8,8,8] = "
      "MaxPool(a) {kernel=[2,2], strides=[2,2]}\n  f: f32[1,8,8,8] = Exp(c)\n  output \"y\" = f\n";
  for (const bool rows : {true, false}) {
    Graph g = Parse(kText);
    ASSERT_TRUE(SelectLayouts(g, rows ? RowMajorLayoutCost() : ChannelsLastLayoutCost()).ok());
    EXPECT_TRUE(Verify(g).ok());
    int images = 0;
    for (const Node& n : g.nodes) {
      if (n.op->name == "Identity") continue;  // the copies at the ends
      ++images;
      EXPECT_EQ(g.type(n.outputs[0]).IsRowMajor(), rows) << ToString(g);
    }
    EXPECT_EQ(images, 3);
  }
}

TEST(StructureTest, NamesAndConstantsValuesDoNotCountButAttributesAndTypesDo) {
  const std::string text =
      "graph \"g\"\n  input in0: f32[1,8,4,4]\n  const k: f32[] = [2]\n  a: f32[1,8,4,4] = "
      "Mul(in0, k)"
      "\n  y: f32[1,8,2,2] = MaxPool(a) {kernel=[2,2], strides=[2,2]}\n  output \"y\" = y\n";
  auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    for (size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size())
      changed.replace(at, from.size(), to);
    EXPECT_NE(changed, text);
    return StructureOf(Parse(changed));
  };
  const Fingerprint own = StructureOf(Parse(text));
  EXPECT_EQ(with("[2]\n", "[3]\n"), own);
  EXPECT_EQ(with("\"y\"", "\"z\""), own);
  EXPECT_EQ(with("in0", "image"), own);
  EXPECT_NE(with("Mul", "Add"), own);
  EXPECT_NE(with("1,8,", "2,8,"), own);
  EXPECT_NE(with("kernel=[2,2]", "kernel=[1,1]"), own);
}

}  // namespace
}  // namespace whet::graph
