// The trigonometric and hyperbolic functions and their inverses.
#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

struct Function {
  const char* name;
  expr::Intrinsic call;
  double (*value)(double);
  double (*moved)(double x, double y, double e);  // as in UnarySpec
  graph::InputRange range = {};
};

OpRecord Record(const Function& f) {
  return Unary({
      .name = f.name,
      .types = Floats(),
      .te = [f](const OpView& v, const Expr& x) -> Expr { return expr::Call(f.call, x); },
      .value = [f](const OpView& v, double x) -> double { return f.value(x); },
      .moved = [f](const OpView& v, double x, double y, double e) -> double {
        return f.moved(x, y, e);
      },
      .ulp = 8,
      .range = [f](const OpView&, int) { return f.range; },
      .flops_per_element = 20,
  });
}

// How near to 0 a number may be that is within e of x.
double Nearest(double x, double e) { return std::max(std::fabs(x) - e, 0.0); }

// Of sine and cosine, from their slope.
double MovedAngle(double slope, double e) { return std::min(2.0, (std::fabs(slope) + e / 2) * e); }

// By the addition theorem; infinite where a pole may be reached.
double MovedTangent(double x, double y, double e) {
  const double t = std::tan(std::min(e, 0.75)), room = 1 - std::fabs(y) * t;
  return e < 0.75 && room > 0 ? t * (1 + y * y) / room : HUGE_VAL;
}

// The functions with a vertical tangent move most there.
double MovedArcSine(double x, double y, double e) {
  const double most = 2 * std::asin(std::sqrt(std::min(e, 2.0) / 2)), end = std::fabs(x) + e;
  return end < 1 ? std::min(most, e / std::sqrt((1 - end) * (1 + end))) : most;
}

double MovedArcCosineH(double x, double y, double e) {
  const double most = std::log1p(e + std::sqrt(e * (e + 2))), end = x - e;
  return end > 1 ? std::min(most, e / std::sqrt((end - 1) * (end + 1))) : most;
}

double MovedArcTangentH(double x, double e) {
  const double end = std::fabs(x) + e;
  return end < 1 ? std::atanh(e / (1 - std::fabs(x) * end)) : HUGE_VAL;
}

}  // namespace

const OpRecord& OpSin() {
  static const OpRecord op =
      Record({"Sin", expr::Intrinsic::kSin, std::sin,
              [](double x, double y, double e) -> double { return MovedAngle(std::cos(x), e); }});
  return op;
}

const OpRecord& OpCos() {
  static const OpRecord op =
      Record({"Cos", expr::Intrinsic::kCos, std::cos,
              [](double x, double y, double e) -> double { return MovedAngle(std::sin(x), e); }});
  return op;
}

const OpRecord& OpTan() {
  static const OpRecord op = Record({"Tan", expr::Intrinsic::kTan, std::tan, MovedTangent});
  return op;
}

const OpRecord& OpAsin() {
  static const OpRecord op = Record({"Asin", expr::Intrinsic::kAsin, std::asin, MovedArcSine});
  return op;
}

const OpRecord& OpAcos() {
  static const OpRecord op = Record({"Acos", expr::Intrinsic::kAcos, std::acos, MovedArcSine});
  return op;
}

const OpRecord& OpAtan() {
  static const OpRecord op = Record(
      {"Atan", expr::Intrinsic::kAtan, std::atan, [](double x, double y, double e) -> double {
         return e / (1 + Nearest(x, e) * Nearest(x, e));
       }});
  return op;
}

const OpRecord& OpSinh() {
  static const OpRecord op = Record(
      {"Sinh", expr::Intrinsic::kSinh, std::sinh,
       [](double x, double y, double e) -> double { return e * std::cosh(std::fabs(x) + e); }});
  return op;
}

const OpRecord& OpCosh() {
  static const OpRecord op = Record(
      {"Cosh", expr::Intrinsic::kCosh, std::cosh,
       [](double x, double y, double e) -> double { return e * std::sinh(std::fabs(x) + e); }});
  return op;
}

const OpRecord& OpAsinh() {
  static const OpRecord op = Record(
      {"Asinh", expr::Intrinsic::kAsinh, std::asinh,
       [](double x, double y, double e) -> double { return e / std::hypot(1, Nearest(x, e)); }});
  return op;
}

const OpRecord& OpAcosh() {
  static const OpRecord op =
      Record({"Acosh", expr::Intrinsic::kAcosh, std::acosh, MovedArcCosineH, {1.25, 4}});
  return op;
}

const OpRecord& OpAtanh() {
  static const OpRecord op =
      Record({"Atanh", expr::Intrinsic::kAtanh, std::atanh,
              [](double x, double y, double e) -> double { return MovedArcTangentH(x, e); }});
  return op;
}

}  // namespace whet::ops
