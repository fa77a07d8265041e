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

// x = n ln2 + r with 0 <= r < ln2, so that exp(r) is in [1, 2) and 2^n fits wherever exp(x) does:
// no case needs a second evaluation. For x in [-88, 89], where n is in [-127, 128]: 2^-127 is 0 and
// 2^128 infinity. Adding 1.5 * 2^23 leaves no fraction, which is an instruction less than rounding.
// The polynomial is a minimax one, 1 at 0.
Expr ExpInRange(const Expr& x) {
  const Expr shifter = F(0x1.8p23);
  const Expr n = ((x * F(1.44269504088896341) + F(-0.5)) + shifter) - shifter;
  const Expr r = (x - n * F(0.693359375)) - n * F(-2.12194440e-4);
  const Expr p = Horner(r, {1.94877002e-3, 7.79227261e-3, 4.1914992e-2, 1.66610137e-1,
                            5.00005841e-1, 9.99999821e-1, 1});
  return p * Call(Intrinsic::kPow2, n);
}
Expr Exp(const Expr& x) { return ExpInRange(Min(Max(x, F(-88)), F(89))); }

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
  const Expr large = F(1) - F(2) / (ExpInRange(Min(a, F(10)) * F(2)) + F(1));
  return Select(Lt(a, F(0.625)), Select(Eq(x, F(0)), x, small),
                Select(Lt(x, F(0)), F(0) - large, large));
}

// x Q(x^2) in powers of x^2 - 6.845, the middle of where erf is not yet +-1: Q is a minimax
// polynomial of even degree with a positive leading coefficient, so that beyond |x| = 3.7 the
// product leaves [-1, 1] on the right side, up to infinities, and a clamp is all that is left to
// do.
Expr Erf(const Expr& x) {
  const Expr q =
      Horner(x * x + F(-6.84499979),
             {1.40372682e-15, -2.48987385e-14, 1.55617571e-13, -1.78306751e-12, 3.60856484e-11,
              -4.59793315e-10, 4.83361706e-09, -5.0633254e-08, 5.0626403e-07, -4.69695442e-06,
              4.12396512e-05, -0.000351182447, 0.00300496724, -0.0278258901, 0.382137448});
  return Min(Max(x * q, F(-1)), F(1));
}

// x^y from `power`, which gives a^y of an a that is not negative. 1 is 1 to any power, even NaN; of
// negative numbers only whole powers exist, and an odd one has the sign of x, of a zero too.
Expr PowOf(const Expr& x, const Expr& y, Expr (*power)(const Expr&, const Expr&)) {
  const DType t = x->dtype;
  auto number = [t](double v) { return Float(v, t); };
  const Expr a = Call(Intrinsic::kAbs, x), half = y * number(0.5);
  const Expr magnitude = Select(Eq(a, number(1)), a, power(a, y));
  const Expr is_integer = Eq(Call(Intrinsic::kFloor, y), y);
  const Expr is_odd = And(is_integer, Not(Eq(Call(Intrinsic::kFloor, half), half)));
  const Expr minus = Or(Lt(x, number(0)), Lt(number(1) / x, number(0)));
  const Expr defined = Or(is_integer, Or(Eq(x, number(0)), Eq(a, number(kInf))));
  const Expr negative = Select(defined, Select(is_odd, number(-0.0) - magnitude, magnitude),
                               number(std::numeric_limits<double>::quiet_NaN()));
  const Expr general = Select(minus, negative, magnitude);
  return Select(Or(Eq(y, number(0)), Eq(x, number(1))), number(1), general);
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
  return PowOf(x, y, [](const Expr& a, const Expr& b) { return Exp(b * Log(a)); });
}

// ---- f64. Rational approximations and reductions of Cephes, sine and cosine of fdlibm (Sun 1993).

Expr D(double v) { return Float(v, DType::kF64); }
const double kNan = std::numeric_limits<double>::quiet_NaN();

