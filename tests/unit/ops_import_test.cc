// Operators that the importer writes with other ones: small models of one node, evaluated, against
// answers worked out here. Forms of operator sets that published test data does not reach.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/onnx/import.h"
#include "tests/support/test_model.h"

namespace whet::ops {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing_support::TestModel;
using Shape = std::vector<int64_t>;
using Values = std::vector<double>;

constexpr size_t kMaxOutputs = 3;  // of the models here
constexpr double kInf = std::numeric_limits<double>::infinity();

// The outputs of a model, before passes and, the same again, after them.
std::vector<Values> Outputs(const TestModel& m, const std::vector<Values>& inputs) {
  auto g = onnx::ImportBytes(m.Serialize());
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return std::vector<Values>(kMaxOutputs);
  std::vector<Values> results[2];
  for (int passed : {0, 1}) {
    if (passed == 1) {
      auto ran = graph::RunPasses(*g);
      EXPECT_TRUE(ran.ok()) << ran.status();
    }
    std::vector<graph::RefTensor> in;
    for (size_t i = 0; i < g->inputs.size(); ++i) {
      const graph::TensorType& t = g->type(g->inputs[i]);
      in.push_back({t.dtype, t.shape, inputs[i], {}});
    }
    auto e = graph::EvaluateModel(*g, std::move(in));
    EXPECT_TRUE(e.ok()) << e.status();
    if (!e.ok()) return std::vector<Values>(kMaxOutputs);
    for (const graph::GraphOutput& o : g->outputs)
      results[passed].push_back(e->values[o.value].value);
  }
  for (size_t o = 0; o < results[0].size(); ++o)
    EXPECT_THAT(results[1][o], Pointwise(testing::NanSensitiveDoubleNear(1e-9), results[0][o]));
  return results[0];
}

std::string ErrorOf(const TestModel& m) {
  return Message(onnx::ImportBytes(m.Serialize()).status());
}

auto Near(const Values& want) { return Pointwise(DoubleNear(1e-6), want); }

Values Counting(int64_t n, double first = 0, double step = 1) {
  Values v;
  for (int64_t i = 0; i < n; ++i) v.push_back(first + step * static_cast<double>(i));
  return v;
}

TEST(ReduceTest, FormsOfOperatorSet18) {
  auto reduce = [](const std::string& op, DType t, const std::vector<int64_t>& axes, bool noop,
                   const Values& x) {
    TestModel m(18);
    m.Input("x", {2, 2}, t).Ints("axes", axes);
    m.Node(op, {"x", "axes"}, {"y"}).Int("keepdims", 0).Int("noop_with_empty_axes", noop);
    m.Output("y");
    return Outputs(m, {x})[0];
  };
  const Values x = {3, -4, 0.5, 2};
  EXPECT_THAT(reduce("ReduceL1", DType::kF32, {1}, false, x), ElementsAre(7, 2.5));
  EXPECT_THAT(reduce("ReduceL2", DType::kF32, {1}, false, x), Near({5, std::sqrt(4.25)}));
  EXPECT_THAT(reduce("ReduceSumSquare", DType::kF32, {0}, false, x), ElementsAre(9.25, 20));
  EXPECT_THAT(reduce("ReduceLogSum", DType::kF32, {1}, false, {3, 1, 1, 1}),
              Near({std::log(4), std::log(2)}));
  EXPECT_THAT(reduce("ReduceLogSumExp", DType::kF32, {1}, false, {1000, 1000, -kInf, -kInf}),
              Near({1000 + std::log(2), -kInf}));
  EXPECT_THAT(reduce("ReduceLogSumExp", DType::kF32, {1}, false, {kInf, 1, 0, 0}),
              Near({kInf, std::log(2)}));
  EXPECT_THAT(reduce("ReduceSum", DType::kF32, {}, false, x), ElementsAre(1.5));
  EXPECT_THAT(reduce("ReduceSum", DType::kF32, {}, true, x), ElementsAre(3, -4, 0.5, 2));
  EXPECT_THAT(reduce("ReduceSumSquare", DType::kF32, {}, true, x), ElementsAre(9, 16, 0.25, 4));
  EXPECT_THAT(reduce("ReduceMean", DType::kI32, {1}, false, {1, 2, -3, -4}), ElementsAre(1, -3));
  EXPECT_THAT(reduce("ReduceL2", DType::kI32, {1}, false, {3, 4, 1, 1}), ElementsAre(5, 1));
  EXPECT_THAT(reduce("ReduceMax", DType::kBool, {1}, false, {0, 1, 0, 0}), ElementsAre(1, 0));
  EXPECT_THAT(reduce("ReduceMin", DType::kI8, {1}, false, {-128, 1, 127, 127}),
              ElementsAre(-128, 127));
  // f16 accumulates in f32: 2048 + 1 + 1 is lost in f16, and not here.
  EXPECT_THAT(reduce("ReduceSum", DType::kF16, {0, 1}, false, {2048, 1, 1, 0}), ElementsAre(2050));
}

// Two steps where it is long, the same result; one where its length has no divisors.
TEST(ReduceTest, LongSumsOfEverything) {
  for (int64_t n : {2048, 2053, 3000}) {
    for (const char* op : {"ReduceSum", "ReduceMean"}) {
      TestModel m(11);
      m.Input("x", {n});
      m.Node(op, {"x"}, {"y"}).Int("keepdims", 1);
      m.Output("y");
      const double sum = static_cast<double>(n) * static_cast<double>(n - 1) / 2;
      EXPECT_THAT(Outputs(m, {Counting(n)})[0],
                  Near({op[6] == 'S' ? sum : sum / static_cast<double>(n)}));
    }
  }
}

TEST(NormTest, LayerNormalizationHasThreeOutputs) {
  TestModel m(17);
  const Values two = {2, 2, 2, 2}, one = {1, 1, 1, 1};
  m.Input("x", {2, 4}).Constant("s", DType::kF32, {4}, two).Constant("b", DType::kF32, {4}, one);
  m.Node("LayerNormalization", {"x", "s", "b"}, {"y", "mean", "inv"}).Float("epsilon", 0);
  m.Output("y").Output("mean").Output("inv");
  const auto out = Outputs(m, {{-1, 1, -1, 1, 0, 4, 4, 0}});
  EXPECT_THAT(out[0], Near({-1, 3, -1, 3, -1, 3, 3, -1}));
  EXPECT_THAT(out[1], Near({0, 2}));
  EXPECT_THAT(out[2], Near({1, 0.5}));
}

TEST(NormTest, RmsNormalizationUnderBothNames) {
  for (const char* op : {"RMSNormalization", "SimplifiedLayerNormalization"}) {
    TestModel m(20);
    const Values s = {1, 2};
    m.Input("x", {1, 2}).Constant("s", DType::kF32, {2}, s);
    m.Node(op, {"x", "s"}, {"y"}).Int("axis", -1).Float("epsilon", 0);
    m.Output("y");
    EXPECT_THAT(Outputs(m, {{3, -4}})[0], Near({3 / std::sqrt(12.5), -8 / std::sqrt(12.5)})) << op;
  }
}

// Parameters are per group or per channel.
TEST(NormTest, GroupNormalization) {
  for (const Values& scale : {Values{1, 10}, Values{1, 1, 10, 10}}) {
    const auto n = static_cast<int64_t>(scale.size());
    TestModel m(18);
    m.Input("x", {1, 4, 1, 2}).Constant("s", DType::kF32, {n}, scale);
    m.Constant("b", DType::kF32, {n}, Values(scale.size(), 0));
    m.Node("GroupNormalization", {"x", "s", "b"}, {"y"}).Int("num_groups", 2).Float("epsilon", 0);
    m.Output("y");
    EXPECT_THAT(Outputs(m, {{1, 3, 1, 3, 5, 5, 9, 9}})[0], Near({-1, 1, -1, 1, -10, -10, 10, 10}));
  }
}

TEST(NormTest, LpNormalizationOfZeroIsZero) {
  for (int64_t p : {1, 2}) {
    TestModel m(1);
    m.Input("x", {2, 2});
    m.Node("LpNormalization", {"x"}, {"y"}).Int("axis", 1).Int("p", p);
    m.Output("y");
    const double norm = p == 1 ? 7 : 5;
    EXPECT_THAT(Outputs(m, {{3, -4, 0, 0}})[0], Near({3 / norm, -4 / norm, 0, 0}));
  }
}

TEST(NormTest, GlobalLpPool) {
  for (int64_t p : {1, 2, 3}) {
    TestModel m(2);
    m.Input("x", {1, 2, 1, 2});
    m.Node("GlobalLpPool", {"x"}, {"y"}).Int("p", p);
    m.Output("y");
    const auto norm = [p](double a, double b) {
      return std::pow(std::pow(a, p) + std::pow(b, p), 1.0 / static_cast<double>(p));
    };
    EXPECT_THAT(Outputs(m, {{3, -4, 1, 2}})[0], Near({norm(3, 4), norm(1, 2)}));
  }
}

TEST(NormTest, BatchNormalizationForms) {
  const Values scale = {2, 1, 1, 2}, zero(4, 0), one(4, 1);
  TestModel per_element(7);
  per_element.Input("x", {1, 2, 2});
  for (const auto& [name, v] : {std::pair{"s", scale}, {"b", one}, {"m", zero}, {"v", one}})
    per_element.Constant(name, DType::kF32, {2, 2}, v);
  per_element.Node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"})
      .Int("spatial", 0)
      .Float("epsilon", 0);
  per_element.Output("y");
  EXPECT_THAT(Outputs(per_element, {{1, 2, 3, 4}})[0], Near({3, 3, 4, 9}));

  TestModel training(15);
  training.Input("x", {2, 2}).Input("m", {2}).Input("v", {2});
  training.Constant("s", DType::kF32, {2}, Values{1, 2})
      .Constant("b", DType::kF32, {2}, Values{0, 0});
  training.Node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y", "mean", "var"})
      .Int("training_mode", 1)
      .Float("momentum", 0.75f)
      .Float("epsilon", 0);
  training.Output("y").Output("mean").Output("var");
  const auto out = Outputs(training, {{0, 1, 4, 3}, {6, 6}, {8, 9}});
  EXPECT_THAT(out[0], Near({-1, -2, 1, 2}));
  EXPECT_THAT(out[1], Near({5, 5}));
  EXPECT_THAT(out[2], Near({7, 7}));
}

TEST(ProductTest, GemmOfIntegers) {
  TestModel m(13);
  m.Input("a", {2, 2}, DType::kI32).Input("b", {2, 2}, DType::kI32).Input("c", {2}, DType::kI32);
  m.Node("Gemm", {"a", "b", "c"}, {"y"}).Int("transA", 1).Float("alpha", 2).Float("beta", -1);
  m.Output("y");
  EXPECT_THAT(Outputs(m, {{1, 2, 3, 4}, {1, 0, 0, 1}, {1, 2}})[0], ElementsAre(1, 4, 3, 6));
}

TEST(PowTest, ExponentsOfOtherTypesAreWhatTheySay) {
  struct Case {
    DType base, exponent;
    double x, n, y;
  };
  for (const Case& k : {Case{DType::kI8, DType::kF32, -1, 300, 1},
                        {DType::kU8, DType::kF32, 2, -1, 0},
                        {DType::kU8, DType::kF32, 9, 0.5, 3},
                        {DType::kI8, DType::kI32, 3, 5, -13},  // 243
                        {DType::kI32, DType::kI64, 0, 4294967296, 0},
                        {DType::kI32, DType::kI64, -1, 4294967297, -1},
                        {DType::kI64, DType::kU64, 2, 64, 0},
                        {DType::kI32, DType::kU8, 3, 4, 81}}) {
    for (bool constant : {false, true}) {
      TestModel m(13);
      m.Input("x", {1}, k.base);
      if (constant) {
        m.Constant("n", k.exponent, {1}, Values{k.n});
      } else {
        m.Input("n", {1}, k.exponent);
      }
      m.Node("Pow", {"x", "n"}, {"y"});
      m.Output("y");
      EXPECT_THAT(Outputs(m, {{k.x}, {k.n}})[0], ElementsAre(k.y))
          << ToString(k.base) << " " << k.x << " ^ " << ToString(k.exponent) << " " << k.n
          << (constant ? ", a constant" : "");
    }
  }
}

// Lengths that come as data: what stands beyond them is a scalar, however large the state.
TEST(RecurrentTest, LengthsNeedNoTensorsOfZerosAndNoLongConcat) {
  constexpr int64_t steps = 40, batch = 5, hidden = 7;
  TestModel m(14);
  m.Input("x", {steps, batch, 2}).Input("lengths", {batch}, DType::kI32);
  m.Weights("w", {1, 4 * hidden, 2}).Weights("r", {1, 4 * hidden, hidden});
  m.Node("LSTM", {"x", "w", "r", "", "lengths"}, {"y"}).Int("hidden_size", hidden);
  m.Output("y");
  auto g = onnx::ImportBytes(m.Serialize());
  ASSERT_TRUE(g.ok()) << g.status();
  for (const auto& v : g->values)
    EXPECT_FALSE(v.constant != nullptr && v.type.shape == (Shape{batch, hidden})) << v.name;
  for (const auto& n : g->nodes) EXPECT_LE(n.inputs.size(), 16) << n.op->name;
  Values lengths = {40, 1, 0, 7, 39};
  const Values y = Outputs(m, {Counting(steps * batch * 2, -1, 0.01), lengths})[0];
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      const double first = y[static_cast<size_t>((t * batch + b) * hidden)];
      EXPECT_EQ(first == 0, t >= static_cast<int64_t>(lengths[static_cast<size_t>(b)]))
          << t << " " << b;
    }
  }
}

