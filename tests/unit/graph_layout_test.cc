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

TEST(PassTest, TransposesAroundMatrixProductsAreViews) {
  // Heads of an attention: queries and keys are read as they lie, the keys turned by the product
  // that reads them; the context is written as the transpose after it wants it.
  const std::string out = After(
      "graph \"g\"\n  input x: f32[1,64,4,32]\n  r: f32[1,64,4,32] = Relu(x)\n  q: f32[1,4,64,32] "
      "= Transpose(r) {perm=[0,2,1,3]}\n  k: f32[1,4,32,64] = Transpose(r) {perm=[0,2,3,1]}\n  s: "
      "f32[1,4,64,64] = MatMul(q, k)\n  c: f32[1,4,64,32] = MatMul(s, q)\n  d: f32[1,4,64,32] = "
      "Neg(c)\n  t: f32[1,64,4,32] = Transpose(d) {perm=[0,2,1,3]}\n  y: f32[64,128] = Reshape(t) "
      "{shape=[64,128]}\n  output \"y\" = y\n",
      {"assign-layouts", "mark-views"});
  EXPECT_THAT(out,
              HasSubstr("q: f32[1,4,64,32]<(a, b, c, d) -> (a, c, b, d)> = view Transpose(r)"));
  EXPECT_THAT(out,
              HasSubstr("k: f32[1,4,32,64]<(a, b, c, d) -> (a, d, b, c)> = view Transpose(r)"));
  EXPECT_THAT(out, HasSubstr("s: f32[1,4,64,64] = MatMul(q, k)"));
  EXPECT_THAT(out, HasSubstr("c: f32[1,4,64,32]<(a, b, c, d) -> (a, c, b, d)> = MatMul(s, q)"));
  EXPECT_THAT(out, HasSubstr("t: f32[1,64,4,32] = view Transpose(d)"));
  EXPECT_THAT(out, HasSubstr("y: f32[64,128] = view Reshape(t)"));
  EXPECT_THAT(out, Not(HasSubstr("Identity")));
}

TEST(PassTest, ProductsDoNotWriteColumns) {
  // A result that is wanted transposed within its matrices is written in rows, and copied.
  const std::string out = After(
      "graph \"g\"\n  input x: f32[4,64,32]\n  input y: f32[4,32,48]\n  c: f32[4,64,48] = "
      "MatMul(x, y)\n  t: f32[4,48,64] = Transpose(c) {perm=[0,2,1]}\n  output \"t\" = t\n",
      {"assign-layouts", "mark-views"});
  EXPECT_THAT(out, HasSubstr("c: f32[4,64,48] = MatMul(x, y)"));
  EXPECT_THAT(out, HasSubstr("t: f32[4,48,64] = Transpose(c)"));
}

TEST(PassTest, AMatrixThatManyProductsWouldTurnIsCopiedOnce) {
  const std::string out = After(
      "graph \"g\"\n  input x: f32[16,64,32]\n  input w: f32[48,32]\n  r: f32[48,32] = Relu(w)\n  "
      "t: f32[32,48] = Transpose(r) {perm=[1,0]}\n  y: f32[16,64,48] = MatMul(x, t)\n  output "
      "\"y\" = y\n",
      {"assign-layouts", "mark-views"});
  EXPECT_THAT(out, HasSubstr("t: f32[32,48] = Transpose(r)"));
}

