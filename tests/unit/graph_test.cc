// Graphs: their text, the verifier, constants, and each pass as text in, text out.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/graph/builder.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"
#include "compiler/ops/catalog.h"
#include "tests/unit/graph_testing.h"

namespace whet::graph {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(GraphTextTest, PrintsWhatItParses) {
  const std::string text =
      "graph \"a \\\"name\\\"\"\n"
      "  input \"x y\": f32[1,3,4,4]\n"
      "  const w: f32[2,3,1,1] = [1.0,-2.5,0.0,inf,nan,9.5367431640625e-07]\n"
      "  const i: i64[2] = [-1,9223372036854775807]\n"
      "  const u: u64[4] = [0,9007199254740993,9223372036854775808,18446744073709551615]\n"
      "  y:0: f32[1,2,4,4]<(a, b, c, d) -> (a, c, d, b)> = Conv(\"x y\", w) {dilations=[1,1], "
      "group=1, pads=[0,0,0,0], strides=[1,1]} \"conv/1\"\n"
      "  z: f32[1,2,16] = Reshape(y:0) {shape=[1,2,16]} \"flat\"\n"
      "  output \"out\" = z\n";
  EXPECT_EQ(ToString(Parse(text)), text);
}

TEST(GraphTextTest, LargeConstantsTravelByHash) {
  Graph g;
  g.catalog = &ops::Catalog();
  GraphBuilder b(g);
  const ConstantPtr c = Constant::OfDoubles(DType::kF32, {100}, Ramp(100));
  const ValueId x = b.Input("x", TensorType::Of(DType::kF32, {100}));
  b.Output("y", *b.Emit("Add", {x, b.Constant("c", c)}));
  const std::string text = ToString(g);
  EXPECT_THAT(text, HasSubstr("@" + c->hash().Hex()));
  auto again = ParseGraph(text, ops::Catalog(), {c});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToString(*again), text);
  EXPECT_THAT(Message(ParseGraph(text, ops::Catalog()).status()), HasSubstr("is not at hand"));
}

TEST(GraphTextTest, ErrorsNameThePlace) {
  auto error = [](std::string_view text) {
    return Message(ParseGraph(text, ops::Catalog()).status());
  };
  EXPECT_THAT(error("graph \"g\"\n  input x: f99[1]\n"), HasSubstr("unknown element type 'f99'"));
  EXPECT_THAT(error("graph \"g\"\n  input x: f32[1]\n  y: f32[1] = Frobnicate(x)\n"),
              HasSubstr("line 3"));
  EXPECT_THAT(error("graph \"g\"\n  input x: f32[2]\n  y: f32[3] = Relu(x)\n  output \"y\" = y\n"),
              HasSubstr("inference says f32[2]"));
  EXPECT_THAT(error("graph \"g\"\n  y: f32[3] = Relu(x)\n"), HasSubstr("unknown value 'x'"));
  EXPECT_THAT(error("graph \"g\"\n  input x: f32[1099511627776,1099511627776]\n"),
              HasSubstr("exceeds the limit"));
  EXPECT_THAT(error("graph \"g\"\n  input x: f32[2,2]<(a, b) -> (a, a)>\n"),
              HasSubstr("not a permutation"));
}

TEST(ConstantTest, ConvertsBetweenElementTypes) {
  EXPECT_EQ(RoundTo(DType::kF16, 65519.9), 65504);
  EXPECT_EQ(RoundTo(DType::kF16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(DType::kF16, 1 + 0x1.0p-11), 1);             // a tie goes to even
  EXPECT_EQ(RoundTo(DType::kF16, 1 + 0x1.8p-10), 1 + 0x1.0p-9);  // up to even
  EXPECT_EQ(RoundTo(DType::kF16, 0x1.8p-25), 0x1.0p-24);         // the smallest of all
  EXPECT_EQ(RoundTo(DType::kBF16, 1 + 0x1.1p-8), 1 + 0x1.0p-7);
  for (DType t : {DType::kF16, DType::kBF16}) {
    EXPECT_TRUE(RoundTo(t, 0.0) == 0 && !std::signbit(RoundTo(t, 0.0))) << ToString(t);
    EXPECT_TRUE(RoundTo(t, -0.0) == 0 && std::signbit(RoundTo(t, -0.0))) << ToString(t);
    EXPECT_EQ(WriteDoubles(t, std::vector<double>{0}), std::string(2, '\0')) << ToString(t);
  }
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (double v : {0.0, -0.0, 1.0, -1.5, 0.25, 3.0, 0x1.0p-20}) {
      EXPECT_EQ(RoundTo(t, v), v) << ToString(t);
      EXPECT_EQ(std::signbit(RoundTo(t, v)), std::signbit(v)) << ToString(t) << " " << v;
    }
  }
  EXPECT_EQ(RoundTo(DType::kU8, -3), 0);
  EXPECT_EQ(RoundTo(DType::kI8, 200.7), 127);
  EXPECT_EQ(RoundTo(DType::kI32, -2.9), -2);
  const std::vector<double> values = {-1.5, 0, 3, 1e30, std::nan("")};
  for (DType t :
       {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8, DType::kU8, DType::kI16,
        DType::kU16, DType::kI32, DType::kU32, DType::kI64, DType::kU64, DType::kBool}) {
    const std::vector<double> read = ReadDoubles(t, WriteDoubles(t, values));
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = RoundTo(t, values[i]);
      EXPECT_TRUE(read[i] == want || (std::isnan(read[i]) && std::isnan(want)))
          << ToString(t) << " " << values[i];
    }
  }
  EXPECT_FALSE(Constant::Make(DType::kF32, {2}, "1234567").ok());
}

