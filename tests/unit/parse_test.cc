// Expressions and programs read back from their text, and bad text is refused with its place.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "compiler/expr/parse.h"
#include "compiler/loop/parse.h"
#include "compiler/support/rng.h"
#include "tests/unit/programs.h"

namespace whet {
namespace {

using expr::BinaryOp;
using expr::Expr;

struct Leaves {
  expr::Symbols symbols;
  std::vector<Expr> floats, ints, narrow, bools;
  Leaves() {
    const Expr i = expr::MakeVar("i"), j = expr::MakeVar("conv.ow.o");
    const auto x = expr::MakeBuffer("x", DType::kF32, {4, 5}),
               n = expr::MakeBuffer("n", DType::kI32, {});
    const auto c =
        expr::MakeBuffer("max", DType::kBool, {3});  // a buffer may be called like a function
    symbols = {{i, j}, {x, n, c}};
    const double inf = std::numeric_limits<double>::infinity();
    floats = {expr::Float(1.5),  expr::Float(-0.1), expr::Float(1e-30),   expr::Float(inf),
              expr::Float(-inf), expr::Float(-0.0), expr::Load(x, {i, j})};
    ints = {i, j, expr::Int(-7), expr::Int(3), expr::Int(std::numeric_limits<int64_t>::min())};
    narrow = {expr::Load(n, {}), expr::Int(5, DType::kI32), expr::Int(-5, DType::kI32),
              expr::Cast(DType::kI32, expr::Int(5))};
    bools = {expr::Load(c, {i}), expr::Bool(true), expr::Lt(i, j)};
  }
};

// A random expression of the type, made as the compiler makes them.
Expr Random(Rng& rng, const Leaves& l, DType t, int depth) {
  const std::vector<Expr>& leaves = t == DType::kF32   ? l.floats
                                    : t == DType::kI64 ? l.ints
                                    : t == DType::kI32 ? l.narrow
                                                       : l.bools;
  if (depth == 0 || rng.Below(5) == 0)
    return leaves[rng.Below(static_cast<int64_t>(leaves.size()))];
  const auto sub = [&](DType s) { return Random(rng, l, s, depth - 1); };
  if (rng.Below(5) == 0) return Select(sub(DType::kBool), sub(t), sub(t));
  if (t == DType::kBool) {
    if (rng.Below(4) == 0) return Not(sub(t));
    if (rng.Below(2)) return Binary(rng.Below(2) ? BinaryOp::kAnd : BinaryOp::kOr, sub(t), sub(t));
    const DType of = rng.Below(2) ? DType::kF32 : DType::kI64;
    return Binary(
        std::array{BinaryOp::kEq, BinaryOp::kNe, BinaryOp::kLt, BinaryOp::kLe}[rng.Below(4)],
        sub(of), sub(of));
  }
  if (t == DType::kF32) {
    if (rng.Below(4) == 0)
      return Call(rng.Below(2) ? expr::Intrinsic::kExp : expr::Intrinsic::kFloor, sub(t));
    if (rng.Below(6) == 0) return Cast(t, sub(rng.Below(2) ? DType::kI64 : DType::kBool));
    return Binary(std::array{BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv,
                             BinaryOp::kMin, BinaryOp::kPow}[rng.Below(6)],
                  sub(t), sub(t));
  }
  if (rng.Below(6) == 0) return Cast(t, sub(t == DType::kI64 ? DType::kI32 : DType::kI64));
  return Binary(std::array{BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kFloorDiv,
                           BinaryOp::kFloorMod, BinaryOp::kMax}[rng.Below(6)],
                sub(t), sub(t));
}

TEST(ParseTest, ExpressionsReadBackNodeByNode) {
  const Leaves leaves;
  Rng rng(1);
  for (int n = 0; n < 3000; ++n) {
    const DType t = std::array{DType::kF32, DType::kI64, DType::kI32, DType::kBool}[rng.Below(4)];
    const Expr e = Random(rng, leaves, t, static_cast<int>(1 + rng.Below(6)));
    const std::string text = expr::ToString(e);
    auto again = expr::Parse(text, leaves.symbols);
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    ASSERT_EQ(expr::Compare(*again, e), 0) << text << "\n" << expr::ToString(*again);
  }
}

TEST(ParseTest, ConstantsOfEveryTypeDiffer) {
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    auto e = expr::Parse(expr::ToString(expr::Float(0.5, t)), {});
    ASSERT_TRUE(e.ok()) << e.status();
    EXPECT_EQ((*e)->kind, expr::Kind::kFloat);
    EXPECT_EQ((*e)->dtype, t);
  }
  for (DType t : {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kU32,
                  DType::kI64, DType::kU64}) {
    auto e = expr::Parse(expr::ToString(expr::Int(7, t)), {});
    ASSERT_TRUE(e.ok()) << e.status();
    EXPECT_EQ((*e)->kind, expr::Kind::kInt);
    EXPECT_EQ((*e)->dtype, t);
  }
  auto cast = expr::Parse(expr::ToString(expr::Cast(DType::kI32, expr::Int(7))), {});
  ASSERT_TRUE(cast.ok());
  EXPECT_EQ((*cast)->kind, expr::Kind::kCast);
}

TEST(ParseTest, BadExpressionsAreRefusedWithTheirPlace) {
  const Leaves leaves;
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "expected an expression"},
           {"i +", "expected an expression"},
           {"(i", "expected ')'"},
           {"i i", "text after the end"},
           {"k", "unknown variable 'k'"},
           {"y[i]", "unknown buffer 'y'"},
           {"x[i]", "has rank 2, 1 indices"},
           {"x[i, 1f]", "an index of type f32"},
           {"i + 1f", "'+' of i64 and f32"},
           {"i / i", "'/' of i64"},
           {"1f % 2f", "'%' of f32"},
           {"i && i", "'&&' of i64"},
           {"!i", "'!' of a number"},
           {"select(i, i, i)", "not a condition"},
           {"select(true, i, 1f)", "differ in type"},
           {"exp(i)", "exp of an integer"},
           {"min(i)", "takes 2 operands, 1 given"},
           {"sinc(1f)", "unknown function 'sinc'"},
           {"9223372036854775808", "outside its type's range"},
           {"1x", "unknown ending"},
           {"-i", "minus before"},
           {std::string(500, '(') + "i" + std::string(500, ')'), "nested more than 400 deep"}}) {
    auto e = expr::Parse(text, leaves.symbols);
    ASSERT_FALSE(e.ok()) << text;
    EXPECT_NE(Message(e.status()).find(message), std::string::npos) << Message(e.status());
    EXPECT_NE(Message(e.status()).find("column"), std::string::npos) << Message(e.status());
  }
  std::string deep = "i";
  for (int n = 0; n < 500; ++n) deep += " + i * i";
  EXPECT_FALSE(expr::Parse(deep, leaves.symbols).ok());
}

