// Error bounds of references: what an operator makes of inputs that carry an error stays within the
// bound wherever the true inputs are, and the bound is no larger than it has to be, so that a wrong
// result behind an inexact input is seen.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/graph/evaluate.h"
#include "compiler/support/rng.h"
#include "tests/unit/op_workload.h"

namespace whet::ops {
namespace {

using graph::Attrs;
using graph::RefTensor;
using testing::ElementsAre;
using testing_support::OpProgram;
using testing_support::OpWorkload;
using Values = std::vector<double>;

constexpr double kUnit = 0x1.0p-24;  // of RefTensor::err
constexpr double kInf = std::numeric_limits<double>::infinity();

RefTensor Inexact(DType t, const Values& x, const Values& error) {
  RefTensor r{t, {static_cast<int64_t>(x.size())}, x, {}};
  for (double e : error) r.err.push_back(e / kUnit);
  return r;
}
RefTensor Exact(DType t, const Values& x) { return Inexact(t, x, {}); }

RefTensor Apply(const std::string& op, const Attrs& attrs, const std::vector<RefTensor>& in) {
  const graph::OpRecord* record = Catalog().Find(op);
  EXPECT_NE(record, nullptr) << op;
  auto filled = graph::FillAttrs(*record, attrs);
  EXPECT_TRUE(filled.ok()) << filled.status();
  std::vector<graph::TensorType> types;
  for (const RefTensor& r : in) types.push_back(graph::TensorType::Of(r.dtype, r.shape));
  std::vector<const graph::TensorType*> pointers;
  std::vector<const RefTensor*> inputs;
  for (size_t i = 0; i < in.size(); ++i) {
    pointers.push_back(&types[i]);
    inputs.push_back(&in[i]);
  }
  auto out = graph::InferTypes(*record, *filled, pointers);
  EXPECT_TRUE(out.ok()) << op << ": " << out.status();
  if (!out.ok()) return {};
  auto y = graph::EvaluateOp(graph::ViewOf(*record, *filled, pointers, *out), inputs, true);
  EXPECT_TRUE(y.ok()) << op << ": " << y.status();
  return y.ok() ? std::move((*y)[0]) : RefTensor();
}

struct Unary {
  std::string op;
  Attrs attrs = {};
  double lo = -4, hi = 4;  // where it has values
  DType type = DType::kF32;
  double slack = 4;  // how many times too large the bound may be; infinite: one slope for all
};

std::vector<Unary> Unaries() {
  const double near0 = 0x1.0p-30;
  std::vector<Unary> u;
  for (const char* op :
       {"Floor",      "Ceil", "Round", "Sign", "Sin",     "Cos",  "Tan", "Atan",
        "Sinh",       "Cosh", "Asinh", "Exp",  "Sigmoid", "Tanh", "Erf", "Softplus",
        "Reciprocal", "Relu", "Clip",  "Abs",  "Neg",     "Celu"})
    u.push_back({op});
  for (const char* op :
       {"LeakyRelu", "Elu", "Selu", "Gelu", "Mish", "HardSigmoid", "HardSwish", "Softsign"})
    u.push_back({op, {}, -4, 4, DType::kF32, kInf});
  for (const char* op : {"Sqrt", "Log"}) u.push_back({op, {}, near0, 4});
  for (const char* op : {"Asin", "Acos", "Atanh"}) u.push_back({op, {}, -1, 1});
  u.push_back({"Acosh", {}, 1, 4});
  u.push_back({"Celu", {{"alpha", -0.5}}});
  u.push_back({"Clip", {{"min", -1.0}, {"max", 2.0}}});
  u.push_back({"Shrink", {{"lambd", 0.5}, {"bias", 0.0}}});
  u.push_back({"Shrink", {{"lambd", 1.0}, {"bias", 2.0}}});
  u.push_back({"ThresholdedRelu", {{"alpha", 1.0}}});
  u.push_back({"ThresholdedRelu", {{"alpha", -1.0}}});
  for (const char* to : {"i32", "u8", "i64"}) u.push_back({"Cast", {{"to", std::string(to)}}});
  return u;
}

TEST(BoundsTest, CoverEveryInputWithinItsErrorAndLittleMore) {
  for (const Unary& u : Unaries()) {
    for (double e : {1e-6, 1e-3, 0.3}) {
      Values x;
      for (int i = 0; i <= 64; ++i) x.push_back(u.lo + (u.hi - u.lo) * i / 64);
      x.push_back(std::min(1.0 + e / 2, u.hi));
      x.push_back(std::max(u.lo, std::min(0.5 - e / 2, u.hi)));
      const RefTensor y = Apply(u.op, u.attrs, {Inexact(u.type, x, Values(x.size(), e))});
      const RefTensor own = Apply(u.op, u.attrs, {Exact(u.type, x)});
      Values most(x.size(), 0);
      constexpr int kSteps = 200;
      for (int k = -kSteps; k <= kSteps; ++k) {
        Values moved;
        for (double v : x) moved.push_back(v + e * k / kSteps);
        const RefTensor z = Apply(u.op, u.attrs, {Exact(u.type, moved)});
        for (size_t i = 0; i < x.size(); ++i) {
          const double d = std::fabs(z.value[i] - y.value[i]);
          if (!std::isnan(d)) most[i] = std::max(most[i], d);
        }
      }
      for (size_t i = 0; i < x.size(); ++i) {
        if (!std::isfinite(y.value[i])) continue;  // only itself
        const auto at = static_cast<int64_t>(i);
        const double bound = graph::ToleranceAt(y, at), rounding = graph::ToleranceAt(own, at);
        const std::string where =
            fmt::format("{} {} of {} +- {}", u.op, u.attrs.ToString(), x[i], e);
        EXPECT_GE(bound * (1 + 1e-9), most[i]) << where;
        // Next to a pole, or outside of the domain, nothing is known.
        if (bound < kInf && u.slack < kInf) {
          EXPECT_LE(bound, u.slack * most[i] + 2 * rounding + 1e-12) << where;
        }
      }
    }
  }
}

TEST(BoundsTest, OfSeveralInputsCoverThem) {
  struct Case {
    std::string op;
    Attrs attrs;
    std::vector<RefTensor> in;
  };
  const Values x = {-2, -1, -0.5, 0, 0.25, 1, 3, 100}, e(8, 0.01);
  const Values positive = {2, 1, 0.5, 0, 0.25, 1, 3, 0.005},
               power = {2, 0.5, -1, 0.5, 3, 2, 1, 0.5};
  RefTensor image{DType::kF32, {2, 2, 2}, x, {}};
  image.err.assign(8, 0.01 / kUnit);
  auto channel = [](const Values& v) { return Inexact(DType::kF32, v, {0.02, 0.03}); };
  const std::vector<Case> cases = {
      {"BatchNormalization",
       {},
       {image, channel({1.5, -2}), channel({0.5, 3}), channel({0.25, -1}), channel({0.5, 2})}},
      {"Div", {}, {Inexact(DType::kF32, x, e), Inexact(DType::kF32, positive, e)}},
      {"Pow", {}, {Inexact(DType::kF32, positive, e), Inexact(DType::kF32, power, Values(8, 0))}},
      {"Pow",
       {},
       {Inexact(DType::kF32, {2, 1, 0.5, 3}, Values(4, 0)),
        Inexact(DType::kF32, {2, -1, 0.5, 3}, Values(4, 0.1))}},
      {"Mul", {}, {Inexact(DType::kF32, x, e), Inexact(DType::kF32, positive, e)}},
      {"Less", {}, {Inexact(DType::kF32, x, e), Inexact(DType::kF32, positive, e)}},
  };
  Rng rng(5);
  for (const Case& c : cases) {
    const RefTensor y = Apply(c.op, c.attrs, c.in);
    for (int tries = 0; tries < 2000; ++tries) {
      std::vector<RefTensor> moved = c.in;
      for (RefTensor& t : moved) {
        for (size_t i = 0; i < t.value.size(); ++i)
          t.value[i] += t.err[i] * kUnit *
                        (tries % 2 == 0        ? 2 * rng.Uniform() - 1
                         : rng.Uniform() < 0.5 ? -1
                                               : 1);
        t.err.clear();
      }
      const RefTensor z = Apply(c.op, c.attrs, moved);
      for (int64_t i = 0; i < y.size(); ++i) {
        const double d = std::fabs(z.value[i] - y.value[i]);
        if (!std::isfinite(y.value[i]) || std::isnan(d)) continue;
        ASSERT_LE(d, graph::ToleranceAt(y, i) * (1 + 1e-9)) << c.op << ", element " << i;
      }
    }
  }
}

TEST(BoundsTest, AConditionThatMayTurnAdmitsBothSides) {
  const RefTensor less =
      Apply("Less", {},
            {Inexact(DType::kF32, {1, 1, 1}, {0.1, 0.1, 0.1}), Exact(DType::kF32, {1.05, 2, 1})});
  EXPECT_THAT(less.value, ElementsAre(1, 1, 0));
  EXPECT_THAT(less.err, ElementsAre(1 / kUnit, 0, 1 / kUnit));
  const RefTensor truth =
      Apply("Cast", {{"to", std::string("bool")}}, {Inexact(DType::kF32, {0.25, 1}, {0.3, 0.3})});
  EXPECT_THAT(truth.err, ElementsAre(1 / kUnit, 0));
  const RefTensor y =
      Apply("Where", {}, {less, Exact(DType::kF32, {5, 5, 5}), Exact(DType::kF32, {7, 7, 7})});
  EXPECT_THAT(y.value, ElementsAre(5, 5, 7));
  EXPECT_GE(graph::ToleranceAt(y, 0), 2);
  EXPECT_EQ(graph::ToleranceAt(y, 1), 0);
  EXPECT_GE(graph::ToleranceAt(y, 2), 2);
}

TEST(BoundsTest, AMaximumThatRoundingMayMoveAdmitsAnyPlace) {
  RefTensor x{DType::kF32, {1, 1, 1, 4}, {1, 1.05, 3, 2}, {}};
  x.err.assign(4, 0.03 / kUnit);
  const Attrs pairs = {{"kernel", std::vector<int64_t>{1, 2}},
                       {"strides", std::vector<int64_t>{1, 2}}};
  const RefTensor at = Apply("MaxPoolIndices", pairs, {x});
  EXPECT_THAT(at.value, ElementsAre(1, 2));
  EXPECT_GE(graph::ToleranceAt(at, 0), 1);
  EXPECT_EQ(graph::ToleranceAt(at, 1), 0);
}

TEST(BoundsTest, WhereNothingIsKnownAnyNumberWillDo) {
  const RefTensor unknown = Inexact(DType::kF32, {2, 2, 2}, {kInf, kInf, kInf});
  const RefTensor y = Apply("Mul", {}, {unknown, Exact(DType::kF32, {3, 0, kInf})});
  EXPECT_THAT(y.value, ElementsAre(6, 0, kInf));
  EXPECT_EQ(graph::ToleranceAt(y, 0), kInf);
  EXPECT_EQ(graph::ToleranceAt(y, 1), kInf);
  EXPECT_EQ(graph::ToleranceAt(y, 2), kInf);  // of either sign
  const RefTensor known =
      Apply("Mul", {},
            {Inexact(DType::kF32, {2, kInf}, {1, 0}), Inexact(DType::kF32, {kInf, 3}, {0, 1})});
  EXPECT_THAT(known.value, ElementsAre(kInf, kInf));
  EXPECT_THAT(known.err, ElementsAre(0, 0));
  // What is masked by -infinity is 0, exactly.
  RefTensor x{DType::kF32, {1, 3}, {1, -kInf, 2}, {}};
  x.err.assign(3, 0.1 / kUnit);
  const RefTensor masked = Apply("Softmax", {{"axis", int64_t{1}}}, {x});
  EXPECT_EQ(masked.value[1], 0);
  EXPECT_EQ(graph::ToleranceAt(masked, 1), 0);
  EXPECT_GT(graph::ToleranceAt(masked, 0), 0.03);
}

// A right kernel, here the interpreter, passes; results that are wrong by `wrong` do not.
void ExpectSeen(const std::vector<std::string>& inputs, const std::vector<std::string>& ops,
                std::vector<Values> values, double wrong) {
  auto w = OpWorkload(inputs, ops);
  ASSERT_TRUE(w.ok()) << w.status();
  if (values.empty()) values = fusion::MakeInputs(*w, 3);
  auto reference = fusion::EvaluateReference(*w, values);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const OpProgram program(*w);
  ASSERT_TRUE(program.ok());
  auto got = program.Interpret(values);
  ASSERT_TRUE(got.ok()) << got.status();
  const fusion::ReferenceOutput& want = (*reference)[0];
  for (size_t i = 0; i < got->size(); ++i) {
    EXPECT_LE(std::fabs((*got)[i] - want.expected[i]), want.tolerance[i])
        << w->ToString() << "element " << i;
    EXPECT_LT(want.tolerance[i], wrong) << w->ToString() << "element " << i;
  }
}

TEST(BoundsTest, WrongResultsBehindInexactInputsAreSeen) {
  for (const char* step :
       {"Floor.1(2)", "Ceil.1(2)", "Round.1(2)", "Sign.1(2)", "Shrink.1(2) {lambd=0.5}",
        "ThresholdedRelu.1(2) {alpha=0.25}", "Cast.1(2) {to=\"i32\"}"})
    ExpectSeen({"f32[16,32]", "f32[32,16]"}, {"MatMul.1(0, 1)", step}, {}, 1e-3);
  for (const char* arc : {"Asin.1(3)", "Acos.1(3)"})
    ExpectSeen({"f32[4]", "f32[4]"}, {"Mul.1(0, 1)", "Clip.1(2) {max=1.0, min=-1.0}", arc},
               {{2, -2, 0.5, 0.99}, {1.5, 1.5, 0.3, 1}}, 1e-3);
  ExpectSeen({"f32[4]", "f32[4]"}, {"Mul.1(0, 1)", "Clip.1(2) {max=9.0, min=1.0}", "Acosh.1(3)"},
             {{2, -2, 0.5, 0.99}, {1.5, 1.5, 0.3, 1}}, 1e-3);
  ExpectSeen({"f32[2]", "f32[2]"}, {"Mul.1(0, 1)", "Celu.1(2) {alpha=-0.5}"}, {{-5, -8}, {1, 1}},
             100);
}

TEST(BoundsTest, AStepThatRoundingReachesIsAdmitted) {
  // 3 - 2^-25 is 3 in f32.
  auto w = OpWorkload({"f32[1,2]", "f32[2,1]"}, {"MatMul.1(0, 1)", "Floor.1(2)"});
  ASSERT_TRUE(w.ok()) << w.status();
  auto r = fusion::EvaluateReference(*w, std::vector<Values>{{1, 0x1.0p-25}, {3, -1}});
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ((*r)[0].expected[0], 2);
  EXPECT_GE((*r)[0].tolerance[0], 1);
}

TEST(BoundsTest, TinyResultsMayBeRoundedAsTheirTypeDoes) {
  // 2e-9 is less than half of f16's smallest number; f32's below 2^-126 are flushed.
  ExpectSeen({"f16[1,2]"}, {"Softmax.1(0) {axis=1}"}, {{0, -20}}, 0.05);
  ExpectSeen({"f16[1,2]"}, {"Softmax.1(0) {axis=1}", "Cast.1(1) {to=\"f32\"}"}, {{0, -20}}, 0.05);
  const RefTensor half = Apply("Exp", {}, {Exact(DType::kF16, {-20})});
  EXPECT_LT(graph::ToleranceAt(half, 0), 1e-7);
  const RefTensor single = Apply("Exp", {}, {Exact(DType::kF32, {-100})});
  EXPECT_GT(graph::ToleranceAt(single, 0), single.value[0]);
  EXPECT_LT(graph::ToleranceAt(single, 0), 1e-37);
  const RefTensor wide = Apply("Exp", {}, {Exact(DType::kF64, {-600})});
  EXPECT_LT(graph::ToleranceAt(wide, 0), 1e-9 * wide.value[0]);
}

TEST(BoundsTest, NumbersBeyondTheTypeAreInfinite) {
  for (auto [t, large] :
       {std::pair{DType::kF32, 1e30}, {DType::kF16, 300.0}, {DType::kBF16, 1e30}}) {
    const RefTensor y = Apply("Mul", {}, {Exact(t, {large, -large}), Exact(t, {large, large})});
    EXPECT_THAT(y.value, ElementsAre(kInf, -kInf)) << ToString(t);
    EXPECT_EQ(graph::ToleranceAt(y, 0), 0);  // an infinity is exact
  }
  EXPECT_EQ(Apply("Mul", {}, {Exact(DType::kF64, {1e30}), Exact(DType::kF64, {1e30})}).value[0],
            1e30 * 1e30);
  // One that rounding may make infinite admits that.
  const RefTensor y = Apply("Neg", {}, {Inexact(DType::kF16, {65500}, {100})});
  EXPECT_EQ(y.value[0], -65500);
  EXPECT_EQ(graph::ToleranceAt(y, 0), kInf);
}

// The sum starts from what is added to it: each of its steps rounds at the size of that.
TEST(BoundsTest, WhatIsAddedToASumMayBeWhereItStarts) {
  RefTensor a{DType::kF32, {1, 8}, Values(8, 0x1.0p-10), {}};
  RefTensor b{DType::kF32, {8, 1}, Values(8, 0x1.0p-10), {}};
  const RefTensor sum = Apply("MatMul", {}, {a, b});
  const RefTensor large{DType::kF32, {1, 1}, {1000}, {}};
  for (const char* view : {"", "Transpose"}) {
    const RefTensor s = *view ? Apply(view, {{"perm", std::vector<int64_t>{1, 0}}}, {sum}) : sum;
    for (const RefTensor& y : {Apply("Add", {}, {s, large}), Apply("Add", {}, {large, s})}) {
      EXPECT_GE(graph::ToleranceAt(y, 0), 9 * 1000 * kUnit);
      EXPECT_LT(graph::ToleranceAt(y, 0), 10 * 1000 * kUnit);
      // Through an addition.
      const RefTensor z = Apply("Add", {}, {y, large});
      EXPECT_GE(graph::ToleranceAt(z, 0), (9 + 8 + 2) * 1000 * kUnit);
    }
  }
  const RefTensor total = Apply("ReduceSum", {{"axes", std::vector<int64_t>{1}}}, {a});
  EXPECT_GE(graph::ToleranceAt(Apply("Add", {}, {total, large}), 0), 9 * 1000 * kUnit);
  // What is no sum rounds once.
  EXPECT_LT(graph::ToleranceAt(Apply("Add", {}, {large, large}), 0), 2001 * kUnit);
}

TEST(BoundsTest, ANarrowingCastNextToATieMayGoEitherWay) {
  // 1 + 2^-11 is between two numbers of f16, 2^-10 apart.
  const double tie = 1 + 0x1.0p-11, e = 0x1.0p-20;
  for (double x : {tie - e / 2, tie + e / 2}) {
    const RefTensor y =
        Apply("Cast", {{"to", std::string("f16")}}, {Inexact(DType::kF32, {x}, {e})});
    const double other = y.value[0] == 1 ? 1 + 0x1.0p-10 : 1;
    EXPECT_GE(graph::ToleranceAt(y, 0), std::fabs(other - y.value[0]));
    EXPECT_LT(graph::ToleranceAt(y, 0), 0x1.1p-10);
  }
  // 65520 is where f16 ends.
  const RefTensor y =
      Apply("Cast", {{"to", std::string("f16")}}, {Inexact(DType::kF32, {65521, 70000}, {2, 2})});
  EXPECT_THAT(y.value, ElementsAre(kInf, kInf));
  EXPECT_EQ(graph::ToleranceAt(y, 0), kInf);
  EXPECT_EQ(graph::ToleranceAt(y, 1), 0);
}

TEST(BoundsTest, AnInfinityThatRoundingDecidesAdmitsNumbers) {
  const Values zero = {0, 0}, e = {1e-7, 0};
  for (const char* op : {"Log", "Reciprocal"}) {
    const RefTensor y = Apply(op, {}, {Inexact(DType::kF32, zero, e)});
    EXPECT_TRUE(std::isinf(y.value[0])) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 0), kInf) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 1), 0) << op;
    // And so does what is made of it.
    for (const RefTensor& z : {Apply("Neg", {}, {y}), Apply("Add", {}, {y, y}),
                               Apply("Where", {}, {Exact(DType::kBool, {1, 1}), y, y})}) {
      EXPECT_EQ(graph::ToleranceAt(z, 0), kInf) << op;
      EXPECT_EQ(graph::ToleranceAt(z, 1), 0) << op;
    }
  }
  const RefTensor y =
      Apply("Where", {},
            {Inexact(DType::kBool, {1, 0, 1, 1}, {1, 1, 0, 1}), Exact(DType::kF32, {1, 1, 1, kInf}),
             Exact(DType::kF32, {-kInf, -kInf, -kInf, kInf})});
  EXPECT_THAT(y.value, ElementsAre(1, -kInf, 1, kInf));
  EXPECT_THAT(y.err, ElementsAre(kInf, kInf, 0, 0));
  const RefTensor quotient = Apply(
      "Div", {}, {Inexact(DType::kF32, {1, 1, 0}, {0.5, 0.5, 0.5}), Exact(DType::kF32, {0, 2, 0})});
  EXPECT_EQ(graph::ToleranceAt(quotient, 0), 0);
  EXPECT_LT(graph::ToleranceAt(quotient, 1), 0.26);
  EXPECT_EQ(graph::ToleranceAt(quotient, 2), kInf);
}