TEST(VerifierTest, FindsBrokenGraphs) {
  const char* text =
      "graph \"g\"\n  input x: f32[2]\n  a: f32[2] = Relu(x)\n  b: f32[2] = Neg(a)\n  output \"b\" "
      "= b\n";
  Graph g = Parse(text);
  std::swap(g.nodes[0], g.nodes[1]);
  EXPECT_THAT(Message(Verify(g)), HasSubstr("used before it is computed"));
  g = Parse(text);
  g.values[1].name = "x";
  EXPECT_THAT(Message(Verify(g)), HasSubstr("two values are called 'x'"));
  g = Parse(text);
  g.nodes[1].view = true;
  EXPECT_THAT(Message(Verify(g)), HasSubstr("bytes would differ"));
  g = Parse(text);
  g.nodes[1].outputs = g.nodes[0].outputs;
  EXPECT_THAT(Message(Verify(g)), HasSubstr("defined twice"));
}

TEST(PassTest, FoldsConstantsThroughTheReference) {
  const std::string out = After(
      "graph \"g\"\n  input x: f32[3]\n  const a: f32[3] = [1.0,2.0,3.0]\n  const b: f32[1] = "
      "[10.0]\n"
      "  c: f32[3] = Mul(a, b)\n  d: f32[3] = Neg(c)\n  y: f32[3] = Add(x, d)\n  output \"y\" = "
      "y\n",
      {"fold-constants"});
  EXPECT_THAT(out, HasSubstr("const d: f32[3] = [-10.0,-20.0,-30.0]"));
  EXPECT_THAT(out, Not(HasSubstr("Mul")));
}

TEST(PassTest, RemovesIdentitiesAndPairs) {
  const std::string out = After(
      "graph \"g\"\n  input x: f32[2,3]\n  a: f32[2,3] = Relu(x)\n  b: f32[2,3] = Relu(a)\n  c: "
      "f32[2,3] = Identity(b)\n"
      "  d: f32[3,2] = Transpose(c) {perm=[1,0]}\n  e: f32[2,3] = Transpose(d) {perm=[1,0]}\n"
      "  f: f32[6] = Reshape(e) {shape=[6]}\n  g: f32[2,3] = Reshape(f) {shape=[2,3]}\n  h: "
      "f32[2,3] = Neg(g)\n  output \"y\" = h\n",
      {"remove-identities", "remove-dead-nodes"});
  EXPECT_EQ(out,
            "graph \"g\"\n  input x: f32[2,3]\n  b: f32[2,3] = Relu(x)\n  h: f32[2,3] = Neg(b)\n  "
            "output \"y\" = h\n");
}

TEST(PassTest, MergesEqualNodesAndConstants) {
  const std::string out = After(
      "graph \"g\"\n  input x: f32[2]\n  const a: f32[2] = [1.0,2.0]\n  const b: f32[2] = "
      "[1.0,2.0]\n"
      "  p: f32[2] = Add(x, a)\n  q: f32[2] = Add(x, b)\n  y: f32[2] = Mul(p, q)\n  output \"y\" = "
      "y\n",
      {"merge-equal-nodes"});
  EXPECT_THAT(out, HasSubstr("y: f32[2] = Mul(p, p)"));
  EXPECT_THAT(out, Not(HasSubstr("const b")));
}

constexpr char kConvNorm[] =
    "graph \"g\"\n  input x: f32[1,2,3,3]\n  const w: f32[2,2,1,1] = [1.0,-2.0,0.5,3.0]\n"
    "  const scale: f32[2] = [2.0,0.5]\n  const shift: f32[2] = [1.0,-1.0]\n  const mean: f32[2] = "
    "[0.25,-0.5]\n  const var: f32[2] = [4.0,0.25]\n"
    "  c: f32[1,2,3,3] = Conv(x, w) {} \"conv\"\n"
    "  y: f32[1,2,3,3] = BatchNormalization(c, scale, shift, mean, var) {} \"norm\"\n  output "
    "\"y\" = y\n";

TEST(PassTest, FoldsBatchNormIntoTheConvolution) {
  const std::string out = After(kConvNorm, {"fold-scale-shift"});
  EXPECT_THAT(out, HasSubstr("y: f32[1,2,3,3] = Conv(x, w_scaled, w_bias)"));
  EXPECT_THAT(out, HasSubstr("\"conv+norm\""));
  EXPECT_THAT(out, Not(HasSubstr("BatchNormalization")));
  ExpectSameResult(kConvNorm, {"fold-scale-shift"});
}

TEST(PassTest, BatchNormElsewhereBecomesScaleAndShift) {
  std::string shared(kConvNorm);
  shared += "  output \"c\" = c\n";  // the convolution's own result is read too
  const std::string out = After(shared, {"fold-scale-shift"});
  EXPECT_THAT(out, HasSubstr("Mul(c, norm_scale)"));
  EXPECT_THAT(out, HasSubstr("y: f32[1,2,3,3] = Add(norm_scaled, norm_shift)"));
  ExpectSameResult(shared, {"fold-scale-shift"});
}

