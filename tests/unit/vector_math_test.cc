// The vector functions, compiled, against the C library's double versions: the ulp bounds that
// vector_math.h publishes.
#include <gtest/gtest.h>

#include <bit>
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

loop::Memory ApplyAs(DType t, expr::Expr (*call)(const expr::Expr&), const std::vector<double>& x) {
  const auto n = static_cast<int64_t>(x.size());
  te::Builder b;
  auto in = b.Input("x", t, {n}, false);
  auto out = b.Compute("out", t, {{"i", n}},
                       [&](const std::vector<expr::Expr>& i) { return call(expr::Load(in, i)); });
  const auto id = expr::IndexMap::Identity(1);
  auto p = loop::FromTe("f", b.Finish({out}), {id}, {id});
  EXPECT_TRUE(p.ok());
  schedule::Space space(*p, Target::Host());
  auto s = space.Apply(space.Default());
  EXPECT_TRUE(s.ok()) << s.status();
  return testing_support::CompiledOutputs(s->program(), Target::Host(), {{"x", x}});
}

std::vector<float> Apply(const Function& f, const std::vector<double>& x) {
  const std::vector<double> y = ApplyAs(DType::kF32, f.call, x)["out"];
  return {y.begin(), y.end()};
}

#define WHET_CALL(name) [](const expr::Expr& x) { return expr::Call(expr::Intrinsic::name, x); }

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
    {"sin", WHET_CALL(kSin), std::sin, -50, 50, 1},
    {"cos", WHET_CALL(kCos), std::cos, -50, 50, 1},
    {"tan", WHET_CALL(kTan), std::tan, -50, 50, 1},
    {"large sin", WHET_CALL(kSin), std::sin, -1e30, 1e30, 1},
    {"large cos", WHET_CALL(kCos), std::cos, -1e12, 1e12, 1},
    {"large tan", WHET_CALL(kTan), std::tan, -3e38, 3e38, 1},
    {"asin", WHET_CALL(kAsin), std::asin, -1, 1, 1},
    {"acos", WHET_CALL(kAcos), std::acos, -1, 1, 1},
    {"atan", WHET_CALL(kAtan), std::atan, -20, 20, 1},
    {"sinh", WHET_CALL(kSinh), std::sinh, -89, 89, 1},
    {"cosh", WHET_CALL(kCosh), std::cosh, -89, 89, 1},
    {"asinh", WHET_CALL(kAsinh), std::asinh, -1e5, 1e5, 1},
    {"acosh", WHET_CALL(kAcosh), std::acosh, 1, 1e5, 1},
    {"atanh", WHET_CALL(kAtanh), std::atanh, -1, 1, 1},
};

// The same in f64, against the C library's long double versions.
struct Function64 {
  const char* name;
  expr::Expr (*call)(const expr::Expr&);
  long double (*exact)(long double);
  double lo, hi, ulps;
};

const Function64 kFunctions64[] = {
    {"exp", WHET_CALL(kExp), std::exp, -708, 709.7, 2},
    {"log", WHET_CALL(kLog), std::log, 1e-300, 50, 2},
    {"log near 1", WHET_CALL(kLog), std::log, 0.5, 2, 2},
    {"tanh", WHET_CALL(kTanh), std::tanh, -22, 22, 4},
    {"erf", WHET_CALL(kErf), std::erf, -7, 7, 4},
    {"sin", WHET_CALL(kSin), std::sin, -50, 50, 3},
    {"cos", WHET_CALL(kCos), std::cos, -50, 50, 3},
    {"tan", WHET_CALL(kTan), std::tan, -50, 50, 4},
    {"large sin", WHET_CALL(kSin), std::sin, -2e9, 2e9, 3},
    {"large cos", WHET_CALL(kCos), std::cos, -2e9, 2e9, 3},
    {"asin", WHET_CALL(kAsin), std::asin, -1, 1, 2},
    {"acos", WHET_CALL(kAcos), std::acos, -1, 1, 2},
    {"atan", WHET_CALL(kAtan), std::atan, -20, 20, 2},
    {"sinh", WHET_CALL(kSinh), std::sinh, -710, 710, 5},
    {"small sinh", WHET_CALL(kSinh), std::sinh, -3, 3, 5},
    {"cosh", WHET_CALL(kCosh), std::cosh, -710, 710, 4},
    {"asinh", WHET_CALL(kAsinh), std::asinh, -9, 9, 4},
    {"large asinh", WHET_CALL(kAsinh), std::asinh, -1e200, 1e200, 4},
    {"acosh", WHET_CALL(kAcosh), std::acosh, 1, 9, 4},
    {"atanh", WHET_CALL(kAtanh), std::atanh, -1, 1, 2},
    {"pow1.7",
     [](const expr::Expr& x) {
       return expr::Binary(expr::BinaryOp::kPow, x, expr::Float(1.7, DType::kF64));
     },
     [](long double x) { return std::pow(x, static_cast<long double>(1.7)); }, 0.1, 30, 20},
};