// Einsum against its definition: every index of every label, multiplied and added up.
Values EinsumByDefinition(const std::string& result, const std::vector<std::string>& terms,
                          const std::vector<std::vector<int64_t>>& shapes,
                          const std::vector<Values>& inputs) {
  std::map<char, int64_t> extents;
  for (size_t k = 0; k < terms.size(); ++k) {
    for (size_t d = 0; d < terms[k].size(); ++d) {
      int64_t& extent = extents.try_emplace(terms[k][d], 1).first->second;
      extent = std::max(extent, shapes[k][d]);
    }
  }
  int64_t size = 1, all = 1;
  for (char l : result) size *= extents[l];
  for (const auto& [l, extent] : extents) all *= extent;
  Values out(static_cast<size_t>(size), 0);
  for (int64_t i = 0; i < all; ++i) {
    std::map<char, int64_t> at;
    int64_t rest = i;
    for (const auto& [l, extent] : extents) {
      at[l] = rest % extent;
      rest /= extent;
    }
    double product = 1;
    for (size_t k = 0; k < terms.size(); ++k) {
      int64_t offset = 0;
      for (size_t d = 0; d < terms[k].size(); ++d)
        offset = offset * shapes[k][d] + (shapes[k][d] == 1 ? 0 : at[terms[k][d]]);
      product *= inputs[k][static_cast<size_t>(offset)];
    }
    int64_t to = 0;
    for (char l : result) to = to * extents[l] + at[l];
    out[static_cast<size_t>(to)] += product;
  }
  return out;
}

