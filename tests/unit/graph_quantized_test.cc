// Quantized models as graph passes leave them: integer sums, and what happens to what surrounds
// them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/unit/graph_testing.h"

namespace whet::graph {
namespace {

using testing::HasSubstr;
using testing::Not;

// x, its weights and its bias as quantization tools leave them.
constexpr const char* kQuantizedConv =
    "graph \"g\"\n  input x: u8[1,2,4,4]\n"
    "  const w: i8[3,2,1,1] = [1,-2,3,4,-5,127]\n  const ws: f32[3,1,1,1] = [0.5,0.25,1.0]\n"
    "  const b: i32[3] = [10,-20,30]\n  const bs: f32[3] = [0.125,0.0625,0.25]\n"
    "  const s: f32[] = [0.25]\n  const z: u8[] = [3]\n  const ys: f32[] = [2.0]\n"
    "  const yz: u8[] = [0]\n"
    "  dx: f32[1,2,4,4] = DequantizeLinear(x, s, z)\n"
    "  dw: f32[3,2,1,1] = DequantizeLinear(w, ws)\n"
    "  db: f32[3] = DequantizeLinear(b, bs)\n"
    "  c: f32[1,3,4,4] = Conv(dx, dw, db)\n";

TEST(QuantizedPassTest, QuantizedContractionsBecomeIntegerSums) {
  const std::vector<std::string> passes = {"qdq-to-integer", "fold-zero-points",
                                           "remove-dead-nodes"};
  const std::string clipped = std::string(kQuantizedConv) +
                              "  r: f32[1,3,4,4] = Clip(c) {max=6.0, min=0.0}\n"
                              "  y: u8[1,3,4,4] = QuantizeLinear(r, ys, yz)\n  output \"y\" = y\n";
  const std::string out = After(clipped, passes);
  // The zero point of x joins the bias: 10 - 3 * (1 - 2), ...
  EXPECT_THAT(out, HasSubstr("i32[3,1,1] = [13,-41,-336]"));
  EXPECT_THAT(out, HasSubstr("ConvInteger(x, w) {dilations=[1,1], group=1, pad_value=0"));
  EXPECT_THAT(out, HasSubstr("{hi=3, lo=0}"));
  EXPECT_THAT(out, HasSubstr("f32[3,1,1] = [0.0625,0.03125,0.125]"));
  EXPECT_THAT(out, Not(HasSubstr("QuantizeLinear")));
  ExpectSameResult(clipped, passes);
  // Without a quantization behind it the result is a dequantized sum.
  const std::string open = std::string(kQuantizedConv) + "  output \"c\" = c\n";
  EXPECT_THAT(After(open, passes), HasSubstr("DequantizeLinear("));
  EXPECT_THAT(After(open, passes), Not(HasSubstr("= Conv(")));
  ExpectSameResult(open, passes);
}

TEST(QuantizedPassTest, QuantizedMatrixProductsBecomeIntegerSums) {
  const std::vector<std::string> passes = {"qdq-to-integer", "fold-constants", "fold-zero-points",
                                           "remove-dead-nodes"};
  const std::string gemm =
      "graph \"g\"\n  input x: i8[2,3]\n  const w: u8[2,3] = [1,2,3,200,5,6]\n"
      "  const ws: f32[2,1] = [0.5,0.25]\n  const wz: u8[] = [128]\n  const s: f32[] = [0.5]\n"
      "  const b: f32[2] = [0.3,0.7]\n"
      "  dx: f32[2,3] = DequantizeLinear(x, s)\n  dw: f32[2,3] = DequantizeLinear(w, ws, wz)\n"
      "  y: f32[2,2] = Gemm(dx, dw, b) {alpha=2.0, beta=1.0, transA=0, transB=1}\n"
      "  output \"y\" = y\n";
  const std::string out = After(gemm, passes);
  // Weights minus their zero point fit i8; the bias is no multiple of the scale and stays a float.
  EXPECT_THAT(out, HasSubstr("i8[3,2] = [-127,72,-126,-123,-125,-122]"));
  EXPECT_THAT(out, HasSubstr("= MatMulInteger(x, "));
  EXPECT_THAT(out, HasSubstr("f32[2] = [0.5,0.25]"));
  ExpectSameResult(gemm, passes);
}

TEST(QuantizedPassTest, ABiasIsAddedAlongItsOwnAxis) {
  const std::vector<std::string> passes = {"qdq-to-integer", "fold-constants", "fold-zero-points",
                                           "remove-dead-nodes"};
  // As many channels as columns: only the shape says where the bias belongs.
  const std::string conv =
      "graph \"g\"\n  input x: u8[1,2,4,4]\n  input b: f32[4]\n"
      "  const w: i8[4,2,1,1] = [1,-2,3,4,-5,127,7,9]\n"
      "  const s: f32[] = [0.25]\n  const t: f32[] = [0.5]\n"
      "  dx: f32[1,2,4,4] = DequantizeLinear(x, s)\n"
      "  dw: f32[4,2,1,1] = DequantizeLinear(w, t)\n"
      "  y: f32[1,4,4,4] = Conv(dx, dw, b)\n  output \"y\" = y\n";
  EXPECT_THAT(After(conv, passes), HasSubstr("ConvInteger("));
  ExpectSameResult(conv, passes);
  const std::string gemm =
      "graph \"g\"\n  input x: u8[3,2]\n  const w: i8[2,3] = [1,2,3,-4,5,6]\n"
      "  const s: f32[] = [0.25]\n  const t: f32[] = [0.5]\n"
      "  const c: f32[3,1] = [10.0,200.0,3000.0]\n"
      "  dx: f32[3,2] = DequantizeLinear(x, s)\n  dw: f32[2,3] = DequantizeLinear(w, t)\n"
      "  y: f32[3,3] = Gemm(dx, dw, c) {alpha=1.0, beta=1.0, transA=0, transB=0}\n"
      "  output \"y\" = y\n";
  EXPECT_THAT(After(gemm, passes), HasSubstr("MatMulInteger("));
  ExpectSameResult(gemm, passes);
}

TEST(QuantizedPassTest, ANegativeScaleTurnsTheOrderRound) {
  const std::string text = std::string(kQuantizedConv) +
                           "  const ns: f32[] = [-1.0]\n  const nz: u8[] = [200]\n"
                           "  r: f32[1,3,4,4] = Relu(c)\n"
                           "  y: u8[1,3,4,4] = QuantizeLinear(r, ns, nz)\n  output \"y\" = y\n";
  ExpectSameResult(text, {"qdq-to-integer", "fold-zero-points", "remove-dead-nodes"});
}

TEST(QuantizedPassTest, AComputedZeroPointBecomesAProductPerChannel) {
  const std::string text =
      "graph \"g\"\n  input x: u8[2,2]\n  input z: u8[]\n  const w: i8[2,2] = [1,2,3,-4]\n"
      "  y: i32[2,2] = MatMulInteger(x, w, z)\n  output \"y\" = y\n";
  const std::string out = After(text, {"fold-zero-points"});
  EXPECT_THAT(out, HasSubstr("MatMulInteger(x, w)"));
  EXPECT_THAT(out, HasSubstr("i32[2] = [-4,2]"));
  Graph g = Parse(text);
  EXPECT_EQ(Output(g, {{5, 6, 7, 8}, {3}}), (std::vector<double>{11, -8, 19, -12}));
  ASSERT_TRUE(RunPasses(g, std::vector<std::string>{"fold-zero-points"}, {}).ok());
  EXPECT_EQ(Output(g, {{5, 6, 7, 8}, {3}}), (std::vector<double>{11, -8, 19, -12}));
}

TEST(QuantizedPassTest, PaddedConvolutionsKeepAZeroPointThatIsNotZero) {
  for (const char* zero : {"2", "0"}) {
    const std::string text =
        std::string("graph \"g\"\n  input x: u8[1,1,2,2]\n  const z: u8[] = [") + zero +
        "]\n  const w: u8[1,1,3,3] = [1,2,3,4,5,6,7,8,9]\n  const q: u8[] = [5]\n"
        "  y: i32[1,1,2,2] = ConvInteger(x, w, z, q) {pads=[1,1,1,1]}\n  output \"y\" = y\n";
    const std::string out = After(text, {"fold-zero-points"});
    EXPECT_THAT(out, HasSubstr("i8[1,1,3,3] = [-4,-3,-2,-1,0,1,2,3,4]"));
    EXPECT_THAT(out, HasSubstr(zero == std::string("2") ? "ConvInteger(x, weights, z)"
                                                        : "ConvInteger(x, weights)"));
    ExpectSameResult(text, {"fold-zero-points"});
  }
}

TEST(QuantizedPassTest, APadOfIntegersGoesIntoTheWindow) {
  const std::string text =
      "graph \"g\"\n  input x: u8[1,1,2,2]\n  const w: i8[1,1,3,3] = [1,2,3,4,5,6,7,8,9]\n"
      "  p: u8[1,1,3,3] = Pad(x) {pads=[0,0,0,0,0,0,1,1], value=7.0}\n"
      "  y: i32[1,1,1,1] = ConvInteger(p, w)\n  output \"y\" = y\n";
  EXPECT_THAT(
      After(text, {"fold-pad", "remove-dead-nodes"}),
      HasSubstr("ConvInteger(x, w) {dilations=[1,1], group=1, pad_value=7, pads=[0,0,1,1]"));
  ExpectSameResult(text, {"fold-pad"});
}

TEST(QuantizedPassTest, AQuantizedTableIsGatheredFromAsItIs) {
  const std::string text =
      "graph \"g\"\n  input i: i64[2]\n  const t: i8[3,2] = [1,2,3,4,5,6]\n"
      "  const s: f32[] = [0.5]\n  d: f32[3,2] = DequantizeLinear(t, s)\n"
      "  y: f32[2,2] = Gather(d, i) {axis=0}\n  output \"y\" = y\n";
  EXPECT_THAT(After(text, {"qdq-to-integer", "remove-dead-nodes"}),
              HasSubstr("i8[2,2] = Gather(t, i)"));
  ExpectSameResult(text, {"qdq-to-integer"});
}

TEST(QuantizedPassTest, ABiasThatWasNotQuantizedJoinsAFineSum) {
  auto graph = [](const char* quantum) {
    return std::string(
               "graph \"g\"\n  input x: u8[2,3]\n  const w: i8[3,2] = [1,2,3,-4,5,6]\n"
               "  const s: f32[] = [0.0078125]\n  const b: f32[2] = [0.3,-0.7]\n  const q: f32[] "
               "= ") +
           quantum +
           "\n  const z: u8[] = [100]\n"
           "  dx: f32[2,3] = DequantizeLinear(x, s)\n  dw: f32[3,2] = DequantizeLinear(w, s)\n"
           "  m: f32[2,2] = MatMul(dx, dw)\n  a: f32[2,2] = Add(b, m)\n"
           "  y: u8[2,2] = QuantizeLinear(a, q, z)\n  output \"y\" = y\n";
  };
  const std::vector<std::string> passes = {"qdq-to-integer", "remove-dead-nodes"};
  // 0.3 * 2^14 and -0.7 * 2^14
  EXPECT_THAT(After(graph("[0.03125]"), passes), HasSubstr("i32[2] = [4915,-11469]"));
  ExpectSameResult(graph("[0.03125]"), passes);
  EXPECT_THAT(After(graph("[0.0078125]"), passes), Not(HasSubstr("Requantize")));
  ExpectSameResult(graph("[0.0078125]"), passes);
}

TEST(QuantizedPassTest, DequantizationMovesBehindWhatMovesData) {
  const std::string text =
      "graph \"g\"\n  input x: u8[1,2,4,4]\n  const s: f32[] = [0.5]\n  const z: u8[] = [3]\n"
      "  d: f32[1,2,4,4] = DequantizeLinear(x, s, z)\n"
      "  p: f32[1,2,2,2] = MaxPool(d) {kernel=[2,2], strides=[2,2]}\n"
      "  a: f32[1,2,4,2] = Pad(p) {pads=[0,0,1,0,0,0,1,0], value=0.0}\n"
      "  j: f32[1,2,4,4] = Concat(a, a) {axis=3}\n"
      "  r: f32[1,32] = Reshape(j) {shape=[1,32]}\n"
      "  q: u8[1,32] = QuantizeLinear(r, s, z)\n  output \"q\" = q\n";
  const std::string out = After(text, {"qdq-to-integer", "remove-dead-nodes"});
  EXPECT_THAT(out, Not(HasSubstr("f32[1")));
  EXPECT_THAT(out, HasSubstr("value=3.0"));
  ExpectSameResult(text, {"qdq-to-integer", "remove-dead-nodes"});
}

// Random quantized layers, each followed by a clipping or none and a quantization: the integer form
// is at most one quantum from the float one evaluated in f64, and equal away from ties.
TEST(QuantizedPassTest, IntegerFormIsWithinOneQuantumOfTheFloatForm) {
  uint64_t state = 17;
  auto draw = [&](int64_t lo, int64_t hi) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return lo + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(hi - lo + 1));
  };
  auto list = [&](int64_t n, const std::function<std::string()>& one) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += (i ? "," : "") + one();
    return "[" + text + "]";
  };
  int64_t elements = 0, apart = 0;
  for (int round = 0; round < 40; ++round) {
    const bool is_signed = draw(0, 1) != 0;
    const std::string t = is_signed ? "i8" : "u8";
    const int64_t lo = is_signed ? -128 : 0, hi = lo + 255;
    auto scale = [&] { return fmt::format("{:.9g}", 0.001 * static_cast<double>(draw(3, 40))); };
    const char* clips[] = {"Relu(c)", "Clip(c) {max=1.5, min=-0.25}", "Clip(c) {max=6.0, min=0.0}",
                           "Neg(c)"};
    const std::string text = fmt::format(
        "graph \"g\"\n  input x: {0}[1,4,5,5]\n  const w: i8[6,2,3,3] = {1}\n"
        "  const ws: f32[6,1,1,1] = {2}\n  const xs: f32[] = [{3}]\n  const xz: {0}[] = [{4}]\n"
        "  const ys: f32[] = [{5}]\n  const yz: {0}[] = [{6}]\n  const b: f32[6] = {7}\n"
        "  dx: f32[1,4,5,5] = DequantizeLinear(x, xs, xz)\n"
        "  dw: f32[6,2,3,3] = DequantizeLinear(w, ws)\n"
        "  c: f32[1,6,5,5] = Conv(dx, dw, b) {{group=2, pads=[1,1,1,1]}}\n"
        "  r: f32[1,6,5,5] = {8}\n"
        "  y: {0}[1,6,5,5] = QuantizeLinear(r, ys, yz)\n  output \"y\" = y\n",
        t, list(108, [&] { return std::to_string(draw(-127, 127)); }), list(6, scale), scale(),
        draw(lo, hi), scale(), draw(lo, hi),
        list(6,
             [&] {
               return fmt::format("{:.9g}", 0.01 * static_cast<double>(draw(-99, 99)) + 0.001);
             }),
        clips[draw(0, 3)]);
    Graph g = Parse(text);
    std::vector<double> x;
    for (int i = 0; i < 100; ++i) x.push_back(static_cast<double>(draw(lo, hi)));
    const std::vector<double> want = Output(g, {x});
    ASSERT_TRUE(RunPasses(g, PassOptions{}).ok());
    EXPECT_THAT(ToString(g), HasSubstr("ConvInteger("));
    const std::vector<double> got = Output(g, {x});
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::fabs(want[i] - got[i]), 1) << text << "element " << i;
      apart += want[i] != got[i];
      ++elements;
    }
  }
  EXPECT_LT(apart * 1000, elements);
}

}  // namespace
}  // namespace whet::graph
