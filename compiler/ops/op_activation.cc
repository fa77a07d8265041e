// Activations without a file of their own.
#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Expr ExpOf(const Expr& x) { return expr::Call(expr::Intrinsic::kExp, x); }

// scale * (x > 0 ? x : alpha * (exp(x / divisor) - 1))
Expr ExpUnit(const Expr& x, double alpha, double divisor, double scale) {
  const DType t = x->dtype;
  const Expr zero = Const(t, 0), low = expr::Min(x, zero);
  const Expr y =
      (ExpOf(divisor == 1 ? low : low / Const(t, divisor)) - Const(t, 1)) * Const(t, alpha * scale);
  return expr::Select(expr::Lt(x, zero), y, scale == 1 ? x : x * Const(t, scale));
}

double Attr(const OpView& v, const char* name) { return v.attrs->Float(name); }

double AboveThreshold(const OpView& v, double x) { return x <= Attr(v, "alpha") ? 0 : x; }

double Shrunk(const OpView& v, double x) {
  const double lambd = Attr(v, "lambd"), bias = Attr(v, "bias");
  const double y = x < -lambd ? x + bias : x > lambd ? x - bias : std::isnan(x) ? x : 0;
  return IsFloat(v.in[0]->dtype) ? y : graph::RoundTo(v.in[0]->dtype, y);
}

}  // namespace

const OpRecord& OpCelu() {
  static const OpRecord op = Unary({
      .name = "Celu",
      .types = Floats(),
      .attrs = {{"alpha", AttrType::kFloat, AttrValue(1.0)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return ExpUnit(x, Attr(v, "alpha"), Attr(v, "alpha"), 1);
      },
      .value = [](const OpView& v, double x) -> double {
        return x < 0 ? Attr(v, "alpha") * std::expm1(x / Attr(v, "alpha")) : x;
      },
      // With a negative alpha it grows as fast as the exponential function below zero.
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double alpha = Attr(v, "alpha"), steepest = alpha < 0 ? x - e : x + e;
        return steepest < 0 ? e * std::exp(steepest / alpha) : e;
      },
      .ulp = 2,
      .absolute = [](const OpView& v, double x) -> double {
        const double alpha = Attr(v, "alpha");
        return x < 0 ? 12 * (std::fabs(alpha) - x) * std::max(1.0, std::exp(x / alpha)) : 0;
      },
      .flops_per_element = 12,
  });
  return op;
}

const OpRecord& OpSelu() {
  static const OpRecord op = Unary({
      .name = "Selu",
      .types = Floats(),
      // The constants of the paper, as f32, which is how operator set 6 states them.
      .attrs = {{"alpha", AttrType::kFloat, AttrValue(1.67326319217681884765625)},
                {"gamma", AttrType::kFloat, AttrValue(1.05070102214813232421875)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return ExpUnit(x, Attr(v, "alpha"), 1, Attr(v, "gamma"));
      },
      .value = [](const OpView& v, double x) -> double {
        return Attr(v, "gamma") * (x < 0 ? Attr(v, "alpha") * std::expm1(x) : x);
      },
      .slope = [](const OpView& v, double x, double y) -> double {
        return std::fabs(Attr(v, "gamma")) * std::max(1.0, std::fabs(Attr(v, "alpha")));
      },
      .ulp = 4,
      .absolute =
          [](const OpView& v, double x) {
            return x < 0 ? 12 * std::fabs(Attr(v, "alpha") * Attr(v, "gamma")) : 0;
          },
      .flops_per_element = 12,
  });
  return op;
}

const OpRecord& OpSoftsign() {
  static const OpRecord op = Unary({
      .name = "Softsign",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return x / (Const(x->dtype, 1) + expr::Call(expr::Intrinsic::kAbs, x));
      },
      .value = [](const OpView& v, double x) -> double { return x / (1 + std::fabs(x)); },
      .ulp = 4,
      .flops_per_element = 3,
  });
  return op;
}