TEST(ProductTest, EinsumIsItsDefinition) {
  struct Case {
    std::string equation, result;
    std::vector<std::string> terms;  // with letters for an ellipsis
    std::vector<std::vector<int64_t>> shapes;
  };
  for (const Case& c : {
           Case{"ij,jk->ik", "ik", {"ij", "jk"}, {{2, 3}, {3, 4}}},
           Case{"ij , jk", "ik", {"ij", "jk"}, {{2, 3}, {3, 4}}},
           Case{"ba", "ab", {"ba"}, {{2, 3}}},
           Case{"ij->", "", {"ij"}, {{2, 3}}},
           Case{"ii->i", "i", {"ii"}, {{3, 3}}},
           Case{"ii", "", {"ii"}, {{3, 3}}},
           Case{"iji->j", "j", {"iji"}, {{3, 2, 3}}},
           Case{"iiij->ji", "ji", {"iiij"}, {{2, 2, 2, 3}}},
           Case{"i->i", "i", {"i"}, {{3}}},
           Case{"i,j->ij", "ij", {"i", "j"}, {{2}, {3}}},
           Case{"i,i->i", "i", {"i", "i"}, {{3}, {3}}},
           Case{"i,i", "", {"i", "i"}, {{3}, {3}}},
           Case{"ij,j->i", "i", {"ij", "j"}, {{2, 3}, {3}}},
           Case{"bhqd,bhkd->bhqk", "bhqk", {"bhqd", "bhkd"}, {{2, 2, 3, 4}, {2, 2, 5, 4}}},
           Case{"bqhd,bkhd->bhqk", "bhqk", {"bqhd", "bkhd"}, {{2, 3, 2, 4}, {2, 5, 2, 4}}},
           Case{"...ij,...jk->...ik", "xyik", {"xyij", "yjk"}, {{2, 3, 2, 3}, {3, 3, 2}}},
           Case{"...ij,...jk", "xik", {"xij", "xjk"}, {{1, 2, 3}, {4, 3, 2}}},
           Case{"i...->...", "xy", {"ixy"}, {{3, 2, 2}}},
           Case{"abc,cd,def->fb", "fb", {"abc", "cd", "def"}, {{2, 3, 2}, {2, 2}, {2, 3, 2}}},
           Case{"ab,cd->ad", "ad", {"ab", "cd"}, {{2, 3}, {2, 3}}},
           Case{"Ab,bA->A", "A", {"Ab", "bA"}, {{2, 3}, {3, 2}}},
       }) {
    TestModel m(12);
    std::vector<std::string> names;
    std::vector<Values> inputs;
    for (size_t k = 0; k < c.shapes.size(); ++k) {
      names.push_back("x" + std::to_string(k));
      m.Input(names.back(), c.shapes[k]);
      int64_t n = 1;
      for (int64_t e : c.shapes[k]) n *= e;
      inputs.push_back(Counting(n, 1, 0.5 + static_cast<double>(k)));
    }
    m.Node("Einsum", names, {"y"}).Str("equation", c.equation);
    m.Output("y");
    const auto out = Outputs(m, inputs);
    ASSERT_EQ(out.size(), 1u) << c.equation;
    EXPECT_THAT(out[0], Near(EinsumByDefinition(c.result, c.terms, c.shapes, inputs)))
        << c.equation;
  }
}

