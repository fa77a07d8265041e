// Integers, and products of them, that doubles do not hold, in constant folding.
#include <gtest/gtest.h>

#include <limits>

#include "compiler/graph/builder.h"
#include "compiler/graph/passes.h"
#include "compiler/ops/catalog.h"

namespace whet::graph {
namespace {

TEST(ExactIntegersTest, FoldAsTheyAreComputed) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // the first that no double is
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  Graph g;
  g.catalog = &ops::Catalog();
  GraphBuilder b(g);
  const ValueId x = b.Constant("x", Constant::OfInts({3}, std::vector<int64_t>{kOdd, -kOdd, 7}));
  const auto scalar = [&](int64_t v) { return b.Ints({v}); };
  const auto emit = [&](std::string_view op, std::vector<ValueId> in, Attrs attrs = {}) {
    auto v = b.Emit(op, std::move(in), std::move(attrs));
    EXPECT_TRUE(v.ok()) << v.status();
    return *v;
  };
  const ValueId small = emit("Less", {x, scalar(kOdd - 1)});
  b.Output("sum", emit("Add", {x, scalar(kLast - kOdd)}));
  b.Output("product", emit("Mul", {scalar(3037000499), scalar(3037000499)}));
  b.Output("back", emit("Sub", {emit("Add", {x, scalar(2)}), scalar(1)}));
  b.Output("half", emit("Div", {x, scalar(2)}));
  b.Output("choice", emit("Where", {small, x, scalar(kLast - 1)}));
  b.Output("view", emit("Reshape", {x}, {{"shape", std::vector<int64_t>{3, 1}}}));
  b.Output("low", emit("Cast", {x}, {{"to", std::string("i32")}}));
  const auto value = [&](size_t i) { return g.constant(g.outputs[i].value)->Ints(); };
  EXPECT_EQ(value(0), (std::vector<int64_t>{kLast, kLast - 2 * kOdd, kLast - kOdd + 7}));
  EXPECT_EQ(value(1), (std::vector<int64_t>{int64_t{3037000499} * 3037000499}));
  EXPECT_EQ(value(2), (std::vector<int64_t>{kOdd + 1, 1 - kOdd, 8}));
  EXPECT_EQ(value(3), (std::vector<int64_t>{kOdd / 2, -(kOdd / 2), 3}));
  EXPECT_EQ(value(4), (std::vector<int64_t>{kLast - 1, -kOdd, 7}));
  EXPECT_EQ(value(5), (std::vector<int64_t>{kOdd, -kOdd, 7}));
  EXPECT_EQ(value(6), (std::vector<int64_t>{1, -1, 7}));
}

constexpr int64_t kBeyond = int64_t{1} << 53;

// What one node of constants folds to.
class FoldTest : public testing::Test {
 protected:
  FoldTest() { g_.catalog = &ops::Catalog(); }
  ValueId Words(std::vector<int64_t> shape, const std::vector<int64_t>& v, DType t = DType::kI64) {
    return b_.Constant("", Constant::OfWords(t, std::move(shape), v));
  }
  ValueId Of(DType t, std::vector<int64_t> shape, const std::vector<double>& v) {
    return b_.Constant("", Constant::OfDoubles(t, std::move(shape), v));
  }
  std::vector<int64_t> Fold(std::string_view op, std::vector<ValueId> in, Attrs attrs = {},
                            size_t output = 0) {
    auto v = b_.EmitAll(op, std::move(in), std::move(attrs));
    EXPECT_TRUE(v.ok()) << op << ": " << v.status();
    if (!v.ok()) return {};
    const ConstantPtr& c = g_.constant((*v)[output]);
    EXPECT_NE(c, nullptr) << op;
    if (c == nullptr) return {};
    return c->dtype() == DType::kU64 ? c->Words() : c->Ints();
  }
  Graph g_;
  GraphBuilder b_{g_};
};
using Ints = std::vector<int64_t>;

int64_t Wrapped32(uint64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }

TEST_F(FoldTest, ProductsOf32BitsWrapAround) {
  const uint64_t p = 123456789, q = 987654321;
  const ValueId a = Of(DType::kI32, {1}, {123456789}), b = Of(DType::kI32, {1}, {987654321});
  EXPECT_EQ(Fold("Mul", {a, b}), Ints{Wrapped32(p * q)});
  const ValueId c = Of(DType::kU32, {1}, {4294967295}), d = Of(DType::kU32, {1}, {4294967293});
  EXPECT_EQ(Fold("Mul", {c, d}), Ints{3});
  EXPECT_EQ(Fold("ReduceProd", {Of(DType::kI32, {3}, {123456789, 987654321, 7})},
                 {{"axes", Ints{0}}, {"keepdims", int64_t{0}}}),
            Ints{Wrapped32(p * q * 7)});
  const ValueId row = Of(DType::kI32, {1, 2}, {123456789, 987654321}),
                column = Of(DType::kI32, {2, 1}, {987654321, 987654321});
  EXPECT_EQ(Fold("MatMul", {row, column}), Ints{Wrapped32(p * q + q * q)});
}

TEST_F(FoldTest, SumsAndProductsOfMatrices) {
  const ValueId row = Words({1, 2}, {kBeyond + 1, 3}), column = Words({2, 1}, {3, -1});
  EXPECT_EQ(Fold("MatMul", {row, column}), Ints{3 * kBeyond});
  const ValueId high = Words({1, 1}, {-1}, DType::kU64);
  EXPECT_EQ(Fold("MatMul", {high, Words({1, 1}, {3}, DType::kU64)}), Ints{-3});
  const uint64_t p = 2000000001, q = 1999999999;
  const ValueId a = Of(DType::kI32, {1, 1, 1, 2}, {2000000001, 1999999999}),
                w = Of(DType::kI32, {1, 1, 1, 2}, {1999999998, 2000000000}),
                zero = Of(DType::kI32, {}, {-1});
  const int64_t sum = Wrapped32((p + 1) * (q - 1 + 1) + (q + 1) * (p - 1 + 1));
  EXPECT_EQ(Fold("ConvInteger", {a, w, zero, zero}), Ints{sum});
  EXPECT_EQ(Fold("MatMulInteger", {Of(DType::kI32, {1, 2}, {2000000001, 1999999999}),
                                   Of(DType::kI32, {2, 1}, {1999999998, 2000000000}), zero, zero}),
            Ints{sum});
}

TEST_F(FoldTest, Reductions) {
  const Attrs whole = {{"axes", Ints{0}}, {"keepdims", int64_t{0}}};
  const ValueId x = Words({3}, {kBeyond, kBeyond + 1, 1});
  EXPECT_EQ(Fold("Col2Im", {Words({1, 2, 2}, {1, kBeyond, 1, 5})},
                 {{"image", Ints{3}},
                  {"block", Ints{2}},
                  {"strides", Ints{1}},
                  {"dilations", Ints{1}},
                  {"pads", Ints{0, 0}}}),
            (Ints{1, kBeyond + 1, 5}));
  EXPECT_EQ(Fold("ReduceSum", {x}, whole), Ints{2 * kBeyond + 2});
  EXPECT_EQ(Fold("ReduceMax", {x}, whole), Ints{kBeyond + 1});
  EXPECT_EQ(Fold("ReduceMin", {Words({2}, {-kBeyond, -kBeyond - 1})}, whole), Ints{-kBeyond - 1});
  EXPECT_EQ(Fold("ReduceMax", {Words({2}, {-1, 1}, DType::kU64)}, whole), Ints{-1});
  EXPECT_EQ(Fold("CumSum", {x}, {{"axis", int64_t{0}}}),
            (Ints{kBeyond, 2 * kBeyond + 1, 2 * kBeyond + 2}));
  EXPECT_EQ(Fold("ArgMax", {x}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}}), Ints{1});
  EXPECT_EQ(Fold("ArgMax", {Words({2}, {1, -1}, DType::kU64)},
                 {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}}),
            Ints{1});
  const Attrs two = {{"axis", int64_t{0}}, {"k", int64_t{2}}};
  EXPECT_EQ(Fold("TopK", {x}, two, 0), (Ints{kBeyond + 1, kBeyond}));
  EXPECT_EQ(Fold("TopK", {x}, two, 1), (Ints{1, 0}));
}