const OpRecord& OpThresholdedRelu() {
  static const OpRecord op = Unary({
      .name = "ThresholdedRelu",
      .types = Floats(),
      .attrs = {{"alpha", AttrType::kFloat, AttrValue(1.0)}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        return expr::Select(expr::Le(x, Const(x->dtype, Attr(v, "alpha"))), Const(x->dtype, 0), x);
      },
      .value = [](const OpView& v, double x) -> double { return AboveThreshold(v, x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double alpha = Attr(v, "alpha");
        if (x + e <= alpha) return 0;
        return std::max(
            e, MovedBetween([&](double t) { return AboveThreshold(v, t); }, x, e, {alpha}));
      },
  });
  return op;
}

const OpRecord& OpShrink() {
  static const OpRecord op = Unary({
      .name = "Shrink",
      .types = Numbers(),
      .attrs = {{"bias", AttrType::kFloat, AttrValue(0.0)},
                {"lambd", AttrType::kFloat, AttrValue(0.5)}},
      // Integers are compared and moved as f64, which holds what the attributes are.
      .te = [](const OpView& v, const Expr& in) -> Expr {
        const bool whole = !IsFloat(in->dtype);
        const Expr x = whole ? expr::Cast(DType::kF64, in) : in;
        const DType t = x->dtype;
        const Expr lambd = Const(t, Attr(v, "lambd")), bias = Const(t, Attr(v, "bias"));
        const Expr y = expr::Select(expr::Lt(x, Const(t, -Attr(v, "lambd"))), x + bias,
                                    expr::Select(expr::Lt(lambd, x), x - bias,
                                                 expr::Select(expr::Eq(x, x), Const(t, 0), x)));
        return whole ? expr::Cast(in->dtype, y) : y;
      },
      .value = [](const OpView& v, double x) -> double { return Shrunk(v, x); },
      .moved = [](const OpView& v, double x, double y, double e) -> double {
        const double lambd = Attr(v, "lambd");
        if (std::fabs(x) + e <= lambd) return 0;
        return std::max(
            e, MovedBetween([&](double t) { return Shrunk(v, t); }, x, e, {-lambd, lambd}));
      },
      .ulp = 1,
      .flops_per_element = 3,
  });
  return op;
}

// x * tanh(log(1 + e^x)) = x * n / (n + 2) with n = e^x (e^x + 2); above 20 the quotient is 1.
const OpRecord& OpMish() {
  static const OpRecord op = Unary({
      .name = "Mish",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const DType t = x->dtype;
        const Expr e = ExpOf(expr::Min(x, Const(t, 20))), two = Const(t, 2);
        const Expr n = e * (e + two);
        return x * (n / (n + two));
      },
      .value = [](const OpView& v, double x) -> double {
        const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
        return x * std::tanh(softplus);
      },
      .slope = [](const OpView& v, double x, double y) -> double { return 1.1; },
      .ulp = 12,
      .flops_per_element = 16,
  });
  return op;
}

const OpRecord& OpGelu() {
  static const OpRecord op = Unary({
      .name = "Gelu",
      .types = Floats(),
      .attrs = {{"approximate", AttrType::kString, AttrValue(std::string("none"))}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        const DType t = x->dtype;
        const Expr half = Const(t, 0.5), one = Const(t, 1);
        if (v.attrs->Str("approximate") == "tanh") {
          const Expr inner = Const(t, 0.7978845608028654) * (x + Const(t, 0.044715) * (x * x * x));
          return half * x * (one + expr::Call(expr::Intrinsic::kTanh, inner));
        }
        return half * x *
               (one + expr::Call(expr::Intrinsic::kErf, x * Const(t, 0.7071067811865476)));
      },
      .value = [](const OpView& v, double x) -> double {
        if (v.attrs->Str("approximate") == "tanh")
          return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
      },
      .slope = [](const OpView& v, double x, double y) -> double { return 1.2; },
      .ulp = 4,
      // 1 + erf cancels for negative x.
      .absolute = [](const OpView& v, double x) { return 8 * std::fabs(x); },
      .check = [](const OpView& v) -> Status {
        const std::string& a = v.attrs->Str("approximate");
        if (a != "none" && a != "tanh")
          return InvalidArgument("approximate '{}' is neither none nor tanh", a);
        return OkStatus();
      },
      .flops_per_element = 14,
  });
  return op;
}

}  // namespace whet::ops