TEST(ProductTest, EinsumErrorsQuoteTheTerm) {
  auto error = [](const std::string& equation) {
    TestModel m(12);
    m.Input("a", {2, 3}).Input("b", {3, 4});
    m.Node("Einsum", {"a", "b"}, {"y"}).Str("equation", equation);
    m.Output("y");
    return ErrorOf(m);
  };
  EXPECT_THAT(error("ij->ij"), HasSubstr("1 operands, the node 2 inputs"));
  EXPECT_THAT(error("ijk,jk->ik"), HasSubstr("'ijk' does not fit operand 0 of rank 2"));
  EXPECT_THAT(error("ij,ik->ik"), HasSubstr("extents 2 and 3"));
  EXPECT_THAT(error("ij,jk->iz"), HasSubstr("a label that no operand has"));
  EXPECT_THAT(error("ij,jk->ii"), HasSubstr("occurs twice"));
  EXPECT_THAT(error("i1,jk->i"), HasSubstr("'i1' of an equation is not letters"));
}

TEST(ProductTest, DeterminantOfFourRows) {
  TestModel m(11);
  m.Input("x", {1, 4, 4});
  m.Node("Det", {"x"}, {"y"});
  m.Output("y");
  EXPECT_THAT(Outputs(m, {{2, 0, 1, 3, 1, 1, 0, 2, 0, 3, 1, 1, 4, 1, 2, 0}})[0], Near({-32}));
  TestModel large(11);
  large.Input("x", {9, 9});
  large.Node("Det", {"x"}, {"y"});
  large.Output("y");
  EXPECT_THAT(ErrorOf(large), HasSubstr("matrices of 9 rows are not supported; 1 to 6 are"));
}

