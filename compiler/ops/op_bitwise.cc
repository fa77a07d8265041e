// Operators on the bits of integers.
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

std::vector<DType> Integers() {
  std::vector<DType> types;
  for (DType t : Numbers()) {
    if (!IsFloat(t)) types.push_back(t);
  }
  return types;
}

// Two's complement, of up to 53 bits as doubles; beyond, the exact path folds the expression.
int64_t Bits(double v) { return expr::SaturateToInt(v, DType::kI64); }

OpRecord Bitwise(const std::string& name, expr::BinaryOp op) {
  return Binary({
      .name = name,
      .types = Integers(),
      .commutative = true,
      .te = [op](const OpView& v, const Expr& a, const Expr& b) { return expr::Binary(op, a, b); },
      .value = [op](const OpView& v, double a, double b) -> double {
        const int64_t p = Bits(a), q = Bits(b);
        const int64_t r = op == expr::BinaryOp::kBitAnd  ? p & q
                          : op == expr::BinaryOp::kBitOr ? p | q
                                                         : p ^ q;
        return static_cast<double>(r);
      },
  });
}

}  // namespace

const OpRecord& OpBitwiseAnd() {
  static const OpRecord op = Bitwise("BitwiseAnd", expr::BinaryOp::kBitAnd);
  return op;
}
const OpRecord& OpBitwiseOr() {
  static const OpRecord op = Bitwise("BitwiseOr", expr::BinaryOp::kBitOr);
  return op;
}
const OpRecord& OpBitwiseXor() {
  static const OpRecord op = Bitwise("BitwiseXor", expr::BinaryOp::kBitXor);
  return op;
}

const OpRecord& OpBitwiseNot() {
  static const OpRecord op = Unary({
      .name = "BitwiseNot",
      .types = Integers(),
      .te = [](const OpView& v, const Expr& x) -> Expr { return expr::Int(-1, x->dtype) - x; },
      .value = [](const OpView& v, double x) -> double { return -1 - x; },
  });
  return op;
}

// A shift by the type's width or more leaves nothing.
const OpRecord& OpBitShift() {
  static const OpRecord op = Binary({
      .name = "BitShift",
      .types = {DType::kU8, DType::kU16, DType::kU32, DType::kU64},
      .attrs = {{"direction", AttrType::kString, std::nullopt}},
      .te = [](const OpView& v, const Expr& a, const Expr& b) -> Expr {
        return expr::Binary(
            v.attrs->Str("direction") == "LEFT" ? expr::BinaryOp::kShl : expr::BinaryOp::kShr, a,
            b);
      },
      .value = [](const OpView& v, double a, double b) -> double {
        if (b >= static_cast<double>(8 * SizeOf(v.out[0]->dtype))) return 0;
        const int by = static_cast<int>(b);
        return v.attrs->Str("direction") == "LEFT" ? std::ldexp(a, by)
                                                   : std::floor(std::ldexp(a, -by));
      },
      .range = [](const OpView& v,
                  int input) { return graph::InputRange{0, input == 0 ? 200. : 9}; },
      .check = [](const OpView& v) -> Status {
        const std::string& d = v.attrs->Str("direction");
        if (d != "LEFT" && d != "RIGHT")
          return InvalidArgument("direction '{}' is neither LEFT nor RIGHT", d);
        return OkStatus();
      },
  });
  return op;
}

}  // namespace whet::ops
