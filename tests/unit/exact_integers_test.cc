// 64-bit integers that doubles do not hold, in constant folding.
#include <gtest/gtest.h>

#include <limits>

#include "compiler/graph/builder.h"
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

}  // namespace
}  // namespace whet::graph