TEST(PassTest, ScalesAndShiftsGoIntoContractionsOnBothSides) {
  auto text = [](std::string_view body) {
    return fmt::format(
        "graph \"g\"\n  input x: f32[1,2,3,3]\n  const w: f32[4,1,3,3] "
        "@{}\n  const v: f32[2,4,1,1] = [1.0,-2.0,0.5,3.0,-1.0,0.25,2.0,1.5]\n"
        "  const b: f32[2] = [0.5,-0.5]\n  const k: f32[2,1,1] = [2.0,-0.5]\n  const s: f32[] = "
        "[3.0]\n  const q: f32[4,1,1] = [1.0,2.0,3.0,4.0]\n{}",
        "w", body);
  };
  // The weights of the grouped convolution are too many to be written out.
  const ConstantPtr w = Constant::OfDoubles(DType::kF32, {4, 1, 3, 3}, Ramp(36));
  auto parse = [&](std::string_view body) {
    std::string t = text(body);
    t.replace(t.find("@w"), 2, "@" + w->hash().Hex());
    auto g = ParseGraph(t, ops::Catalog(), {w});
    EXPECT_TRUE(g.ok()) << g.status();
    return *std::move(g);
  };
  auto after = [&](std::string_view body) {
    Graph g = parse(body);
    const std::vector<double> before = Output(g, {Ramp(18)});
    EXPECT_TRUE(RunPasses(g, std::vector<std::string>{"fold-scale-shift"}, {}).ok());
    const std::vector<double> got = Output(g, {Ramp(18)});
    for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], got[i], 1e-4) << i;
    std::string ops;
    for (const Node& n : g.nodes) ops += (ops.empty() ? "" : " ") + n.op->name;
    return ops;
  };
  // Into a grouped convolution from both sides; padding forbids the shift in front.
  EXPECT_EQ(after("  m: f32[1,2,3,3] = Mul(x, k)\n  c: f32[1,4,1,1] = Conv(m, w) {group=2}\n  d: "
                  "f32[1,4,1,1] = Div(c, q)\n  y: f32[1,4,1,1] = Sub(d, s)\n  output \"y\" = y\n"),
            "Conv");
  EXPECT_EQ(after("  m: f32[1,2,3,3] = Mul(x, k)\n  a: f32[1,2,3,3] = Add(m, s)\n  y: f32[1,4,1,1] "
                  "= Conv(a, w) {group=2}\n  output \"y\" = y\n"),
            "Conv");
  EXPECT_EQ(after("  m: f32[1,2,3,3] = Mul(x, k)\n  a: f32[1,2,3,3] = Add(m, s)\n  y: f32[1,4,3,3] "
                  "= Conv(a, w) {group=2, pads=[1,1,1,1]}\n  output \"y\" = y\n"),
            "Mul Add Conv");
  // A constant minus x is no scale and shift of this form.
  EXPECT_EQ(after("  m: f32[1,2,3,3] = Sub(s, x)\n  y: f32[1,4,1,1] = Conv(m, w) {group=2}\n  "
                  "output \"y\" = y\n"),
            "Sub Conv");
  // Among themselves.
  EXPECT_EQ(after("  a: f32[1,2,3,3] = Mul(x, k)\n  b1: f32[1,2,3,3] = Add(a, s)\n  c: "
                  "f32[1,2,3,3] = Mul(b1, s)\n  d: f32[1,2,3,3] = Div(c, k)\n  y: f32[1,2,3,3] = "
                  "Sub(d, k)\n  output \"y\" = y\n"),
            "Mul Add");
}

TEST(PassTest, MatrixProductsTakeScalesOfTheirColumns) {
  constexpr char kText[] =
      "graph \"g\"\n  input x: f32[3,2]\n  const w: f32[2,2] = [1.0,-2.0,0.5,3.0]\n  const b: "
      "f32[2] = [0.5,-0.5]\n  const k: f32[2] = [2.0,-0.5]\n"
      "  g: f32[3,2] = Gemm(x, w, b) {transB=1}\n  n: f32[3,2] = Mul(g, k)\n  o: f32[3,2] = Add(n, "
      "b)\n  m: f32[3,2] = MatMul(o, w)\n  y: f32[3,2] = Mul(m, k)\n  output \"y\" = y\n";
  const std::string out = After(kText, {"fold-scale-shift"});
  EXPECT_THAT(out, HasSubstr("o: f32[3,2] = Gemm(x, w_scaled, w_scaled_bias)"));
  EXPECT_THAT(out, HasSubstr("y: f32[3,2] = MatMul(o, w_scaled_1)"));
  ExpectSameResult(kText, {"fold-scale-shift"});
}

TEST(PassTest, ScalesFoldOnlyWhereTheirRoundedProductsAreTheExactOnes) {
  auto after = [](std::string_view body) {
    const std::string text = fmt::format(
        "graph \"g\"\n  input x: f32[1,2,2,2]\n  const tiny: f32[] = [1e-30]\n"
        "  const huge: f32[] = [1e+30]\n  const least: f32[] = [1e-39]\n"
        "  const half: f32[] = [0.5]\n  const v: f32[2,2,1,1] = [1e20,2e20,-3e20,1e20]\n"
        "  const b: f32[2] = [1e10,-1e10]\n{}  output \"y\" = y\n",
        body);
    ExpectSameResult(text, {"fold-scale-shift"});
    Graph g = Parse(text);
    EXPECT_TRUE(RunPasses(g, std::vector<std::string>{"fold-scale-shift"}, {}).ok());
    std::string ops;
    for (const Node& n : g.nodes) ops += (ops.empty() ? "" : " ") + n.op->name;
    return ops;
  };
  const std::string t = ": f32[1,2,2,2] = ";
  // The inverse of a small divisor is no f32: 0 times it would be no number.
  EXPECT_EQ(after("  a" + t + "Div(x, least)\n  y" + t + "Mul(a, half)\n"), "Div Mul");
  // Neither are these products; the zero would be wrong for large x.
  EXPECT_EQ(after("  a" + t + "Mul(x, huge)\n  y" + t + "Mul(a, huge)\n"), "Mul Mul");
  EXPECT_EQ(after("  a" + t + "Mul(x, tiny)\n  y" + t + "Mul(a, tiny)\n"), "Mul Mul");
  EXPECT_EQ(after("  a" + t + "Mul(x, tiny)\n  y" + t + "Mul(a, huge)\n"), "Mul");
  // Weights and biases likewise, from both sides.
  EXPECT_EQ(after("  a" + t + "Conv(x, v)\n  y" + t + "Mul(a, huge)\n"), "Conv Mul");
  EXPECT_EQ(after("  a" + t + "Mul(x, huge)\n  y" + t + "Conv(a, v)\n"), "Mul Conv");
  EXPECT_EQ(after("  a" + t + "Conv(x, v, b)\n  y" + t + "Mul(a, tiny)\n"), "Conv");
  EXPECT_EQ(
      after("  s" + t + "Mul(x, tiny)\n  c" + t + "Conv(s, v, b)\n  y" + t + "Mul(c, huge)\n"),
      "Conv Mul");
}

