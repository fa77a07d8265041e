// The vector functions, compiled, against the C library's double versions: the ulp bounds that
// vector_math.h publishes.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/schedule/space.h"
#include "tests/unit/run_program.h"

namespace whet {
namespace {

struct Function {
  const char* name;
  expr::Expr (*call)(const expr::Expr&);
  double (*exact)(double);
  double lo, hi, ulps;
};

double Ulp(double exact) {
  const float f = std::fabs(static_cast<float>(exact));
  return std::max(static_cast<double>(std::nextafter(f, INFINITY)) - f, std::ldexp(1.0, -149));
}

std::vector<float> Apply(const Function& f, const std::vector<double>& x) {
  const auto n = static_cast<int64_t>(x.size());
  te::Builder b;
  auto in = b.Input("x", DType::kF32, {n}, false);
  auto out = b.Compute("out", DType::kF32, {{"i", n}},
                       [&](const std::vector<expr::Expr>& i) { return f.call(expr::Load(in, i)); });
  const auto id = expr::IndexMap::Identity(1);
  auto p = loop::FromTe("f", b.Finish({out}), {id}, {id});
  EXPECT_TRUE(p.ok());
  schedule::Space space(*p, Target::Host());
  auto s = space.Apply(space.Default());
  EXPECT_TRUE(s.ok()) << s.status();
  return testing_support::Compiled(s->program(), Target::Host(), {{"x", x}});
}

const Function kFunctions[] = {
    {"exp", [](const expr::Expr& x) { return expr::Call(expr::Intrinsic::kExp, x); }, std::exp, -87,
     88.7, 2},
    {"log", [](const expr::Expr& x) { return expr::Call(expr::Intrinsic::kLog, x); }, std::log,
     1e-30, 50, 2},
    {"tanh", [](const expr::Expr& x) { return expr::Call(expr::Intrinsic::kTanh, x); }, std::tanh,
     -12, 12, 3},
    {"erf", [](const expr::Expr& x) { return expr::Call(expr::Intrinsic::kErf, x); }, std::erf, -5,
     5, 4},
    {"pow1.7",
     [](const expr::Expr& x) { return expr::Binary(expr::BinaryOp::kPow, x, expr::Float(1.7)); },
     [](double x) { return std::pow(x, static_cast<double>(1.7f)); }, 0.1, 30, 20},
    {"pow2",
     [](const expr::Expr& x) { return expr::Binary(expr::BinaryOp::kPow, x, expr::Float(2)); },
     [](double x) { return x * x; }, -30, 30, 1},
};

TEST(VectorMathTest, StaysWithinThePublishedBounds) {
  for (const Function& f : kFunctions) {
    std::vector<double> x;
    Rng rng(3);
    for (int i = 0; i < 20000; ++i)
      x.push_back(static_cast<float>(f.lo + rng.Uniform() * (f.hi - f.lo)));
    const std::vector<float> y = Apply(f, x);
    ASSERT_EQ(y.size(), x.size());
    double worst = 0, at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(x[i]), ulps = std::fabs(y[i] - exact) / Ulp(exact);
      if (ulps > worst) worst = ulps, at = x[i];
    }
    EXPECT_LE(worst, f.ulps) << f.name << " at " << at;
  }
}

TEST(VectorMathTest, SpecialValuesAreTheCLibrarys) {
  const std::vector<double> x = {0,        -0.0,     1,     -1,   INFINITY, -INFINITY, NAN, 0x1p100,
                                 -0x1p100, 88.71875, 88.75, -104, 0.625,    -0.625,    1.0};
  for (const Function& f : kFunctions) {
    const std::vector<float> y = Apply(f, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(x[i]);
      const float want = static_cast<float>(exact);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(y[i])) << f.name << " of " << x[i] << " is " << y[i];
      } else if (std::isinf(want)) {
        EXPECT_EQ(y[i], want) << f.name << " of " << x[i];
      } else {
        EXPECT_NEAR(y[i], exact, 20 * Ulp(exact) + 1e-37) << f.name << " of " << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace whet
