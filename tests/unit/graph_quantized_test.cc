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
  // A value that no padding may have stays outside.
  const std::string wide =
      "graph \"g\"\n  input x: i32[1,1,2,2]\n  const w: i8[1,1,3,3] = [1,2,3,4,5,6,7,8,9]\n"
      "  p: i32[1,1,3,3] = Pad(x) {pads=[0,0,0,0,0,0,1,1], value=1000.0}\n"
      "  y: i32[1,1,1,1] = ConvInteger(p, w)\n  output \"y\" = y\n";
  EXPECT_THAT(After(wide, {"fold-pad"}), HasSubstr("ConvInteger(p, w)"));
  ExpectSameResult(wide, {"fold-pad"});
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

TEST(QuantizedPassTest, ABiasJoinsASumThatTheModelHasItself) {
  const std::string text =
      "graph \"g\"\n  input x: u8[2,3]\n  const w: i8[3,2] = [1,2,3,-4,5,6]\n"
      "  const s: f32[] = [0.00006103515625]\n  const b: f32[2] = [0.3,-0.7]\n"
      "  const q: f32[] = [0.03125]\n  const z: u8[] = [100]\n"
      "  m: i32[2,2] = MatMulInteger(x, w)\n  d: f32[2,2] = DequantizeLinear(m, s)\n"
      "  a: f32[2,2] = Add(b, d)\n  y: u8[2,2] = QuantizeLinear(a, q, z)\n  output \"y\" = y\n";
  const std::vector<std::string> passes = {"qdq-to-integer", "remove-dead-nodes"};
  EXPECT_THAT(After(text, passes), HasSubstr("i32[2] = [4915,-11469]"));
  ExpectSameResult(text, passes);
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

TEST(QuantizedPassTest, SumsThatCouldLeaveThirtyTwoBitsStayFloat) {
  // 66,400 products of at most 255 * 127 do not fit, by the weights that there are.
  constexpr int64_t kTerms = 66'400;
  for (const double most : {127.0, 126.0}) {
    std::vector<double> values(kTerms, most);
    values[7] = -most;
    const ConstantPtr w = Constant::OfDoubles(DType::kI8, {kTerms, 1}, values);
    const std::string text = fmt::format(
        "graph \"g\"\n  input x: u8[1,{0}]\n  const w: i8[{0},1] @{1}\n  const s: f32[] = [0.5]\n"
        "  dx: f32[1,{0}] = DequantizeLinear(x, s)\n  dw: f32[{0},1] = DequantizeLinear(w, s)\n"
        "  y: f32[1,1] = MatMul(dx, dw)\n  output \"y\" = y\n",
        kTerms, w->hash().Hex());
    EXPECT_EQ(After(text, {"qdq-to-integer"}, {w}).find("MatMulInteger") == std::string::npos,
              most == 127);
    ExpectSameResult(text, {"qdq-to-integer", "remove-dead-nodes"}, {w});
  }
  // A bias that would take the sum there stays a float addition, also where a quantization follows.
  for (const char* behind : {"", "  q: u8[1,3,4,4] = QuantizeLinear(c, ys, yz)\n"}) {
    std::string text = std::string(kQuantizedConv) + behind +
                       (behind[0] ? "  output \"q\" = q\n" : "  output \"c\" = c\n");
    text.replace(text.find("[10,-20,30]"), 11, "[10,-2147483000,30]");
    const std::string out = After(text, {"qdq-to-integer", "remove-dead-nodes"});
    EXPECT_THAT(out, HasSubstr("ConvInteger("));
    EXPECT_THAT(out, Not(HasSubstr("i32[1,3,4,4] = Add(")));
    ExpectSameResult(text, {"qdq-to-integer", "remove-dead-nodes"});
  }
}

TEST(QuantizedPassTest, LargeBiasesAreIntegersOnlyIfTheyWereQuantized) {
  auto graph = [](const char* bias) {
    return fmt::format(
        "graph \"g\"\n  input x: u8[1,2,2,2]\n  const w: i8[1,2,1,1] = [3,-4]\n"
        "  const s: f32[] = [0.001]\n  const u: f32[] = [1e-06]\n{}"
        "  dx: f32[1,2,2,2] = DequantizeLinear(x, s)\n"
        "  dw: f32[1,2,1,1] = DequantizeLinear(w, s)\n"
        "  y: f32[1,1,2,2] = Conv(dx, dw, b)\n  output \"y\" = y\n",
        bias);
  };
  const std::vector<std::string> passes = {"qdq-to-integer", "remove-dead-nodes"};
  // 3,000,000.5 multiples of the scale are no more integral than 0.5 is.
  const std::string drawn = graph("  const b: f32[1] = [3.0000005]\n");
  EXPECT_THAT(After(drawn, passes), Not(HasSubstr("i32[1,1,2,2] = Add(")));
  ExpectSameResult(drawn, passes);
  const std::string quantized =
      graph("  const q: i32[1] = [3000001]\n  b: f32[1] = DequantizeLinear(q, u)\n");
  EXPECT_THAT(After(quantized, passes), HasSubstr("i32[1,1,1] = [3000001]"));
  ExpectSameResult(quantized, passes);
}

TEST(QuantizedPassTest, ScalesThatAreNoNumbersAreNotClipped) {
  for (const char* scale : {"inf", "nan", "1e38", "0.0"}) {
    std::string text = std::string(kQuantizedConv) +
                       "  r: f32[1,3,4,4] = Relu(c)\n"
                       "  y: u8[1,3,4,4] = QuantizeLinear(r, ys, yz)\n  output \"y\" = y\n";
    text.replace(text.find("[0.5,0.25,1.0]"), 14, fmt::format("[{},0.25,100.0]", scale));
    ExpectSameResult(text, {"qdq-to-integer", "remove-dead-nodes"});
  }
}

TEST(QuantizedPassTest, ZeroPointsWrapAroundAsSumsDo) {
  // 2147483647 + 5 is no i32.
  const std::string weights =
      "graph \"g\"\n  input x: u8[2,2]\n  const p: u8[] = [7]\n"
      "  const w: i32[2,2] = [2147483647,-3,5,-2147483648]\n  const q: i32[] = [-5]\n"
      "  y: i32[2,2] = MatMulInteger(x, w, p, q)\n  output \"y\" = y\n";
  EXPECT_THAT(After(weights, {"fold-zero-points"}), HasSubstr("[-2147483644,2,10,-2147483643]"));
  ExpectSameResult(weights, {"fold-zero-points"});
  const std::string inputs =
      "graph \"g\"\n  input x: i32[2,2]\n  const p: i32[] = [-2147483648]\n"
      "  const w: i8[2,2] = [127,-3,5,-128]\n  const q: i8[] = [-5]\n"
      "  y: i32[2,2] = MatMulInteger(x, w, p, q)\n  output \"y\" = y\n";
  EXPECT_THAT(After(inputs, {"fold-zero-points"}), Not(HasSubstr("MatMulInteger(x, w, p")));
  ExpectSameResult(inputs, {"fold-zero-points"});
}

TEST(QuantizedPassTest, AZeroPointAlongAnotherDimensionIsNoneOfTheChannels) {
  const std::string text =
      "graph \"g\"\n  input x: u8[2,2]\n  const p: u8[] = [7]\n  const w: u8[2,2] = [1,2,3,4]\n"
      "  const q: u8[2,1] = [100,2]\n  y: i32[2,2] = MatMulInteger(x, w, p, q)\n"
      "  output \"y\" = y\n";
  EXPECT_THAT(After(text, {"fold-zero-points"}), HasSubstr("MatMulInteger(x, w, p, q)"));
}

// u8 weights whose zero point is far from 128 stay 8 bits wide.
TEST(QuantizedPassTest, ManyChannelsShareASumOverTheirInputs) {
  std::vector<double> values(16 * 2 * 9);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 37 % 256);
  const ConstantPtr matrix = Constant::OfDoubles(DType::kU8, {18, 16}, values);
  const ConstantPtr filters = Constant::OfDoubles(DType::kU8, {16, 2, 3, 3}, values);
  std::vector<double> zeros(16);
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<double>(i * 17);
  const ConstantPtr columns = Constant::OfDoubles(DType::kU8, {16}, zeros);
  const std::vector<ConstantPtr> all = {matrix, filters, columns};
  const std::string one = "  const q: u8[] = [3]\n", each = "  const q: u8[16] = " + [&] {
    std::string text = "[";
    for (double z : zeros) text += fmt::format("{}{}", text.size() > 1 ? "," : "", z);
    return text + "]\n";
  }();
  const std::string p = "  const p: u8[] = [130]\n", computed = "  input p: u8[]\n";
  for (const std::string& zero : {one, each}) {
    for (const std::string& of_x : {p, computed}) {
      const std::string text =
          "graph \"g\"\n  input x: u8[2,4,18]\n" + of_x + zero + "  const w: u8[18,16] @" +
          matrix->hash().Hex() +
          "\n  y: i32[2,4,16] = MatMulInteger(x, w, p, q)\n  output \"y\" = y\n";
      const std::string out = After(text, {"fold-zero-points"}, all);
      EXPECT_THAT(out, HasSubstr("i8[18,16]"));
      EXPECT_THAT(out, HasSubstr("ReduceSum("));
      ExpectSameResult(text, {"fold-zero-points"}, all);
    }
  }
  for (const char* zero : {"0", "130"}) {
    for (const char* attrs : {"{pads=[1,1,0,1]}", "{strides=[2,1], dilations=[1,2]}"}) {
      const bool padded = attrs[1] == 'p';
      const std::string text = fmt::format(
          "graph \"g\"\n  input x: u8[1,2,5,6]\n  const p: u8[] = [{}]\n{}  const w: u8[16,2,3,3] "
          "@{}\n  y: i32[1,16,{}] = ConvInteger(x, w, p, q) {}\n  output \"y\" = y\n",
          zero, one, filters->hash().Hex(), padded ? "4,6" : "2,2", attrs);
      const std::string out = After(text, {"fold-zero-points"}, all);
      EXPECT_THAT(out, HasSubstr("i8[16,2,3,3]"));
      ExpectSameResult(text, {"fold-zero-points"}, all);
    }
  }
}

