#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

bool IsInteger(DType t) { return !IsFloat(t) && t != DType::kBool; }

// Integers to the power of floats: by squaring where the exponent is a whole number, so that the
// result is exact, else what the f64 function gives, towards zero.
Status ImportPowOfInteger(ImportContext& c) {
  const Attrs to_base{{"to", std::string(ToString(c.type(0).dtype))}};
  const Attrs to_f64{{"to", "f64"}};
  const ValueId exponent = c.inputs[1];
  bool whole = false;
  if (c.IsConst(1)) {
    const std::vector<double> values = c.builder.graph().constant(exponent)->Doubles();
    whole = std::all_of(values.begin(), values.end(), [](double v) { return v == std::floor(v); });
  }
  WHET_ASSIGN_OR_RETURN(ValueId cast, c.builder.Emit("Cast", {exponent}, to_base));
  if (whole) return c.Finish("Pow", {c.inputs[0], cast});
  WHET_ASSIGN_OR_RETURN(ValueId exact, c.builder.Emit("Pow", {c.inputs[0], cast}));
  WHET_ASSIGN_OR_RETURN(ValueId a, c.builder.Emit("Cast", {c.inputs[0]}, to_f64));
  WHET_ASSIGN_OR_RETURN(ValueId b, c.builder.Emit("Cast", {exponent}, to_f64));
  WHET_ASSIGN_OR_RETURN(ValueId power, c.builder.Emit("Pow", {a, b}));
  WHET_ASSIGN_OR_RETURN(ValueId rounded, c.builder.Emit("Cast", {power}, to_base));
  WHET_ASSIGN_OR_RETURN(ValueId floor, c.builder.Emit("Floor", {exponent}));
  WHET_ASSIGN_OR_RETURN(ValueId is_whole, c.builder.Emit("Equal", {floor, exponent}));
  return c.Finish("Where", {is_whole, exact, rounded});
}

// A constant exponent of 2 or 0.5, the usual cases, becomes a product or a square root.
Status ImportPow(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  if (c.IsConst(1) && IsFloat(c.type(0).dtype)) {
    const auto& exponent = *c.builder.graph().constant(c.inputs[1]);
    const bool scalar_like = exponent.num_elements() == 1 && c.type(1).rank() <= c.type(0).rank();
    if (scalar_like && exponent.AllEqual(1)) return c.Finish("Identity", {c.inputs[0]});
    if (scalar_like && exponent.AllEqual(2)) return c.Finish("Mul", {c.inputs[0], c.inputs[0]});
    if (scalar_like && exponent.AllEqual(0.5)) return c.Finish("Sqrt", {c.inputs[0]});
  }
  // The exponent may have another type than the base since operator set 12.
  if (IsInteger(c.type(0).dtype) && IsFloat(c.type(1).dtype)) return ImportPowOfInteger(c);
  if (c.type(1).dtype != c.type(0).dtype) {
    const Attrs to{{"to", std::string(ToString(c.type(0).dtype))}};
    WHET_ASSIGN_OR_RETURN(c.inputs[1], c.builder.Emit("Cast", {c.inputs[1]}, to));
  }
  return ImportBinary(c);
}

// By squaring, modulo the size of the type. A negative exponent is 1 over that, towards zero: 0
// unless the base is 1 or -1.
double IntegerPowOf(DType t, double a, double b) {
  const auto base = static_cast<uint64_t>(expr::SaturateToInt(a, t));
  const int64_t exponent = expr::SaturateToInt(b, t);
  const bool negative = !IsUnsigned(t) && exponent < 0;
  if (negative && a != 1 && a != -1) return 0;
  uint64_t power = 1, square = base;
  const auto bits = static_cast<uint64_t>(exponent);
  for (uint64_t n = negative ? 0 - bits : bits; n != 0; n >>= 1) {
    if (n & 1) power *= square;
    square *= square;
  }
  const int64_t wrapped = expr::WrapInt(static_cast<int64_t>(power), t);
  return t == DType::kU64 ? static_cast<double>(power) : static_cast<double>(wrapped);
}

}  // namespace

const OpRecord& OpPow() {
  static const OpRecord op = [] {
    OpRecord r = Binary({
        .name = "Pow",
        .types = Numbers(),
        .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr {
          return expr::Binary(expr::BinaryOp::kPow, a, b);
        },
        .value = [](const OpView& v, double a, double b) -> double {
          const DType t = v.out[0]->dtype;
          return IsFloat(t) ? std::pow(a, b) : IntegerPowOf(t, a, b);
        },
        // exp(b * log a): an error of the logarithm grows with the exponent of the result.
        .err = [](double a, double ea, double b, double eb, double y) -> double {
          const double m = std::fabs(a), size = std::fabs(y);
          if (m == 0 || !std::isfinite(size)) return 0;
          return size * (std::fabs(b) / m * ea + std::fabs(std::log(m)) * eb +
                         8 * std::fabs(b * std::log(m)));
        },
        .ulp = 16,
        .range =
            [](const OpView& v, int input) {
              return input == 0 ? graph::InputRange{0.125, 2} : graph::InputRange{0, 4};
            },
    });
    r.import = ImportPow;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