// The transform of a turning pointer is a single frequency; and there and back is nothing.
TEST(TransformTest, DftOfOperatorSet20) {
  const double pi = std::acos(-1.0);
  Values x, want(16, 0);
  for (int i = 0; i < 8; ++i) {
    x.push_back(std::cos(2 * pi * 3 * i / 8));
    x.push_back(std::sin(2 * pi * 3 * i / 8));
  }
  want[2 * 3] = 8;
  TestModel m(20);
  m.Input("x", {1, 8, 2}).Node("DFT", {"x"}, {"f"});
  m.Node("DFT", {"f"}, {"y"}).Int("inverse", 1);
  m.Output("f").Output("y");
  const auto out = Outputs(m, {x});
  EXPECT_THAT(out[0], Near(want));
  EXPECT_THAT(out[1], Near(x));
}

TEST(TransformTest, LengthPadsAndCuts) {
  for (int64_t length : {2, 6}) {
    TestModel m(20);
    m.Input("x", {1, 4, 1}).Ints("n", {length}).Ints("axis", {1});
    m.Node("DFT", {"x", "n", "axis"}, {"y"}).Int("onesided", 1);
    m.Output("y");
    const auto out = Outputs(m, {{1, 2, 3, 4}});
    ASSERT_EQ(out[0].size(), static_cast<size_t>(2 * (length / 2 + 1)));
    EXPECT_NEAR(out[0][0], length == 2 ? 3 : 10, 1e-9);                   // the sum
    EXPECT_NEAR(out[0][out[0].size() - 2], length == 2 ? -1 : -2, 1e-9);  // alternating
  }
}

TEST(SelectTest, OneHotTurnsNegativeIndicesAndDropsOthers) {
  TestModel m(11);
  m.Input("i", {4}, DType::kI64).Constant("d", DType::kI64, {}, Values{3});
  m.Constant("v", DType::kF32, {2}, Values{-1, 5});
  m.Node("OneHot", {"i", "d", "v"}, {"y"}).Int("axis", 0);
  m.Output("y");
  EXPECT_THAT(Outputs(m, {{0, -1, 3, -4}})[0],
              ElementsAre(5, -1, -1, -1, -1, -1, -1, -1, -1, 5, -1, -1));
}

