// The trigonometric and hyperbolic functions and their inverses.
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

struct Function {
  const char* name;
  expr::Intrinsic call;
  double (*value)(double);
  double (*slope)(double x, double y);  // of y = f(x)
  graph::InputRange range = {};
};

OpRecord Record(const Function& f) {
  return Unary({
      .name = f.name,
      .types = Floats(),
      .te = [f](const OpView& v, const Expr& x) -> Expr { return expr::Call(f.call, x); },
      .value = [f](const OpView& v, double x) -> double { return f.value(x); },
      .slope = [f](const OpView& v, double x, double y) -> double {
        return std::fabs(f.slope(x, y));
      },
      .ulp = 8,
      .range = [f](const OpView&, int) { return f.range; },
      .flops_per_element = 20,
  });
}

}  // namespace

const OpRecord& OpSin() {
  static const OpRecord op = Record({"Sin", expr::Intrinsic::kSin, std::sin,
                                     [](double x, double y) -> double { return std::cos(x); }});
  return op;
}

const OpRecord& OpCos() {
  static const OpRecord op = Record({"Cos", expr::Intrinsic::kCos, std::cos,
                                     [](double x, double y) -> double { return std::sin(x); }});
  return op;
}

const OpRecord& OpTan() {
  static const OpRecord op = Record({"Tan", expr::Intrinsic::kTan, std::tan,
                                     [](double x, double y) -> double { return 1 + y * y; }});
  return op;
}

const OpRecord& OpAsin() {
  static const OpRecord op =
      Record({"Asin", expr::Intrinsic::kAsin, std::asin,
              [](double x, double y) -> double { return 1 / std::sqrt(1 - x * x); }});
  return op;
}

const OpRecord& OpAcos() {
  static const OpRecord op =
      Record({"Acos", expr::Intrinsic::kAcos, std::acos,
              [](double x, double y) -> double { return 1 / std::sqrt(1 - x * x); }});
  return op;
}

const OpRecord& OpAtan() {
  static const OpRecord op = Record({"Atan", expr::Intrinsic::kAtan, std::atan,
                                     [](double x, double y) -> double { return 1 / (1 + x * x); }});
  return op;
}

const OpRecord& OpSinh() {
  static const OpRecord op = Record({"Sinh", expr::Intrinsic::kSinh, std::sinh,
                                     [](double x, double y) -> double { return std::cosh(x); }});
  return op;
}

const OpRecord& OpCosh() {
  static const OpRecord op = Record({"Cosh", expr::Intrinsic::kCosh, std::cosh,
                                     [](double x, double y) -> double { return std::sinh(x); }});
  return op;
}

const OpRecord& OpAsinh() {
  static const OpRecord op =
      Record({"Asinh", expr::Intrinsic::kAsinh, std::asinh,
              [](double x, double y) -> double { return 1 / std::sqrt(1 + x * x); }});
  return op;
}

const OpRecord& OpAcosh() {
  static const OpRecord op =
      Record({"Acosh",
              expr::Intrinsic::kAcosh,
              std::acosh,
              [](double x, double y) -> double { return 1 / std::sqrt(x * x - 1); },
              {1.25, 4}});
  return op;
}

const OpRecord& OpAtanh() {
  static const OpRecord op = Record({"Atanh", expr::Intrinsic::kAtanh, std::atanh,
                                     [](double x, double y) -> double { return 1 / (1 - x * x); }});
  return op;
}

}  // namespace whet::ops