Expr Horner64(const Expr& x, std::initializer_list<double> c) {
  Expr p;
  for (double v : c) p = p ? p * x + D(v) : D(v);
  return p;
}
// The same with a leading coefficient of 1.
Expr Monic64(const Expr& x, std::initializer_list<double> c) {
  Expr p = D(1);
  for (double v : c) p = p * x + D(v);
  return p;
}
Expr Abs(const Expr& x) { return Call(Intrinsic::kAbs, x); }
Expr Sqrt(const Expr& x) { return Call(Intrinsic::kSqrt, x); }
Expr Negative(const Expr& x) { return D(-0.0) - x; }
// An odd function from its value for |x|: the sign of x, of a zero too.
Expr WithSignOf(const Expr& x, const Expr& magnitude) {
  return Select(Eq(x, D(0)), x, Select(Lt(x, D(0)), Negative(magnitude), magnitude));
}

Expr Exp64(const Expr& x0) {
  const Expr x = Min(Max(x0, D(-746)), D(710));  // there the powers below give 0 and infinity
  const Expr n = Call(Intrinsic::kRound, x * D(1.4426950408889634073599));
  const Expr r = (x - n * D(6.93145751953125e-1)) - n * D(1.42860682030941723212e-6);
  const Expr z = r * r;
  const Expr p = r * Horner64(z, {1.26177193074810590878e-4, 3.02994407707441961300e-2,
                                  9.99999999999999999910e-1});
  const Expr q = Horner64(z, {3.00198505138664455042e-6, 2.52448340349684104192e-3,
                              2.27265548208155028766e-1, 2.00000000000000000009e0});
  const Expr y = D(1) + D(2) * (p / (q - p));
  // 2^n as a product of two powers, either of which fits.
  const Expr n1 = Call(Intrinsic::kRound, n * D(0.5));
  return y * Call(Intrinsic::kPow2, n1) * Call(Intrinsic::kPow2, n - n1);
}

Expr Log64(const Expr& x0) {
  const Expr tiny = Lt(x0, D(0x1.0p-1022));  // mantissa and exponent need a normal number
  const Expr x = Select(tiny, x0 * D(0x1.0p54), x0);
  const Expr m0 = Call(Intrinsic::kMantissa, x);
  const Expr e0 = Call(Intrinsic::kExponent, x) - Select(tiny, D(54), D(0));
  const Expr large = Lt(D(1.41421356237309504880), m0);
  const Expr f = Select(large, m0 * D(0.5), m0) - D(1);
  const Expr e = Select(large, e0 + D(1), e0);
  const Expr z = f * f;
  const Expr p =
      Horner64(f, {1.01875663804580931796e-4, 4.97494994976747001425e-1, 4.70579119878881725854e0,
                   1.44989225341610930846e1, 1.79368678507819816313e1, 7.70838733755885391666e0});
  const Expr q =
      Monic64(f, {1.12873587189167450590e1, 4.52279145837532221105e1, 8.29875266912776603211e1,
                  7.11544750618563894466e1, 2.31251620126765340583e1});
  const Expr y = f * (z * p / q) - e * D(2.121944400546905827679e-4) - D(0.5) * z;
  const Expr r = (f + y) + e * D(0.693359375);
  const Expr other = Select(Eq(x0, D(0)), D(-kInf), D(kNan));
  return Select(Lt(D(0), x0), Select(Eq(x0, D(kInf)), x0, r), other);
}

Expr Tanh64(const Expr& x) {
  const Expr a = Abs(x), z = x * x;
  const Expr p = Horner64(
      z, {-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3});
  const Expr q =
      Monic64(z, {1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3});
  const Expr large = D(1) - D(2) / (Exp64(Min(a, D(20)) * D(2)) + D(1));
  const Expr small = Select(Eq(x, D(0)), x, x + x * z * (p / q));
  return Select(Lt(a, D(0.625)), small, Select(Lt(x, D(0)), Negative(large), large));
}