// Random quantized layers, each followed by a clipping or none and a quantization: the integer form
// is at most one quantum from the float one evaluated in f64, and equal away from ties.
class QuantizedLayers {
 public:
  // A layer as text; u8 or i8, with a bias of every kind and scales of either sign.
  std::string Conv() {
    Start();
    const std::string input = Bias("6", 6);
    return Quantized(
        fmt::format("  input x: {0}[1,4,5,5]\n{1}  const w: i8[6,2,3,3] = {2}\n"
                    "  const ws: f32[6,1,1,1] = {3}\n"
                    "  dx: f32[1,4,5,5] = DequantizeLinear(x, xs, xz)\n"
                    "  dw: f32[6,2,3,3] = DequantizeLinear(w, ws)\n"
                    "  c: f32[1,6,5,5] = Conv(dx, dw{4}) {{group=2, pads=[1,1,1,1]}}\n",
                    type_, input, Weights(108), List(6, [this] { return Scale(); }),
                    input.empty() ? "" : ", b"),
        "1,6,5,5");
  }
  std::string Gemm() {
    Start();
    static constexpr const char* kShapes[] = {"7", "1,7", "7,1", "1", "7,7", "1,1"};
    static constexpr int kSizes[] = {7, 7, 7, 1, 49, 1};
    const int64_t of = Draw(0, 5);
    const std::string input = Bias(kShapes[of], kSizes[of]);
    const bool turned = Draw(0, 1) != 0;
    return Quantized(
        fmt::format("  input x: {0}[7,9]\n{1}  const w: i8[{5}] = {2}\n"
                    "  const ws: f32[{6}] = {3}\n  dx: f32[7,9] = DequantizeLinear(x, xs, xz)\n"
                    "  dw: f32[{5}] = DequantizeLinear(w, ws)\n"
                    "  c: f32[7,7] = Gemm(dx, dw{4}) {{transB={7}}}\n",
                    type_, input, Weights(63), List(7, [this] { return Scale(); }),
                    input.empty() ? "" : ", b", turned ? "7,9" : "9,7", turned ? "7,1" : "1,7",
                    turned ? 1 : 0),
        "7,7");
  }

