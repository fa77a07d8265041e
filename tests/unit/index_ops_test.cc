// Operators that index, resample, pad and pool, and convolutions, as models have them: what
// importing makes of them computes what their definitions say. The nodes are made without a model
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/import.h"
#include "compiler/ops/catalog.h"

namespace whet::ops {
namespace {

using graph::Attrs;
using graph::RefTensor;
using testing::ElementsAre;
using testing::HasSubstr;
using Shape = std::vector<int64_t>;
using Doubles = std::vector<double>;

struct Tensor {
  Shape shape;
  Doubles value;
  bool constant = false;
  DType dtype = DType::kF32;
};

Tensor Ints(const std::vector<int64_t>& v) {
  return {{static_cast<int64_t>(v.size())}, Doubles(v.begin(), v.end()), true, DType::kI64};
}
Tensor Numbers(Doubles v) {
  const auto n = static_cast<int64_t>(v.size());
  return {{n}, std::move(v), true, DType::kF32};
}
const Tensor kAbsent{{-1}, {}, false, DType::kF32};

int64_t Count(const Shape& s) {
  int64_t n = 1;
  for (int64_t e : s) n *= e;
  return n;
}

// Small whole numbers: sums of products are exact.
Tensor Random(Shape shape, std::mt19937& rng) {
  Tensor t{shape, {}, false, DType::kF32};
  for (int64_t i = 0; i < Count(shape); ++i) t.value.push_back(static_cast<double>(rng() % 9) - 4);
  return t;
}

// The first output of one node.
StatusOr<RefTensor> RunNode(const std::string& op, int opset, Attrs attrs,
                            const std::vector<Tensor>& inputs) {
  graph::Graph g;
  g.catalog = &Catalog();
  graph::GraphBuilder builder(g);
  std::vector<graph::ValueId> ids;
  std::vector<RefTensor> values;
  for (const Tensor& t : inputs) {
    if (t.shape == kAbsent.shape) {
      ids.push_back(graph::kNoValue);
    } else if (t.constant) {
      ids.push_back(builder.Constant("", graph::Constant::OfDoubles(t.dtype, t.shape, t.value)));
    } else {
      ids.push_back(
          builder.Input("x" + std::to_string(ids.size()), graph::TensorType::Of(t.dtype, t.shape)));
      values.push_back({t.dtype, t.shape, t.value, {}});
    }
  }
  graph::ImportContext c(builder, op, opset, std::move(attrs), ids, {true});
  WHET_RETURN_IF_ERROR(Catalog().Find(op)->import(c));
  WHET_RETURN_IF_ERROR(c.CheckAllTaken());
  builder.Output("y", c.outputs[0]);
  WHET_RETURN_IF_ERROR(graph::Verify(g));
  const graph::ValueId y = g.outputs[0].value;
  if (g.constant(y)) return graph::ToRef(*g.constant(y));
  WHET_ASSIGN_OR_RETURN(graph::Evaluation e, graph::EvaluateModel(g, std::move(values)));
  return e.values[y];
}

Doubles Values(const std::string& op, int opset, Attrs attrs, const std::vector<Tensor>& inputs) {
  auto r = RunNode(op, opset, std::move(attrs), inputs);
  EXPECT_TRUE(r.ok()) << op << ": " << r.status();
  return r.ok() ? r->value : Doubles();
}

// Calls f with every index of a box.
template <typename F>
void ForEach(const Shape& extents, F f) {
  Shape i(extents.size(), 0);
  for (int64_t k = 0; k < Count(extents); ++k) {
    f(i);
    for (size_t d = extents.size(); d-- > 0;) {
      if (++i[d] < extents[d]) break;
      i[d] = 0;
    }
  }
}

int64_t At(const Shape& shape, const Shape& index) {
  int64_t at = 0;
  for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

struct ConvCase {
  Shape spatial, kernel, strides, dilations, pads;
  int64_t group = 1, ic = 2, oc = 2;
  Shape extra = {};  // output_padding
};

TEST(IndexOpsTest, TransposedConvolutionIsItsDefinition) {
  std::mt19937 rng(1);
  for (const ConvCase& c : std::vector<ConvCase>{
           {{3, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}, 1, 3, 2},
           {{3, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 1, 2, 3, {1, 1}},
           {{3, 4}, {4, 3}, {1, 3}, {1, 1}, {0, 2, 3, 1}, 1, 2, 3},
           {{4, 5}, {3, 2}, {3, 2}, {2, 3}, {1, 0, 2, 1}, 2, 4, 6},
           {{3, 3}, {4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 3, 3, 3},
           {{3, 3}, {2, 2}, {4, 3}, {1, 1}, {0, 0, 0, 0}, 1, 1, 1, {3, 2}},
           {{5, 2}, {5, 3}, {2, 1}, {1, 1}, {4, 2, 3, 0}, 1, 2, 1},
           {{7}, {3}, {2}, {1}, {1, 0}, 1, 2, 2},
           {{2, 3, 2}, {2, 3, 2}, {2, 1, 3}, {1, 2, 1}, {0, 1, 0, 1, 2, 1}, 1, 2, 2},
           {{2, 2, 2}, {3, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, 2, 2, 4, {1, 0, 1}}}) {
    const size_t n = c.spatial.size();
    Shape xs = {2, c.ic}, ws = {c.ic, c.oc / c.group}, ys = {2, c.oc};
    for (size_t d = 0; d < n; ++d) {
      xs.push_back(c.spatial[d]);
      ws.push_back(c.kernel[d]);
      ys.push_back((c.spatial[d] - 1) * c.strides[d] + (c.kernel[d] - 1) * c.dilations[d] + 1 -
                   c.pads[d] - c.pads[d + n] + (c.extra.empty() ? 0 : c.extra[d]));
    }
    const Tensor x = Random(xs, rng), w = Random(ws, rng), b = Random({c.oc}, rng);
    Doubles want(static_cast<size_t>(Count(ys)));
    ForEach(ys, [&](const Shape& i) { want[At(ys, i)] = b.value[i[1]]; });
    ForEach(xs, [&](const Shape& i) {
      ForEach(Shape(ws.begin() + 1, ws.end()), [&](const Shape& k) {
        Shape o = {i[0], i[1] / (c.ic / c.group) * ws[1] + k[0]}, wi = {i[1]};
        wi.insert(wi.end(), k.begin(), k.end());
        for (size_t d = 0; d < n; ++d) {
          o.push_back(i[d + 2] * c.strides[d] + k[d + 1] * c.dilations[d] - c.pads[d]);
          if (o.back() < 0 || o.back() >= ys[d + 2]) return;
        }
        want[At(ys, o)] += x.value[At(xs, i)] * w.value[At(ws, wi)];
      });
    });
    Attrs attrs{
        {"strides", c.strides}, {"dilations", c.dilations}, {"pads", c.pads}, {"group", c.group}};
    if (!c.extra.empty()) attrs.Set("output_padding", c.extra);
    auto got = RunNode("ConvTranspose", 11, attrs, {x, w, b});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->shape, ys);
    EXPECT_EQ(got->value, want) << attrs.ToString();
  }
}

// Groups of few channels are joined, single input channels repeated.
TEST(IndexOpsTest, ConvolutionsAreTheirDefinitions) {
  std::mt19937 rng(2);
  for (const ConvCase& c : std::vector<ConvCase>{
           {{4, 3, 5}, {3, 2, 3}, {1, 1, 1}, {1, 1, 1}, {1, 0, 1, 1, 1, 1}, 1, 2, 3},
           {{7, 4, 4}, {2, 3, 1}, {2, 1, 2}, {3, 1, 1}, {0, 2, 0, 1, 0, 0}, 2, 4, 2},
           {{3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, 4, 4, 4},
           {{4, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 8, 16, 32},
           {{4, 5}, {1, 2}, {1, 2}, {1, 1}, {0, 1, 0, 0}, 6, 12, 18},
           {{3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 3, 3, 6},
           {{6}, {3}, {2}, {1}, {1, 0}, 4, 8, 16}}) {
    const size_t n = c.spatial.size();
    Shape xs = {2, c.ic}, ws = {c.oc, c.ic / c.group}, ys = {2, c.oc};
    for (size_t d = 0; d < n; ++d) {
      xs.push_back(c.spatial[d]);
      ws.push_back(c.kernel[d]);
      ys.push_back(
          (c.spatial[d] + c.pads[d] + c.pads[d + n] - (c.kernel[d] - 1) * c.dilations[d] - 1) /
              c.strides[d] +
          1);
    }
    const Tensor x = Random(xs, rng), b = Random({c.oc}, rng);
    Tensor w = Random(ws, rng);
    w.constant = true;
    Doubles want(static_cast<size_t>(Count(ys)));
    ForEach(ys, [&](const Shape& o) {
      double sum = b.value[o[1]];
      ForEach(Shape(ws.begin() + 1, ws.end()), [&](const Shape& k) {
        Shape i = {o[0], o[1] / (c.oc / c.group) * ws[1] + k[0]}, wi = {o[1]};
        wi.insert(wi.end(), k.begin(), k.end());
        for (size_t d = 0; d < n; ++d) {
          i.push_back(o[d + 2] * c.strides[d] + k[d + 1] * c.dilations[d] - c.pads[d]);
          if (i.back() < 0 || i.back() >= xs[d + 2]) return;
        }
        sum += x.value[At(xs, i)] * w.value[At(ws, wi)];
      });
      want[At(ys, o)] = sum;
    });
    auto got = RunNode(
        "Conv", 11,
        {{"strides", c.strides}, {"dilations", c.dilations}, {"pads", c.pads}, {"group", c.group}},
        {x, w, b});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->shape, ys);
    EXPECT_EQ(got->value, want);
  }
}

TEST(IndexOpsTest, PoolsOverThreeAxesAreThoseOfTheirWindows) {
  std::mt19937 rng(3);
  const Tensor x = Random({1, 2, 4, 5, 3}, rng);
  const Shape kernel = {2, 3, 2}, strides = {2, 1, 1}, pads = {1, 1, 0, 0, 1, 1};
  for (const bool average : {false, true}) {
    const Shape ys = {1, 2, 2, 5, 3};
    Doubles want;
    ForEach(ys, [&](const Shape& o) {
      double most = -1e9, sum = 0, count = 0;
      ForEach(kernel, [&](const Shape& k) {
        Shape i = {o[0], o[1]};
        for (size_t d = 0; d < 3; ++d) {
          i.push_back(o[d + 2] * strides[d] + k[d] - pads[d]);
          if (i.back() < 0 || i.back() >= x.shape[d + 2]) return;
        }
        const double v = x.value[At(x.shape, i)];
        most = std::max(most, v), sum += v, ++count;
      });
      want.push_back(average ? sum / count : most);
    });
    auto got = RunNode(average ? "AveragePool" : "MaxPool", 12,
                       {{"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}}, {x});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->shape, ys);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got->value[i], want[i], 1e-12);
  }
  EXPECT_THAT(Values("LpPool", 18,
                     {{"kernel_shape", Shape{2}}, {"strides", Shape{2}}, {"ceil_mode", int64_t{1}}},
                     {{{1, 1, 3}, {3, -4, -5}}}),
              ElementsAre(5, 5));
}

Tensor Counting(Shape shape) {
  Tensor t{std::move(shape), {}, false, DType::kF32};
  for (int64_t i = 0; i < Count(t.shape); ++i) t.value.push_back(static_cast<double>(i + 1));
  return t;
}

TEST(IndexOpsTest, ResizeInAllItsForms) {
  auto resize = [](Attrs attrs, const Tensor& x, const Tensor& scales, const Tensor& sizes) {
    auto r = RunNode("Resize", 19, std::move(attrs), {x, kAbsent, scales, sizes});
    EXPECT_TRUE(r.ok()) << r.status();
    return r.ok() ? *r : RefTensor{};
  };
  const Tensor image = Counting({1, 1, 4, 4}), line = Counting({3});
  auto near = [](std::initializer_list<double> values) {
    std::vector<testing::Matcher<double>> m;
    for (double v : values) m.push_back(testing::DoubleNear(v, 1e-5));
    return testing::ElementsAreArray(m);
  };
  // Downscaling with a kernel as wide as the step (figures of the operator's definition).
  EXPECT_THAT(resize({{"mode", "linear"}, {"antialias", int64_t{1}}}, image,
                     Numbers({1, 1, 0.6, 0.6}), kAbsent)
                  .value,
              near({2.875, 4.5, 9.375, 11}));
  EXPECT_THAT(resize({{"mode", "cubic"}, {"antialias", int64_t{1}}}, image,
                     Numbers({1, 1, 0.6, 0.6}), kAbsent)
                  .value,
              near({2.5180721, 4.2858863, 9.589329, 11.357142}));
  // Many taps: the mean of 40 numbers under a triangle around the middle is the middle.
  EXPECT_THAT(
      resize({{"mode", "linear"}, {"antialias", int64_t{1}}}, Counting({40}), kAbsent, Ints({1}))
          .value,
      near({20.5}));
  // Axes, and sizes that keep the proportions.
  EXPECT_EQ(resize({{"axes", Shape{3, 2}}, {"keep_aspect_ratio_policy", "not_larger"}}, image,
                   kAbsent, Ints({7, 8}))
                .shape,
            (Shape{1, 1, 7, 7}));
  EXPECT_EQ(resize({{"axes", Shape{-1, -2}}, {"keep_aspect_ratio_policy", "not_smaller"}}, image,
                   kAbsent, Ints({7, 8}))
                .shape,
            (Shape{1, 1, 8, 8}));
  EXPECT_THAT(resize({{"mode", "nearest"},
                      {"coordinate_transformation_mode", "asymmetric"},
                      {"nearest_mode", "floor"}},
                     line, Numbers({2}), kAbsent)
                  .value,
              ElementsAre(1, 1, 2, 2, 3, 3));
  EXPECT_THAT(resize({{"mode", "linear"}}, line, Numbers({2}), kAbsent).value,
              ElementsAre(1, 1.25, 1.75, 2.25, 2.75, 3));
  EXPECT_THAT(resize({{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}},
                     line, kAbsent, Ints({5}))
                  .value,
              ElementsAre(1, 1.5, 2, 2.5, 3));
  // What is cut off at the end is shared with the start.
  const Doubles symmetric =
      resize({{"mode", "linear"}, {"coordinate_transformation_mode", "half_pixel_symmetric"}}, line,
             Numbers({1.5}), kAbsent)
          .value;
  ASSERT_EQ(symmetric.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(symmetric[i] + symmetric[3 - i], 4, 1e-6);
  // Integers.
  EXPECT_EQ(RunNode("Resize", 19, {{"mode", "linear"}},
                    {{{2}, {10, 20}, false, DType::kU8}, kAbsent, Numbers({2})})
                ->dtype,
            DType::kU8);
  // A region, and what is outside of it.
  EXPECT_THAT(Values("Resize", 13,
                     {{"mode", "linear"},
                      {"coordinate_transformation_mode", "tf_crop_and_resize"},
                      {"extrapolation_value", 10.0}},
                     {line, Numbers({0, 2}), kAbsent, Ints({5})}),
              ElementsAre(1, 2, 3, 10, 10));
  // Nearest without a line of whole numbers through the positions.
  EXPECT_THAT(
      Values("Resize", 13,
             {{"mode", "nearest"}, {"coordinate_transformation_mode", "tf_crop_and_resize"}},
             {line, Numbers({1, 0}), kAbsent, Ints({3})}),
      ElementsAre(3, 2, 1));
  EXPECT_THAT(Values("Upsample", 9, {{"mode", "linear"}}, {{{2}, {1, 3}}, Numbers({2})}),
              ElementsAre(1, 2, 3, 3));
}

TEST(IndexOpsTest, DataMovesWhereDefinitionsSay) {
  EXPECT_THAT(Values("Tile", 13, {}, {Counting({2, 2}), Ints({2, 2})}),
              ElementsAre(1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4));
  EXPECT_THAT(
      Values("CenterCropPad", 18, {{"axes", Shape{1, 0}}}, {Counting({2, 4}), Ints({1, 3})}),
      ElementsAre(2, 6, 0));
  EXPECT_THAT(Values("Pad", 19, {{"mode", "wrap"}}, {Counting({3}), Ints({-1, 3})}),
              ElementsAre(2, 3, 2, 3, 2));
  EXPECT_THAT(Values("SpaceToDepth", 13, {{"blocksize", int64_t{2}}}, {Counting({1, 1, 2, 4})}),
              ElementsAre(1, 3, 2, 4, 5, 7, 6, 8));
  EXPECT_THAT(Values("Col2Im", 18, {}, {Counting({1, 4, 2}), Ints({2, 3}), Ints({2, 2})}),
              ElementsAre(1, 5, 4, 5, 13, 8));
  EXPECT_THAT(Values("Compress", 11, {{"axis", int64_t{-1}}},
                     {Counting({2, 3}), {{2}, {0, 1}, true, DType::kBool}}),
              ElementsAre(2, 5));
  EXPECT_THAT(Values("ReverseSequence", 10, {}, {Counting({3, 2}), Ints({2, 3})}),
              ElementsAre(3, 6, 1, 4, 5, 2));
  EXPECT_THAT(Values("Split", 18, {{"num_outputs", int64_t{2}}}, {Counting({5})}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(
      Values("MaxUnpool", 11, {{"kernel_shape", Shape{2}}, {"strides", Shape{2}}},
             {Counting({1, 1, 2}), {{1, 1, 2}, {1, 2}, false, DType::kI64}, Ints({1, 1, 5})}),
      ElementsAre(0, 1, 2, 0, 0));
}

TEST(IndexOpsTest, GridsOfPositions) {
  const Tensor identity{{1, 2, 3}, {1, 0, 0, 0, 1, 0}};
  EXPECT_THAT(Values("AffineGrid", 20, {}, {identity, Ints({1, 1, 2, 2})}),
              ElementsAre(-0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0.5, 0.5));
  EXPECT_THAT(
      Values("AffineGrid", 20, {{"align_corners", int64_t{1}}}, {identity, Ints({1, 1, 1, 3})}),
      ElementsAre(-1, 0, 0, 0, 1, 0));
  // Sampling a volume at its own pixels gives it back.
  const Tensor volume = Counting({1, 1, 2, 2, 3});
  auto grid = RunNode("AffineGrid", 20, {},
                      {{{1, 3, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}}, Ints({1, 1, 2, 2, 3})});
  ASSERT_TRUE(grid.ok()) << grid.status();
  for (const char* mode : {"linear", "nearest"}) {
    const Doubles got =
        Values("GridSample", 20, {{"mode", mode}}, {volume, {grid->shape, grid->value}});
    ASSERT_EQ(got.size(), volume.value.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], volume.value[i], 1e-6);
  }
  // One bin of the whole image, and one that lies outside.
  EXPECT_THAT(Values("MaxRoiPool", 1, {{"pooled_shape", Shape{1, 2}}},
                     {Counting({1, 1, 2, 4}), {{2, 5}, {0, 0, 0, 3, 1, 0, 9, 9, 12, 12}}}),
              ElementsAre(6, 8, 0, 0));
}

TEST(IndexOpsTest, InfiniteWeightsStayInTheirGroup) {
  // Groups of four outputs are joined; each output sums its own two inputs.
  Tensor w{{16, 2, 1, 1}, Doubles(32, 1), true, DType::kF32};
  w.value[0] = std::numeric_limits<double>::infinity();
  const Doubles y = Values("Conv", 13, {{"group", int64_t{4}}},
                           {{{1, 8, 1, 1}, Doubles(8, 1), false, DType::kF32}, w});
  ASSERT_EQ(y.size(), 16u);
  EXPECT_TRUE(std::isinf(y[0]));
  for (size_t i = 1; i < y.size(); ++i) EXPECT_EQ(y[i], 2) << i;
}

TEST(IndexOpsTest, ConcatCountsAxesOfPartsThatHaveElements) {
  const Tensor none{{0}, {}, true, DType::kF32}, x = Counting({2, 1});
  auto r = RunNode("Concat", 13, {{"axis", int64_t{-1}}}, {none, x, x});
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(r->shape, ElementsAre(2, 2));
  auto error = [&](const Tensor& first) {
    return Message(RunNode("Concat", 13, {{"axis", int64_t{0}}}, {first, x}).status());
  };
  EXPECT_THAT(error({{0, 1}, {}, true, DType::kI64}), HasSubstr("one element type"));
  EXPECT_THAT(error({{0, 1, 1}, {}, true, DType::kF32}), HasSubstr("does not concatenate"));
}

TEST(IndexOpsTest, RefusesWhatAsksForTooMuchMemory) {
  auto error = [](const std::string& op, Attrs attrs, const std::vector<Tensor>& in) {
    return Message(RunNode(op, 20, std::move(attrs), in).status());
  };
  auto large = [](Shape shape, DType t = DType::kI8) {
    return Tensor{std::move(shape), {}, false, t};
  };
  const Attrs antialias = {{"mode", std::string("cubic")}, {"antialias", int64_t{1}}};
  EXPECT_THAT(error("Resize", antialias, {large({1 << 23}), kAbsent, kAbsent, Ints({1 << 12})}),
              HasSubstr("taps each are more than 2^24"));
  const int64_t far = int64_t{1} << 31;
  EXPECT_THAT(error("Resize", {{"keep_aspect_ratio_policy", std::string("not_smaller")}},
                    {large({1, far * 64}), kAbsent, kAbsent, Ints({far, 1})}),
              HasSubstr("keeping the aspect ratio"));
  EXPECT_THAT(error("GatherND", {},
                    {large({1, int64_t{1} << 39}), large({int64_t{1} << 36, 1}, DType::kI64)}),
              HasSubstr("exceed"));
  EXPECT_THAT(error("EyeLike", {}, {large({4097, 4096})}), HasSubstr("more than 2^24"));
  EXPECT_THAT(error("DFT", {}, {large({1, 8192, 2}, DType::kF32)}), HasSubstr("more than 2^26"));
}

TEST(IndexOpsTest, RefusesWhatDependsOnData) {
  auto error = [](const std::string& op, Attrs attrs, const std::vector<Tensor>& in) {
    return Message(RunNode(op, 18, std::move(attrs), in).status());
  };
  const Tensor x = Counting({3});
  EXPECT_THAT(error("Compress", {}, {x, {{3}, {1, 0, 1}, false, DType::kBool}}),
              HasSubstr("condition (input 1) must be a constant"));
  EXPECT_THAT(error("Unique", {}, {x}), HasSubstr("the size of the result depends on it"));
  EXPECT_THAT(error("Resize", {}, {x}), HasSubstr("neither scales nor sizes"));
  EXPECT_THAT(error("Resize", {}, {x, kAbsent, Numbers({1e30})}), HasSubstr("a scale of"));
  EXPECT_THAT(error("Tile", {}, {x, Ints({int64_t{1} << 62})}), HasSubstr("repeats"));
  EXPECT_THAT(
      error("ConvTranspose", {{"pads", Shape{3, 3}}}, {Counting({1, 1, 3}), Counting({1, 1, 2})}),
      HasSubstr("an output of -2"));
  EXPECT_THAT(error("DepthToSpace", {{"blocksize", int64_t{2}}}, {Counting({1, 6, 2, 2})}),
              HasSubstr("blocksize 2 of 6 channels"));
}

}  // namespace
}  // namespace whet::ops