Expr Erf64(const Expr& x) {
  const Expr a = Abs(x), z = x * x;
  const Expr t =
      Horner64(z, {9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
                   7.00332514112805075473e3, 5.55923013010394962768e4});
  const Expr u =
      Monic64(z, {3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3,
                  2.26290000613890934246e4, 4.92673942608635921086e4});
  const Expr b = Min(Max(a, D(1)), D(7));  // erf(7) is 1
  const Expr p =
      Horner64(b, {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
                   4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
                   9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2});
  const Expr q =
      Monic64(b, {1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
                  9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
                  1.65666309194161350182e3, 5.57535340817727675546e2});
  const Expr large = D(1) - Exp64(Negative(b * b)) * p / q;
  return Select(Lt(a, D(1)), x * t / u,
                Select(Le(D(1), a), Select(Lt(x, D(0)), Negative(large), large), x));
}

// x = q (pi/2) + r with |r| <= pi/4 (a little more where the quotient was rounded).
struct Reduced {
  Expr quadrant;  // of a full turn: 0, 1, 2 or 3
  Expr r;
};

// Cody and Waite: pi/2 in parts of 22 bits, whose products with the quotient are exact up to 2^31.
Reduced ReduceByParts(const Expr& x) {
  const Expr n = Call(Intrinsic::kRound, x * D(0.63661977236758134308));
  Expr r = x;
  for (double part :
       {0x1.921fb0p+0, 0x1.5110b0p-22, 0x1.184698p-44, 0x1.3198a0p-69, 0x1.701b80p-92})
    r = r - n * D(part);
  const Expr quadrant = n - D(4) * Call(Intrinsic::kFloor, n * D(0.25));
  return {quadrant, Min(Max(r, D(-0.8)), D(0.8))};
}

// Payne and Hanek, for an f32 of at least 2^31: x = m 2^k with a 32-bit integer m, and
// x / (2 pi) = m (2^k / (2 pi)), of which only bits k to k + 95 after the binary point of 1 / (2
// pi) are neither multiples of a turn nor too small to matter.
Reduced ReduceLarge(const Expr& x) {
  const DType t = DType::kU64;
  const Expr a = Abs(x);
  const Expr m = Cast(t, Call(Intrinsic::kMantissa, a) * D(0x1.0p31));
  const Expr k = Cast(t, Min(Max(Call(Intrinsic::kExponent, a) - D(31), D(0)), D(96)));
  auto shl = [](const Expr& v, const Expr& by) { return Binary(BinaryOp::kShl, v, by); };
  auto shr = [](const Expr& v, const Expr& by) { return Binary(BinaryOp::kShr, v, by); };
  auto mask = [](const Expr& v, int64_t bits) {
    return Binary(BinaryOp::kBitAnd, v, Int(bits, DType::kU64));
  };
  const int64_t low32 = 0xffffffff;
  static constexpr int64_t kTurn[] = {0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770,
                                      0x36d8a566, 0x4f10e410, 0x7f9458ea};
  const Expr first = shr(k, Int(5, t)), bit = mask(k, 31);
  auto word = [&](int j) {
    Expr w = Int(kTurn[j + 3], t);
    for (int i : {2, 1, 0}) w = Select(Eq(first, Int(i, t)), Int(kTurn[j + i], t), w);
    return w;
  };
  auto window = [&](int j) {  // 32 bits from bit k + 32 j on
    const Expr pair = Binary(BinaryOp::kBitOr, shl(word(j), Int(32, t)), word(j + 1));
    return mask(shr(pair, Int(32, t) - bit), low32);
  };
  const Expr turns =  // in units of 2^-64
      shl(m * window(0), Int(32, t)) + m * window(1) + shr(m * window(2), Int(32, t));
  const Expr quadrant = shr(turns + Int(int64_t{1} << 61, t), Int(62, t));
  const Expr rest = Cast(DType::kI64, turns - shl(quadrant, Int(62, t)));
  const Expr r = Cast(DType::kF64, rest) * D(0x1.921fb54442d18p-62);
  const Expr q = Cast(DType::kF64, quadrant);
  const Expr minus = Lt(x, D(0));
  return {Select(And(minus, Lt(D(0), q)), D(4) - q, q), Select(minus, Negative(r), r)};
}