TEST(SelectTest, TopKOfOldOperatorSets) {
  TestModel m(1);
  m.Input("x", {1, 4});
  m.Node("TopK", {"x"}, {"v", "i"}).Int("k", 2);
  m.Output("v").Output("i");
  const auto out = Outputs(m, {{1, 7, 7, 3}});
  EXPECT_THAT(out[0], ElementsAre(7, 7));
  EXPECT_THAT(out[1], ElementsAre(1, 2));
  TestModel too_many(1);
  too_many.Input("x", {1, 4});
  too_many.Node("TopK", {"x"}, {"v", "i"}).Int("k", 5);
  too_many.Output("v");
  EXPECT_THAT(ErrorOf(too_many), HasSubstr("k 5 is outside of 0..4"));
}

TEST(SelectTest, HardmaxBeforeOperatorSet13RunsOverTheRest) {
  TestModel m(11);
  m.Input("x", {2, 2, 2});
  m.Node("Hardmax", {"x"}, {"y"});
  m.Output("y");
  EXPECT_THAT(Outputs(m, {{1, 2, 3, 0, 5, 5, 5, 5}})[0], ElementsAre(0, 0, 1, 0, 1, 0, 0, 0));
}

// Operators that add up or take several steps do so in f32: the only nodes of a half precision are
// casts of what goes in and what comes out.
TEST(HalfTest, StepsAreTakenInF32) {
  using Ints = std::vector<int64_t>;
  struct Case {
    std::string op;
    std::vector<Shape> inputs;  // the first is the model's input, the others are weights
    std::vector<std::pair<std::string, Ints>> lists = {};
    std::vector<std::pair<std::string, int64_t>> numbers = {};
  };
  const Shape image = {1, 4, 6, 6};
  const std::vector<Case> cases = {
      {"Conv", {{1, 4, 6}, {2, 4, 3}, {2}}},
      {"Conv", {image, {8, 4, 3, 3}, {8}}},
      {"Conv", {{1, 4, 3, 6, 6}, {2, 4, 2, 3, 3}}},
      {"ConvTranspose", {{1, 4, 6}, {4, 3, 2}}},
      {"ConvTranspose", {image, {4, 3, 2, 2}, {3}}, {{"strides", {2, 2}}}},
      {"ConvTranspose", {{1, 4, 3, 3, 3}, {4, 3, 2, 2, 2}}},
      {"AveragePool", {image}, {{"kernel_shape", {2, 2}}}},
      {"AveragePool", {{1, 2, 4, 4, 4}}, {{"kernel_shape", {2, 2, 2}}}},
      {"LpPool", {image}, {{"kernel_shape", {2, 2}}}},
      {"GlobalAveragePool", {image}},
      {"GlobalAveragePool", {{1, 4, 6}}},
      {"GlobalLpPool", {image}},
      {"LpNormalization", {image}},
      {"MeanVarianceNormalization", {image}},
      {"LRN", {image}, {}, {{"size", 3}}},
      {"BatchNormalization", {image, {4}, {4}, {4}, {4}}},
      {"ReduceSum", {image}},
      {"ReduceMean", {image}},
      {"ReduceProd", {image}},
      {"ReduceL2", {image}},
      {"Det", {{2, 3, 3}}},
      {"Sum", {image, image, image}},
      {"Mean", {image, image, image}},
      {"Softmax", {image}},
      {"LogSoftmax", {image}},
      {"MatMul", {{3, 4}, {4, 5}}},
      {"Gemm", {{3, 4}, {4, 5}, {5}}},
      {"GridSample", {image, {1, 3, 3, 2}}},
      {"MaxRoiPool", {image, {2, 5}}, {{"pooled_shape", {2, 2}}}},
      {"RNN", {{3, 1, 4}, {1, 5, 4}, {1, 5, 5}}},
      {"GRU", {{3, 1, 4}, {1, 15, 4}, {1, 15, 5}}},
      {"LSTM", {{3, 1, 4}, {1, 20, 4}, {1, 20, 5}, {1, 40}}},
  };
  for (DType t : {DType::kF16, DType::kBF16}) {
    for (const Case& k : cases) {
      TestModel m(k.op == "ReduceSum" || k.op.ends_with("Pool") ? 11 : 17);
      std::vector<std::string> names;
      for (const Shape& s : k.inputs) {
        names.push_back("i" + std::to_string(names.size()));
        if (names.size() == 1) {
          m.Input(names[0], s, t);
        } else {
          m.Weights(names.back(), s, t);
        }
      }
      auto node = m.Node(k.op, names, {"y"});
      for (const auto& [name, v] : k.lists) node.Ints(name, v);
      for (const auto& [name, v] : k.numbers) node.Int(name, v);
      m.Output("y");
      auto g = onnx::ImportBytes(m.Serialize());
      ASSERT_TRUE(g.ok()) << g.status();
      EXPECT_EQ(g->type(g->outputs[0].value).dtype, t) << k.op;
      for (const graph::Node& n : g->nodes) {
        for (graph::ValueId v : n.outputs) {
          if (n.op == nullptr || !IsHalf(g->type(v).dtype)) continue;
          EXPECT_EQ(n.op->name, "Cast") << k.op << " of " << ToString(t);
        }
      }
    }
  }
}