TEST(PassTest, WeightsThatAreReadTwiceAreCopiedOnlyWhereTheyAreFew) {
  for (const int64_t columns : {8, 512}) {
    const ConstantPtr w = Constant::OfDoubles(DType::kF32, {64, columns}, Ramp(64 * columns));
    const std::string text = fmt::format(
        "graph \"g\"\n  input x: f32[2,64]\n  const w: f32[64,{0}] @{1}\n"
        "  const k: f32[] = [3.0]\n  a: f32[2,{0}] = MatMul(x, w)\n  y: f32[2,{0}] = Mul(a, k)\n"
        "  z: f32[2,{0}] = MatMul(x, w)\n  output \"y\" = y\n  output \"z\" = z\n",
        columns, w->hash().Hex());
    EXPECT_EQ(After(text, {"fold-scale-shift"}, {w}).find("= Mul(") == std::string::npos,
              columns == 8);
    ExpectSameResult(text, {"fold-scale-shift"}, {w});
  }
}

// A graph of one input and its only output "y".
std::string Chain(std::string_view type, std::string_view body) {
  return fmt::format(
      "graph \"g\"\n  input x: {}\n  const zero: f32[] = [0.0]\n  const one: f32[] = [1.0]\n  "
      "const three: f32[] = [3.0]\n  const six: f32[] = [6.0]\n  const sixth: f32[] = "
      "[0.1666666716337204]\n  const half: f32[] = [0.5]\n  const root: f32[] = "
      "[1.4142135381698608]\n  const two: f32[] = [2.0]\n  const slope: f32[2,1,1] = [0.25,0.5]\n"
      "{}  output \"y\" = y\n",
      type, body);
}

std::string OpsAfter(const std::string& text, const std::vector<std::string>& passes,
                     uint64_t seeds = 4) {
  ExpectSameResult(text, passes, {}, seeds);
  Graph g = Parse(text);
  EXPECT_TRUE(RunPasses(g, passes, {}).ok());
  std::string ops;
  for (const Node& n : g.nodes) ops += (ops.empty() ? "" : " ") + n.op->name;
  return ops;
}

TEST(PatternTest, WhatTheCatalogRefusesIsNoMatch) {
  Graph g = Parse("graph \"g\"\n  input x: i32[2,3]\n  y: i32[2,3] = Neg(x)\n  output \"y\" = y\n");
  const std::string text = ToString(g);
  const auto changed = PatternRewriter(g).Run([](PatternRewriter& r, Node& n) {
    const ValueId x = n.inputs[0];
    EXPECT_FALSE(r.Become(n, "HardSwish", {x})) << "of integers";
    EXPECT_FALSE(r.Become(n, "Cast", {x}, {{"to", std::string("f32")}})) << "another type";
    EXPECT_FALSE(r.Become(n, "Reshape", {x}, {{"shape", std::vector<int64_t>{6}}}))
        << "another shape";
    EXPECT_FALSE(r.Become(n, "Neg", {x, x})) << "too many inputs";
    EXPECT_FALSE(r.Become(n, "Neg", {x}, {{"axis", int64_t{1}}})) << "no such attribute";
    EXPECT_FALSE(r.Become(n, "NoOperator", {x}));
    EXPECT_FALSE(r.Emit("HardSwish", {x}).has_value());
    EXPECT_FALSE(r.Emit("NoOperator", {x}).has_value());
    const auto flat = r.Emit("Reshape", {x}, {{"shape", std::vector<int64_t>{6}}});
    EXPECT_TRUE(flat && !r.ReplaceBy(n, *flat)) << "another shape";
    return false;
  });
  EXPECT_TRUE(changed.ok() && !*changed);
  EXPECT_EQ(ToString(g), text) << "what was put in front goes again";
}

TEST(PatternTest, ReadersAreCountedAsTheyAre) {
  // The second addition takes the first one's place as the product's only reader, so the last
  // product can go through to it.
  EXPECT_EQ(OpsAfter(Chain("f32[2,3]",
                           "  m: f32[2,3] = Mul(x, three)\n  a: f32[2,3] = Add(m, one)\n  b: "
                           "f32[2,3] = Add(a, six)\n  y: f32[2,3] = Mul(b, half)\n"),
                     {"fold-scale-shift"}),
            "Mul Add");
  // What is dead does not read; what comes to life again does.
  Graph g = Parse(
      "graph \"g\"\n  input x: f32[2]\n  e: f32[2] = Exp(x)\n  dead: f32[2] = Neg(e)\n  n: f32[2] "
      "= "
      "Neg(e)\n  y: f32[2] = Relu(n)\n  output \"y\" = y\n");
  ASSERT_TRUE(PatternRewriter(g)
                  .Run([](PatternRewriter& r, Node& n) {
                    if (n.op->name != "Relu") return false;
                    const ValueId neg = n.inputs[0], e = r.Producer(neg)->inputs[0];
                    EXPECT_TRUE(r.Alone(e) && r.Alone(neg));
                    EXPECT_TRUE(r.Become(n, "Sin", {e}));
                    EXPECT_TRUE(r.Alone(e) && !r.Alone(neg));
                    const auto sum = r.Emit("Add", {neg, e});
                    EXPECT_TRUE(r.Alone(e)) << "nothing reads the sum yet";
                    EXPECT_TRUE(sum && r.Become(n, "Cos", {*sum}));
                    EXPECT_TRUE(r.Alone(neg) && r.Alone(*sum) && !r.Alone(e));
                    return true;
                  })
                  .ok());
  EXPECT_TRUE(Verify(g).ok());
  EXPECT_EQ(g.nodes.size(), 4u);
}