TEST(BoundsTest, AnInfinityWhateverRoundingDoesIsExact) {
  for (const char* op : {"Exp", "Sinh", "Cosh"}) {
    const RefTensor y = Apply(op, {}, {Inexact(DType::kF64, {800, 712}, {1, 5})});
    EXPECT_EQ(y.value[0], kInf) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 0), 0) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 1), kInf) << op;
  }
  const RefTensor y =
      Apply("Pow", {}, {Inexact(DType::kF64, {10, 10}, {0.1, 5}), Exact(DType::kF64, {400, 310})});
  EXPECT_THAT(y.value, ElementsAre(kInf, kInf));
  EXPECT_EQ(graph::ToleranceAt(y, 0), 0);
  EXPECT_EQ(graph::ToleranceAt(y, 1), kInf);
}

TEST(BoundsTest, TheEndOfADomainAdmitsNaNAndNumbers) {
  auto check = [](const std::string& op, double end, double inwards) {
    // Just inside, just outside, far outside, far inside.
    const Values x = {end + 0.01 * inwards, end - 0.01 * inwards, end - inwards / 2,
                      end + inwards / 2};
    const RefTensor y = Apply(op, {}, {Inexact(DType::kF32, x, Values(4, 0.1))});
    EXPECT_TRUE(std::isnan(y.value[1])) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 0), kInf) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 1), kInf) << op;
    EXPECT_TRUE(std::isnan(y.value[2])) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 2), 0) << op;
    EXPECT_LT(graph::ToleranceAt(y, 3), 1) << op;
  };
  check("Sqrt", 0, 1);
  check("Log", 0, 1);
  check("Acosh", 1, 1);
  for (const char* op : {"Asin", "Acos", "Atanh"}) {
    check(op, 1, -1);
    check(op, -1, 1);
  }
  const RefTensor power = Apply("Pow", {},
                                {Inexact(DType::kF32, {0.01, -0.01, -1, 1}, Values(4, 0.1)),
                                 Exact(DType::kF32, Values(4, 0.5))});
  EXPECT_EQ(graph::ToleranceAt(power, 0), kInf);
  EXPECT_EQ(graph::ToleranceAt(power, 1), kInf);
  EXPECT_EQ(graph::ToleranceAt(power, 2), 0);
  EXPECT_LT(graph::ToleranceAt(power, 3), 0.1);
}