// `x` is an f64; `single`: one that came from an f32.
Reduced Reduce(const Expr& x, bool single) {
  const Reduced small = ReduceByParts(x);
  if (!single) return small;
  const Reduced large = ReduceLarge(x);
  const Expr is_large = And(Le(D(0x1.0p31), Abs(x)), Lt(Abs(x), D(kInf)));
  return {Select(is_large, large.quadrant, small.quadrant), Select(is_large, large.r, small.r)};
}

Expr SinOfReduced(const Expr& r) {
  const Expr z = r * r;
  return r + r * z *
                 Horner64(z, {1.58969099521155010221e-10, -2.50507602534068634195e-08,
                              2.75573137070700676789e-06, -1.98412698298579493134e-04,
                              8.33333333332248946124e-03, -1.66666666666666324348e-01});
}

Expr CosOfReduced(const Expr& r) {
  const Expr z = r * r, half = D(0.5) * z, w = D(1) - half;
  const Expr p = Horner64(
      z, {-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
          2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02});
  return w + (((D(1) - w) - half) + z * z * p);
}

// The sine of `turned` quadrants more.
Expr Sine(const Expr& x, bool single, int turned) {
  const Reduced v = Reduce(x, single);
  const Expr shifted = v.quadrant + D(turned);
  const Expr q = Select(Le(D(4), shifted), shifted - D(4), shifted);
  const Expr odd = Or(Eq(q, D(1)), Eq(q, D(3)));
  const Expr y = Select(odd, CosOfReduced(v.r), SinOfReduced(v.r));
  const Expr signed_y = Select(Le(D(2), q), Negative(y), y);
  return turned == 0 ? Select(Eq(x, D(0)), x, signed_y) : signed_y;
}

Expr Tangent(const Expr& x, bool single) {
  const Reduced v = Reduce(x, single);
  const Expr odd = Or(Eq(v.quadrant, D(1)), Eq(v.quadrant, D(3)));
  const Expr s = SinOfReduced(v.r), c = CosOfReduced(v.r);
  return Select(Eq(x, D(0)), x, Select(odd, Negative(c), s) / Select(odd, s, c));
}

constexpr double kHalfPiHigh = 1.57079632679489655800e+00, kHalfPiLow = 6.12323399573676603587e-17;

// (asin(sqrt(z)) / sqrt(z) - 1) for z in [0, 1/4].
Expr AsinSeries(const Expr& z) {
  const Expr p = z * Horner64(z, {3.47933107596021167570e-05, 7.91534994289814532176e-04,
                                  -4.00555345006794114027e-02, 2.01212532134862925881e-01,
                                  -3.25565818622400915405e-01, 1.66666666666666657415e-01});
  const Expr q = Horner64(z, {7.70381505559019352791e-02, -6.88283971605453293030e-01,
                              2.02094576023350569471e+00, -2.40339491173441421878e+00, 1.0});
  return p / q;
}

Expr Asin64(const Expr& x) {
  const Expr a = Abs(x), z = (D(1) - a) * D(0.5), s = Sqrt(z);
  const Expr large = D(kHalfPiHigh) - (D(2) * (s + s * AsinSeries(z)) - D(kHalfPiLow));
  return Select(Lt(a, D(0.5)), x + x * AsinSeries(x * x), WithSignOf(x, large));
}