TEST(PassTest, ReshapesThatOnlyAddOrDropUnitsKeepTheLayout) {
  // One-dimensional convolutions, as they are imported, and what is between them.
  std::string weights = "f32[8,8,1,1] = [1.0";
  for (int i = 1; i < 64; ++i) weights += ",1.0";
  Graph g = Parse("graph \"g\"\n  input x: f32[1,8,1,64]\n  const w: " + weights +
                  "]\n  c: f32[1,8,1,64] = Conv(x, w) {}\n  r: f32[1,8,64] = Reshape(c) "
                  "{shape=[1,8,64]}\n  e: f32[1,8,64] = Exp(r)\n  s: f32[1,8,1,64] = Reshape(e) "
                  "{shape=[1,8,1,64]}\n  d: f32[1,8,1,64] = Conv(s, w) {}\n  u: f32[8,64] = "
                  "Reshape(d) {shape=[8,64]}\n  t: f32[64,8] = Transpose(u) {perm=[1,0]}\n  output "
                  "\"t\" = t\n");
  const std::vector<std::string> passes = {"assign-layouts", "mark-views", "separate-outputs"};
  ASSERT_TRUE(RunPasses(g, passes, {}).ok());
  const std::string out = ToString(g);
  EXPECT_THAT(out, HasSubstr("r: f32[1,8,64]<(a, b, c) -> (a, c, b)> = view Reshape(c)"));
  EXPECT_THAT(out, HasSubstr("e: f32[1,8,64]<(a, b, c) -> (a, c, b)> = Exp(r)"));
  EXPECT_THAT(out, HasSubstr("s: f32[1,8,1,64]<(a, b, c, d) -> (a, c, d, b)> = view Reshape(e)"));
  EXPECT_THAT(out, HasSubstr("u: f32[8,64]<(a, b) -> (b, a)> = view Reshape(d)"));
  EXPECT_THAT(out, HasSubstr("t: f32[64,8] = view Transpose(u)"));
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

// Variables of which each sees each other: no elimination has a small table.
MinSum Clique(uint64_t seed, int n, int size) {
  MinSum problem;
  for (int v = 0; v < n; ++v) problem.AddVariable(size);
  for (int a = 0; a < n; ++a) {
    for (int b = a; b < n; ++b) {
      std::vector<double> costs;
      for (int x = 0; x < size * size; ++x)
        costs.push_back(
            std::floor(CounterUniform(seed, static_cast<uint64_t>(a * 64 + b), x) * 100));
      problem.AddCost(a, b, costs);
    }
  }
  return problem;
}

TEST(MinSumTest, BeyondTheLimitOfTablesItIsABoundThatKeepsClearOfInfinity) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const int n = 14, size = 4;
    MinSum problem = Clique(seed, n, size);
    // A reader per variable that takes its last two values only, whatever the costs of its own.
    for (int v = 0; v < n; ++v) {
      const int reader = problem.AddVariable(2);
      problem.AddCost(v, {0, 1000, 2000, 3000});
      problem.AddCost(v, reader, {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, 0, 1, 0, 2});
    }
    bool exact = true;
    const std::vector<int> got = problem.Solve(&exact);
    EXPECT_FALSE(exact);
    EXPECT_LT(problem.CostOf(got), HUGE_VAL) << seed;
    const std::vector<int> better = problem.Improve(got);
    EXPECT_LE(problem.CostOf(better), problem.CostOf(got));
    // No single change helps any more.
    for (size_t v = 0; v < better.size(); ++v) {
      for (int x = 0; x < (v < static_cast<size_t>(n) ? size : 2); ++x) {
        std::vector<int> other = better;
        other[v] = x;
        EXPECT_GE(problem.CostOf(other), problem.CostOf(better)) << seed;
      }
    }
  }
}

// Densely connected images: each of them goes into each of the concatenations.
std::string Dense(int n, int64_t channels) {
  std::string text = fmt::format("graph \"g\"\n  input x: f32[1,{0},16,16]\n", channels);
  auto weights = [&](const std::string& name, int64_t out, int64_t in) {
    text += fmt::format("  const {}: f32[{},{},1,1] = [", name, out, in);
    for (int64_t i = 0; i < out * in; ++i) text += i ? ",0.5" : "0.5";
    text += "]\n";
  };
  std::string outputs;
  const auto all = fmt::format("1,{},16,16", n * channels),
             one = fmt::format("1,{},16,16", channels);
  for (int i = 0; i < n; ++i) {
    weights(fmt::format("w{}", i), channels, channels);
    text += fmt::format("  c{0}: f32[{1}] = Conv(x, w{0}) {{}}\n  f{0}: f32[{1}] = Tanh(c{0})\n", i,
                        one);
  }
  for (int i = 0; i < n; ++i) {
    // Another order for each, so that they are not one.
    std::string list;
    for (int j = 0; j < n; ++j)
      list += fmt::format("{}f{}", j ? ", " : "", (j * (2 * i + 1) + i) % n);
    weights(fmt::format("v{}", i), channels, n * channels);
    text += fmt::format(
        "  k{0}: f32[{1}] = Concat({2}) {{axis=1}}\n  y{0}: f32[{3}] = Conv(k{0}, v{0}) {{}}\n", i,
        all, list, one);
    outputs += fmt::format("  output \"y{0}\" = y{0}\n", i);
  }
  return text + outputs;
}

