// Operators: the catalog is complete, references give known answers, and for samples of every
// operator the tensor expressions, run by the interpreter in f32, stay within the bound that the
// reference states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "tests/unit/op_workload.h"

namespace whet::ops {
namespace {

using fusion::Workload;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StatusOr<Workload> Single(const std::vector<std::string>& inputs, const std::string& op,
                          size_t output = 0) {
  return testing_support::OpWorkload(inputs, {op}, output);
}

std::vector<double> Evaluate(const std::vector<std::string>& inputs, const std::string& op,
                             const std::vector<std::vector<double>>& values, size_t output = 0) {
  auto w = Single(inputs, op, output);
  EXPECT_TRUE(w.ok()) << w.status();
  if (!w.ok()) return {};
  auto r = fusion::EvaluateReference(*w, values);
  EXPECT_TRUE(r.ok()) << r.status();
  return r.ok() ? (*r)[0].expected : std::vector<double>();
}

TEST(CatalogTest, EveryRecordIsInTheCatalog) {
  const char* root = std::getenv("WHET_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  size_t records = 0;  // a file may hold a family of them
  for (const auto& f :
       std::filesystem::directory_iterator(std::filesystem::path(root) / "compiler/ops")) {
    const std::string name = f.path().filename();
    if (name.rfind("op_", 0) != 0 || f.path().extension() != ".cc") continue;
    const size_t before = records;
    std::ifstream file(f.path());
    for (std::string line; std::getline(file, line);)
      records += line.rfind("const OpRecord& Op", 0) == 0;
    EXPECT_GT(records, before) << name;
  }
  EXPECT_EQ(Catalog().All().size(), records);
}

TEST(CatalogTest, RecordsAreWhole) {
  std::set<std::string> names;
  for (const graph::OpRecord* op : Catalog().All()) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_EQ(Catalog().Find(op->name), op);
    EXPECT_TRUE(op->infer || op->import) << op->name;
    if (!op->infer) continue;
    EXPECT_TRUE(op->te && op->reference)
        << op->name << ": a canonical operator can be evaluated and compiled";
    EXPECT_FALSE(op->input_names.empty()) << op->name;
    EXPECT_GE(op->version, 1) << op->name;
  }
  EXPECT_EQ(Catalog().Find("Frobnicate"), nullptr);
}

TEST(ReferenceTest, KnownAnswers) {
  EXPECT_THAT(Evaluate({"f32[4]"}, "Relu.1(0)", {{-1, 0, 2, kNan}}),
              testing::Truly([](const std::vector<double>& v) {
                return v[0] == 0 && v[1] == 0 && v[2] == 2 && std::isnan(v[3]);
              }));
  EXPECT_THAT(Evaluate({"f32[3]"}, "Clip.1(0) {max=6.0, min=0.0}", {{-1, 3, 7}}),
              ElementsAre(0, 3, 6));
  EXPECT_THAT(Evaluate({"f32[3]"}, "HardSigmoid.1(0) {alpha=0.5, beta=0.5}", {{-2, 0.5, 2}}),
              ElementsAre(0, 0.75, 1));
  EXPECT_THAT(Evaluate({"f32[3]"}, "HardSwish.1(0)", {{-4, 0, 3}}), ElementsAre(0, 0, 3));
  EXPECT_THAT(Evaluate({"f32[3]"}, "LeakyRelu.1(0) {alpha=0.25}", {{-4, 0, 3}}),
              ElementsAre(-1, 0, 3));
  EXPECT_THAT(Evaluate({"f32[2,2]", "f32[2]"}, "PRelu.1(0, 1)", {{-1, -1, 1, 1}, {0.5, 2}}),
              ElementsAre(-0.5, -2, 1, 1));
  EXPECT_THAT(Evaluate({"f32[2]", "f32[2]"}, "Max.1(0, 1)", {{1, 5}, {3, -kInf}}),
              ElementsAre(3, 5));
  EXPECT_THAT(Evaluate({"f32[2,1]", "f32[3]"}, "Sub.1(0, 1)", {{1, 2}, {10, 20, 30}}),
              ElementsAre(-9, -19, -29, -8, -18, -28));
  EXPECT_THAT(Evaluate({"i32[2]", "i32[2]"}, "Div.1(0, 1)", {{-7, 7}, {2, -2}}),
              ElementsAre(-3, -3));
  EXPECT_THAT(Evaluate({"i8[1]", "i8[1]"}, "Add.1(0, 1)", {{127}, {2}}), ElementsAre(-127));
  EXPECT_THAT(Evaluate({"f32[3]", "i64[2,1]", "f32[2,1]"}, "Interpolate.1(0, 1, 2) {axes=[0]}",
                       {{5, 6, 7}, {-1, 9}, {1, 1}}),
              ElementsAre(5, 7));
  EXPECT_THAT(Evaluate({"u8[1]", "u8[1]"}, "Sub.1(0, 1)", {{1}, {2}}), ElementsAre(255));
  EXPECT_THAT(Evaluate({"f32[3]"}, "Round.1(0)", {{0.5, 1.5, -2.5}}), ElementsAre(0, 2, -2));
  EXPECT_THAT(Evaluate({"f32[2]"}, "Cast.1(0) {to=\"i32\"}", {{-2.9, 2.9}}), ElementsAre(-2, 2));
  EXPECT_THAT(Evaluate({"i32[2]"}, "Cast.1(0) {to=\"u8\"}", {{-1, 257}}), ElementsAre(255, 1));
  EXPECT_THAT(Evaluate({"f32[2]"}, "Cast.1(0) {to=\"f16\"}", {{2049, 1e6}}),
              ElementsAre(2048, kInf));
  EXPECT_THAT(Evaluate({"f32[2,3]"}, "Transpose.1(0) {perm=[1,0]}", {{1, 2, 3, 4, 5, 6}}),
              ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(
      Evaluate({"f32[4]"}, "Slice.1(0) {sizes=[2], starts=[3], steps=[-2]}", {{1, 2, 3, 4}}),
      ElementsAre(4, 2));
  EXPECT_THAT(Evaluate({"f32[2]", "f32[1]"}, "Concat.1(0, 1) {axis=0}", {{1, 2}, {3}}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Evaluate({"f32[2]"}, "Pad.1(0) {pads=[1,2], value=9.0}", {{1, 2}}),
              ElementsAre(9, 1, 2, 9, 9));
  EXPECT_THAT(Evaluate({"f32[3]", "i64[2]"}, "Gather.1(0, 1) {axis=0}", {{1, 2, 3}, {-1, 0}}),
              ElementsAre(3, 1));
  EXPECT_THAT(
      Evaluate({"f32[2,3]"}, "ReduceMean.1(0) {axes=[1], keepdims=0}", {{1, 2, 3, 4, 5, 9}}),
      ElementsAre(2, 6));
  EXPECT_THAT(Evaluate({"f32[2,2]"}, "ReduceMax.1(0) {axes=[0], keepdims=1}", {{1, 7, 3, -4}}),
              ElementsAre(3, 7));
  EXPECT_THAT(Evaluate({"f32[1,3]"}, "Softmax.1(0) {axis=1}", {{1000, 1000, -kInf}}),
              ElementsAre(0.5, 0.5, 0));
  EXPECT_THAT(Evaluate({"f32[1,2]", "f32[3,2]", "f32[3]"},
                       "Gemm.1(0, 1, 2) {alpha=2.0, beta=0.5, transA=0, transB=1}",
                       {{1, 2}, {1, 0, 0, 1, 1, 1}, {2, 4, 6}}),
              ElementsAre(3, 6, 9));
  EXPECT_THAT(Evaluate({"f32[2,1,2]", "f32[2,1]"}, "MatMul.1(0, 1)", {{1, 2, 3, 4}, {10, 1}}),
              ElementsAre(12, 34));
  EXPECT_THAT(Evaluate({"bool[2]", "f32[1]", "f32[2]"}, "Where.1(0, 1, 2)", {{1, 0}, {5}, {6, 7}}),
              ElementsAre(5, 7));
}

TEST(ReferenceTest, QuantizationRoundsToEvenAndSaturates) {
  const std::vector<double> x = {0.5, 1.5, 2.5, -0.5, -1.5, 1000, -1000, kNan};
  EXPECT_THAT(Evaluate({"f32[8]", "f32[]", "u8[]"}, "QuantizeLinear.1(0, 1, 2)", {x, {1}, {10}}),
              ElementsAre(10, 12, 12, 10, 8, 255, 0, 0));
  EXPECT_THAT(Evaluate({"f32[8]", "f32[]", "i8[]"}, "QuantizeLinear.1(0, 1, 2)", {x, {1}, {-1}}),
              ElementsAre(-1, 1, 1, -1, -3, 127, -128, -128));
  // The zero point is added after rounding: 0.5 goes to 0 first, whatever it is.
  EXPECT_THAT(
      Evaluate({"f32[2]", "f32[]", "u8[]"}, "QuantizeLinear.1(0, 1, 2)", {{0.5, 1.5}, {1}, {1}}),
      ElementsAre(1, 3));
  EXPECT_THAT(Evaluate({"i32[2,2]", "f32[2,1]", "u8[]"}, "Requantize.1(0, 1, 2) {hi=200, lo=5}",
                       {{-9, 3, 6, 900}, {0.5, 0.25}, {5}}),
              ElementsAre(5, 7, 7, 200));
  EXPECT_THAT(Evaluate({"u8[2,2]", "f32[2,1]", "u8[2,1]"}, "DequantizeLinear.1(0, 1, 2)",
                       {{0, 255, 3, 4}, {0.5, 2}, {128, 4}}),
              ElementsAre(-64, 63.5, -2, 0));
}

TEST(ReferenceTest, IntegerSumsWrapAndSubtractZeroPoints) {
  EXPECT_THAT(Evaluate({"u8[1,2]", "i8[2,1]"}, "MatMulInteger.1(0, 1)", {{255, 255}, {-128, 127}}),
              ElementsAre(-255));
  EXPECT_THAT(Evaluate({"u8[1,2]", "u8[2,2]", "u8[]", "u8[2]"}, "MatMulInteger.1(0, 1, 2, 3)",
                       {{1, 2}, {3, 4, 5, 6}, {1}, {5, 0}}),
              ElementsAre(0, 6));
  EXPECT_THAT(
      Evaluate({"i32[1,2]", "i32[2,1]"}, "MatMulInteger.1(0, 1)", {{65536, 1}, {65536, -3}}),
      ElementsAre(-3));
  // What is outside of the image counts as the zero point, and as pad_value without one.
  const std::vector<double> image = {1, 2, 3, 4}, ones = {1, 1, 1, 1};
  EXPECT_THAT(Evaluate({"u8[1,1,2,2]", "i8[1,1,2,2]", "u8[]"},
                       "ConvInteger.1(0, 1, 2) {pads=[1,1,0,0]}", {image, ones, {1}}),
              ElementsAre(0, 1, 2, 6));
  EXPECT_THAT(Evaluate({"u8[1,1,2,2]", "i8[1,1,2,2]"},
                       "ConvInteger.1(0, 1) {pad_value=1, pads=[1,1,0,0]}", {image, ones}),
              ElementsAre(4, 5, 6, 10));
}

// A value that is not exact may round to either side of a tie that its error reaches, and to one
// integer only elsewhere.
TEST(ReferenceTest, TheBoundOfAQuantizationIsWhatItsInputMayRoundTo) {
  auto w = Workload::Parse(
      "whet-workload 1\ninput f32[3]\ninput f32[3]\ninput f32[]\ninput u8[]\n"
      "op Mul.1(0, 1)\nop QuantizeLinear.1(4, 2, 3)\noutput 5 u8[3]\n",
      Catalog());
  ASSERT_TRUE(w.ok()) << w.status();
  // 0.7 * 0.5 is no tie; 1/3 * 4.5 is one but for the rounding of a third.
  auto r = fusion::EvaluateReference(
      *w, std::vector<std::vector<double>>{
              {0.7, static_cast<float>(1.0 / 3), 2}, {0.5, 4.5, 0.25}, {1}, {0}});
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT((*r)[0].expected, ElementsAre(0, 2, 0));
  EXPECT_THAT((*r)[0].tolerance, ElementsAre(0, 1, 1));
}

TEST(ReferenceTest, OrderIsTotal) {
  // A NaN is above every number; equal elements keep their order.
  const std::vector<double> x = {2, kNan, 5, 5, -kInf, kNan};
  EXPECT_THAT(Evaluate({"f32[6]"}, "ArgMax.1(0) {axis=0}", {x}), ElementsAre(1));
  EXPECT_THAT(Evaluate({"f32[6]"}, "ArgMax.1(0) {axis=0, last=1}", {x}), ElementsAre(5));
  EXPECT_THAT(Evaluate({"f32[4]"}, "ArgMax.1(0) {axis=0}", {{1, 5, 5, 2}}), ElementsAre(1));
  EXPECT_THAT(Evaluate({"f32[4]"}, "ArgMax.1(0) {axis=0, last=1}", {{1, 5, 5, 2}}), ElementsAre(2));
  EXPECT_THAT(Evaluate({"f32[4]"}, "ArgMin.1(0) {axis=0}", {{1, -5, 5, -5}}), ElementsAre(1));
  EXPECT_THAT(Evaluate({"f32[6]"}, "TopK.1(0) {axis=0, k=6}", {x}, 1),
              ElementsAre(1, 5, 2, 3, 0, 4));
  EXPECT_THAT(Evaluate({"f32[6]"}, "TopK.1(0) {axis=0, k=3, largest=0}", {x}),
              ElementsAre(-kInf, 2, 5));
}

// What the tensor expressions make of them is what the references say.
TEST(TeTest, OrderIsTotal) {
  const std::vector<double> x = {2, kNan, 5, 5, -kInf, kNan};
  for (const char* op : {"ArgMax.1(0) {axis=0}", "ArgMax.1(0) {axis=0, last=1}",
                         "ArgMin.1(0) {axis=0}", "TopK.1(0) {axis=0, k=6}"}) {
    const size_t output = op[0] == 'T' ? 1 : 0;  // the indices
    auto w = Single({"f32[6]"}, op, output);
    ASSERT_TRUE(w.ok()) << w.status();
    auto te = fusion::BuildTe(*w);
    ASSERT_TRUE(te.ok()) << te.status();
    auto program = loop::FromTe("sample", te->func, te->input_layouts, te->output_layouts);
    ASSERT_TRUE(program.ok()) << program.status();
    loop::Memory memory;
    memory[te->func.inputs[0]->name] = x;
    const Status ran = loop::Interpret(*program, memory);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(memory[te->func.outputs[0]->name], Evaluate({"f32[6]"}, op, {x}, output)) << op;
  }
}

TEST(ReferenceTest, RowsAreSummedAndNormalized) {
  EXPECT_THAT(Evaluate({"f32[4]"}, "CumSum.1(0) {axis=0}", {{1, 2, 3, 4}}),
              ElementsAre(1, 3, 6, 10));
  EXPECT_THAT(Evaluate({"f32[4]"}, "CumSum.1(0) {axis=0, exclusive=1}", {{1, 2, 3, 4}}),
              ElementsAre(0, 1, 3, 6));
  EXPECT_THAT(Evaluate({"f32[4]"}, "CumSum.1(0) {axis=0, exclusive=1, reverse=1}", {{1, 2, 3, 4}}),
              ElementsAre(9, 7, 4, 0));
  EXPECT_THAT(Evaluate({"f32[2,2]", "f32[2]", "f32[2]"},
                       "LayerNormalization.1(0, 1, 2) {axes=[1], epsilon=0.0}",
                       {{1, 3, 5, -5}, {1, 2}, {0, 10}}),
              ElementsAre(-1, 12, 1, 8));
  EXPECT_THAT(Evaluate({"f32[2]", "f32[1]"}, "RMSNormalization.1(0, 1) {axes=[0], epsilon=0.0}",
                       {{3, -3}, {2}}),
              ElementsAre(2, -2));
  EXPECT_THAT(Evaluate({"f32[2,2]"}, "Trilu.1(0) {k=0, upper=0}", {{1, kNan, 3, 4}}),
              ElementsAre(1, 0, 3, 4));
  EXPECT_THAT(
      Evaluate({"f32[1,3,1]"}, "LRN.1(0) {size=2, alpha=2.0, beta=1.0, bias=0.0}", {{1, 1, 2}}),
      ElementsAre(0.5, 0.2, 0.5));
  EXPECT_THAT(Evaluate({"f32[2]"}, "LogSoftmax.1(0) {axis=0}", {{1000, 1000}}),
              ElementsAre(-std::log(2), -std::log(2)));
}

TEST(ReferenceTest, IntegerArithmeticIsExactInEveryWidth) {
  EXPECT_THAT(Evaluate({"i32[4]", "i32[4]"}, "Mod.1(0, 1)", {{-7, 7, -7, 5}, {3, -3, -3, 0}}),
              ElementsAre(2, -2, -1, 0));
  EXPECT_THAT(Evaluate({"i32[3]", "i32[3]"}, "Mod.1(0, 1) {fmod=1}", {{-7, 7, -7}, {3, -3, -3}}),
              ElementsAre(-1, 1, -1));
  EXPECT_THAT(
      Evaluate({"f64[3]", "f64[3]"}, "Mod.1(0, 1) {fmod=1}", {{-7.5, 7.5, 1}, {2, -2, kInf}}),
      ElementsAre(-1.5, 1.5, 1));
  EXPECT_THAT(
      Evaluate({"i32[5]", "i32[5]"}, "Pow.1(0, 1)", {{3, -2, -1, 7, 0}, {4, 31, -3, -1, 0}}),
      ElementsAre(81, -2147483648.0, -1, 0, 1));
  EXPECT_THAT(Evaluate({"u16[3]", "u16[3]"}, "BitShift.1(0, 1) {direction=\"LEFT\"}",
                       {{1, 0xffff, 3}, {15, 1, 16}}),
              ElementsAre(0x8000, 0xfffe, 0));
  EXPECT_THAT(Evaluate({"i8[2]"}, "BitwiseNot.1(0)", {{0, -128}}), ElementsAre(-1, 127));
  EXPECT_THAT(Evaluate({"u32[2]"}, "BitwiseNot.1(0)", {{0, 5}}),
              ElementsAre(4294967295.0, 4294967290.0));
  EXPECT_THAT(Evaluate({"u16[1]", "u16[1]"}, "Sub.1(0, 1)", {{1}, {2}}), ElementsAre(65535));
  EXPECT_THAT(Evaluate({"i16[1]", "i16[1]"}, "Add.1(0, 1)", {{32767}, {1}}), ElementsAre(-32768));
  EXPECT_THAT(Evaluate({"f32[4]"}, "IsInf.1(0) {detect_negative=0}", {{kInf, -kInf, kNan, 1}}),
              ElementsAre(1, 0, 0, 0));
}

TEST(ReferenceTest, PoolsCountWhatTheyShould) {
  const std::vector<double> x = {1, 2, 3, 4};  // 2 x 2
  EXPECT_THAT(Evaluate({"f32[1,1,2,2]"}, "MaxPool.1(0) {kernel=[2,2], pads=[1,1,0,0]}", {x}),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Evaluate({"f32[1,1,2,2]"}, "AveragePool.1(0) {kernel=[2,2], pads=[1,1,0,0]}", {x}),
              ElementsAre(1, 1.5, 2, 2.5));
  EXPECT_THAT(Evaluate({"f32[1,1,2,2]"},
                       "AveragePool.1(0) {kernel=[2,2], pads=[1,1,0,0], count_include_pad=1}", {x}),
              ElementsAre(0.25, 0.75, 1, 2.5));
  // ceil mode: the window that hangs over the end counts only what is there, and padding, not
  // what is beyond.
  EXPECT_THAT(
      Evaluate({"f32[1,1,1,3]"},
               "AveragePool.1(0) {kernel=[1,2], strides=[1,2], ceil_mode=1, count_include_pad=1}",
               {{1, 3, 5}}),
      ElementsAre(2, 5));
  EXPECT_THAT(
      Evaluate({"f32[1,1,1,5]"}, "MaxPool.1(0) {kernel=[1,2], dilations=[1,2]}", {{1, 9, 3, 4, 2}}),
      ElementsAre(3, 9, 3));
}

TEST(ReferenceTest, IndexedOperatorsReadAndWriteWhereTheyShould) {
  EXPECT_THAT(Evaluate({"f32[2,2]", "i64[2,2]"}, "GatherElements.1(0, 1) {axis=1}",
                       {{1, 2, 3, 4}, {0, 0, -1, 0}}),
              ElementsAre(1, 1, 4, 3));
  EXPECT_THAT(Evaluate({"f32[2,2,2]", "i64[2,1]"}, "GatherND.1(0, 1) {batch_dims=1}",
                       {{0, 1, 2, 3, 4, 5, 6, 7}, {1, -2}}),
              ElementsAre(2, 3, 4, 5));
  // Of two updates for one place the last one stays; what is outside is ignored.
  EXPECT_THAT(Evaluate({"f32[4]", "i64[4]", "f32[4]"}, "ScatterElements.1(0, 1, 2)",
                       {{1, 2, 3, 4}, {1, -1, 1, 9}, {5, 6, 7, 8}}),
              ElementsAre(1, 7, 3, 6));
  EXPECT_THAT(Evaluate({"f32[4]", "i64[3,1]", "f32[3]"}, "ScatterND.1(0, 1, 2) {reduction=\"add\"}",
                       {{1, 2, 3, 4}, {0, 0, 3}, {10, 20, 30}}),
              ElementsAre(31, 2, 3, 34));
  EXPECT_THAT(Evaluate({"f32[3]", "i64[2,1]", "f32[2]"}, "ScatterND.1(0, 1, 2) {reduction=\"mul\"}",
                       {{1, 2, 3}, {1, 1}, {10, 20}}),
              ElementsAre(1, 400, 3));
}

TEST(ReferenceTest, ImagesAreExtendedAndUnfolded) {
  auto border = [](const char* mode) {
    return Evaluate({"f32[3]"}, fmt::format("BorderPad.1(0) {{mode=\"{}\", pads=[4,2]}}", mode),
                    {{1, 2, 3}});
  };
  EXPECT_THAT(border("edge"), ElementsAre(1, 1, 1, 1, 1, 2, 3, 3, 3));
  EXPECT_THAT(border("wrap"), ElementsAre(3, 1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(border("reflect"), ElementsAre(1, 2, 3, 2, 1, 2, 3, 2, 1));
  const std::vector<double> x = {0, 1, 2, 3, 4, 5, 6, 7};  // 8 channels of one pixel
  EXPECT_THAT(Evaluate({"f32[1,8,1,1]"}, "DepthToSpace.1(0) {block=[2,2], sizes=[2,2]}", {x}),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(Evaluate({"f32[1,8,1,1]"},
                       "DepthToSpace.1(0) {block=[2,2], groups=2, sizes=[1,2], starts=[1,0]}", {x}),
              ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(Evaluate({"f32[3]"}, "ResizeNearest.1(0) {den=[2], num=[1], offset=[-1], sizes=[7]}",
                       {{1, 2, 3}}),
              ElementsAre(1, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(
      Evaluate({"f32[3]", "const i64[2,2]", "const f32[2,2]"}, "Interpolate.1(0, 1, 2) {axes=[0]}",
               {{1, 2, 4}, {0, 1, 1, 2}, {0.5, 0.5, 0.25, 0.75}}),
      ElementsAre(1.5, 3.5));
  EXPECT_THAT(
      Evaluate({"f32[1,1,2,3]"}, "MaxPoolIndices.1(0) {kernel=[2,2]}", {{1, 9, 9, 2, 3, 4}}),
      ElementsAre(1, 1));
  EXPECT_THAT(Evaluate({"f32[1,1,2,3]"}, "MaxPoolIndices.1(0) {kernel=[2,2], storage_order=1}",
                       {{1, 2, 9, 2, 3, 4}}),
              ElementsAre(3, 4));
}

// The convolution reference against the definition, term by term.
TEST(ReferenceTest, ConvolutionIsItsDefinition) {
  struct Case {
    int64_t ic, oc, group, h, w, kh, kw, sh, sw, dh, dw, top, left, bottom, right;
  };
  for (const Case& c : {Case{3, 4, 1, 5, 6, 3, 2, 1, 1, 1, 1, 1, 0, 1, 1},
                        Case{4, 6, 2, 7, 5, 3, 3, 2, 1, 1, 2, 0, 2, 2, 1},
                        Case{3, 3, 3, 6, 6, 5, 5, 2, 2, 1, 1, 1, 1, 2, 2},
                        Case{5, 2, 1, 3, 4, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
                        Case{2, 2, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
                        Case{4, 8, 4, 4, 4, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0}}) {
    const int64_t icg = c.ic / c.group, ocg = c.oc / c.group;
    const std::string op = fmt::format(
        "Conv.1(0, 1, 2) {{group={}, strides=[{},{}], dilations=[{},{}], pads=[{},{},{},{}]}}",
        c.group, c.sh, c.sw, c.dh, c.dw, c.top, c.left, c.bottom, c.right);
    auto w = Single({fmt::format("f32[2,{},{},{}]", c.ic, c.h, c.w),
                     fmt::format("const f32[{},{},{},{}]", c.oc, icg, c.kh, c.kw),
                     fmt::format("const f32[{}]", c.oc)},
                    op);
    ASSERT_TRUE(w.ok()) << w.status();
    const auto in = fusion::MakeInputs(*w, 5);
    auto r = fusion::EvaluateReference(*w, in);
    ASSERT_TRUE(r.ok());
    const std::vector<int64_t>& out = w->outputs[0].type.shape;
    int64_t at = 0;
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t oc = 0; oc < c.oc; ++oc)
        for (int64_t oh = 0; oh < out[2]; ++oh)
          for (int64_t ow = 0; ow < out[3]; ++ow, ++at) {
            double sum = in[2][oc];
            for (int64_t ic = 0; ic < icg; ++ic)
              for (int64_t kh = 0; kh < c.kh; ++kh)
                for (int64_t kw = 0; kw < c.kw; ++kw) {
                  const int64_t y = oh * c.sh - c.top + kh * c.dh,
                                x = ow * c.sw - c.left + kw * c.dw;
                  if (y < 0 || y >= c.h || x < 0 || x >= c.w) continue;
                  sum += in[0][((n * c.ic + oc / ocg * icg + ic) * c.h + y) * c.w + x] *
                         in[1][((oc * icg + ic) * c.kh + kh) * c.kw + kw];
                }
            ASSERT_NEAR((*r)[0].expected[at], sum, 1e-12) << op << " at " << at;
          }
    EXPECT_EQ(at, static_cast<int64_t>((*r)[0].expected.size()));
  }
}

struct Sample {
  std::vector<std::string> inputs;
  std::string op;
  size_t output = 0;
};

// Operators that move data, or read and write at indices.
void IndexSamples(std::vector<Sample>& s) {
  s.push_back({{"f32[3,4]", "i64[2,5]"}, "GatherElements.1(0, 1) {axis=1}"});
  s.push_back({{"f32[3,4]", "i32[2,3]"}, "GatherElements.1(0, 1) {axis=0}"});
  s.push_back({{"f32[3,4,2]", "i64[5,2]"}, "GatherND.1(0, 1)"});
  s.push_back({{"f32[3,4,2]", "i64[3,5,1]"}, "GatherND.1(0, 1) {batch_dims=1}"});
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    s.push_back(
        {{"f32[3,5]", "i64[2,4]", "f32[2,4]"},
         fmt::format("ScatterElements.1(0, 1, 2) {{axis=1, reduction=\"{}\"}}", reduction)});
    s.push_back({{"f32[3,4,2]", "i64[2,3,2]", "f32[2,3,2]"},
                 fmt::format("ScatterND.1(0, 1, 2) {{reduction=\"{}\"}}", reduction)});
    s.push_back({{"i64[3,5]", "i64[2,4]", "i64[2,4]"},
                 fmt::format("ScatterElements.1(0, 1, 2) {{reduction=\"{}\"}}", reduction)});
    s.push_back({{"i32[4,2]", "i32[3,1]", "i32[3,2]"},
                 fmt::format("ScatterND.1(0, 1, 2) {{reduction=\"{}\"}}", reduction)});
  }
  s.push_back({{"bool[4]", "const i64[2]", "bool[2]"}, "ScatterElements.1(0, 1, 2)"});
  for (const char* mode : {"edge", "reflect", "wrap"}) {
    s.push_back(
        {{"f32[3,4]"}, fmt::format("BorderPad.1(0) {{mode=\"{}\", pads=[1,0,2,3]}}", mode)});
    s.push_back(
        {{"f32[2,1]"}, fmt::format("BorderPad.1(0) {{mode=\"{}\", pads=[5,1,0,2]}}", mode)});
  }
  s.push_back({{"f32[2,12,3,2]"}, "DepthToSpace.1(0) {block=[2,3], sizes=[6,6]}"});
  s.push_back({{"f32[1,12,3,2]"}, "DepthToSpace.1(0) {block=[2,2], groups=3, sizes=[6,4]}"});
  s.push_back(
      {{"f32[1,16,3,3]"}, "DepthToSpace.1(0) {block=[2,2], groups=2, sizes=[4,3], starts=[1,2]}"});
  s.push_back({{"f32[1,2,3,4]"},
               "ResizeNearest.1(0) {den=[1,1,2,3], num=[1,1,1,4], offset=[0,0,0,-2], "
               "sizes=[1,2,6,3]}"});
  s.push_back(
      {{"f32[1,2,3,4]", "const i64[6,2]", "const f32[6,2]", "const i64[8,2]", "const f32[8,2]"},
       "Interpolate.1(0, 1, 2, 3, 4) {axes=[2,3]}"});
  s.push_back(
      {{"f32[7,2]", "const i64[3,4]", "const f32[3,4]"}, "Interpolate.1(0, 1, 2) {axes=[0]}"});
  s.push_back(
      {{"f32[2,2,5,6]"}, "MaxPoolIndices.1(0) {kernel=[3,2], strides=[2,1], pads=[1,1,1,0]}"});
  s.push_back(
      {{"i8[1,2,5,5]"}, "MaxPoolIndices.1(0) {kernel=[2,2], storage_order=1, pads=[1,1,0,0]}"});
  // A window of padding only.
  s.push_back(
      {{"f32[1,2,1,1]"}, "MaxPoolIndices.1(0) {kernel=[1,2], dilations=[1,3], pads=[0,2,0,2]}"});
  s.push_back({{"f32[4,3,2]", "i64[3]"}, "ReverseSequence.1(0, 1)"});
  s.push_back({{"f32[2,5]", "i32[2]"}, "ReverseSequence.1(0, 1) {batch_axis=0, time_axis=1}"});
  s.push_back({{"f32[1,8,12]"},
               "Col2Im.1(0) {image=[5,6], block=[2,2], strides=[1,2], dilations=[2,1], "
               "pads=[1,0,0,1]}"});
  s.push_back({{"f32[2,6,5]"},
               "Col2Im.1(0) {image=[5], block=[3], strides=[1], dilations=[1], pads=[1,1]}"});
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int align : {0, 1}) {
        const std::string attrs = fmt::format(
            "{{mode=\"{}\", padding_mode=\"{}\", align_corners={}}}", mode, padding, align);
        s.push_back({{"f32[1,2,4,3]", "f32[1,3,5,2]"}, "GridSample.1(0, 1) " + attrs});
        if (std::string_view(mode) != "cubic")
          s.push_back({{"f32[1,1,3,1,4]", "f32[1,2,2,2,3]"}, "GridSample.1(0, 1) " + attrs});
      }
    }
  }
  for (const char* mode : {"avg", "max"}) {
    s.push_back(
        {{"f32[2,2,6,5]", "f32[3,4]", "i64[3]"},
         fmt::format("RoiAlign.1(0, 1, 2) {{mode=\"{}\", pooled=[2,3], grid=[2,2]}}", mode)});
    s.push_back(
        {{"f32[2,1,6,5]", "f32[2,4]", "i64[2]"},
         fmt::format("RoiAlign.1(0, 1, 2) {{mode=\"{}\", pooled=[2,1], grid=[3,4], adaptive=1, "
                     "half_pixel=0, spatial_scale=0.5}}",
                     mode)});
  }
  s.push_back(
      {{"f32[2,2,6,5]", "f32[3,5]"}, "MaxRoiPool.1(0, 1) {pooled=[2,3], spatial_scale=0.5}"});
}

// Every canonical operator at least once, with the corners that its expressions treat apart.
std::vector<Sample> Samples() {
  std::vector<Sample> s;
  for (const char* unary : {"Relu",        "Abs",       "Neg",        "Exp",      "Log",
                            "Sqrt",        "Tanh",      "Erf",        "Floor",    "Ceil",
                            "Round",       "Sigmoid",   "Reciprocal", "Softplus", "HardSwish",
                            "HardSigmoid", "LeakyRelu", "Elu",        "Sign",     "Identity",
                            "Sin",         "Cos",       "Tan",        "Asin",     "Acos",
                            "Atan",        "Sinh",      "Cosh",       "Asinh",    "Acosh",
                            "Atanh",       "Celu",      "Selu",       "Softsign", "ThresholdedRelu",
                            "Shrink",      "Mish",      "Gelu",       "IsNaN",    "IsInf"}) {
    s.push_back({{"f32[2,3,4,5]"}, fmt::format("{}.1(0)", unary)});
  }
  for (const char* integer : {"Relu", "Abs", "Neg", "Sign"})
    s.push_back({{"i32[7]"}, fmt::format("{}.1(0)", integer)});
  for (const char* integer : {"Relu", "Abs", "Sign", "BitwiseNot", "Shrink"}) {
    for (const char* type : {"u8", "i16", "u16", "u32"})
      s.push_back({{fmt::format("{}[7]", type)}, fmt::format("{}.1(0)", integer)});
  }
  for (const char* type : {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"}) {
    const std::string in = fmt::format("{}[24]", type);
    for (const char* binary : {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "PRelu",
                               "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Less"}) {
      s.push_back({{in, in}, fmt::format("{}.1(0, 1)", binary)});
    }
    s.push_back({{in, in}, "Mod.1(0, 1) {fmod=1}"});
    if (type[0] != 'u') continue;
    s.push_back({{in, in}, "BitShift.1(0, 1) {direction=\"LEFT\"}"});
    s.push_back({{in, in}, "BitShift.1(0, 1) {direction=\"RIGHT\"}"});
  }
  for (const char* type : {"f32", "f64"})
    s.push_back(
        {{fmt::format("{}[24]", type), fmt::format("{}[24]", type)}, "Mod.1(0, 1) {fmod=1}"});
  s.push_back({{"f32[24]"}, "Gelu.1(0) {approximate=\"tanh\"}"});
  s.push_back({{"f32[24]"}, "Shrink.1(0) {bias=0.25, lambd=0.25}"});
  s.push_back({{"bool[6]", "bool[6]"}, "Xor.1(0, 1)"});
  s.push_back({{"bool[5]"}, "Not.1(0)"});
  s.push_back({{"f32[3,4]"}, "Clip.1(0) {max=0.5, min=-0.25}"});
  s.push_back({{"i32[9]"}, "Clip.1(0) {max=inf, min=-2.0}"});
  s.push_back({{"i64[9]"}, "Clip.1(0) {max=inf, min=-2.0}"});
  s.push_back({{"u64[9]"}, "Clip.1(0) {max=inf, min=2.0}"});
  for (const char* binary : {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu"}) {
    s.push_back({{"f32[2,3,4]", "f32[2,3,4]"}, fmt::format("{}.1(0, 1)", binary)});
    s.push_back({{"f32[2,3,4]", "const f32[3,1]"}, fmt::format("{}.1(0, 1)", binary)});
  }
  for (const char* binary : {"Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Greater",
                             "LessOrEqual", "GreaterOrEqual"}) {
    s.push_back({{"i32[1,4]", "i32[3,1]"}, fmt::format("{}.1(0, 1)", binary)});
  }
  for (const char* compare : {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"})
    s.push_back({{"f32[8]", "f32[8]"}, fmt::format("{}.1(0, 1)", compare)});
  s.push_back({{"bool[6]", "bool[6]"}, "And.1(0, 1)"});
  s.push_back({{"bool[6]", "bool[6]"}, "Or.1(0, 1)"});
  s.push_back({{"bool[2,1]", "f32[3]", "f32[1]"}, "Where.1(0, 1, 2)"});
  s.push_back({{"f32[6]"}, "Cast.1(0) {to=\"i32\"}"});
  s.push_back({{"i32[6]"}, "Cast.1(0) {to=\"f32\"}"});
  s.push_back({{"f32[6]"}, "Cast.1(0) {to=\"bool\"}"});
  s.push_back({{"bool[6]"}, "Cast.1(0) {to=\"f32\"}"});
  s.push_back({{"f32[2,3,4]"}, "Transpose.1(0) {perm=[2,0,1]}"});
  for (const char* shape :
       {"24", "6,4", "4,6", "2,3,4", "3,2,4", "1,24,1", "2,12", "8,3", "2,1,3,2,2"})
    s.push_back({{"f32[2,3,4]"}, fmt::format("Reshape.1(0) {{shape=[{}]}}", shape)});
  s.push_back({{"f32[2,3,4]", "const f32[2,1,4]", "f32[2,2,4]"}, "Concat.1(0, 1, 2) {axis=1}"});
  s.push_back({{"f32[2,3]"}, "Pad.1(0) {pads=[1,0,0,2], value=1.5}"});
  s.push_back({{"f32[5,6]"}, "Slice.1(0) {sizes=[2,3], starts=[1,5], steps=[2,-2]}"});
  s.push_back({{"f32[3,1]"}, "Expand.1(0) {shape=[2,3,4]}"});
  s.push_back({{"f32[3,4,2]", "i64[2,2]"}, "Gather.1(0, 1) {axis=1}"});
  for (const char* reduce : {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    s.push_back({{"f32[2,3,4]"}, fmt::format("{}.1(0) {{axes=[1], keepdims=1}}", reduce)});
    s.push_back({{"f32[2,3,4]"}, fmt::format("{}.1(0) {{axes=[0,2], keepdims=0}}", reduce)});
  }
  for (const char* reduce : {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    for (const char* type : {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"})
      s.push_back({{fmt::format("{}[3,4]", type)}, fmt::format("{}.1(0) {{axes=[1]}}", reduce)});
  }
  for (const char* arg : {"ArgMax", "ArgMin"}) {
    s.push_back({{"f32[3,5]"}, fmt::format("{}.1(0) {{axis=1, keepdims=0}}", arg)});
    s.push_back({{"i32[2,7,3]"}, fmt::format("{}.1(0) {{axis=1}}", arg)});
    s.push_back({{"i32[2,7,3]"}, fmt::format("{}.1(0) {{axis=1, last=1}}", arg)});
  }
  for (size_t output : {0, 1}) {
    s.push_back({{"f32[2,9]"}, "TopK.1(0) {axis=1, k=1}", output});
    s.push_back({{"f32[2,9]"}, "TopK.1(0) {axis=1, k=4}", output});
    s.push_back({{"i32[2,9,2]"}, "TopK.1(0) {axis=1, k=9, largest=0}", output});
  }
  for (const char* how : {"", ", exclusive=1", ", reverse=1", ", exclusive=1, reverse=1"}) {
    s.push_back({{"f32[2,7,3]"}, fmt::format("CumSum.1(0) {{axis=1{}}}", how)});
    s.push_back({{"f32[2,90]"}, fmt::format("CumSum.1(0) {{axis=1{}}}", how)});
    s.push_back({{"i32[75,2]"}, fmt::format("CumSum.1(0) {{axis=0{}}}", how)});
  }
  for (const char* how : {"k=0", "k=1", "k=-2, upper=0", "k=100"})
    s.push_back({{"f32[2,4,5]"}, fmt::format("Trilu.1(0) {{{}}}", how)});
  s.push_back({{"f32[2,5,3]"}, "LRN.1(0) {size=3, alpha=0.5}"});
  s.push_back({{"f32[1,6,2,2]"}, "LRN.1(0) {size=4, alpha=0.25, beta=0.5, bias=2.0}"});
  s.push_back({{"f32[2,5]"}, "LogSoftmax.1(0) {axis=1}"});
  s.push_back({{"f32[2,3,4]"}, "LogSoftmax.1(0) {axis=1}"});
  for (const char* norm : {"LayerNormalization", "RMSNormalization"}) {
    s.push_back({{"f32[3,40]"}, fmt::format("{}.1(0) {{axes=[1]}}", norm)});
    s.push_back({{"f32[2,3,4]", "const f32[3,4]"}, fmt::format("{}.1(0, 1) {{axes=[1,2]}}", norm)});
    s.push_back({{"f32[2,3,4,5]", "const f32[3,1,1]"},
                 fmt::format("{}.1(0, 1) {{axes=[2,3], epsilon=0.125}}", norm)});
  }
  s.push_back(
      {{"f32[2,6]", "const f32[6]", "const f32[6]"}, "LayerNormalization.1(0, 1, 2) {axes=[1]}"});
  s.push_back({{"f32[2,5]"}, "Softmax.1(0) {axis=1}"});
  s.push_back({{"f32[2,3,4]"}, "Softmax.1(0) {axis=1}"});
  s.push_back({{"f32[2,3,4,4]", "const f32[3]", "const f32[3]", "const f32[3]", "const f32[3]"},
               "BatchNormalization.1(0, 1, 2, 3, 4) {epsilon=0.001}"});
  s.push_back({{"f32[3,4]", "const f32[4,5]"}, "MatMul.1(0, 1)"});
  for (const char* type : {"i32", "i64", "u32", "u64"})
    s.push_back({{fmt::format("{}[3,4]", type), fmt::format("{}[4,5]", type)}, "MatMul.1(0, 1)"});
  s.push_back({{"f32[2,1,3,4]", "f32[5,4,2]"}, "MatMul.1(0, 1)"});
  s.push_back({{"f32[4,3]", "const f32[5,4]", "const f32[5]"},
               "Gemm.1(0, 1, 2) {alpha=0.5, beta=2.0, transA=1, transB=1}"});
  s.push_back({{"f32[3,4]", "const f32[4,5]"}, "Gemm.1(0, 1)"});
  s.push_back(
      {{"f32[1,3,6,7]", "const f32[4,3,3,3]", "const f32[4]"}, "Conv.1(0, 1, 2) {pads=[1,1,1,1]}"});
  s.push_back(
      {{"f32[1,3,6,7]", "const f32[4,3,5,5]"}, "Conv.1(0, 1) {pads=[1,1,2,2], strides=[2,2]}"});
  s.push_back({{"f32[2,4,5,5]", "const f32[4,1,3,3]", "const f32[4]"},
               "Conv.1(0, 1, 2) {group=4, pads=[0,0,1,1], strides=[2,2]}"});
  s.push_back({{"f32[1,4,5,5]", "const f32[6,2,1,3]"}, "Conv.1(0, 1) {group=2, dilations=[1,2]}"});
  s.push_back({{"f32[1,4,5,5]", "const f32[8,1,1,1]"}, "Conv.1(0, 1) {group=4}"});
  for (const char* x : {"u8", "i8"}) {
    const std::string image = fmt::format("{}[1,4,5,6]", x), zero = fmt::format("const {}[]", x);
    s.push_back({{image, "const i8[3,4,3,3]"},
                 "ConvInteger.1(0, 1) {pad_value=7, pads=[1,1,0,1], strides=[2,1]}"});
    s.push_back({{image, "const u8[4,1,3,3]", zero, "const u8[4,1,1,1]"},
                 "ConvInteger.1(0, 1, 2, 3) {group=4, pads=[1,0,1,2]}"});
    s.push_back({{fmt::format("{}[3,7]", x), "const i8[7,5]"}, "MatMulInteger.1(0, 1)"});
    s.push_back({{fmt::format("{}[2,3,7]", x), "u8[2,7,5]", fmt::format("{}[3,1]", x), "u8[2,1,5]"},
                 "MatMulInteger.1(0, 1, 2, 3)"});
    s.push_back({{"f32[2,3,4]", "const f32[3,1]", fmt::format("const {}[3,1]", x)},
                 "QuantizeLinear.1(0, 1, 2)"});
    s.push_back({{"i32[7]", "f32[]", fmt::format("{}[]", x)}, "QuantizeLinear.1(0, 1, 2)"});
    s.push_back(
        {{"i32[2,3,4,4]", "const f32[3,1,1]", zero}, "Requantize.1(0, 1, 2) {hi=100, lo=3}"});
    s.push_back({{fmt::format("{}[2,3,4]", x), "f32[]", fmt::format("{}[]", x)},
                 "DequantizeLinear.1(0, 1, 2)"});
  }
  s.push_back({{"i32[2,3,4]", "const f32[3,1]"}, "DequantizeLinear.1(0, 1)"});
  s.push_back({{"f32[1,2,5,6]"}, "MaxPool.1(0) {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}"});
  s.push_back({{"f32[1,2,5,5]"}, "MaxPool.1(0) {kernel=[2,2], strides=[2,2], ceil_mode=1}"});
  s.push_back({{"f32[1,2,5,6]"}, "AveragePool.1(0) {kernel=[3,3], pads=[1,1,1,1]}"});
  s.push_back({{"f32[1,2,5,6]"},
               "AveragePool.1(0) {kernel=[3,2], strides=[2,3], pads=[1,0,1,1], ceil_mode=1, "
               "count_include_pad=1}"});
  s.push_back(
      {{"f32[1,2,7,7]"}, "AveragePool.1(0) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]}"});
  s.push_back({{"f32[1,2,3,3]"}, "AveragePool.1(0) {kernel=[3,3]}"});
  IndexSamples(s);
  return s;
}

// Runs the tensor expressions through the interpreter and holds them against the reference.
void ExpectTeAgrees(const Workload& w) {
  const testing_support::OpProgram program(w);
  ASSERT_TRUE(program.ok());
  for (uint64_t seed : {1, 2}) {
    const auto inputs = fusion::MakeInputs(w, seed);
    auto got_or = program.Interpret(inputs);
    ASSERT_TRUE(got_or.ok()) << got_or.status() << "\n" << w.ToString();
    const std::vector<double>& got = *got_or;
    auto reference = fusion::EvaluateReference(w, inputs);
    ASSERT_TRUE(reference.ok()) << reference.status();
    const fusion::ReferenceOutput& want = (*reference)[0];
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want.expected[i]) && std::isnan(got[i])) continue;
      ASSERT_LE(std::fabs(got[i] - want.expected[i]), want.tolerance[i])
          << w.ToString() << "element " << i << ", seed " << seed;
      // The bound must mean something: far below the size of what is computed.
      ASSERT_LE(want.tolerance[i], 1e-3 * (1 + std::fabs(want.expected[i]))) << w.ToString();
    }
  }
}

TEST(TeTest, AgreesWithTheReference) {
  std::set<std::string> covered;
  for (const Sample& s : Samples()) {
    auto w = Single(s.inputs, s.op, s.output);
    ASSERT_TRUE(w.ok()) << s.op << ": " << w.status();
    covered.insert(w->ops[0].op->name);
    ExpectTeAgrees(*w);
  }
  for (const graph::OpRecord* op : Catalog().All()) {
    if (op->infer) {
      EXPECT_TRUE(covered.count(op->name)) << op->name << " has no sample";
    }
  }
}

TEST(TeTest, StagesHaveTheNamesThatSchedulesExpect) {
  auto stages = [](const std::vector<std::string>& inputs, const std::string& op) {
    auto w = Single(inputs, op);
    auto te = fusion::BuildTe(*w);
    std::vector<std::string> names;
    for (const te::Stage& s : te->func.stages) names.push_back(s.name);
    return names;
  };
  EXPECT_THAT(stages({"f32[1,3,6,6]", "const f32[4,3,3,3]", "const f32[4]"},
                     "Conv.1(0, 1, 2) {pads=[1,1,1,1]}"),
              ElementsAre("pad", "conv", "bias"));
  EXPECT_THAT(stages({"f32[1,4,6,6]", "const f32[4,1,3,3]"}, "Conv.1(0, 1) {group=4}"),
              ElementsAre("dwconv"));
  // Padding that no window reaches is not there.
  EXPECT_THAT(stages({"f32[1,3,6,6]", "const f32[4,3,2,2]"},
                     "Conv.1(0, 1) {pads=[0,0,1,1], strides=[2,2]}"),
              ElementsAre("conv"));
  EXPECT_THAT(stages({"f32[1,3,6,6]"}, "MaxPool.1(0) {kernel=[2,2]}"), ElementsAre("pool"));
  EXPECT_THAT(stages({"f32[3,4]", "f32[4,5]"}, "MatMul.1(0, 1)"), ElementsAre("matmul"));
}

TEST(InferenceTest, RefusesWhatDoesNotFit) {
  auto error = [](const std::vector<std::string>& inputs, const std::string& op) {
    return Message(Single(inputs, op).status());
  };
  EXPECT_THAT(error({"f32[2]", "f32[3]"}, "Add.1(0, 1)"),
              HasSubstr("shapes [2] and [3] do not broadcast"));
  EXPECT_THAT(error({"f32[2]", "i32[2]"}, "Add.1(0, 1)"), HasSubstr("one element type"));
  EXPECT_THAT(error({"i32[2]"}, "Exp.1(0)"),
              HasSubstr("Exp of i32 is not supported; it takes f16, bf16, f32, f64"));
  EXPECT_THAT(error({"f32[2]"}, "Add.1(0)"), HasSubstr("Add takes 2 inputs, not 1"));
  EXPECT_THAT(error({"f32[2,3]", "f32[4,2]"}, "MatMul.1(0, 1)"),
              HasSubstr("inner extents 3 and 4 differ"));
  EXPECT_THAT(error({"f32[2,3]"}, "Reshape.1(0) {shape=[7]}"),
              HasSubstr("has 6 elements, [7] has 7"));
  EXPECT_THAT(error({"f32[2,3]"}, "Reshape.1(0) {shape=[4294967296,4294967296]}"),
              HasSubstr("exceeds the limit"));
  EXPECT_THAT(error({"f32[2,3]"}, "Slice.1(0) {sizes=[2,3], starts=[1,0], steps=[1,1]}"),
              HasSubstr("leaves dimension 0"));
  EXPECT_THAT(error({"f32[2,3]"}, "Transpose.1(0) {perm=[0,0]}"),
              HasSubstr("an axis occurs twice"));
  EXPECT_THAT(error({"f32[1,2,4,4]"}, "MaxPool.1(0) {kernel=[2,2], pads=[2,0,0,0]}"),
              HasSubstr("pad 2 is not smaller than the kernel 2"));
  EXPECT_THAT(error({"f32[1,3,4,4]", "f32[4,3,1,1]"}, "Conv.1(0, 1) {group=2}"),
              HasSubstr("2 groups do not divide 3"));
  EXPECT_THAT(error({"f32[1,3,4,4]", "f32[4,3,1,1]"}, "Conv.1(0, 1) {strides=[0,1]}"),
              HasSubstr("strides [0,1] must be between 1"));
  EXPECT_THAT(error({"f32[2]", "f32[2]"}, "Mod.1(0, 1)"), HasSubstr("fmod=0 is for integers"));
  EXPECT_THAT(error({"u8[2]", "u8[2]"}, "BitShift.1(0, 1) {direction=\"UP\"}"),
              HasSubstr("neither LEFT nor RIGHT"));
  EXPECT_THAT(error({"f32[2]"}, "Softmax.1(0) {axis=1}"), HasSubstr("axis 1 is outside of rank 1"));
  EXPECT_THAT(error({"f32[2,3]", "f32[2]", "u8[]"}, "QuantizeLinear.1(0, 1, 2)"),
              HasSubstr("shapes [2] and [2,3] do not broadcast"));
  EXPECT_THAT(error({"f32[2,3]", "f32[]", "i32[]"}, "QuantizeLinear.1(0, 1, 2)"),
              HasSubstr("quantization to i32 is not supported; u8 and i8 are"));
  EXPECT_THAT(error({"i32[2]", "f32[]", "i8[]"}, "Requantize.1(0, 1, 2) {hi=255, lo=0}"),
              HasSubstr("the range 0 to 255 is not one of i8"));
  EXPECT_THAT(error({"u8[2]", "f32[]", "i8[]"}, "DequantizeLinear.1(0, 1, 2)"),
              HasSubstr("zero point is i8, the input u8"));
  EXPECT_THAT(error({"u8[1,1,2,2]", "f32[1,1,1,1]"}, "ConvInteger.1(0, 1)"),
              HasSubstr("weights are f32; u8, i8 and i32 are supported"));
  EXPECT_THAT(error({"u8[1,1,2,2]", "i8[1,1,1,1]"}, "ConvInteger.1(0, 1) {pad_value=256}"),
              HasSubstr("pad_value 256 is outside of u8"));
}

}  // namespace
}  // namespace whet::ops