Expr Acos64(const Expr& x) {
  const Expr a = Abs(x), z = (D(1) - a) * D(0.5), s = Sqrt(z);
  const Expr t = s + s * AsinSeries(z);
  const Expr small = D(kHalfPiHigh) - (x - (D(kHalfPiLow) - x * AsinSeries(x * x)));
  const Expr below = D(2 * kHalfPiHigh) - D(2) * (t - D(kHalfPiLow));
  return Select(Lt(a, D(0.5)), small, Select(Lt(x, D(0)), below, D(2) * t));
}

Expr Atan64(const Expr& x) {
  const Expr a = Abs(x);
  const Expr high = Lt(D(2.41421356237309504880), a), middle = Lt(D(0.66), a);
  const Expr t = Select(high, D(-1) / a, Select(middle, (a - D(1)) / (a + D(1)), a));
  const Expr z = t * t;
  const Expr p = Horner64(
      z, {-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
          -1.228866684490136173410e2, -6.485021904942025371773e1});
  const Expr q =
      Monic64(z, {2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                  4.853903996359136964868e2, 1.945506571482613964425e2});
  const Expr y = t * (z * p / q) + t;
  auto plus = [&](double share) { return D(share * kHalfPiHigh) + (y + D(share * kHalfPiLow)); };
  return WithSignOf(x, Select(high, plus(1), Select(middle, plus(0.5), y)));
}

// e^|x| / 2 as a product, so that it overflows no sooner than the result; and what e^-|x| / 2 is.
std::pair<Expr, Expr> HalfExps(const Expr& x) {
  const Expr t = Exp64(Abs(x) * D(0.5));
  const Expr e = (D(0.5) * t) * t;
  return {e, D(0.25) / e};
}

Expr Sinh64(const Expr& x) {
  const Expr z = x * x;
  const Expr p = Horner64(z, {-7.89474443963537015605e-1, -1.63725857525983828727e2,
                              -1.15614435765005216044e4, -3.51754964808151394800e5});
  const Expr q =
      Monic64(z, {-2.77711081420602794433e2, 3.61578279834431989373e4, -2.11052978884890840399e6});
  const auto [up, down] = HalfExps(x);
  return Select(Lt(Abs(x), D(1)), x + x * z * (p / q), WithSignOf(x, up - down));
}

Expr Cosh64(const Expr& x) {
  const auto [up, down] = HalfExps(x);
  return up + down;
}

constexpr double kLn2 = 0.69314718055994530942;

Expr Asinh64(const Expr& x) {
  const Expr a = Abs(x), z = x * x;
  const Expr p = z * Horner64(z, {-4.33231683752342103572e-3, -5.91750212056387121207e-1,
                                  -4.37390226194356683570e0, -9.09030533308377316566e0,
                                  -5.56682227230859640450e0});
  const Expr q = Monic64(z, {1.28757002067426453537e1, 4.86042483805291788324e1,
                             6.95722521337257608734e1, 3.34009336338516356383e1});
  const Expr huge = Lt(D(1e8), a);
  const Expr log = Log64(Select(huge, a, a + Sqrt(z + D(1))));
  const Expr small = Select(Eq(x, D(0)), x, x * (p / q) + x);
  return Select(Lt(a, D(0.5)), small, WithSignOf(x, Select(huge, log + D(kLn2), log)));
}

Expr Acosh64(const Expr& x) {
  const Expr z = x - D(1);
  const Expr p =
      Horner64(z, {1.18801130533544501356e2, 3.94726656571334401102e3, 3.43989375926195455866e4,
                   1.08102874834699867335e5, 1.10855947270161294369e5});
  const Expr q =
      Monic64(z, {1.86145380837903397292e2, 4.15352677227719831579e3, 2.97683430363289370382e4,
                  8.29725251988426222434e4, 7.83869920495893927727e4});
  const Expr huge = Lt(D(1e8), x);
  const Expr log = Log64(Select(huge, x, x + Sqrt(z * (x + D(1)))));
  return Select(Lt(z, D(0.5)), Sqrt(z) * (p / q), Select(huge, log + D(kLn2), log));
}