// What the selected layouts cost; every operator can read its operands as they lie.
double SelectedCost(Graph& g) {
  double total = 0;
  const auto selected = SelectLayouts(g, RooflineLayoutCost(), &total);
  EXPECT_TRUE(selected.ok() && Verify(g).ok());
  for (const Node& n : g.nodes) {
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      EXPECT_LT(RooflineLayoutCost().Read(g.View(n), static_cast<int>(i), g.type(n.inputs[i]),
                                          g.type(n.outputs[0])),
                HUGE_VAL)
          << n.label << " cannot read operand " << i;
    }
  }
  return total;
}

// The graph in one layout: its inputs are copied into it and its outputs back, if need be. Infinite
// where an operator has no schedule for that.
double UniformCost(const Graph& g, const LayoutCost& cost, const expr::IndexMap& layout) {
  auto in = [&](ValueId v, const expr::IndexMap& l) {
    TensorType t = g.type(v);
    t.layout = l;
    return t;
  };
  const expr::IndexMap rows = expr::IndexMap::Identity(4);
  double sum = 0;
  for (const Node& n : g.nodes) {
    sum += cost.Compute(g.View(n), in(n.outputs[0], layout));
    for (size_t i = 0; i < n.inputs.size(); ++i)
      sum += cost.Read(g.View(n), static_cast<int>(i), in(n.inputs[i], layout),
                       in(n.outputs[0], layout));
  }
  if (layout.IsIdentity()) return sum;
  for (ValueId v : g.inputs) sum += cost.Copy(in(v, rows), in(v, layout));
  for (const GraphOutput& o : g.outputs) sum += cost.Copy(in(o.value, layout), in(o.value, rows));
  return sum;
}

TEST(PassTest, DenseGraphsGetLayoutsThatSchedulesCanRead) {
  Graph g = Parse(Dense(16, 4));
  Graph u = g;
  const double selected = SelectedCost(g);
  EXPECT_LE(selected, UniformCost(u, RooflineLayoutCost(), ChannelsLast()));
  EXPECT_LE(selected, UniformCost(u, RooflineLayoutCost(), expr::IndexMap::Identity(4)));
}

TEST(PassTest, DenseGraphsCostNoMoreThanUniformLayouts) {
  const Graph g = Parse(Dense(14, 8));
  for (int seed = 0; seed < 3; ++seed) {
    const DrawnCost cost(seed);
    Graph s = g;
    double selected = 0;
    ASSERT_TRUE(SelectLayouts(s, cost, &selected).ok());
    EXPECT_LE(selected, UniformCost(g, cost, ChannelsLast())) << seed;
    EXPECT_LE(selected, UniformCost(g, cost, expr::IndexMap::Identity(4))) << seed;
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
    for (const expr::IndexMap& layout : {expr::IndexMap::Identity(4), ChannelsLast()})
      EXPECT_LE(selected, UniformCost(Parse(kText), cost, layout)) << seed;
  }
}

TEST(PassTest, LayoutsThatWereChosenCanBeGiven) {
  const Graph g = Parse(Dense(5, 8));
  for (int seed = 0; seed < 5; ++seed) {
    const DrawnCost cost(seed);
    Graph selected = g, given = g;
    const std::vector<StoredLayout> chosen = ChooseLayouts(g, cost);
    EXPECT_FALSE(chosen.empty());
    ASSERT_TRUE(SelectLayouts(selected, cost).ok());
    ASSERT_TRUE(TakeLayouts(given, cost, chosen).ok());
    EXPECT_TRUE(Verify(given).ok());
    EXPECT_EQ(ToString(given), ToString(selected)) << seed;
  }
  const expr::IndexMap layout = ChannelsLast();
  const ValueId image = g.inputs[0], weights = 1, none = static_cast<ValueId>(g.values.size());
  ASSERT_TRUE(g.constant(weights));
  for (const StoredLayout& wrong :
       {StoredLayout{none, layout, {}}, StoredLayout{kNoValue, layout, {}},
        StoredLayout{weights, layout, {}}, StoredLayout{image, expr::IndexMap::Identity(3), {}},
        StoredLayout{image, layout, expr::IndexMap::Permutation({1, 0})}}) {
    Graph given = g;
    EXPECT_THAT(TakeLayouts(given, RooflineLayoutCost(), {&wrong, 1}).status().message(),
                HasSubstr(fmt::format("layouts of value {} are given", wrong.value)));
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
