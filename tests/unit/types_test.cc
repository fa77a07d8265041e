// Every operation of expressions on every element type: generated code against the interpreter, bit
// for bit, scalar and in vectors, with the instructions of the host and without any beyond the
// base.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "compiler/loop/parse.h"
#include "tests/unit/run_program.h"

namespace whet {
namespace {

using expr::BinaryOp;
using expr::Expr;
using expr::Intrinsic;

constexpr int64_t kLanes = 16;

std::vector<DType> Types() {
  return {
#define X(id, name, bytes) DType::id,
      WHET_DTYPES(X)
#undef X
  };
}

std::vector<double> Corners(DType t) {
  const double inf = std::numeric_limits<double>::infinity();
  if (t == DType::kBool) return {0, 1};
  if (IsFloat(t)) {
    std::vector<double> v = {-inf, -70000, -3.5, -1,  -0.1,  -0.0, 0,    3e-8, 0.1,
                             0.5,  1,      1.5,  2.5, 65504, 3e9,  1e30, inf,  std::nan("")};
    for (double& x : v) x = RoundToFloat(t, x);
    return v;
  }
  const int bits = static_cast<int>(8 * SizeOf(t));
  if (IsUnsigned(t)) {
    const double end = std::ldexp(1.0, bits);
    return {0, 1, 2, 3, 7, 9, end / 2 - 1, end / 2, end - 2, end - 1};
  }
  const double end = std::ldexp(1.0, bits - 1);
  return {-end, 1 - end, -7, -3, -1, 0, 1, 2, 3, 7, 9, end - 2, end - 1};
}

// All pairs of corners, filled up to whole vectors.
void AllPairs(DType t, std::vector<double>& a, std::vector<double>& b) {
  for (double x : Corners(t)) {
    for (double y : Corners(t)) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  while (a.size() % kLanes != 0) {
    a.push_back(a[0]);
    b.push_back(b[0]);
  }
}

bool Applies(BinaryOp op, DType t) {
  switch (op) {
    case BinaryOp::kAnd:
    case BinaryOp::kOr: return t == DType::kBool;
    case BinaryOp::kDiv: return IsFloat(t);
    case BinaryOp::kPow: return !IsFloat(t) && t != DType::kBool;  // floats: vector_math_test
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod:
    case BinaryOp::kBitAnd:
    case BinaryOp::kBitOr:
    case BinaryOp::kBitXor:
    case BinaryOp::kShl:
    case BinaryOp::kShr: return !IsFloat(t) && t != DType::kBool;
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
    case BinaryOp::kMul: return t != DType::kBool;
    default: return true;
  }
}

class Cases {
 public:
  explicit Cases(DType t) : type_(t) {
    AllPairs(t, inputs_["a"], inputs_["b"]);
    rows_ = static_cast<int64_t>(inputs_["a"].size()) / kLanes;
    for (const char* name : {"a", "b"}) in_.push_back(b_.Input(name, t, {rows_, kLanes}, false));
  }

  void Add(const std::string& name, const std::function<Expr(const Expr&, const Expr&)>& f) {
    const DType to = f(expr::Load(in_[0], {expr::Int(0), expr::Int(0)}),
                       expr::Load(in_[1], {expr::Int(0), expr::Int(0)}))
                         ->dtype;
    outputs_.push_back(
        b_.Compute(name, to, {{"o", rows_}, {"i", kLanes}}, [&](const std::vector<Expr>& i) {
          return f(expr::Load(in_[0], i), expr::Load(in_[1], i));
        }));
  }

  void Check() {
    const auto id = expr::IndexMap::Identity(2);
    auto scalar = loop::FromTe("types", b_.Finish(outputs_), {id, id},
                               std::vector<expr::IndexMap>(outputs_.size(), id));
    ASSERT_TRUE(scalar.ok()) << scalar.status();
    auto vectors = loop::Parse(std::regex_replace(
        loop::ToString(*scalar), std::regex("for ([A-Za-z0-9_]+\\.i) in"), "vectorized $1 in"));
    ASSERT_TRUE(vectors.ok()) << vectors.status();
    ASSERT_NE(loop::ToString(*vectors).find("vectorized"), std::string::npos);
    loop::Memory expected = inputs_;
    const Status ran = loop::Interpret(*scalar, expected);
    ASSERT_TRUE(ran.ok()) << ran;
    for (const Target& target : {Target::Host(), Target()}) {
      for (const loop::Program* p : {&*scalar, &*vectors})
        Compare(expected, testing_support::CompiledOutputs(*p, target, inputs_), target);
    }
  }

 private:
  void Compare(const loop::Memory& expected, const loop::Memory& got, const Target& target) {
    for (const auto& out : outputs_) {
      const auto it = got.find(out->name);
      ASSERT_TRUE(it != got.end());
      const std::vector<double>& want = expected.at(out->name);
      ASSERT_EQ(it->second.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const bool same =
            it->second[i] == want[i] || (std::isnan(it->second[i]) && std::isnan(want[i]));
        EXPECT_TRUE(same) << ToString(type_) << " " << out->name << " of " << inputs_["a"][i]
                          << " and " << inputs_["b"][i] << " is " << it->second[i] << ", not "
                          << want[i] << " on " << target.ToString();
        if (!same) break;
      }
    }
  }

  const DType type_;
  loop::Memory inputs_;
  int64_t rows_ = 0;
  te::Builder b_;
  std::vector<expr::Buffer> in_, outputs_;
};

class TypesTest : public testing::TestWithParam<DType> {};

TEST_P(TypesTest, OperationsAreTheInterpreters) {
  const DType t = GetParam();
  Cases cases(t);
#define X(id, symbol, precedence)                                                                  \
  if (Applies(BinaryOp::id, t)) {                                                                  \
    cases.Add(#id, [](const Expr& a, const Expr& b) { return expr::Binary(BinaryOp::id, a, b); }); \
  }
  WHET_BINARY_OPS(X)
#undef X
  cases.Add("select",
            [](const Expr& a, const Expr& b) { return expr::Select(expr::Lt(a, b), a, b); });
  if (t == DType::kBool) cases.Add("not", [](const Expr& a, const Expr&) { return expr::Not(a); });
  for (Intrinsic f : {Intrinsic::kSqrt, Intrinsic::kAbs, Intrinsic::kFloor, Intrinsic::kCeil,
                      Intrinsic::kRound}) {
    if (IsFloat(t))
      cases.Add(std::string(ToString(f)),
                [f](const Expr& a, const Expr&) { return expr::Call(f, a); });
  }
  cases.Check();
}

TEST_P(TypesTest, ConversionsAreTheInterpreters) {
  Cases cases(GetParam());
  for (DType to : Types()) {
    if (to == GetParam()) continue;
    cases.Add("to_" + std::string(ToString(to)),
              [to](const Expr& a, const Expr&) { return expr::Cast(to, a); });
  }
  cases.Check();
}

INSTANTIATE_TEST_SUITE_P(All, TypesTest, testing::ValuesIn(Types()),
                         [](const auto& info) { return std::string(ToString(info.param)); });

TEST(HalfTest, SumsAreAccumulatedInF32) {
  te::Builder b;
  const auto x = b.Input("x", DType::kF16, {4096}, false);
  const auto y = b.Reduce(
      "y", DType::kF16, {{"i", 1}}, {{"r", 4096}}, te::Reducer::kSum,
      [&](const std::vector<Expr>&, const std::vector<Expr>& r) { return expr::Load(x, {r[0]}); });
  const auto id = expr::IndexMap::Identity(1);
  auto p = loop::FromTe("sum", b.Finish({y}), {id}, {id});
  ASSERT_TRUE(p.ok()) << p.status();
  const loop::Memory in = {{"x", std::vector<double>(4096, 1)}};
  // In f16 it would end at 2048, where adding 1 changes nothing.
  EXPECT_EQ(testing_support::CompiledOutputs(*p, Target::Host(), in).at(y->name)[0], 4096);
}

}  // namespace
}  // namespace whet