TEST(BoundsTest, ARemainderJumpsWhereTheQuotientIsWhole) {
  const Attrs fmod = {{"fmod", int64_t{1}}};
  const RefTensor y = Apply(
      "Mod", fmod,
      {Inexact(DType::kF32, {3, 2.5, 0, 2.99}, Values(4, 0.02)), Exact(DType::kF32, Values(4, 1))});
  EXPECT_GE(graph::ToleranceAt(y, 0), 1);
  EXPECT_LT(graph::ToleranceAt(y, 1), 0.03);
  EXPECT_LT(graph::ToleranceAt(y, 2), 0.03);  // passes through zero
  EXPECT_GE(graph::ToleranceAt(y, 3), 0.99);
  EXPECT_LT(graph::ToleranceAt(y, 3), 1.1);
  // 5 becomes 6 or 4; 6 mod 3 is 0, 5 mod 3 is 2. With the divisor's sign so does 0.
  const RefTensor whole =
      Apply("Mod", {}, {Inexact(DType::kI32, {5, 7, 0}, {1, 0, 1}), Exact(DType::kI32, {3, 3, 3})});
  EXPECT_GE(graph::ToleranceAt(whole, 0), 2);
  EXPECT_EQ(graph::ToleranceAt(whole, 1), 0);
  EXPECT_GE(graph::ToleranceAt(whole, 2), 2);
}

