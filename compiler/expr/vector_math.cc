#include "compiler/expr/vector_math.h"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace whet::expr {
namespace {

Expr F(double v) { return Float(v, DType::kF32); }
const double kInf = std::numeric_limits<double>::infinity();

// Highest coefficient first.
Expr Horner(const Expr& x, std::initializer_list<double> c) {
  Expr p;
  for (double v : c) p = p ? p * x + F(v) : F(v);
  return p;
}

// x = n ln2 + r, |r| <= ln2/2; exp(x) = 2^n * exp(r).
Expr Exp(const Expr& x0) {
  const double lo = -87.33654, hi = 88.72283;
  const Expr x =
      Min(Max(x0, F(lo)), F(88.37626));  // keeps n in range; what is cut off is selected away below
  const Expr n = Call(Intrinsic::kRound, x * F(1.44269504088896341));
  const Expr r = (x - n * F(0.693359375)) - n * F(-2.12194440e-4);
  const Expr p = Horner(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                            1.6666665459e-1, 5.0000001201e-1});
  const Expr y = (p * (r * r) + r + F(1)) * Call(Intrinsic::kPow2, n);
  // Between 88.376 and the overflow bound the power does not fit: exp(x) = exp(x/2)^2 there.
  const Expr h = x0 * F(0.5);
  const Expr hn = Call(Intrinsic::kRound, Min(Max(h, F(-60)), F(60)) * F(1.44269504088896341));
  const Expr hr = (h - hn * F(0.693359375)) - hn * F(-2.12194440e-4);
  const Expr hp = Horner(hr, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                              1.6666665459e-1, 5.0000001201e-1});
  const Expr half = (hp * (hr * hr) + hr + F(1)) * Call(Intrinsic::kPow2, hn);
  const Expr upper = Select(Lt(F(hi), x0), F(kInf), half * half);
  const Expr in_range = Select(Lt(x0, F(lo)), F(0), y);
  return Select(Lt(F(88.37626), x0), upper, in_range);
}

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log x = e ln2 + log(1 + f).
Expr Log(const Expr& x) {
  const Expr m0 = Call(Intrinsic::kMantissa, x), e0 = Call(Intrinsic::kExponent, x);
  const Expr large = Lt(F(1.41421356237), m0);
  const Expr f = Select(large, m0 * F(0.5), m0) - F(1);
  const Expr e = Select(large, e0 + F(1), e0);
  const Expr p = Horner(
      f, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
          -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  const Expr z = f * f;
  const Expr y = f + (p * f * z + e * F(-2.12194440e-4) - F(0.5) * z) + e * F(0.693359375);
  const Expr zero = Select(Eq(x, F(0)), F(-kInf), F(std::numeric_limits<double>::quiet_NaN()));
  return Select(Lt(F(0), x), Select(Eq(x, F(kInf)), x, y), zero);
}

Expr Tanh(const Expr& x) {
  const Expr a = Call(Intrinsic::kAbs, x), z = x * x;
  const Expr small = Horner(z, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2,
                                1.33314422036e-1, -3.33332819422e-1}) *
                         z * x +
                     x;
  const Expr large = F(1) - F(2) / (Exp(Min(a, F(10)) * F(2)) + F(1));
  return Select(Lt(a, F(0.625)), small, Select(Lt(x, F(0)), F(0) - large, large));
}

Expr Erf(const Expr& x) {
  const Expr a = Call(Intrinsic::kAbs, x), z = x * x;
  const Expr small =
      x * Horner(z, {7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3,
                     -2.685381193529856e-2, 1.128358514861418e-1, -3.761262582423300e-1,
                     1.128379165726710e+0});
  const Expr b = Min(Max(a, F(1)), F(9));
  const Expr q = F(1) / b, y = q * q;
  const Expr near = Horner(y, {2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1,
                               -5.824733027278666e-1, 6.210004621745983e-1, -4.944515323274145e-1,
                               3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1});
  const Expr far = Horner(y, {-1.047766399936249e+1, 1.297719955372516e+1, -7.495518717768503e+0,
                              2.921019019210786e+0, -1.015265279202700e+0, 4.218463358204948e-1,
                              -2.820767439740514e-1, 5.641895067754075e-1});
  const Expr tail = Exp(F(0) - b * b) * q * Select(Lt(b, F(2)), near, far);
  const Expr large = F(1) - tail;
  const Expr signed_large = Select(Lt(x, F(0)), F(0) - large, large);
  return Select(Lt(a, F(1)), small, Select(Le(F(1), a), signed_large, x));  // the last case: NaN
}

Expr Pow(const Expr& x, const Expr& y) {
  if (y->kind == Kind::kFloat) {
    const double v = y->float_value;
    if (v == 2) return x * x;
    if (v == 1) return x;
    if (v == 0) return F(1);
    if (v == 3) return x * x * x;
    if (v == 0.5) return Call(Intrinsic::kSqrt, x);
    if (v == -1) return F(1) / x;
  }
  const Expr magnitude = Exp(y * Log(Call(Intrinsic::kAbs, x)));
  const Expr half = y * F(0.5);
  const Expr is_integer = Eq(Call(Intrinsic::kFloor, y), y);
  const Expr is_odd = And(is_integer, Not(Eq(Call(Intrinsic::kFloor, half), half)));
  const Expr negative =
      Select(is_integer, Select(is_odd, F(0) - magnitude, magnitude),
             Select(Eq(x, F(-kInf)), magnitude, F(std::numeric_limits<double>::quiet_NaN())));
  return Select(Eq(y, F(0)), F(1), Select(Lt(x, F(0)), negative, magnitude));
}

}  // namespace

Expr ExpandMath(const Expr& e) {
  return Rewrite(e, [](const Expr& x) -> Expr {
    if (x->dtype != DType::kF32) return nullptr;
    if (x->kind == Kind::kBinary && x->binary == BinaryOp::kPow)
      return Pow(ExpandMath(x->args[0]), ExpandMath(x->args[1]));
    if (x->kind != Kind::kCall) return nullptr;
    switch (x->call) {
      case Intrinsic::kExp: return Exp(ExpandMath(x->args[0]));
      case Intrinsic::kLog: return Log(ExpandMath(x->args[0]));
      case Intrinsic::kTanh: return Tanh(ExpandMath(x->args[0]));
      case Intrinsic::kErf: return Erf(ExpandMath(x->args[0]));
      default: return nullptr;
    }
  });
}

}  // namespace whet::expr