Expr Atanh64(const Expr& x) {
  const Expr z = x * x;
  const Expr p =
      Horner64(z, {-8.54074331929669305196e-1, 1.20426861384072379242e1, -4.61252884198732692637e1,
                   6.54566728676544377376e1, -3.09092539379866942570e1});
  const Expr q =
      Monic64(z, {-1.95638849376911654834e1, 1.08938092147140262656e2, -2.49839401325893582852e2,
                  2.52006675691344555838e2, -9.27277618139601130017e1});
  return Select(Lt(Abs(x), D(0.5)), x + x * z * (p / q), D(0.5) * Log64((D(1) + x) / (D(1) - x)));
}

Expr Pow64(const Expr& x, const Expr& y) {
  if (y->kind == Kind::kFloat) {
    const double v = y->float_value;
    if (v == 2) return x * x;
    if (v == 1) return x;
    if (v == 0) return D(1);
    if (v == 3) return x * x * x;
    if (v == 0.5) return Sqrt(x);
    if (v == -1) return D(1) / x;
  }
  return PowOf(x, y, [](const Expr& a, const Expr& b) { return Exp64(b * Log64(a)); });
}

// Null where the call is no function to expand. `single`: x came from an f32.
Expr Function64(Intrinsic f, const Expr& x, bool single) {
  switch (f) {
    case Intrinsic::kExp: return Exp64(x);
    case Intrinsic::kLog: return Log64(x);
    case Intrinsic::kTanh: return Tanh64(x);
    case Intrinsic::kErf: return Erf64(x);
    case Intrinsic::kSin: return Sine(x, single, 0);
    case Intrinsic::kCos: return Sine(x, single, 1);
    case Intrinsic::kTan: return Tangent(x, single);
    case Intrinsic::kAsin: return Asin64(x);
    case Intrinsic::kAcos: return Acos64(x);
    case Intrinsic::kAtan: return Atan64(x);
    case Intrinsic::kSinh: return Sinh64(x);
    case Intrinsic::kCosh: return Cosh64(x);
    case Intrinsic::kAsinh: return Asinh64(x);
    case Intrinsic::kAcosh: return Acosh64(x);
    case Intrinsic::kAtanh: return Atanh64(x);
    default: return nullptr;
  }
}

Expr Function32(Intrinsic f, const Expr& x) {
  switch (f) {
    case Intrinsic::kExp: return Exp(x);
    case Intrinsic::kLog: return Log(x);
    case Intrinsic::kTanh: return Tanh(x);
    case Intrinsic::kErf: return Erf(x);
    default: break;
  }
  // Rare in networks: accuracy is worth more than the wider vectors.
  const Expr y = Function64(f, Cast(DType::kF64, x), true);
  return y ? Cast(DType::kF32, y) : nullptr;
}

}  // namespace

Expr ExpandMath(const Expr& e) {
  return Rewrite(e, [](const Expr& x) -> Expr {
    const bool pow = x->kind == Kind::kBinary && x->binary == BinaryOp::kPow;
    if ((!pow && x->kind != Kind::kCall) || !IsFloat(x->dtype)) return nullptr;
    const DType t = x->dtype;
    std::vector<Expr> args;
    for (const Expr& a : x->args) {
      const Expr expanded = ExpandMath(a);
      args.push_back(IsHalf(t) ? Cast(DType::kF32, expanded) : expanded);
    }
    const bool wide = t == DType::kF64;
    const Expr y =
        pow ? (wide ? Pow64(args[0], args[1]) : Pow(args[0], args[1]))
            : (wide ? Function64(x->call, args[0], false) : Function32(x->call, args[0]));
    if (y) return Cast(t, y);
    // A function of the machine: only what is inside it is expanded.
    return x->args[0] == args[0] || IsHalf(t) ? nullptr : Call(x->call, args[0]);
  });
}

}  // namespace whet::expr