  std::vector<std::vector<double>> Inputs(const Graph& g) {
    std::vector<std::vector<double>> inputs;
    for (ValueId v : g.inputs) {
      const bool floats = IsFloat(g.type(v).dtype);
      inputs.emplace_back();
      for (int64_t i = 0; i < g.type(v).num_elements(); ++i)
        inputs.back().push_back(
            floats ? RoundTo(DType::kF32, 0.01 * static_cast<double>(Draw(-99, 99)))
                   : static_cast<double>(Draw(lo_, lo_ + 255)));
    }
    return inputs;
  }

 private:
  int64_t Draw(int64_t lo, int64_t hi) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return lo + static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(hi - lo + 1));
  }
  std::string List(int64_t n, const std::function<std::string()>& one) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += (i ? "," : "") + one();
    return "[" + text + "]";
  }
  std::string Weights(int64_t n) {
    return List(n, [this] { return std::to_string(Draw(-127, 127)); });
  }
  std::string Scale() { return fmt::format("{:.9g}", 0.001 * static_cast<double>(Draw(3, 40))); }
  std::string SignedScale() { return (Draw(0, 3) == 0 ? "-" : "") + Scale(); }
  void Start() {
    lo_ = Draw(0, 1) != 0 ? -128 : 0;
    type_ = lo_ < 0 ? "i8" : "u8";
  }
  // What declares b: nothing, a constant, an input, or a dequantization that is a constant or, as
  // far as the passes see, is none.
  std::string Bias(std::string_view shape, int64_t n) {
    const std::string small = List(n, [this] { return std::to_string(Draw(-120, 120)); });
    switch (Draw(0, 4)) {
      case 0: return "";
      case 1:
        return fmt::format("  const b: f32[{}] = {}\n", shape, List(n, [this] {
                             return fmt::format("{:.9g}",
                                                0.01 * static_cast<double>(Draw(-99, 99)) + 0.001);
                           }));
      case 2: return fmt::format("  input b: f32[{}]\n", shape);
      case 3:
        return fmt::format(
            "  const bq: i32[{0}] = {1}\n  const bs: f32[] = [{2}]\n"
            "  b: f32[{0}] = DequantizeLinear(bq, bs)\n",
            shape, small, Scale());
      default:
        return fmt::format(
            "  const bq: i8[{0}] = {1}\n  const bs: f32[] = [{2}]\n"
            "  const bz: i8[] = [5]\n  b: f32[{0}] = DequantizeLinear(bq, bs, bz)\n",
            shape, small, SignedScale());
    }
  }
  std::string Quantized(const std::string& layer, std::string_view shape) {
    static constexpr const char* kClips[] = {"Relu(c)", "Clip(c) {max=1.5, min=-0.25}",
                                             "Clip(c) {max=6.0, min=0.0}", "Neg(c)"};
    return fmt::format(
        "graph \"g\"\n  const xs: f32[] = [{1}]\n  const xz: {0}[] = [{2}]\n"
        "  const ys: f32[] = [{3}]\n  const yz: {0}[] = [{4}]\n{5}  r: f32[{6}] = {7}\n"
        "  y: {0}[{6}] = QuantizeLinear(r, ys, yz)\n  output \"y\" = y\n",
        type_, SignedScale(), Draw(lo_, lo_ + 255), SignedScale(), Draw(lo_, lo_ + 255), layer,
        shape, kClips[Draw(0, 3)]);
  }

  uint64_t state_ = 17;
  int64_t lo_ = 0;
  std::string type_;
};

TEST(QuantizedPassTest, IntegerFormIsWithinOneQuantumOfTheFloatForm) {
  QuantizedLayers layers;
  int64_t elements = 0, apart = 0;
  for (int round = 0; round < 120; ++round) {
    const bool conv = round % 2 == 0;
    const std::string text = conv ? layers.Conv() : layers.Gemm();
    Graph g = Parse(text);
    const std::vector<std::vector<double>> inputs = layers.Inputs(g);
    const std::vector<double> want = Output(g, inputs);
    ASSERT_TRUE(RunPasses(g, PassOptions{}).ok()) << text;
    EXPECT_THAT(ToString(g), HasSubstr(conv ? "ConvInteger(" : "MatMulInteger("));
    const std::vector<double> got = Output(g, inputs);
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