TEST_F(FoldTest, WhatMovesStaysAsItIs) {
  constexpr int64_t a = kBeyond + 1, b = kBeyond + 3;
  const ValueId x = Words({2, 2}, {a, 1, b, 2}), image = Words({1, 4, 1, 1}, {a, 1, b, 2});
  EXPECT_EQ(Fold("Pad", {x}, {{"pads", Ints{0, 1, 0, 0}}}), (Ints{0, a, 1, 0, b, 2}));
  EXPECT_EQ(Fold("BorderPad", {x}, {{"pads", Ints{0, 1, 0, 0}}, {"mode", std::string("edge")}}),
            (Ints{a, a, 1, b, b, 2}));
  EXPECT_EQ(Fold("Trilu", {x}, {{"upper", int64_t{0}}}), (Ints{a, 0, b, 2}));
  EXPECT_EQ(Fold("ReverseSequence", {x, Words({2}, {2, 1})}), (Ints{b, 1, a, 2}));
  EXPECT_EQ(Fold("DepthToSpace", {image}, {{"block", Ints{2, 2}}, {"sizes", Ints{2, 2}}}),
            (Ints{a, 1, b, 2}));
  EXPECT_EQ(Fold("ResizeNearest", {x},
                 {{"sizes", Ints{2, 4}},
                  {"num", Ints{1, 1}},
                  {"offset", Ints{0, 0}},
                  {"den", Ints{1, 2}}}),
            (Ints{a, a, 1, 1, b, b, 2, 2}));
  EXPECT_EQ(Fold("GatherElements", {x, Words({2, 1}, {1, 0})}, {{"axis", int64_t{1}}}),
            (Ints{1, b}));
  EXPECT_EQ(Fold("GatherND", {x, Words({1, 1}, {1})}), (Ints{b, 2}));
  EXPECT_EQ(Fold("Concat", {x, Words({1, 2}, {5, 6})}, {{"axis", int64_t{0}}}),
            (Ints{a, 1, b, 2, 5, 6}));
  const auto scatter = [&](const char* reduction, int64_t update) {
    return Fold("ScatterElements", {Words({2}, {a, 1}), Words({1}, {0}), Words({1}, {update})},
                {{"reduction", std::string(reduction)}});
  };
  EXPECT_EQ(scatter("none", b), (Ints{b, 1}));
  EXPECT_EQ(scatter("add", 1), (Ints{a + 1, 1}));
  EXPECT_EQ(scatter("mul", 3), (Ints{3 * a, 1}));
  EXPECT_EQ(scatter("max", a - 1), (Ints{a, 1}));
  EXPECT_EQ(scatter("min", a - 1), (Ints{a - 1, 1}));
}