TEST(PassTest, IntegersHaveNoActivations) {
  // The quotient is truncated, which is another function.
  EXPECT_EQ(OpsAfter("graph \"g\"\n  input x: i32[2,8]\n  const three: i32[] = [3]\n"
                     "  const six: i32[] = [6]\n  a: i32[2,8] = Add(x, three)\n"
                     "  c: i32[2,8] = Clip(a) {max=6.0, min=0.0}\n  m: i32[2,8] = Mul(x, c)\n"
                     "  y: i32[2,8] = Div(m, six)\n  output \"y\" = y\n",
                     {"recognize-activations"}),
            "Add Clip Mul Div");
}

TEST(PassTest, RecognizesActivationsInEverySpelling) {
  // Statements end with a semicolon; every value has the type of x.
  auto becomes = [](const std::string& body, const std::string& type) {
    std::string text;
    for (size_t at = 0, end; (end = body.find(';', at)) != std::string::npos; at = end + 1) {
      std::string line = body.substr(at, end - at);
      text += "  " + line.replace(line.find(" = "), 3, ": f32[1,2,3,3] = ") + "\n";
    }
    std::string graph = Chain("f32[1,2,3,3]", text);
    if (type == "i32") {
      // Without the constants that are no integers.
      for (const char* name : {"sixth", "half", "root", "slope"}) {
        const size_t line = graph.find(fmt::format("  const {}:", name));
        graph.erase(line, graph.find('\n', line) + 1 - line);
      }
    }
    for (size_t at = 0; (at = graph.find("f32", at)) != std::string::npos; at += 3)
      graph.replace(at, 3, type);
    return OpsAfter(graph, {"recognize-activations"});
  };
  const std::string clip = "a = Add(x, three);c = Clip(a) {min=0.0, max=6.0};";
  const std::string erf = "d = Div(x, root);e = Erf(d);a = Add(e, one);";
  struct Spelling {
    std::string body, single;
    // With constants that f16 has not: as it was written.
    std::string half;
    std::string integer;  // empty: cannot be written
  };
  const Spelling spellings[] = {
      {clip + "m = Mul(x, c);y = Div(m, six);", "HardSwish", "HardSwish", "Add Clip Mul Div"},
      {clip + "m = Mul(c, x);y = Mul(m, sixth);", "HardSwish", "Add Clip Mul Mul", ""},
      {clip + "d = Div(c, six);y = Mul(x, d);", "HardSwish", "HardSwish", "Add Clip Div Mul"},
      {"h = HardSigmoid(x) {alpha=0.16666667, beta=0.5};y = Mul(h, x);", "HardSwish", "HardSwish",
       ""},
      {"h = HardSigmoid(x) {alpha=0.2, beta=0.5};y = Mul(h, x);", "HardSigmoid Mul",
       "HardSigmoid Mul", ""},
      {"a = Add(x, three);c = Max(a, zero);d = Min(six, c);y = Mul(d, sixth);", "HardSigmoid",
       "Add Clip Mul", ""},
      {"a = Add(x, three);c = Max(a, zero);d = Min(six, c);y = Div(d, six);", "HardSigmoid",
       "HardSigmoid", "Add Max Min Div"},
      {"m = Mul(x, half);a = Add(m, one);y = Clip(a) {min=0.0, max=1.0};", "HardSigmoid",
       "HardSigmoid", ""},
      {"m = Mul(x, two);a = Add(m, one);y = Clip(a) {min=0.0, max=1.0};", "HardSigmoid",
       "HardSigmoid", "Mul Add Clip"},
      {"r = Relu(x);n = Neg(x);q = Relu(n);m = Mul(q, slope);y = Sub(r, m);", "PRelu", "PRelu", ""},
      {"r = Max(x, zero);q = Min(x, zero);m = Mul(slope, q);y = Add(m, r);", "PRelu", "PRelu", ""},
      {"r = Max(x, zero);q = Min(x, zero);m = Mul(two, q);y = Add(m, r);", "PRelu", "PRelu",
       "Max Min Mul Add"},
      {"a = Mul(x, one);b = Add(a, zero);y = Pow(b, two);", "Mul", "Mul", "Mul"},
      {erf + "m = Mul(x, a);y = Mul(m, half);", "Gelu", "Div Erf Add Mul Mul", ""},
      {erf + "h = Mul(x, half);y = Mul(a, h);", "Gelu", "Div Erf Add Mul Mul", ""},
      {erf + "h = Mul(a, half);y = Mul(x, h);", "Gelu", "Div Erf Add Mul Mul", ""},
      {erf + "m = Mul(x, a);y = Mul(m, six);", "Div Erf Add Mul Mul", "Div Erf Add Mul Mul", ""},
  };
  for (const Spelling& s : spellings) {
    EXPECT_EQ(becomes(s.body, "f32"), s.single) << s.body;
    EXPECT_EQ(becomes(s.body, "f16"), s.half) << s.body;
    if (s.integer.empty()) continue;
    EXPECT_EQ(becomes(s.body, "i32"), s.integer) << s.body;
  }
}

