#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// A remainder with the sign of `a`, from one with the sign of `b`.
Expr WithSignOfDividend(const Expr& m, const Expr& a, const Expr& b) {
  if (IsUnsigned(a->dtype)) return m;
  const Expr zero = Const(a->dtype, 0);
  const Expr differ = expr::Not(expr::Eq(expr::Lt(a, zero), expr::Lt(b, zero)));
  return expr::Select(expr::And(expr::Not(expr::Eq(m, zero)), differ), m - b, m);
}

// The C library's fmod, computed in f64: exact for an f32 whose quotient is below 2^29. Beyond,
// the product with the quotient is rounded.
Expr FloatMod(const Expr& a0, const Expr& b0) {
  const DType t = DType::kF64;
  auto abs = [](const Expr& x) { return expr::Call(expr::Intrinsic::kAbs, x); };
  const Expr a = abs(expr::Cast(t, a0)), b = abs(expr::Cast(t, b0)), zero = Const(t, 0);
  Expr r = a - expr::Call(expr::Intrinsic::kFloor, a / b) * b;
  // The quotient may have been rounded to the next integer.
  r = expr::Select(expr::Lt(r, zero), r + b, expr::Select(expr::Le(b, r), r - b, r));
  r = expr::Select(expr::Lt(a, b), a, r);  // an infinite divisor too
  r = expr::Cast(a0->dtype, r);
  const Expr minus = Const(a0->dtype, -0.0) - r;
  r = expr::Select(expr::Lt(a0, Const(a0->dtype, 0)), minus, r);
  return expr::Select(expr::Eq(r, a0), a0, r);  // -0 too
}

}  // namespace

// fmod=0: integers, the sign of the divisor; fmod=1: the sign of the dividend. Integers modulo 0
// are 0.
const OpRecord& OpMod() {
  static const OpRecord op = [] {
    OpRecord r = Binary({
        .name = "Mod",
        .types = Numbers(),
        .attrs = {{"fmod", AttrType::kInt, AttrValue(int64_t{0})}},
        .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr {
          if (IsFloat(a->dtype)) return FloatMod(a, b);
          const Expr m = expr::FloorMod(a, b);
          return v.attrs->Int("fmod") != 0 ? WithSignOfDividend(m, a, b) : m;
        },
        .value = [](const OpView& v, double a, double b) -> double {
          if (IsFloat(v.out[0]->dtype)) return std::fmod(a, b);
          if (b == 0) return 0;
          const double m = std::fmod(a, b);
          return v.attrs->Int("fmod") == 0 && m != 0 && (m < 0) != (b < 0) ? m + b : m;
        },
        .err = [](const OpView& v, double a, double ea, double b, double eb, double y) -> double {
          const bool of_floats = IsFloat(v.out[0]->dtype);
          const double own = of_floats ? std::fabs(a) * 0x1.0p-28 : 0;
          if (ea == 0 && eb == 0) return std::isfinite(own) && b != 0 ? own : 0;
          const double nearest = std::fabs(b) - eb * kErrUnit;  // to zero
          if (of_floats && !(nearest > 0)) return eb > 0 ? HUGE_VAL : 0;
          if (std::isinf(b)) return ea;
          // Where the quotient reaches a whole number the remainder jumps.
          const double q = a / b, moved = (ea + std::fabs(q) * eb) * kErrUnit / nearest;
          const bool truncates = v.attrs->Int("fmod") != 0;
          auto whole = [&](double x) { return truncates ? std::trunc(x) : std::floor(x); };
          const bool jumps = !(nearest > 0) || whole(q - moved) != whole(q + moved);
          return own + ea + (jumps ? std::fabs(b) / kErrUnit + eb : std::fabs(q) * eb);
        },
        .ulp = 1,
        .range =
            [](const OpView& v, int input) {
              return input == 1 ? graph::InputRange{1, 8} : graph::InputRange{0, 100};
            },
        .check = [](const OpView& v) -> Status {
          if (IsFloat(v.in[0]->dtype) && v.attrs->Int("fmod") == 0)
            return InvalidArgument("fmod=0 is for integers; {} needs fmod=1",
                                   ToString(v.in[0]->dtype));
          return OkStatus();
        },
    });
    r.note = "fmod of floats: exact while the quotient is below 2^29";
    return r;
  }();
  return op;
}

}  // namespace whet::ops