TEST_F(FoldTest, IndicesAtTheEndsAreClampedAsInKernels) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(),
                    kLeast = std::numeric_limits<int64_t>::min();
  const ValueId x = Words({3}, {10, 20, 30}), ends = Words({2}, {kMost, kLeast});
  EXPECT_EQ(Fold("Gather", {x, ends}), (Ints{30, 10}));
  EXPECT_EQ(Fold("GatherElements", {x, ends}), (Ints{30, 10}));
  EXPECT_EQ(Fold("GatherND", {x, Words({2, 1}, {kMost, kLeast})}), (Ints{30, 10}));
  EXPECT_EQ(Fold("ScatterElements", {x, ends, Words({2}, {1, 2})}), (Ints{10, 20, 30}));
  EXPECT_EQ(Fold("ScatterND", {x, Words({2, 1}, {kMost, kLeast}), Words({2}, {1, 2})}),
            (Ints{10, 20, 30}));
}

TEST_F(FoldTest, IntegersDividedByZeroAreZero) {
  for (DType t : {DType::kU8, DType::kU32, DType::kI32}) {
    EXPECT_EQ(Fold("Div", {Of(t, {2}, {7, 7}), Of(t, {2}, {0, 2})}), (Ints{0, 3})) << ToString(t);
  }
}

TEST_F(FoldTest, HeavyNodesAreLeftToThePass) {
  const auto product = [&](int64_t k) {
    const std::vector<double> ones(static_cast<size_t>(64 * k), 1);
    return *b_.Emit("MatMul", {Of(DType::kF32, {64, k}, ones), Of(DType::kF32, {k, 64}, ones)});
  };
  EXPECT_NE(g_.constant(product(16)), nullptr);
  const ValueId heavy = product(int64_t{1} << 14);
  EXPECT_EQ(g_.constant(heavy), nullptr);
  EXPECT_FALSE(b_.TryFold(heavy));
  // Its budget is larger, but there is one.
  const auto image = [&](int64_t n) {
    return Of(DType::kF32, {1, 1, n, n}, std::vector<double>(static_cast<size_t>(n * n), 1));
  };
  const ValueId heavier = *b_.Emit("Conv", {image(2048), image(128)});
  b_.Output("heavy", heavy);
  b_.Output("heavier", heavier);
  ASSERT_TRUE(FoldConstants(g_).ok());
  EXPECT_NE(g_.constant(g_.outputs[0].value), nullptr);
  EXPECT_EQ(g_.constant(g_.outputs[1].value), nullptr);
}

TEST_F(FoldTest, WhatIsBeyondTheLimitOfAllFoldingIsLeftToThePass) {
  // Its window is cut off at the only channel, so that it does not take what it counts.
  const ValueId x = Of(DType::kF32, {1, 1, 1, 500}, std::vector<double>(500, 1));
  int64_t folded = 0;
  for (; folded < 1000; ++folded) {
    const auto y = b_.Emit("LRN", {x}, {{"size", int64_t{65536}}});
    ASSERT_TRUE(y.ok()) << y.status();
    if (g_.constant(*y) == nullptr) break;
  }
  EXPECT_GT(folded, 50);
  EXPECT_LT(folded, 1000);
  // What takes little still folds.
  const ValueId one = Of(DType::kF32, {1}, {1});
  EXPECT_NE(g_.constant(*b_.Emit("Add", {one, one})), nullptr);
}

}  // namespace
}  // namespace whet::graph