TEST(PassTest, RecognizesReductions) {
  EXPECT_EQ(
      OpsAfter(Chain("f32[2,3]",
                     "  m: f32[2,1] = ReduceMax(x) {axes=[1]}\n  d: f32[2,3] = Sub(x, m)\n  e: "
                     "f32[2,3] = Exp(d)\n  s: f32[2,1] = ReduceSum(e) {axes=[1]}\n  y: f32[2,3] "
                     "= Div(e, s)\n"),
               {"recognize-reductions"}),
      "Softmax");
  EXPECT_EQ(
      OpsAfter(Chain("f32[2,3,4,5]", "  y: f32[2,3] = ReduceMean(x) {axes=[2,3], keepdims=0}\n"),
               {"recognize-reductions"}),
      "AveragePool Reshape");
}

TEST(PassTest, RecognizesNormalizationsWithTheirParameters) {
  const std::string statistics =
      "  const g: f32[3] = [1.0,2.0,3.0]\n  const b: f32[3] = [0.5,-1.0,0.25]\n  const eps: f32[] "
      "= "
      "[1e-05]\n";
  const std::string layer =
      statistics +
      "  m: f32[2,1] = ReduceMean(x) {axes=[1]}\n  d: f32[2,3] = Sub(x, m)\n  q: f32[2,3] = Pow(d, "
      "two)\n  v: f32[2,1] = ReduceMean(q) {axes=[1]}\n  e: f32[2,1] = Add(v, eps)\n  r: f32[2,1] "
      "= "
      "Sqrt(e)\n";
  auto ops = [](const std::string& body) {
    return OpsAfter(Chain("f32[2,3]", body), {"recognize-reductions"});
  };
  EXPECT_EQ(ops(layer + "  y: f32[2,3] = Div(d, r)\n"), "LayerNormalization");
  EXPECT_EQ(ops(layer + "  n: f32[2,3] = Div(d, r)\n  s: f32[2,3] = Mul(n, g)\n  y: f32[2,3] = "
                        "Add(s, b)\n"),
            "LayerNormalization");
  EXPECT_EQ(ops(layer + "  n: f32[2,3] = Div(d, r)\n  y: f32[2,3] = Add(n, b)\n"),
            "LayerNormalization");
  EXPECT_EQ(ops(layer + "  i: f32[2,1] = Reciprocal(r)\n  y: f32[2,3] = Mul(i, d)\n"),
            "LayerNormalization");
  EXPECT_EQ(
      ops(statistics +
          "  q: f32[2,3] = Mul(x, x)\n  v: f32[2,1] = ReduceMean(q) {axes=[1]}\n  e: f32[2,1] "
          "= Add(v, eps)\n  r: f32[2,1] = Sqrt(e)\n  n: f32[2,3] = Div(x, r)\n  y: f32[2,3] = "
          "Mul(g, n)\n"),
      "RMSNormalization");
}

TEST(PassTest, CastsThatLoseNothingMerge) {
  auto casts = [](const char* from, const char* between, const char* to) {
    const std::string text = fmt::format(
        "graph \"g\"\n  input x: {0}[2]\n  a: {1}[2] = Cast(x) {{to=\"{1}\"}}\n  y: {2}[2] = "
        "Cast(a) {{to=\"{2}\"}}\n  output \"y\" = y\n",
        from, between, to);
    Graph g = Parse(text);
    EXPECT_TRUE(RunPasses(g, std::vector<std::string>{"merge-casts"}, {}).ok());
    return g.nodes.size();
  };
  EXPECT_EQ(casts("f32", "f64", "f32"), 0u);
  EXPECT_EQ(casts("i32", "i64", "f32"), 1u);
  EXPECT_EQ(casts("bool", "f16", "i8"), 1u);
  EXPECT_EQ(casts("i64", "i32", "i64"), 2u);
  EXPECT_EQ(casts("f32", "f16", "f32"), 2u);
  EXPECT_EQ(casts("i32", "f32", "i32"), 2u);
  EXPECT_EQ(casts("u8", "i8", "i32"), 2u);
}

TEST(PassTest, TransposesSinkAndCancel) {
  const std::vector<std::string> passes = {"sink-transposes", "fold-constants", "remove-identities",
                                           "remove-dead-nodes"};
  EXPECT_EQ(
      OpsAfter(Chain("f32[1,2,3,4]",
                     "  t: f32[1,3,4,2] = Transpose(x) {perm=[0,2,3,1]}\n  r: f32[1,3,4,2] = "
                     "Relu(t)\n  const c: f32[4,2] = [1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]\n  a: "
                     "f32[1,3,4,2] = Mul(r, c)\n  u: f32[1,3,4,2] = Transpose(x) "
                     "{perm=[0,2,3,1]}\n  s: f32[1,3,4,2] = Add(a, u)\n  p: f32[1,3,4,3] = "
                     "Pad(s) {pads=[0,0,0,1,0,0,0,0], value=0.0}\n  q: f32[1,3,2,3] = Slice(p) "
                     "{starts=[0,0,1,0], sizes=[1,3,2,3], steps=[1,1,1,1]}\n  y: f32[1,3,3,2] "
                     "= Transpose(q) {perm=[0,3,1,2]}\n"),
               passes),
      "Relu Mul Add Pad Slice");
  EXPECT_EQ(OpsAfter(Chain("f32[2,3,4]",
                           "  t: f32[4,2,3] = Transpose(x) {perm=[2,0,1]}\n  v: f32[4,2,3] = "
                           "Softmax(t) {axis=0}\n  y: f32[4,2] = ReduceMax(v) {axes=[2], "
                           "keepdims=0}\n"),
                     passes),
            "Softmax ReduceMax Transpose");
  // Both operands of a join, or neither.
  EXPECT_EQ(OpsAfter(Chain("f32[2,3,4]",
                           "  n: f32[2,3,4] = Neg(x)\n  t: f32[4,2,3] = Transpose(x) "
                           "{perm=[2,0,1]}\n  u: f32[4,2,3] = Transpose(n) {perm=[2,0,1]}\n  y: "
                           "f32[8,2,3] = Concat(t, u) {axis=0}\n"),
                     passes),
            "Neg Concat Transpose");
}