// Groups are joined where the weights are constants, which they stay when they are widened.
TEST(HalfTest, GroupsOfConvolutionsAreJoinedAsInF32) {
  std::vector<int64_t> groups;
  for (DType t : {DType::kF32, DType::kF16}) {
    TestModel m(13);
    m.Input("x", {1, 64, 6, 6}, t).Weights("w", {64, 8, 3, 3}, t);
    m.Node("Conv", {"x", "w"}, {"y"}).Int("group", 8);
    m.Output("y");
    auto g = onnx::ImportBytes(m.Serialize());
    ASSERT_TRUE(g.ok()) << g.status();
    for (const graph::Node& n : g->nodes) {
      if (n.op != nullptr && n.op->name == "Conv") groups.push_back(n.attrs.Int("group"));
    }
  }
  EXPECT_THAT(groups, ElementsAre(4, 4));
}

TEST(HalfTest, OperandsOfTwoTypesAreAnError) {
  TestModel m(13);
  m.Input("x", {1, 4, 6, 6}, DType::kF16).Weights("w", {8, 4, 3, 3});
  m.Node("Conv", {"x", "w"}, {"y"});
  m.Output("y");
  EXPECT_THAT(ErrorOf(m), HasSubstr("input 1 is f32, input 0 f16"));
}

// f16 ends at 65504.
TEST(LossTest, HalfPrecisionsCountManyPositions) {
  const int64_t n = 70000;
  for (const char* op : {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}) {
    TestModel m(13);
    m.Input("x", {1, 2, n}, DType::kF16).Input("t", {1, n}, DType::kI64);
    m.Node(op, {"x", "t"}, {"y"});
    m.Output("y");
    const Values t(static_cast<size_t>(n), 1);
    const double want = op[0] == 'N' ? 2 : std::log(2);
    EXPECT_NEAR(Outputs(m, {Values(static_cast<size_t>(2 * n), -2), t})[0][0], want, 1e-3) << op;
  }
}

TEST(LossTest, IgnoredTargetsHaveNoWeight) {
  TestModel m(13);
  m.Input("x", {3, 2}).Input("t", {3}, DType::kI64);
  m.Node("NegativeLogLikelihoodLoss", {"x", "t"}, {"y"}).Int("ignore_index", 1);
  m.Output("y");
  EXPECT_THAT(Outputs(m, {{1, 2, 3, 4, 5, 6}, {0, 1, 0}})[0], ElementsAre(-3));
  TestModel bad(13);
  bad.Input("x", {3, 2}).Input("t", {2}, DType::kI64);
  bad.Node("NegativeLogLikelihoodLoss", {"x", "t"}, {"y"});
  bad.Output("y");
  EXPECT_THAT(ErrorOf(bad), HasSubstr("target [2] for input [3,2]"));
}

// Operators that quantization tools write in a domain of their own.
class ContribModel {
 public:
  ContribModel() : m_(13) {}
  std::string Q(DType t, const Shape& shape, const Values& v) {
    const std::string name = fmt::format("c{}", count_++);
    m_.Constant(name, t, shape, v);
    return name;
  }
  std::string Scale(double v) { return Q(DType::kF32, {}, {v}); }
  std::string Zero(double v) { return Q(DType::kU8, {}, {v}); }
  void Input(const Shape& shape, DType t = DType::kU8) { m_.Input("x", shape, t); }
  TestModel::NodeWriter Node(const std::string& op, const std::vector<std::string>& inputs) {
    auto node = m_.Node(op, inputs, {"y"});
    m_.proto().mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
    m_.Output("y");
    return node;
  }
  const TestModel& model() const { return m_; }

 private:
  TestModel m_;
  int count_ = 0;
};

