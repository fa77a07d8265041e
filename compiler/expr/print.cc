#include <cmath>

#include "compiler/expr/expr.h"

namespace whet::expr {
namespace {

int Precedence(BinaryOp op) {
  switch (op) {
#define X(id, sym, prec) \
  case BinaryOp::id: return prec;
    WHET_BINARY_OPS(X)
#undef X
  }
  return 0;
}

std::string FloatText(double v, DType t) {
  const char* suffix = t == DType::kF32    ? "f"
                       : t == DType::kF16  ? "h"
                       : t == DType::kBF16 ? "b"
                                           : "d";
  if (std::isinf(v)) return v < 0 ? fmt::format("-inf{}", suffix) : fmt::format("inf{}", suffix);
  if (std::isnan(v)) return fmt::format("nan{}", suffix);
  return fmt::format("{}{}", v, suffix);  // shortest text that reads back to the same value
}

std::string Print(const Expr& e, int parent);

std::string PrintList(const std::vector<Expr>& args) {
  std::string s;
  for (size_t i = 0; i < args.size(); ++i) s += (i ? ", " : "") + Print(args[i], 0);
  return s;
}

std::string Print(const Expr& e, int parent) {
  switch (e->kind) {
    case Kind::kInt:
      if (e->dtype == DType::kBool) return e->int_value ? "true" : "false";
      return e->dtype == DType::kI64
                 ? std::to_string(e->int_value)
                 : fmt::format("{}({})", ::whet::ToString(e->dtype), e->int_value);
    case Kind::kFloat: return FloatText(e->float_value, e->dtype);
    case Kind::kVar: return e->name;
    case Kind::kBinary: {
      const int prec = Precedence(e->binary);
      if (prec == 0) return fmt::format("{}({})", ToString(e->binary), PrintList(e->args));
      const std::string text = fmt::format("{} {} {}", Print(e->args[0], prec), ToString(e->binary),
                                           Print(e->args[1], prec + 1));
      return prec < parent ? "(" + text + ")" : text;
    }
    case Kind::kNot: return "!" + Print(e->args[0], 7);
    case Kind::kSelect: return fmt::format("select({})", PrintList(e->args));
    case Kind::kCast: {
      // "i32(5)" is a constant of that type; the cast of a constant says its type too.
      const Expr& a = e->args[0];
      const bool constant = a->kind == Kind::kInt && a->dtype == DType::kI64 &&
                            !IsFloat(e->dtype) && e->dtype != DType::kBool;
      return fmt::format("{}({}{}{})", ::whet::ToString(e->dtype), constant ? "i64(" : "",
                         Print(a, 0), constant ? ")" : "");
    }
    case Kind::kCall: return fmt::format("{}({})", ToString(e->call), PrintList(e->args));
    case Kind::kLoad: return fmt::format("{}[{}]", e->buffer->name, PrintList(e->args));
  }
  return "?";
}

}  // namespace

std::string ToString(const Expr& e) { return e ? Print(e, 0) : "true"; }

}  // namespace whet::expr
