#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

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
    const Attrs to{{"to", std::string(ToString(c.type(0).dtype))}};
    WHET_ASSIGN_OR_RETURN(c.inputs[1], c.builder.Emit("Cast", {c.inputs[1]}, to));
  }
  return ImportBinary(c);
}

}  // namespace

const OpRecord& OpPow() {
  static const OpRecord op = [] {
    OpRecord r = Binary({
        .name = "Pow",
        .types = {DType::kF32, DType::kF64, DType::kI32, DType::kI64},
        .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr {
          return expr::Binary(expr::BinaryOp::kPow, a, b);
        },
        .value = [](const OpView& v, double a, double b) -> double {
          const double y = std::pow(a, b);
          return IsFloat(v.out[0]->dtype) ? y : std::trunc(y);
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
    r.note = "of integers on constants only";
    r.import = ImportPow;
    r.te = [floats = r.te](const OpView& v, const std::vector<Buffer>& in,
                           te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      if (!IsFloat(v.out[0]->dtype))
        return Unimplemented("of {} is supported on constants only", ToString(v.out[0]->dtype));
      return floats(v, in, b);
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