TEST(PassTest, DepthToSpaceSinksBelowWhatFollowsAConvolution) {
  for (int groups : {1, 2}) {
    const std::string text = Chain(
        "f32[1,8,2,3]",
        fmt::format(
            "  const s: f32[2] = [1.5,2.5]\n  const m: f32[2] = [0.25,-1.0]\n  const v: f32[2] "
            "= [4.0,0.25]\n  d: f32[1,2,4,6] = DepthToSpace(x) {{block=[2,2], groups={}, "
            "starts=[0,0], sizes=[4,6]}}\n  n: f32[1,2,4,6] = BatchNormalization(d, s, m, m, "
            "v)\n  a: f32[1,2,4,6] = Add(slope, n)\n  p: f32[1,2,4,6] = Mul(a, half)\n  y: "
            "f32[1,2,4,6] = Relu(p)\n",
            groups));
    EXPECT_EQ(OpsAfter(text, {"sink-depth-to-space"}),
              "BatchNormalization Add Mul Relu DepthToSpace");
  }
}

TEST(PassTest, DepthToSpaceSinksBelowAPointwiseConvolutionOfFewChannels) {
  auto text = [](int groups, const char* weights, const char* attrs, const char* result) {
    return Chain(
        "f32[1,8,2,3]",
        fmt::format("  const w: {}\n  const c: f32[3] = [0.5,-1.0,2.0]\n  d: f32[1,2,4,5] = "
                    "DepthToSpace(x) {{block=[2,2], groups={}, starts=[0,1], sizes=[4,5]}}"
                    "\n  y: {} = Conv(d, w, c) {{dilations=[1,1], group=1, {}}}\n",
                    weights, groups, result, attrs));
  };
  constexpr char kOneTap[] = "f32[3,2,1,1] = [1.0,2.0,-3.0,4.0,5.0,0.25]";
  constexpr char kThreeTaps[] =
      "f32[3,2,1,3] = [1.0,2.0,-3.0,4.0,5.0,0.25,1.0,2.0,-3.0,4.0,5.0,0.25,1.0,2.0,-3.0,4.0,5.0,"
      "0.25]";
  const std::vector<std::string> passes = {"sink-depth-to-space", "remove-dead-nodes"};
  // Not for a NaN: zeros of other phases are multiplied.
  for (int groups : {1, 2}) {
    EXPECT_EQ(OpsAfter(text(groups, kOneTap, "pads=[0,0,0,0], strides=[1,1]", "f32[1,3,4,5]"),
                       passes, /*seeds=*/3),
              "Conv DepthToSpace");
  }
  // Not where pixels are left out, added, or seen together.
  EXPECT_EQ(OpsAfter(text(1, kOneTap, "pads=[0,0,0,0], strides=[2,2]", "f32[1,3,2,3]"), passes),
            "DepthToSpace Conv");
  EXPECT_EQ(OpsAfter(text(1, kOneTap, "pads=[1,0,0,0], strides=[1,1]", "f32[1,3,5,5]"), passes),
            "DepthToSpace Conv");
  EXPECT_EQ(OpsAfter(text(1, kThreeTaps, "pads=[0,0,0,0], strides=[1,1]", "f32[1,3,4,3]"), passes),
            "DepthToSpace Conv");
}

TEST(PassTest, ReshapesSinkBehindElementwiseOperators) {
  const std::vector<std::string> passes = {"sink-reshapes", "remove-identities",
                                           "remove-dead-nodes"};
  EXPECT_EQ(
      OpsAfter(Chain("f32[2,6]",
                     "  r: f32[4,3] = Reshape(x) {shape=[4,3]}\n  a: f32[4,3] = Relu(r)\n  b: "
                     "f32[4,3] = Mul(a, three)\n  y: f32[2,6] = Reshape(b) {shape=[2,6]}\n"),
               passes),
      "Relu Mul");
  // A vector along a dimension that the reshape cuts keeps it in its place.
  EXPECT_EQ(OpsAfter(Chain("f32[2,6]",
                           "  const c: f32[3] = [1.0,2.0,3.0]\n  r: f32[4,3] = Reshape(x) "
                           "{shape=[4,3]}\n  y: f32[4,3] = Mul(r, c)\n"),
                     passes),
            "Reshape Mul");
}

TEST(PassTest, ZerosJoinedToTheChannelsBecomeAPad) {
  constexpr char kText[] =
      "graph \"g\"\n  input x: f32[1,2,2,2]\n  const z: f32[1,1,2,2] = [0.0,0.0,0.0,0.0]\n  const "
      "o: f32[1,1,2,2] = [0.0,0.0,0.0,1.0]\n"
      "  a: f32[1,4,2,2] = Concat(z, x, z) {axis=1}\n  b: f32[1,5,2,2] = Concat(a, o) {axis=1}\n  "
      "output \"y\" = b\n";
  const std::string out = After(kText, {"concat-to-pad"});
  EXPECT_THAT(out, HasSubstr("a: f32[1,4,2,2] = Pad(x) {pads=[0,1,0,0,0,1,0,0], value=0.0}"));
  EXPECT_THAT(out, HasSubstr("Concat(a, o)"));
  ExpectSameResult(kText, {"concat-to-pad"});
}

