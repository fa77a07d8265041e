#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

bool IsInteger(DType t) { return !IsFloat(t) && t != DType::kBool; }

StatusOr<ValueId> PowCast(ImportContext& c, ValueId v, DType to) {
  if (c.builder.type(v).dtype == to) return v;
  return c.builder.Emit("Cast", {v}, {{"to", std::string(ToString(to))}});
}

// In which type an integer is raised: the base's own where it holds all exponents, else one that
// does, the result of which is cut off like that of any product.
DType PowerType(const ImportContext& c) {
  const DType base = c.type(0).dtype, exponent = c.type(1).dtype;
  if (base == exponent) return base;
  if (c.IsConst(1)) {
    const std::vector<double> values = c.builder.graph().constant(c.inputs[1])->Doubles();
    if (std::all_of(values.begin(), values.end(),
                    [&](double v) { return graph::RoundTo(base, v) == v; }))
      return base;
  }
  return exponent == DType::kU64 ? exponent : DType::kI64;
}

// By squaring where the exponent is a whole number, so that the result is exact, else what the f64
// function gives, towards zero.
Status ImportPowOfInteger(ImportContext& c) {
  const DType base = c.type(0).dtype, inner = PowerType(c);
  const ValueId exponent = c.inputs[1];
  bool whole = !IsFloat(c.type(1).dtype);
  if (!whole && c.IsConst(1)) {
    const std::vector<double> values = c.builder.graph().constant(exponent)->Doubles();
    whole = std::all_of(values.begin(), values.end(), [](double v) { return v == std::floor(v); });
  }
  WHET_ASSIGN_OR_RETURN(ValueId x, PowCast(c, c.inputs[0], inner));
  WHET_ASSIGN_OR_RETURN(ValueId n, PowCast(c, exponent, inner));
  WHET_ASSIGN_OR_RETURN(ValueId exact, c.builder.Emit("Pow", {x, n}));
  WHET_ASSIGN_OR_RETURN(exact, PowCast(c, exact, base));
  c.outputs = {exact};
  if (whole) return OkStatus();
  WHET_ASSIGN_OR_RETURN(ValueId a, PowCast(c, c.inputs[0], DType::kF64));
  WHET_ASSIGN_OR_RETURN(ValueId b, PowCast(c, exponent, DType::kF64));
  WHET_ASSIGN_OR_RETURN(ValueId power, c.builder.Emit("Pow", {a, b}));
  WHET_ASSIGN_OR_RETURN(ValueId rounded, PowCast(c, power, base));
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
  if (c.type(1).dtype != c.type(0).dtype) {
    if (IsInteger(c.type(0).dtype)) return ImportPowOfInteger(c);
    WHET_ASSIGN_OR_RETURN(c.inputs[1], PowCast(c, c.inputs[1], c.type(0).dtype));
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

// How far |a|^b moves when |a| does by at most `e`, and a power of an a that may have either sign.
double MovedBase(double a, double b, double size, double e) {
  if (e == 0) return 0;
  if (e < a) return size * std::expm1(-std::fabs(b) * std::log1p(-e / a));
  return b < 0 ? HUGE_VAL : size + std::pow(a + e, b);
}

// exp(b * log a): an error of the logarithm grows with the exponent of the result.
double PowError(const OpView& v, double a, double ea, double b, double eb, double y) {
  const double m = std::fabs(a), size = std::fabs(y), of_a = ea * kErrUnit, of_b = eb * kErrUnit;
  // Powers of negative numbers with a broken exponent are NaN.
  if (eb > 0 ? a < of_a : ea > 0 && m <= of_a && b != std::floor(b)) return HUGE_VAL;
  if (std::isinf(y)) {
    if (ea > 0 && !(m > of_a)) return HUGE_VAL;
    for (double p : {m - of_a, m + of_a}) {
      for (double q : {b - of_b, b + of_b}) {
        if (!std::isinf(std::pow(p, q))) return HUGE_VAL;
      }
    }
    return 0;
  }
  const double exponent = m > 0 ? b * std::log(m) : 0;
  double e = MovedBase(m, b, size, ea * kErrUnit);
  if (eb > 0 && m > 0) e += size * std::expm1(std::fabs(std::log(m)) * eb * kErrUnit);
  return e / kErrUnit + (std::isfinite(exponent) ? 8 * std::fabs(exponent) * size : 0);
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
        .err = PowError,
        .ulp = 16,
        .range =
            [](const OpView& v, int input) {
              return input == 0 ? graph::InputRange{0.125, 2} : graph::InputRange{0, 4};
            },
    });
    r.note = "a constant exponent of 0.5 is a square root: NaN of -infinity";
    r.import = ImportPow;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
