#include "compiler/tflite/import.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/ops/catalog.h"
#include "compiler/support/rng.h"
#include "tests/support/test_tflite.h"

namespace whet::tflite {
namespace {

using graph::Graph;
using graph::RefTensor;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Not;
using testing_support::TestTflite;
using tflite_schema::Activation;
using tflite_schema::BuiltinOperator;
using tflite_schema::Options;
using tflite_schema::Padding;
using tflite_schema::TensorType;
namespace fb = tflite_schema;

std::vector<double> Ramp(size_t n, double scale = 1) {
  std::vector<double> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = scale * CounterUniform(7, 1, i);
  return v;
}

std::vector<double> Count(size_t n) {
  std::vector<double> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<double>(i);
  return v;
}

std::vector<float> ToFloats(const std::vector<double>& v) { return {v.begin(), v.end()}; }

// All outputs, each followed by its type: evaluated as imported, and again after the graph passes,
// which must not change them.
struct Result {
  std::vector<std::vector<double>> values;
  std::vector<std::string> types;
  std::vector<std::string> ops;  // as imported
};

void Evaluate(const std::string& file, const std::vector<std::vector<double>>& inputs,
              Result* result) {
  auto g = ImportBytes(file);
  ASSERT_TRUE(g.ok()) << g.status();
  for (const graph::Node& n : g->nodes) result->ops.push_back(n.op->name);
  ASSERT_EQ(g->inputs.size(), inputs.size());
  for (int run = 0; run < 2; ++run) {
    std::vector<RefTensor> in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const graph::TensorType& t = g->type(g->inputs[i]);
      ASSERT_EQ(t.num_elements(), static_cast<int64_t>(inputs[i].size()));
      in.push_back({t.dtype, t.shape, inputs[i], {}});
    }
    auto e = graph::EvaluateModel(*g, std::move(in));
    ASSERT_TRUE(e.ok()) << e.status();
    for (size_t i = 0; i < g->outputs.size(); ++i) {
      const graph::ValueId v = g->outputs[i].value;
      const std::vector<double> got =
          g->constant(v) ? g->constant(v)->Doubles() : e->values[v].value;
      if (run == 0) {
        result->values.push_back(got);
        result->types.push_back(g->type(v).ToString());
      } else {
        EXPECT_THAT(got, ElementsAreArray(result->values[i]));
      }
    }
    auto passes = graph::RunPasses(*g);
    ASSERT_TRUE(passes.ok()) << passes.status();
  }
}

Result Compute(const std::string& file, const std::vector<std::vector<double>>& inputs) {
  Result r;
  Evaluate(file, inputs, &r);
  r.values.resize(std::max<size_t>(r.values.size(), 1));
  r.types.resize(r.values.size());
  return r;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

// ---- convolutions against loops over the format's own order of axes

struct ConvCase {
  int h, w, ic, oc, k, stride, dilation;
  Padding padding;
  bool depthwise;
};

std::vector<double> ConvLoops(const ConvCase& c, const std::vector<double>& x,
                              const std::vector<float>& w, const std::vector<float>& b, int* oh,
                              int* ow) {
  const int span = (c.k - 1) * c.dilation + 1;
  auto extent = [&](int in) {
    return c.padding == Padding::SAME ? (in + c.stride - 1) / c.stride : (in - span) / c.stride + 1;
  };
  *oh = extent(c.h);
  *ow = extent(c.w);
  auto before = [&](int in, int out) {
    return c.padding == Padding::SAME ? std::max((out - 1) * c.stride + span - in, 0) / 2 : 0;
  };
  const int top = before(c.h, *oh), left = before(c.w, *ow);
  std::vector<double> y;
  for (int i = 0; i < *oh; ++i)
    for (int j = 0; j < *ow; ++j)
      for (int o = 0; o < c.oc; ++o) {
        double sum = b[o];
        for (int u = 0; u < c.k; ++u)
          for (int v = 0; v < c.k; ++v) {
            const int row = i * c.stride - top + u * c.dilation,
                      column = j * c.stride - left + v * c.dilation;
            if (row < 0 || row >= c.h || column < 0 || column >= c.w) continue;
            for (int q = 0; q < c.ic; ++q) {
              if (c.depthwise && q != o / (c.oc / c.ic)) continue;
              const double f = c.depthwise ? w[(u * c.k + v) * c.oc + o]
                                           : w[((o * c.k + u) * c.k + v) * c.ic + q];
              sum += f * x[(row * c.w + column) * c.ic + q];
            }
          }
        y.push_back(std::clamp(sum, 0.0, 6.0));  // RELU6
      }
  return y;
}

TEST(TfliteConv, AgreesWithLoopsOverTheFormatsOrder) {
  for (const ConvCase& c : std::vector<ConvCase>{
           {5, 7, 3, 4, 3, 2, 1, Padding::SAME, false},
           {6, 6, 2, 5, 3, 1, 2, Padding::VALID, false},
           {4, 4, 3, 2, 1, 1, 1, Padding::VALID, false},
           {7, 5, 3, 3, 3, 2, 1, Padding::SAME, true},
           {6, 6, 2, 4, 3, 1, 1, Padding::VALID, true},
       }) {
    SCOPED_TRACE(fmt::format("{}x{} {}->{} stride {}{}", c.h, c.w, c.ic, c.oc, c.stride,
                             c.depthwise ? " depthwise" : ""));
    const auto n = static_cast<size_t>(c.k * c.k * c.oc * (c.depthwise ? 1 : c.ic));
    const std::vector<float> w = ToFloats(Ramp(n));
    const std::vector<float> b = ToFloats(Ramp(static_cast<size_t>(c.oc), 0.5));
    const std::vector<double> x = Ramp(static_cast<size_t>(c.h * c.w * c.ic), 2);
    int oh = 0, ow = 0;
    const std::vector<double> want = ConvLoops(c, x, w, b, &oh, &ow);
    TestTflite m;
    const int xt = m.Tensor("x", {1, c.h, c.w, c.ic});
    const int wt = c.depthwise ? m.Floats("w", {1, c.k, c.k, c.oc}, w)
                               : m.Floats("w", {c.oc, c.k, c.k, c.ic}, w);
    const int bt = m.Floats("b", {c.oc}, b), yt = m.Tensor("y", {1, oh, ow, c.oc});
    if (c.depthwise) {
      m.Op(BuiltinOperator::DEPTHWISE_CONV_2D, {xt, wt, bt}, {yt}, Options::DepthwiseConv2D,
           fb::CreateDepthwiseConv2DOptions(m.builder(), c.padding, c.stride, c.stride, c.oc / c.ic,
                                            Activation::RELU6, c.dilation, c.dilation)
               .Union());
    } else {
      m.Op(BuiltinOperator::CONV_2D, {xt, wt, bt}, {yt}, Options::Conv2D,
           fb::CreateConv2DOptions(m.builder(), c.padding, c.stride, c.stride, Activation::RELU6,
                                   c.dilation, c.dilation)
               .Union());
    }
    const Result r = Compute(m.Inputs({xt}).Outputs({yt}).Finish(), {x});
    EXPECT_EQ(r.types[0], fmt::format("f32[1,{},{},{}]", oh, ow, c.oc));
    ExpectNear(r.values[0], want, 1e-5);
  }
}

// conv, + (h, w, c), * (c), leaky relu, 1x1 conv: only the model's ends are transposed.
TEST(TfliteConv, NothingIsTransposedBetweenConvolutionsAndWhatFollowsThem) {
  TestTflite m;
  const int x = m.Tensor("x", {1, 4, 4, 2});
  const int w = m.Weights("w", {3, 1, 1, 2}), w2 = m.Weights("w2", {2, 1, 1, 3});
  const int full = m.Weights("full", {4, 4, 3}), scale = m.Floats("scale", {3}, {1, -2, 3});
  std::vector<int> t;
  for (const char* name : {"a", "b", "c", "d"}) t.push_back(m.Tensor(name, {1, 4, 4, 3}));
  const int y = m.Tensor("y", {1, 4, 4, 2});
  auto conv = [&] { return fb::CreateConv2DOptions(m.builder(), Padding::SAME, 1, 1).Union(); };
  m.Op(BuiltinOperator::CONV_2D, {x, w}, {t[0]}, Options::Conv2D, conv());
  m.Op(BuiltinOperator::ADD, {t[0], full}, {t[1]}, Options::Add,
       fb::CreateAddOptions(m.builder(), Activation::RELU).Union());
  m.Op(BuiltinOperator::MUL, {scale, t[1]}, {t[2]});
  m.Op(BuiltinOperator::LEAKY_RELU, {t[2]}, {t[3]}, Options::LeakyRelu,
       fb::CreateLeakyReluOptions(m.builder(), 0.25F).Union());
  m.Op(BuiltinOperator::CONV_2D, {t[3], w2}, {y}, Options::Conv2D, conv());
  const std::string file = m.Inputs({x}).Outputs({y}).Finish();
  const Result r = Compute(file, {Ramp(32)});
  EXPECT_THAT(r.ops, ElementsAre("Transpose", "Conv", "Add", "Relu", "Mul", "LeakyRelu", "Conv",
                                 "Transpose"));
  // The same by hand, position by position.
  const std::vector<double> in = Ramp(32);
  auto weights = [&](const char* name, int n) {
    uint64_t seed = 0;
    for (const char* c = name; *c != 0; ++c) seed = seed * 131 + static_cast<unsigned char>(*c);
    std::vector<double> v;
    for (int i = 0; i < n; ++i) v.push_back(0.5 * CounterUniform(seed, 0, static_cast<size_t>(i)));
    return v;
  };
  const auto wv = weights("w", 6), fv = weights("full", 48), w2v = weights("w2", 6);
  const double sv[] = {1, -2, 3};
  std::vector<double> want;
  for (int p = 0; p < 16; ++p) {
    double mid[3];
    for (int o = 0; o < 3; ++o) {
      const double a = in[p * 2] * wv[o * 2] + in[p * 2 + 1] * wv[o * 2 + 1];
      const double c = std::max(a + fv[p * 3 + o], 0.0) * sv[o];
      mid[o] = c < 0 ? c * 0.25 : c;
    }
    for (int o = 0; o < 2; ++o)
      want.push_back(mid[0] * w2v[o * 3] + mid[1] * w2v[o * 3 + 1] + mid[2] * w2v[o * 3 + 2]);
  }
  ExpectNear(r.values[0], want, 1e-5);
}

TEST(TfliteConv, AveragePoolsDoNotCountWhatTheyPad) {
  TestTflite m;
  const int x = m.Tensor("x", {1, 3, 3, 1}), y = m.Tensor("y", {1, 2, 2, 1});
  const int z = m.Tensor("z", {1, 2, 2, 1});
  auto pool = [&] {
    return fb::CreatePool2DOptions(m.builder(), Padding::SAME, 2, 2, 2, 2).Union();
  };
  m.Op(BuiltinOperator::AVERAGE_POOL_2D, {x}, {y}, Options::Pool2D, pool());
  m.Op(BuiltinOperator::MAX_POOL_2D, {x}, {z}, Options::Pool2D, pool());
  const Result r = Compute(m.Inputs({x}).Outputs({y, z}).Finish(), {Count(9)});
  EXPECT_THAT(r.values[0], ElementsAre(2, 3.5, 6.5, 8));
  EXPECT_THAT(r.values[1], ElementsAre(4, 5, 7, 8));
}

TEST(TfliteConv, FullyConnectedSeesRows) {
  for (const bool keep : {false, true}) {
    TestTflite m;
    const int x = m.Tensor("x", {1, 2, 3}), w = m.Floats("w", {2, 3}, {1, 0, 0, 1, 1, 1});
    const int b = m.Floats("b", {2}, {10, 20});
    const int y = m.Tensor("y", keep ? std::vector<int>{1, 2, 2} : std::vector<int>{2, 2});
    m.Op(BuiltinOperator::FULLY_CONNECTED, {x, w, b}, {y}, Options::FullyConnected,
         fb::CreateFullyConnectedOptions(m.builder(), Activation::NONE, 0, keep).Union());
    const Result r = Compute(m.Inputs({x}).Outputs({y}).Finish(), {Count(6)});
    EXPECT_THAT(r.values[0], ElementsAre(10, 23, 13, 32));
    EXPECT_EQ(r.types[0], keep ? "f32[1,2,2]" : "f32[2,2]");
  }
}

// ---- operators one by one, on 0, 1, 2, ...

// Builds one operator that reads "x" of the given shape and possibly constants.
struct OneOp {
  explicit OneOp(const std::vector<int>& shape, TensorType type = TensorType::FLOAT32)
      : x(m.Tensor("x", shape, type)) {
    elements = 1;
    for (int d : shape) elements *= static_cast<size_t>(d);
  }
  Result Of(BuiltinOperator code, const std::vector<int>& inputs,
            const std::vector<std::vector<int>>& out_shapes, Options type = Options::NONE,
            flatbuffers::Offset<void> options = 0) {
    std::vector<int> out;
    for (const auto& s : out_shapes)
      out.push_back(m.Tensor(fmt::format("y{}", out.size()), s, out_type));
    m.Op(code, inputs, out, type, options);
    return Compute(m.Inputs({x}).Outputs(out).Finish(),
                   {values.empty() ? Count(elements) : values});
  }
  TestTflite m;
  int x;
  size_t elements;
  TensorType out_type = TensorType::FLOAT32;
  std::vector<double> values;
};

TEST(TfliteOperators, MoveElements) {
  {
    OneOp o({1, 2, 2, 4});
    auto option = fb::CreateBlockOptions(o.m.builder(), 2).Union();
    EXPECT_THAT(
        o.Of(BuiltinOperator::DEPTH_TO_SPACE, {o.x}, {{1, 4, 4, 1}}, Options::DepthToSpace, option)
            .values[0],
        ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  }
  {
    OneOp o({1, 4, 2, 1});
    auto option = fb::CreateBlockOptions(o.m.builder(), 2).Union();
    EXPECT_THAT(
        o.Of(BuiltinOperator::SPACE_TO_DEPTH, {o.x}, {{1, 2, 1, 4}}, Options::SpaceToDepth, option)
            .values[0],
        ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
  {
    OneOp o({2, 3});
    const int pads = o.m.Ints("pads", {2, 2}, {1, 0, 0, 1}), v = o.m.Floats("v", {1}, {9});
    EXPECT_THAT(o.Of(BuiltinOperator::PADV2, {o.x, pads, v}, {{3, 4}}).values[0],
                ElementsAre(9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9));
  }
  {
    OneOp o({4, 3});
    const int axis = o.m.Ints("axis", {}, {0});
    const Result r = o.Of(BuiltinOperator::SPLIT, {axis, o.x}, {{2, 3}, {2, 3}});
    EXPECT_THAT(r.values[0], ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(r.values[1], ElementsAre(6, 7, 8, 9, 10, 11));
  }
  {
    OneOp o({5});
    const int sizes = o.m.Ints("sizes", {2}, {-1, 2}), axis = o.m.Ints("axis", {}, {0});
    const Result r = o.Of(BuiltinOperator::SPLIT_V, {o.x, sizes, axis}, {{3}, {2}});
    EXPECT_THAT(r.values[0], ElementsAre(0, 1, 2));
    EXPECT_THAT(r.values[1], ElementsAre(3, 4));
  }
  {
    OneOp o({2, 3});
    auto option = fb::CreateAxisOptions(o.m.builder(), 3, 1).Union();
    const Result r = o.Of(BuiltinOperator::UNPACK, {o.x}, {{2}, {2}, {2}}, Options::Unpack, option);
    EXPECT_THAT(r.values[2], ElementsAre(2, 5));
  }
  {
    OneOp o({2});
    auto option = fb::CreateAxisOptions(o.m.builder(), 2, 1).Union();
    const int c = o.m.Floats("c", {2}, {7, 8});
    EXPECT_THAT(o.Of(BuiltinOperator::PACK, {o.x, c}, {{2, 2}}, Options::Pack, option).values[0],
                ElementsAre(0, 7, 1, 8));
  }
  {
    OneOp o({2, 3});
    const int perm = o.m.Ints("perm", {2}, {1, 0});
    EXPECT_THAT(o.Of(BuiltinOperator::TRANSPOSE, {o.x, perm}, {{3, 2}}).values[0],
                ElementsAre(0, 3, 1, 4, 2, 5));
  }
  {
    OneOp o({2, 3});
    const int begin = o.m.Ints("begin", {2}, {0, 1}), size = o.m.Ints("size", {2}, {1, -1});
    EXPECT_THAT(o.Of(BuiltinOperator::SLICE, {o.x, begin, size}, {{1, 2}}).values[0],
                ElementsAre(1, 2));
  }
  {
    OneOp o({3, 1, 2});
    auto dims = o.m.builder().CreateVector(std::vector<int>{1});
    auto option = fb::CreateSqueezeOptions(o.m.builder(), dims).Union();
    EXPECT_EQ(o.Of(BuiltinOperator::SQUEEZE, {o.x}, {{3, 2}}, Options::Squeeze, option).types[0],
              "f32[3,2]");
  }
  {
    OneOp o({3, 2});
    const int axis = o.m.Ints("axis", {1}, {-1});
    EXPECT_EQ(o.Of(BuiltinOperator::EXPAND_DIMS, {o.x, axis}, {{3, 2, 1}}).types[0], "f32[3,2,1]");
  }
  {
    OneOp o({3, 2});
    const int shape = o.m.Ints("shape", {3}, {1, -1, 3});
    EXPECT_EQ(o.Of(BuiltinOperator::RESHAPE, {o.x, shape}, {{1, 2, 3}}).types[0], "f32[1,2,3]");
  }
  {
    OneOp o({3, 2});
    const int axes = o.m.Ints("axes", {1}, {0});
    EXPECT_THAT(o.Of(BuiltinOperator::REVERSE_V2, {o.x, axes}, {{3, 2}}).values[0],
                ElementsAre(4, 5, 2, 3, 0, 1));
  }
  {
    OneOp o({3, 2});
    const int at = o.m.Ints("at", {2}, {2, 0});
    auto option = fb::CreateGatherOptions(o.m.builder(), 0).Union();
    EXPECT_THAT(
        o.Of(BuiltinOperator::GATHER, {o.x, at}, {{2, 2}}, Options::Gather, option).values[0],
        ElementsAre(4, 5, 0, 1));
  }
}

TEST(TfliteOperators, StridedSlicesFollowTheirMasks) {
  // x[1:, ::-1, 1] of (2, 3, 2)
  OneOp o({2, 3, 2});
  const int begin = o.m.Ints("begin", {3}, {1, 0, 1}), end = o.m.Ints("end", {3}, {0, 0, 2}),
            strides = o.m.Ints("strides", {3}, {1, -1, 1});
  auto option = fb::CreateStridedSliceOptions(o.m.builder(), 2, 3, 0, 0, 4).Union();
  const Result r = o.Of(BuiltinOperator::STRIDED_SLICE, {o.x, begin, end, strides}, {{1, 3}},
                        Options::StridedSlice, option);
  EXPECT_EQ(r.types[0], "f32[1,3]");
  EXPECT_THAT(r.values[0], ElementsAre(11, 9, 7));
}

TEST(TfliteOperators, ReduceOverAxesOfTheFile) {
  for (const bool keep : {false, true}) {
    OneOp o({1, 2, 2, 3});
    const int axes = o.m.Ints("axes", {2}, {1, -2});
    auto option = fb::CreateReducerOptions(o.m.builder(), keep).Union();
    const Result r = o.Of(BuiltinOperator::MEAN, {o.x, axes},
                          {keep ? std::vector<int>{1, 1, 1, 3} : std::vector<int>{1, 3}},
                          Options::Reducer, option);
    EXPECT_THAT(r.values[0], ElementsAre(4.5, 5.5, 6.5));
  }
  OneOp o({2, 3});
  const int axes = o.m.Ints("axes", {1}, {1});
  auto option = fb::CreateReducerOptions(o.m.builder(), false).Union();
  EXPECT_THAT(o.Of(BuiltinOperator::SUM, {o.x, axes}, {{2}}, Options::Reducer, option).values[0],
              ElementsAre(3, 12));
}

// What stands behind a convolution is joined, cut, padded and averaged in the order it lies in.
TEST(TfliteOperators, AxesAreTranslatedBehindAConvolution) {
  TestTflite m;
  const int x = m.Tensor("x", {1, 2, 2, 1});
  const int w = m.Floats("w", {2, 1, 1, 1}, {1, 10});
  const int a = m.Tensor("a", {1, 2, 2, 2}), joined = m.Tensor("joined", {1, 2, 2, 4});
  const int pads = m.Ints("pads", {4, 2}, {0, 0, 1, 0, 0, 0, 0, 0});
  const int padded = m.Tensor("padded", {1, 3, 2, 4});
  const int begin = m.Ints("begin", {4}, {0, 1, 0, 1}), size = m.Ints("size", {4}, {1, 2, 2, 2});
  const int cut = m.Tensor("cut", {1, 2, 2, 2});
  const int axes = m.Ints("axes", {2}, {1, 2}), mean = m.Tensor("mean", {1, 2});
  m.Op(BuiltinOperator::CONV_2D, {x, w}, {a}, Options::Conv2D,
       fb::CreateConv2DOptions(m.builder(), Padding::SAME, 1, 1).Union());
  m.Op(BuiltinOperator::CONCATENATION, {a, a}, {joined}, Options::Concatenation,
       fb::CreateConcatenationOptions(m.builder(), 3).Union());
  m.Op(BuiltinOperator::PAD, {joined, pads}, {padded});
  m.Op(BuiltinOperator::SLICE, {padded, begin, size}, {cut});
  m.Op(BuiltinOperator::MEAN, {cut, axes}, {mean}, Options::Reducer,
       fb::CreateReducerOptions(m.builder(), false).Union());
  const Result r = Compute(m.Inputs({x}).Outputs({cut, mean}).Finish(), {{1, 2, 3, 4}});
  EXPECT_THAT(r.values[0], ElementsAre(10, 1, 20, 2, 30, 3, 40, 4));
  EXPECT_THAT(r.values[1], ElementsAre(25, 2.5));
  EXPECT_EQ(std::count(r.ops.begin(), r.ops.end(), "Transpose"), 2) << "in, and out for 'cut'";
}

TEST(TfliteOperators, ComputeElementWise) {
  auto unary = [](BuiltinOperator code, const std::vector<double>& in) {
    OneOp o({static_cast<int>(in.size())});
    o.values = in;
    return o.Of(code, {o.x}, {{static_cast<int>(in.size())}}).values[0];
  };
  EXPECT_THAT(unary(BuiltinOperator::RELU_N1_TO_1, {-2, -0.5, 3}), ElementsAre(-1, -0.5, 1));
  EXPECT_THAT(unary(BuiltinOperator::RELU6, {-2, 5, 7}), ElementsAre(0, 5, 6));
  EXPECT_THAT(unary(BuiltinOperator::SQUARE, {-2, 3}), ElementsAre(4, 9));
  EXPECT_THAT(unary(BuiltinOperator::RSQRT, {4, 16}), ElementsAre(0.5, 0.25));
  ExpectNear(unary(BuiltinOperator::HARD_SWISH, {-4, 0, 1.5, 4}), {0, 0, 1.125, 4}, 1e-6);
  ExpectNear(unary(BuiltinOperator::LOGISTIC, {0, 2}), {0.5, 1 / (1 + std::exp(-2.0))}, 1e-6);
  ExpectNear(unary(BuiltinOperator::L2_NORMALIZATION, {3, 4}), {0.6, 0.8}, 1e-6);
  {
    OneOp o({1, 1, 2, 2});
    o.values = {-1, 2, -3, 4};
    const int alpha = o.m.Floats("alpha", {1, 1, 2}, {0.5, 0.25});
    EXPECT_THAT(o.Of(BuiltinOperator::PRELU, {o.x, alpha}, {{1, 1, 2, 2}}).values[0],
                ElementsAre(-0.5, 2, -1.5, 4));
  }
  {
    OneOp o({3});
    const int c = o.m.Floats("c", {3}, {3, 1, 1});
    EXPECT_THAT(o.Of(BuiltinOperator::SQUARED_DIFFERENCE, {o.x, c}, {{3}}).values[0],
                ElementsAre(9, 0, 1));
  }
  {
    OneOp o({3});
    auto option = fb::CreateSoftmaxOptions(o.m.builder(), 2).Union();
    const double s = 1 + std::exp(2.0) + std::exp(4.0);
    ExpectNear(o.Of(BuiltinOperator::SOFTMAX, {o.x}, {{3}}, Options::Softmax, option).values[0],
               {1 / s, std::exp(2.0) / s, std::exp(4.0) / s}, 1e-6);
  }
  {
    OneOp o({3}, TensorType::INT32);
    EXPECT_THAT(o.Of(BuiltinOperator::CAST, {o.x}, {{3}}).values[0], ElementsAre(0, 1, 2));
  }
}

TEST(TfliteOperators, HalfPrecisionWeightsBecomeConstants) {
  TestTflite m;
  const int x = m.Tensor("x", {1, 1, 1, 2}), y = m.Tensor("y", {1, 1, 1, 1});
  const int half = m.Bytes("half", {1, 1, 1, 2}, TensorType::FLOAT16,
                           std::string("\x00\x3c\x00\xc0", 4));  // 1, -2
  const int w = m.Tensor("w", {1, 1, 1, 2});
  m.Op(BuiltinOperator::DEQUANTIZE, {half}, {w});
  m.Op(BuiltinOperator::CONV_2D, {x, w}, {y}, Options::Conv2D,
       fb::CreateConv2DOptions(m.builder(), Padding::SAME, 1, 1).Union());
  const Result r = Compute(m.Inputs({x}).Outputs({y}).Finish(), {{5, 3}});
  EXPECT_THAT(r.values[0], ElementsAre(-1));
  EXPECT_THAT(r.ops, Not(::testing::Contains("Cast")));
}

// ---- quantized tensors

std::string Int8(const std::vector<int>& values) {
  std::string bytes;
  for (int v : values) bytes.push_back(static_cast<char>(v));
  return bytes;
}

// Scales are powers of two, so that every real number in between is exact.
TEST(TfliteQuantized, ConvolutionsRoundOnceToTheOutput) {
  const std::vector<int> w = {1, -20, 30, 40, 50, 60, -70, 80};                     // (2, 2, 1, 2)
  const std::vector<double> x = {-128, 127, 3, 4, 10, -10, 90, 17, 0, 1, 55, -55};  // (1, 3, 2, 2)
  TestTflite m;
  const int xt = m.Quantized("x", {1, 3, 2, 2}, TensorType::INT8, {0.5F}, {3});
  const int wt =
      m.Quantized("w", {2, 2, 1, 2}, TensorType::INT8, {0.25F, 0.0625F}, {0, 0}, 0, Int8(w));
  const int bt = m.Quantized("b", {2}, TensorType::INT32, {0.125F, 0.03125F}, {0, 0}, 0,
                             std::string("\x10\0\0\0\xf0\xff\xff\xff", 8));  // 16, -16
  const int yt = m.Quantized("y", {1, 2, 2, 2}, TensorType::INT8, {8}, {-5});
  m.Op(BuiltinOperator::CONV_2D, {xt, wt, bt}, {yt}, Options::Conv2D,
       fb::CreateConv2DOptions(m.builder(), Padding::VALID, 1, 1, Activation::RELU).Union());
  const Result r = Compute(m.Inputs({xt}).Outputs({yt}).Finish(), {x});
  EXPECT_EQ(r.types[0], "i8[1,2,2,2]");
  const double w_scale[] = {0.25, 0.0625}, bias[] = {2, -0.5};
  std::vector<double> want;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      for (int o = 0; o < 2; ++o) {
        double sum = bias[o];
        for (int u = 0; u < 2; ++u)
          for (int q = 0; q < 2; ++q)
            sum += (x[((i + u) * 2 + j) * 2 + q] - 3) * 0.5 * w[(o * 2 + u) * 2 + q] * w_scale[o];
        want.push_back(std::clamp(std::nearbyint(std::max(sum, 0.0) / 8) - 5, -128.0, 127.0));
      }
  EXPECT_THAT(r.values[0], ElementsAreArray(want));
}

TEST(TfliteQuantized, WhatOnlyMovesStaysStoredWhereTheScalesAgree) {
  for (const float scale : {0.5F, 1.0F}) {
    TestTflite m;
    const int x = m.Quantized("x", {1, 4}, TensorType::INT8, {0.5F}, {2});
    const int s = m.Ints("shape", {2}, {2, 2}),
              a = m.Quantized("a", {2, 2}, TensorType::INT8, {0.5F}, {2});
    const int y = m.Quantized("y", {4, 2}, TensorType::INT8, {scale}, {2});
    m.Op(BuiltinOperator::RESHAPE, {x, s}, {a});
    m.Op(BuiltinOperator::CONCATENATION, {a, a}, {y}, Options::Concatenation,
         fb::CreateConcatenationOptions(m.builder(), 0).Union());
    const Result r = Compute(m.Inputs({x}).Outputs({y}).Finish(), {{2, 6, -2, 126}});
    if (scale == 0.5F) {
      EXPECT_THAT(r.ops, ElementsAre("Reshape", "Concat"));
      EXPECT_THAT(r.values[0], ElementsAre(2, 6, -2, 126, 2, 6, -2, 126));
    } else {
      EXPECT_THAT(r.values[0], ElementsAre(2, 4, 0, 64, 2, 4, 0, 64));
    }
  }
}

TEST(TfliteQuantized, NumbersAreTakenApartAndPutTogether) {
  TestTflite m;
  const int x = m.Tensor("x", {3}), q = m.Quantized("q", {3}, TensorType::UINT8, {0.5F}, {128});
  const int p = m.Quantized("p", {3}, TensorType::INT8, {1}, {0}), y = m.Tensor("y", {3});
  m.Op(BuiltinOperator::QUANTIZE, {x}, {q});
  m.Op(BuiltinOperator::QUANTIZE, {q}, {p});  // from one scale to another
  m.Op(BuiltinOperator::DEQUANTIZE, {p}, {y});
  const Result r = Compute(m.Inputs({x}).Outputs({q, p, y}).Finish(), {{-100, 0.25, 7.2}});
  EXPECT_THAT(r.values[0], ElementsAre(0, 128, 142));  // half to even
  EXPECT_THAT(r.values[1], ElementsAre(-64, 0, 7));
  EXPECT_THAT(r.values[2], ElementsAre(-64, 0, 7));
}

// An activation is one of real numbers; stored integers have their 0 elsewhere.
TEST(TfliteQuantized, JoinedIntegersAreRectifiedAtTheirZeroPoint) {
  TestTflite m;
  const auto tensor = [&](const char* name, int n) {
    return m.Quantized(name, {n}, TensorType::INT8, {0.5F}, {-10});
  };
  const int a = tensor("a", 2), b = tensor("b", 2), y = tensor("y", 4);
  m.Op(BuiltinOperator::CONCATENATION, {a, b}, {y}, Options::Concatenation,
       fb::CreateConcatenationOptions(m.builder(), 0, Activation::RELU).Union());
  const Result r = Compute(m.Inputs({a, b}).Outputs({y}).Finish(), {{-20, -4}, {-30, 0}});
  EXPECT_THAT(r.values[0], ElementsAre(-10, -4, -10, 0));
}

TEST(TfliteTypes, IntegersOfEveryWidthAreTaken) {
  const auto added = [](TensorType type, const std::string& constant, double x) {
    TestTflite m;
    const int in = m.Tensor("x", {1}, type), c = m.Bytes("c", {1}, type, constant);
    const int sum = m.Tensor("sum", {1}, type), y = m.Tensor("y", {1});
    m.Op(BuiltinOperator::ADD, {in, c}, {sum}).Op(BuiltinOperator::CAST, {sum}, {y});
    const Result r = Compute(m.Inputs({in}).Outputs({sum, y}).Finish(), {{x}});
    EXPECT_EQ(r.values[0], r.values[1]);
    return r.types[0] + fmt::format(" {}", r.values[0][0]);
  };
  const std::string ones(8, '\xff');
  EXPECT_EQ(added(TensorType::INT16, ones.substr(0, 2), 300), "i16[1] 299");
  EXPECT_EQ(added(TensorType::UINT16, ones.substr(0, 1) + '\0', 65000), "u16[1] 65255");
  EXPECT_EQ(added(TensorType::UINT32, std::string("\0\1\0\x80", 4), 256), "u32[1] 2147484160");
  EXPECT_EQ(added(TensorType::UINT64, std::string("\0\0\0\0\1\0\0\0", 8), 512),
            "u64[1] 4294967808");
}

// ---- branches

std::string IfModel(bool constant) {
  TestTflite m;
  const int x = m.Tensor("x", {2}), y = m.Tensor("y", {2});
  const int c = constant ? m.Bytes("c", {}, TensorType::BOOL, std::string(1, 1))
                         : m.Tensor("c", {}, TensorType::BOOL);
  m.Op(BuiltinOperator::IF, {c, x}, {y}, Options::If,
       fb::CreateIfOptions(m.builder(), 1, 2).Union());
  m.Inputs(constant ? std::vector<int>{x} : std::vector<int>{c, x}).Outputs({y});
  for (const float v : {10.0F, 20.0F}) {
    m.NextSubgraph();
    const int in = m.Tensor("in", {2}), add = m.Floats("v", {1}, {v}), out = m.Tensor("out", {2});
    m.Op(BuiltinOperator::ADD, {in, add}, {out});
    m.Inputs({in}).Outputs({out});
  }
  return m.Finish();
}

TEST(TfliteIf, TheBranchOfAConstantConditionIsTaken) {
  const Result r = Compute(IfModel(true), {{1, 2}});
  EXPECT_THAT(r.values[0], ElementsAre(11, 12));
  EXPECT_THAT(r.ops, ElementsAre("Add"));
}

TEST(TfliteIf, BranchesOfDataAreBothComputedAndOneIsSelected) {
  EXPECT_THAT(Compute(IfModel(false), {{1}, {1, 2}}).values[0], ElementsAre(11, 12));
  EXPECT_THAT(Compute(IfModel(false), {{0}, {1, 2}}).values[0], ElementsAre(21, 22));
}

}  // namespace
}  // namespace whet::tflite