TEST(ContribQuantizedTest, ElementwiseOperatorsDequantizeAndQuantize) {
  for (const char* op : {"QLinearAdd", "QLinearMul"}) {
    ContribModel m;
    m.Input({2});
    m.Node(op, {"x", m.Scale(0.5), m.Zero(10), m.Q(DType::kU8, {2}, {4, 6}), m.Scale(1), m.Zero(4),
                m.Scale(0.5), m.Zero(1)});
    EXPECT_THAT(Outputs(m.model(), {{10, 20}})[0],
                op == std::string("QLinearAdd") ? ElementsAre(1, 15) : ElementsAre(1, 21));
  }
  ContribModel m;
  m.Input({2});
  m.Node("QLinearLeakyRelu", {"x", m.Scale(0.5), m.Zero(10), m.Scale(0.5), m.Zero(8)})
      .Float("alpha", 0.5);
  EXPECT_THAT(Outputs(m.model(), {{6, 14}})[0], ElementsAre(6, 12));
  ContribModel concat;
  concat.Input({2});
  concat
      .Node("QLinearConcat", {concat.Scale(0.5), concat.Zero(1), "x", concat.Scale(1),
                              concat.Zero(3), "x", concat.Scale(0.5), concat.Zero(0)})
      .Int("axis", 0);
  EXPECT_THAT(Outputs(concat.model(), {{3, 5}})[0], ElementsAre(1, 5, 4, 6));
}

TEST(ContribQuantizedTest, SoftmaxIsThatOfTheOperatorSetItNames) {
  for (int64_t opset : {12, 13}) {
    ContribModel m;
    m.Input({1, 2, 2});
    m.Node("QLinearSoftmax",
           {"x", m.Scale(1), m.Q(DType::kU8, {}, {0}), m.Scale(0.25), m.Q(DType::kU8, {}, {0})})
        .Int("opset", opset)
        .Int("axis", 1);
    // Before 13 over all that follows the axis.
    const double share = opset == 12 ? 1 : 2;
    EXPECT_THAT(Outputs(m.model(), {{5, 5, 5, 5}})[0], ElementsAre(share, share, share, share))
        << opset;
  }
}

TEST(ContribQuantizedTest, PoolsMayHaveChannelsLast) {
  for (int64_t last : {0, 1}) {
    ContribModel m;
    m.Input(last ? Shape{1, 1, 2, 2} : Shape{1, 2, 1, 2});
    m.Node("QLinearGlobalAveragePool", {"x", m.Scale(1), m.Zero(0), m.Scale(0.5), m.Zero(0)})
        .Int("channels_last", last);
    EXPECT_THAT(Outputs(m.model(), {last ? Values{2, 10, 6, 20} : Values{2, 6, 10, 20}})[0],
                ElementsAre(8, 30));
  }
}

TEST(ContribQuantizedTest, ProductsScaleTheirSums) {
  for (bool quantized : {false, true}) {
    ContribModel m;
    m.Input({1, 2});
    std::vector<std::string> in = {"x",
                                   m.Scale(0.5),
                                   m.Zero(1),
                                   m.Q(DType::kI8, {2, 2}, {1, 2, 3, -1}),
                                   m.Q(DType::kF32, {2}, {1, 2}),
                                   m.Q(DType::kI8, {2}, {0, 0}),
                                   m.Q(DType::kI32, {2}, {2, 4})};
    if (quantized) in.insert(in.end(), {m.Scale(0.5), m.Zero(100)});
    m.Node("QGemm", in).Int("transB", 1);
    EXPECT_THAT(Outputs(m.model(), {{3, 5}})[0],
                quantized ? ElementsAre(112, 112) : ElementsAre(6, 6));
  }
  ContribModel m;
  m.Input({1, 2});
  m.Node("MatMulIntegerToFloat",
         {"x", m.Q(DType::kI8, {2, 2}, {1, 3, 2, -1}), m.Scale(0.5), m.Q(DType::kF32, {2}, {1, 2}),
          m.Zero(1), "", m.Q(DType::kF32, {2}, {0.25, 0})});
  EXPECT_THAT(Outputs(m.model(), {{3, 5}})[0], ElementsAre(5.25, 2));
  ContribModel dynamic;
  dynamic.Input({1, 2}, DType::kF32);
  dynamic.Node("DynamicQuantizeMatMul", {"x", dynamic.Q(DType::kI8, {2, 1}, {1, 2}),
                                         dynamic.Scale(0.5), "", dynamic.Q(DType::kF32, {1}, {1})});
  EXPECT_THAT(Outputs(dynamic.model(), {{0, 255}})[0], ElementsAre(256));
}

TEST(ContribQuantizedTest, OtherOperatorsOfTheDomainAreRefusedByName) {
  ContribModel m;
  m.Input({2});
  m.Node("Frobnicate", {"x"});
  EXPECT_THAT(ErrorOf(m.model()),
              HasSubstr("the operator of domain 'com.microsoft' is not supported"));
}

}  // namespace
}  // namespace whet::ops
