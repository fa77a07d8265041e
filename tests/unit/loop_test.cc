// Loop programs made from tensor expressions.
#include <gtest/gtest.h>

#include "compiler/expr/simplify.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/lower.h"
#include "compiler/support/rng.h"

namespace whet::loop {
namespace {

Program Reduction(te::Reducer r, DType t) {
  te::Builder b;
  auto x = b.Input("x", t, {4}, false);
  auto out = b.Reduce(
      "out", t, {}, {{"k", 4}}, r,
      [&](const std::vector<Expr>&, const std::vector<Expr>& k) { return expr::Load(x, k); });
  auto p =
      FromTe("r", b.Finish({out}), {expr::IndexMap::Identity(1)}, {expr::IndexMap::Identity(0)});
  WHET_CHECK(p.ok());
  return *p;
}

TEST(LoopTest, ReductionsOfIntegersStartFromTheirTypesEnds) {
  for (DType t : {DType::kI8, DType::kI32, DType::kI64, DType::kF32}) {
    for (const auto& [r, expected] :
         std::vector<std::pair<te::Reducer, double>>{{te::Reducer::kMax, -3},
                                                     {te::Reducer::kMin, -9},
                                                     {te::Reducer::kSum, -23},
                                                     {te::Reducer::kProd, 945}}) {
      if (t == DType::kI8 && r == te::Reducer::kProd) continue;  // leaves the type
      const Program p = Reduction(r, t);
      auto lowered = Lower(p);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      for (const Program& each : {p, lowered->main}) {
        Memory m = {{"x", {-5, -3, -9, -6}}};
        if (r == te::Reducer::kProd) m["x"] = {-5, -3, -9, -7};
        ASSERT_TRUE(Interpret(each, m).ok());
        EXPECT_EQ(m["out"][0], expected) << ToString(each);
      }
    }
  }
  // Within the type, so that code generation does not cut it off.
  EXPECT_NE(ToString(Reduction(te::Reducer::kMax, DType::kI32)).find("from i32(-2147483648)"),
            std::string::npos);
  EXPECT_NE(ToString(Reduction(te::Reducer::kMin, DType::kU8)).find("from u8(255)"),
            std::string::npos);
}

TEST(ExprTest, SharedPartsAreVisitedOnce) {
  const expr::Var v = expr::MakeVar("v");
  expr::Expr e = v;
  for (int i = 0; i < 60; ++i) e = expr::Binary(expr::BinaryOp::kMul, e, e);  // 2^60 as a tree
  int nodes = 0;
  expr::Visit(e, [&](const expr::ExprNode& n) { nodes += n.kind == expr::Kind::kBinary; });
  EXPECT_EQ(nodes, 60);
  EXPECT_TRUE(expr::Uses(e, v));
  EXPECT_FALSE(expr::Uses(e, expr::MakeVar("v")));
}

TEST(LoopTest, IntegersWrapAndFloatsSaturate) {
  te::Builder b;
  auto x = b.Input("x", DType::kU8, {2}, false);
  auto y = b.Input("y", DType::kF32, {2}, false);
  auto less = b.Compute("less", DType::kU8, {{"i", 2}}, [&](const std::vector<Expr>& i) {
    return expr::Load(x, i) - expr::Int(3, DType::kU8);
  });
  auto whole = b.Compute("whole", DType::kI64, {{"i", 2}}, [&](const std::vector<Expr>& i) {
    return expr::Cast(DType::kI64, expr::Load(y, i));
  });
  const expr::IndexMap vector = expr::IndexMap::Identity(1);
  auto p = FromTe("p", b.Finish({less, whole}), {vector, vector}, {vector, vector});
  ASSERT_TRUE(p.ok()) << p.status();
  Memory m = {{"x", {1, 250}}, {"y", {1e30, -2.7}}};
  ASSERT_TRUE(Interpret(*p, m).ok());
  EXPECT_EQ(m["less"], (std::vector<double>{254, 247}));
  EXPECT_EQ(m["whole"], (std::vector<double>{9223372036854775807.0, -2}));
}

// Quotients of tiled sums, by what they are at every point.
TEST(SimplifyTest, QuotientsOfTiledSumsStayExact) {
  Rng rng(11);
  int shorter = 0;
  for (int round = 0; round < 400; ++round) {
    const expr::Var o = expr::MakeVar("o"), u = expr::MakeVar("u"), l = expr::MakeVar("l");
    const std::vector<std::pair<expr::Var, int64_t>> vars = {
        {o, 1 + rng.Below(5)}, {u, 1 + rng.Below(4)}, {l, 1 + rng.Below(8)}};
    auto pick = [&](std::vector<int64_t> v) {
      return v[rng.Below(static_cast<int64_t>(v.size()))];
    };
    const int64_t divisor = pick({4, 6, 12, 16, 32, 48, 64});
    const Expr sum = o * pick({-32, 3, 8, 16, 24, 32, 48}) + u * pick({2, 4, 8, 12, 16}) +
                     l * pick({1, 1, 2}) + expr::Int(pick({-5, 0, 0, 3, 32}));
    const Expr quotient = expr::FloorDiv(sum, divisor);
    expr::Bounds bounds;
    for (const auto& [v, n] : vars) bounds.Set(v, {0, n - 1});
    const Expr simple = expr::SimplifyLowered(quotient, bounds);
    shorter += !expr::Uses(simple, l);
    for (int64_t i = 0; i < vars[0].second * vars[1].second * vars[2].second; ++i) {
      expr::Substitution s;
      s.Add(o, expr::Int(i % vars[0].second));
      s.Add(u, expr::Int(i / vars[0].second % vars[1].second));
      s.Add(l, expr::Int(i / vars[0].second / vars[1].second));
      const Expr expected = expr::Simplify(Substitute(quotient, s), {}),
                 got = expr::Simplify(Substitute(simple, s), {});
      ASSERT_TRUE(expr::Same(expected, got))
          << expr::ToString(quotient) << " became " << expr::ToString(simple);
    }
  }
  EXPECT_GT(shorter, 50);
}

}  // namespace
}  // namespace whet::loop