TEST(ParseTest, ProgramsOfEveryOperatorClassReadBack) {
  using namespace testing_support;
  for (const loop::Program& p :
       {ConvProgram({3, 10, 7, 8, 3, 1, 1}), DepthwiseProgram({0, 5, 4, 4, 3, 1, 1}, true),
        MaxPoolProgram({0, 6, 4, 6, 2, 2, 0}), MatmulProgram(3, 7, 4, true),
        AddPaddedProgram(7, 5, 2, 3), RowNormProgram(3, 5)}) {
    const std::string text = loop::ToString(p);
    auto again = loop::Parse(text);
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    EXPECT_EQ(loop::ToString(*again), text);
  }
}

TEST(ParseTest, BadProgramsAreRefusedWithTheirLine) {
  const std::string head = "program p\noutput out: f32 global[3]\n";
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "line 1: expected 'program '"},
           {"program p\ninput x: f33 global[1]\n", "line 2: unknown element type 'f33'"},
           {"program p\ninput x: f32 attic[1]\n", "unknown scope"},
           {"program p\ninput x: f32 global[1099511627776,2]\n", "more than"},
           {head + "output out: f32 global[3]\n", "line 3: a second buffer 'out'"},
           {head + "for i in [0, 3)\n", "expected a statement indented by 2"},
           {head + "for i in [3, 0)\n  out[i] = 0f\n", "ends at 0 before its begin 3"},
           {head + "for i in [0, 3)\n   out[i] = 0f\n", "expected a statement"},
           {head + "for i in [0, 3)\n  out[i] = 0\n",
            "line 4: a value of type i64 where f32 belongs"},
           {head + "  out[0] = 0f\n", "expected a statement indented by 0"},
           {head + "block b(i:3 = 0)\n", "block 'b' without what it computes"},
           {head + "if true\n  out[0] = 0f\n", "always true"},
           {head + "for 8 in [0, 3)\n  out[8] = 0f\n", "expected a name"},
           {head + "out[0] = 0f 1\n", "after the end"}}) {
    auto p = loop::Parse(text);
    ASSERT_FALSE(p.ok()) << text;
    EXPECT_NE(Message(p.status()).find(message), std::string::npos) << text << Message(p.status());
  }
}

}  // namespace
}  // namespace whet