TEST(BoundsTest, AQuotientOfIntegersMovesByWholeNumbers) {
  const RefTensor y = Apply("Div", {},
                            {Inexact(DType::kI32, {2, 7, 9, 100}, {1, 0, 7, 0}),
                             Inexact(DType::kI32, {3, 3, 3, 1}, {0, 0, 0, 1})});
  EXPECT_THAT(y.value, ElementsAre(0, 2, 3, 100));
  EXPECT_EQ(graph::ToleranceAt(y, 0), 1);
  EXPECT_EQ(graph::ToleranceAt(y, 1), 0);
  EXPECT_EQ(graph::ToleranceAt(y, 2), 3);
  EXPECT_GE(graph::ToleranceAt(y, 3), 100);
}

TEST(BoundsTest, AnIndexThatRoundingMayMoveAdmitsItsNeighbours) {
  const Values x = {1, 5, 100, 7, 7, 7};
  RefTensor data = Exact(DType::kF32, x), at = Inexact(DType::kI64, {1, 0, 4, 5}, {1, 0, 1, 1});
  auto expect = [](const RefTensor& y, const std::string& op) {
    EXPECT_THAT(y.value, ElementsAre(5, 1, 7, 7)) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 0), 95) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 1), 0) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 2), 0) << op;
    EXPECT_EQ(graph::ToleranceAt(y, 3), 0) << op;
  };
  expect(Apply("Gather", {}, {data, at}), "Gather");
  expect(Apply("GatherElements", {}, {data, at}), "GatherElements");
  RefTensor tuples = at;
  tuples.shape = {4, 1};
  expect(Apply("GatherND", {}, {data, tuples}), "GatherND");
  const RefTensor lengths = Inexact(DType::kI64, {2, 2}, {1, 0});
  const RefTensor rows{DType::kF32, {2, 3}, {1, 2, 30, 4, 5, 60}, {}};
  const Attrs axes = {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}};
  const RefTensor reversed = Apply("ReverseSequence", axes, {rows, lengths});
  EXPECT_THAT(reversed.value, ElementsAre(2, 1, 30, 5, 4, 60));
  EXPECT_EQ(graph::ToleranceAt(reversed, 0), 28);
  EXPECT_EQ(graph::ToleranceAt(reversed, 2), 29);
  EXPECT_EQ(graph::ToleranceAt(reversed, 3), 0);
  const RefTensor table{DType::kF32, {2, 2}, {1, 2, 3, 4}, {}},
      update{DType::kF32, {1, 2}, {5, 6}, {}};
  RefTensor where{DType::kI64, {1, 2}, {0, 1}, {0, 1 / kUnit}};
  const RefTensor scattered = Apply("ScatterElements", {}, {table, where, update});
  EXPECT_THAT(scattered.value, ElementsAre(5, 2, 3, 6));
  EXPECT_THAT(scattered.err, ElementsAre(0, kInf, 0, kInf));
  const RefTensor nd = Apply("ScatterND", {}, {table, where, Exact(DType::kF32, {9})});
  EXPECT_EQ(graph::ToleranceAt(nd, 2), kInf);
}

TEST(BoundsTest, ProductsOfInexactZerosAreInexact) {
  RefTensor a{DType::kF32, {1, 2}, {0, 0}, {}}, b{DType::kF32, {2, 1}, {0, 0}, {}};
  a.err.assign(2, 0.5 / kUnit);
  b.err.assign(2, 0.25 / kUnit);
  EXPECT_GE(graph::ToleranceAt(Apply("MatMul", {}, {a, b}), 0), 0.25);
  EXPECT_LT(graph::ToleranceAt(Apply("MatMul", {}, {a, b}), 0), 0.26);
  const RefTensor product = Apply("ReduceProd", {{"axes", std::vector<int64_t>{1}}}, {a});
  EXPECT_GE(graph::ToleranceAt(product, 0), 0.25);
  EXPECT_LT(graph::ToleranceAt(product, 0), 0.26);
}

}  // namespace
}  // namespace whet::ops