TEST(PassTest, PadsGoIntoWindowsWhereThatIsTheSame) {
  auto text = [](const char* pad_value, const char* consumer) {
    return std::string(
               "graph \"g\"\n  input x: f32[1,1,4,4]\n  const w: f32[1,1,3,3] = "
               "[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0]\n") +
           "  p: f32[1,1,6,5] = Pad(x) {pads=[0,0,1,0,0,0,1,1], value=" + pad_value +
           "}\n  y: " + consumer + "\n  output \"y\" = y\n";
  };
  const std::string conv = text("0.0", "f32[1,1,4,3] = Conv(p, w) {}");
  EXPECT_THAT(After(conv, {"fold-pad", "remove-dead-nodes"}),
              HasSubstr("Conv(x, w) {dilations=[1,1], group=1, pads=[1,0,1,1]"));
  ExpectSameResult(conv, {"fold-pad"});
  EXPECT_THAT(After(text("1.0", "f32[1,1,4,3] = Conv(p, w) {}"), {"fold-pad"}),
              HasSubstr("Conv(p, w)"));
  const std::string max = text("-inf", "f32[1,1,4,3] = MaxPool(p) {kernel=[3,3]}");
  EXPECT_THAT(After(max, {"fold-pad"}), HasSubstr("MaxPool(x)"));
  ExpectSameResult(max, {"fold-pad"});
  EXPECT_THAT(After(text("0.0", "f32[1,1,4,3] = MaxPool(p) {kernel=[3,3]}"), {"fold-pad"}),
              HasSubstr("MaxPool(p)"));
  const std::string average = text("0.0", "f32[1,1,4,3] = AveragePool(p) {kernel=[3,3]}");
  EXPECT_THAT(After(average, {"fold-pad"}), HasSubstr("count_include_pad=1"));
  ExpectSameResult(average, {"fold-pad"});
  const std::string own =
      text("0.0", "f32[1,1,6,5] = AveragePool(p) {kernel=[3,3], pads=[1,1,1,1]}");
  EXPECT_THAT(After(own, {"fold-pad"}), HasSubstr("AveragePool(p)"));
}

TEST(PassTest, OutputsOwnTheirBytes) {
  const std::string out = After(
      "graph \"g\"\n  input x: f32[2,2]\n  const c: f32[1] = [1.0]\n  r: f32[2,2] = Relu(x)\n  f: "
      "f32[4] = Reshape(r) {shape=[4]}\n"
      "  i: f32[4] = Reshape(x) {shape=[4]}\n  output \"r\" = r\n  output \"f\" = f\n  output "
      "\"i\" = i\n  output \"c\" = c\n",
      {"mark-views", "separate-outputs"});
  EXPECT_THAT(out, HasSubstr("output \"r\" = r\n"));
  EXPECT_THAT(out, HasSubstr("output \"f\" = f_output\n"));
  EXPECT_THAT(out, HasSubstr("output \"i\" = i_output\n"));
  EXPECT_THAT(out, HasSubstr("output \"c\" = c_output\n"));
}

TEST(PassTest, TheListReportsDumpsAndSwitchesOff) {
  Graph g = Parse(kConvNorm);
  PassOptions options;
  options.disabled = {"fold-scale-shift"};
  std::vector<std::string> dumped;
  options.dump = [&](std::string_view pass, const Graph& now) {
    dumped.emplace_back(pass);
    EXPECT_TRUE(Verify(now).ok());
  };
  int64_t clock = 0;
  options.now_ns = [&] { return clock += 5; };
  auto results = RunPasses(g, options);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), Passes().size());
  for (const PassResult& r : *results) {
    if (r.name == "fold-scale-shift") {
      EXPECT_FALSE(r.changed);
    } else {
      EXPECT_EQ(r.nanoseconds, 5) << r.name;
    }
  }
  EXPECT_THAT(ToString(g), HasSubstr("BatchNormalization"));
  EXPECT_THAT(dumped, Not(testing::Contains("fold-scale-shift")));
  options.disabled = {"fold-pad"};
  ASSERT_TRUE(RunPasses(g, options).ok());
  EXPECT_THAT(dumped, testing::ElementsAre("fold-scale-shift"));
  options.disabled = {"fold-scaleshift"};
  EXPECT_THAT(Message(RunPasses(g, options).status()),
              HasSubstr("unknown graph pass 'fold-scaleshift'; passes:"));
}

TEST(EvaluateTest, RefusesWrongInputs) {
  Graph g = Parse("graph \"g\"\n  input x: f32[2]\n  y: f32[2] = Relu(x)\n  output \"y\" = y\n");
  EXPECT_FALSE(EvaluateModel(g, {}).ok());
  EXPECT_THAT(Message(EvaluateModel(g, {{DType::kF32, {3}, {1, 2, 3}, {}}}).status()),
              HasSubstr("input 'x' is [3], not f32[2]"));
  EXPECT_EQ(Output(g, {{-1, 2}}), (std::vector<double>{0, 2}));
}

TEST(CostTest, ProductsOfExtentsSaturate) {
  constexpr int64_t k = int64_t{1} << 40;
  EXPECT_EQ(FlopsProduct({2, 3, 7}), 42);
  EXPECT_EQ(FlopsProduct({k, k, k, k}), kMaxFlops);
  EXPECT_EQ(FlopsProduct({k, k, 0}), 0);
}

}  // namespace
}  // namespace whet::graph
