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
  EXPECT_EQ(graph::ToleranceAt(y, 2), 0);
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

}  // namespace
}  // namespace whet::ops