TEST(VectorMathTest, DoublesStayWithinThePublishedBounds) {
  for (const Function64& f : kFunctions64) {
    std::vector<double> x = {f.lo, f.hi};
    Rng rng(3);
    for (int i = 0; i < 20000; ++i) x.push_back(f.lo + rng.Uniform() * (f.hi - f.lo));
    const std::vector<double> y = ApplyAs(DType::kF64, f.call, x)["out"];
    ASSERT_EQ(y.size(), x.size());
    double worst = 0, at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = f.exact(x[i]);
      const double nearest = std::fabs(static_cast<double>(exact));
      if (y[i] == static_cast<double>(exact)) continue;
      const double ulp = std::nextafter(nearest, INFINITY) - nearest;
      const double ulps = static_cast<double>(std::fabs(y[i] - exact)) / ulp;
      if (!(ulps <= worst)) worst = ulps, at = x[i];
    }
    EXPECT_LE(worst, f.ulps) << f.name << " at " << at;
  }
}

TEST(VectorMathTest, SpecialValuesOfDoublesAreTheCLibrarys) {
  const std::vector<double> x = {0,      -0.0,      1,      -1,      INFINITY, -INFINITY, NAN,
                                 5e-324, 0x1p-1040, 0x1p30, -0x1p30, 709.78,   709.79,    -744,
                                 -746,   0.625,     -0.625, 1.5,     -1.5,     0x1p1000,  2};
  for (const Function64& f : kFunctions64) {
    const std::vector<double> y = ApplyAs(DType::kF64, f.call, x)["out"];
    for (size_t i = 0; i < x.size(); ++i) {
      const bool angle = std::string_view(f.name).ends_with("sin") ||
                         std::string_view(f.name).ends_with("cos") ||
                         std::string_view(f.name).ends_with("tan");
      if (angle && f.hi > 1 && std::isfinite(x[i]) && std::fabs(x[i]) > 0x1p31) {
        EXPECT_TRUE(std::isfinite(y[i])) << f.name << " of " << x[i];
        continue;
      }
      const auto exact = static_cast<double>(f.exact(x[i]));
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(y[i])) << f.name << " of " << x[i] << " is " << y[i];
      } else if (std::isinf(exact) || exact == 0) {
        EXPECT_EQ(y[i], exact) << f.name << " of " << x[i];
        EXPECT_EQ(std::signbit(y[i]), std::signbit(exact)) << f.name << " of " << x[i];
      } else {
        EXPECT_NEAR(y[i], exact, 1e-14 * std::fabs(exact) + 1e-320) << f.name << " of " << x[i];
      }
    }
  }
}

TEST(VectorMathTest, PowersOfSpecialValuesAreTheCLibrarys) {
  const std::vector<double> corners = {0,   -0.0, 1, -1, 0.5,      -0.5,      2,  -2,
                                       2.5, -2.5, 3, -3, INFINITY, -INFINITY, NAN};
  std::vector<double> x, y;
  for (double a : corners) {
    for (double b : corners) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  const auto n = static_cast<int64_t>(x.size());
  for (DType t : {DType::kF32, DType::kF64}) {
    for (const Target& target : {Target::Host(), Target()}) {
      te::Builder b;
      const auto base = b.Input("x", t, {n}, false), power = b.Input("y", t, {n}, false);
      const auto out = b.Compute("out", t, {{"i", n}}, [&](const std::vector<expr::Expr>& i) {
        return expr::Binary(expr::BinaryOp::kPow, expr::Load(base, i), expr::Load(power, i));
      });
      const auto id = expr::IndexMap::Identity(1);
      auto p = loop::FromTe("f", b.Finish({out}), {id, id}, {id});
      ASSERT_TRUE(p.ok()) << p.status();
      const schedule::Space space(*p, target);
      auto s = space.Apply(space.Default());
      ASSERT_TRUE(s.ok()) << s.status();
      const std::vector<double> z =
          testing_support::CompiledOutputs(s->program(), target, {{"x", x}, {"y", y}})["out"];
      ASSERT_EQ(z.size(), x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = std::pow(x[i], y[i]);
        const std::string where = fmt::format("{}^{} is {}, not {}", x[i], y[i], z[i], want);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(z[i])) << where;
        } else if (std::isinf(want) || want == 0) {
          EXPECT_TRUE(z[i] == want && std::signbit(z[i]) == std::signbit(want)) << where;
        } else {
          EXPECT_NEAR(z[i], want, 1e-6 * std::fabs(want)) << where;
        }
      }
    }
  }
}

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

// Every 1009th f32, normal or not, of either sign: what random numbers of a range leave out.
// Results below 2^-126 may be 0.
TEST(VectorMathTest, AllOfF32StaysWithinThePublishedBounds) {
  std::vector<double> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1009)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const Function& f : kFunctions) {
    const std::string_view name = f.name;
    const bool own = name == "exp" || name == "erf" || name == "tanh" || name == "log";
    if (!own) continue;
    const std::vector<float> y = Apply(f, x);
    double worst = 0, at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(x[i]);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(y[i])) << name << " of " << x[i] << " is " << y[i];
        continue;
      }
      const auto nearest = static_cast<float>(exact);
      if (std::fabs(exact) < 0x1p-126 && std::fabs(y[i]) <= 0x1p-126) continue;
      if (std::isinf(nearest)) {
        ASSERT_EQ(y[i], nearest) << name << " of " << x[i];
        continue;
      }
      if (name == "log" && x[i] < 0x1p-126) continue;  // read as a normal number
      const double ulps = std::fabs(y[i] - exact) / Ulp(exact);
      if (!(ulps <= worst)) worst = ulps, at = x[i];
    }
    EXPECT_LE(worst, f.ulps) << name << " at " << at;
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
