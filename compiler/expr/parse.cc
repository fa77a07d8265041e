#include "compiler/expr/parse.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace whet::expr {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordChar(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

std::optional<DType> FloatSuffix(char c) {
  switch (c) {
    case 'f': return DType::kF32;
    case 'd': return DType::kF64;
    case 'h': return DType::kF16;
    case 'b': return DType::kBF16;
    default: return std::nullopt;
  }
}

// "true", "inff", "nand": names that are constants.
std::optional<Expr> ConstantWord(std::string_view word) {
  if (word == "true" || word == "false") return Bool(word == "true");
  if (word.size() != 4) return std::nullopt;
  const auto type = FloatSuffix(word[3]);
  if (!type) return std::nullopt;
  if (word.substr(0, 3) == "inf") return Float(std::numeric_limits<double>::infinity(), *type);
  if (word.substr(0, 3) == "nan") return Float(std::numeric_limits<double>::quiet_NaN(), *type);
  return std::nullopt;
}

struct BinaryToken {
  std::string_view symbol;
  BinaryOp op;
  int precedence;
};
constexpr BinaryToken kBinaryTokens[] = {
#define X(id, sym, prec) {sym, BinaryOp::id, prec},
    WHET_BINARY_OPS(X)
#undef X
};

// Whether `op` means something for operands of type `t`.
bool Applies(BinaryOp op, DType t) {
  switch (op) {
    case BinaryOp::kAnd:
    case BinaryOp::kOr: return t == DType::kBool;
    case BinaryOp::kDiv: return IsFloat(t);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod:
    case BinaryOp::kBitAnd:
    case BinaryOp::kBitOr:
    case BinaryOp::kBitXor:
    case BinaryOp::kShl:
    case BinaryOp::kShr: return !IsFloat(t) && t != DType::kBool;
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
    case BinaryOp::kMul:
    case BinaryOp::kPow: return t != DType::kBool;
    case BinaryOp::kMin:
    case BinaryOp::kMax:
    case BinaryOp::kEq:
    case BinaryOp::kNe:
    case BinaryOp::kLt:
    case BinaryOp::kLe: return true;
  }
  return false;
}

struct Parsed {
  Expr e;
  int depth = 1;               // of the tree: a long sum is deep on its left
  bool plain_integer = false;  // an unadorned i64 literal
};

class Parser {
 public:
  Parser(std::string_view text, const Symbols& symbols)
      : all_(text), rest_(text), symbols_(symbols) {}

  StatusOr<Expr> Run() {
    if (all_.size() > kMaxExprBytes)
      return InvalidArgument("expression of {} bytes; the limit is {}", all_.size(), kMaxExprBytes);
    WHET_ASSIGN_OR_RETURN(Parsed p, Level(1, 1));
    return p.e;
  }
  std::string_view rest() const { return rest_; }
  Status Error(std::string_view what) const {
    const size_t at = all_.size() - rest_.size();
    const size_t from = at > 20 ? at - 20 : 0;
    return InvalidArgument("expression, column {}, at '{}': {}", at + 1, all_.substr(from, 60),
                           what);
  }
  void Space() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }

 private:
  static constexpr int kAtomLevel = 7;

  bool Accept(std::string_view token) {
    Space();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  Status Expect(std::string_view token) {
    return Accept(token) ? OkStatus() : Error(fmt::format("expected '{}'", token));
  }

  // The longest operator of this precedence at the cursor; null when there is none.
  const BinaryToken* Operator(int precedence) {
    Space();
    const BinaryToken* best = nullptr;  // over all levels, so that "//" is never read as "/"
    for (const BinaryToken& t : kBinaryTokens) {
      if (t.precedence == 0 || rest_.substr(0, t.symbol.size()) != t.symbol) continue;
      if (!best || t.symbol.size() > best->symbol.size()) best = &t;
    }
    return best && best->precedence == precedence ? best : nullptr;
  }

  StatusOr<Parsed> Level(int precedence, int nesting) {
    if (precedence == kAtomLevel) return Atom(nesting);
    WHET_ASSIGN_OR_RETURN(Parsed left, Level(precedence + 1, nesting));
    while (const BinaryToken* op = Operator(precedence)) {
      rest_.remove_prefix(op->symbol.size());
      WHET_ASSIGN_OR_RETURN(Parsed right, Level(precedence + 1, nesting));
      WHET_ASSIGN_OR_RETURN(left, Join(op->op, left, right));
    }
    return left;
  }

  StatusOr<Parsed> Join(BinaryOp op, const Parsed& a, const Parsed& b) {
    const std::string_view ta = ::whet::ToString(a.e->dtype), tb = ::whet::ToString(b.e->dtype);
    if (ta != tb) return Error(fmt::format("'{}' of {} and {}", ToString(op), ta, tb));
    if (!Applies(op, a.e->dtype)) return Error(fmt::format("'{}' of {}", ToString(op), ta));
    return Checked({Binary(op, a.e, b.e), std::max(a.depth, b.depth) + 1});
  }

  StatusOr<Parsed> Checked(Parsed p) const {
    return p.depth <= kMaxExprDepth ? StatusOr<Parsed>(std::move(p))
                                    : Error(fmt::format("more than {} levels deep", kMaxExprDepth));
  }

  StatusOr<Parsed> Atom(int nesting) {
    if (nesting > kMaxExprDepth)
      return Error(fmt::format("nested more than {} deep", kMaxExprDepth));
    if (Accept("(")) {
      WHET_ASSIGN_OR_RETURN(Parsed p, Level(1, nesting + 1));
      WHET_RETURN_IF_ERROR(Expect(")"));
      p.plain_integer = false;
      return p;
    }
    if (Accept("!")) {
      WHET_ASSIGN_OR_RETURN(Parsed p, Atom(nesting + 1));
      if (p.e->dtype != DType::kBool) return Error("'!' of a number");
      return Checked({Not(p.e), p.depth + 1});
    }
    Space();
    if (rest_.empty()) return Error("expected an expression");
    const bool minus = rest_[0] == '-';
    if (IsDigit(rest_[0]) || (minus && rest_.size() > 1 && IsDigit(rest_[1]))) return Number();
    if (minus) {
      rest_.remove_prefix(1);
      const auto constant = ConstantWord(TakeWord(rest_));
      if (!constant || (*constant)->kind != Kind::kFloat ||
          (*constant)->float_value != std::numeric_limits<double>::infinity()) {
        return Error("a minus before something other than a number");
      }
      return Parsed{Float(-(*constant)->float_value, (*constant)->dtype)};
    }
    return Named(nesting);
  }

  StatusOr<Parsed> Number() {
    const char* begin = rest_.data();
    const char* end = begin + rest_.size();
    double value = 0;
    const auto [float_end, float_error] = std::from_chars(begin, end, value);
    if (float_end != end && float_error == std::errc()) {
      const auto type = FloatSuffix(*float_end);
      if (type && (float_end + 1 == end || !IsWordChar(float_end[1]))) {
        rest_.remove_prefix(static_cast<size_t>(float_end - begin) + 1);
        return Parsed{Float(value, *type)};
      }
    }
    int64_t integer = 0;
    const auto [int_end, int_error] = std::from_chars(begin, end, integer);
    if (int_error != std::errc()) return Error("a number outside its type's range");
    if (int_end != end && IsWordChar(*int_end)) return Error("a number with an unknown ending");
    rest_.remove_prefix(static_cast<size_t>(int_end - begin));
    return Parsed{Int(integer), 1, true};
  }

  StatusOr<Parsed> Named(int nesting) {
    const std::string_view word = TakeWord(rest_);
    if (word.empty()) return Error("expected an expression");
    if (!rest_.empty() && rest_[0] == '[') return LoadOf(word, nesting);
    if (!rest_.empty() && rest_[0] == '(') return CallOf(word, nesting);
    if (auto constant = ConstantWord(word)) return Parsed{*constant};
    if (Var v = symbols_.FindVar(word)) return Parsed{v};
    return Error(fmt::format("unknown variable '{}'", word.substr(0, 100)));
  }

  StatusOr<std::vector<Parsed>> List(std::string_view open, std::string_view close, int nesting) {
    std::vector<Parsed> items;
    WHET_RETURN_IF_ERROR(Expect(open));
    if (Accept(close)) return items;
    do {
      WHET_ASSIGN_OR_RETURN(Parsed p, Level(1, nesting + 1));
      items.push_back(std::move(p));
    } while (Accept(","));
    WHET_RETURN_IF_ERROR(Expect(close));
    return items;
  }

  static int DepthOver(const std::vector<Parsed>& items) {
    int depth = 0;
    for (const Parsed& p : items) depth = std::max(depth, p.depth);
    return depth + 1;
  }

  StatusOr<Parsed> LoadOf(std::string_view name, int nesting) {
    const Buffer buffer = symbols_.FindBuffer(name);
    if (!buffer) return Error(fmt::format("unknown buffer '{}'", name.substr(0, 100)));
    WHET_ASSIGN_OR_RETURN(std::vector<Parsed> items, List("[", "]", nesting));
    if (items.size() != buffer->shape.size()) {
      return Error(fmt::format("buffer '{}' has rank {}, {} indices", name, buffer->shape.size(),
                               items.size()));
    }
    std::vector<Expr> indices;
    for (const Parsed& p : items) {
      if (IsFloat(p.e->dtype) || p.e->dtype == DType::kBool)
        return Error(fmt::format("an index of type {}", ::whet::ToString(p.e->dtype)));
      indices.push_back(p.e);
    }
    return Checked({Load(buffer, std::move(indices)), DepthOver(items)});
  }

  StatusOr<Parsed> CallOf(std::string_view name, int nesting) {
    WHET_ASSIGN_OR_RETURN(std::vector<Parsed> items, List("(", ")", nesting));
    const auto need = [&](size_t n) {
      return items.size() == n
                 ? OkStatus()
                 : Error(fmt::format("{} takes {} operands, {} given", name, n, items.size()));
    };
    for (const BinaryToken& t : kBinaryTokens) {
      if (t.precedence != 0 || t.symbol != name) continue;
      WHET_RETURN_IF_ERROR(need(2));
      return Join(t.op, items[0], items[1]);
    }
    if (name == "select") {
      WHET_RETURN_IF_ERROR(need(3));
      if (items[0].e->dtype != DType::kBool)
        return Error("select's first operand is not a condition");
      if (items[1].e->dtype != items[2].e->dtype)
        return Error("select's two values differ in type");
      return Checked({Select(items[0].e, items[1].e, items[2].e), DepthOver(items)});
    }
    if (auto type = ParseDType(name); type.ok()) {
      WHET_RETURN_IF_ERROR(need(1));
      if (items[0].plain_integer && !IsFloat(*type) && *type != DType::kBool)
        return Parsed{Int(items[0].e->int_value, *type)};
      return Checked({Cast(*type, items[0].e), DepthOver(items)});
    }
#define X(id, text)                                                                       \
  if (name == text) {                                                                     \
    WHET_RETURN_IF_ERROR(need(1));                                                        \
    if (!IsFloat(items[0].e->dtype)) return Error(fmt::format("{} of an integer", name)); \
    return Checked({Call(Intrinsic::id, items[0].e), DepthOver(items)});                  \
  }
    WHET_INTRINSICS(X)
#undef X
    return Error(fmt::format("unknown function '{}'", name.substr(0, 100)));
  }

  std::string_view all_, rest_;
  const Symbols& symbols_;
};

}  // namespace

Var Symbols::FindVar(std::string_view name) const {
  for (auto it = vars.rbegin(); it != vars.rend(); ++it) {
    if ((*it)->name == name) return *it;
  }
  return nullptr;
}

Buffer Symbols::FindBuffer(std::string_view name) const {
  for (auto it = buffers.rbegin(); it != buffers.rend(); ++it) {
    if ((*it)->name == name) return *it;
  }
  return nullptr;
}

std::string_view TakeWord(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), IsWordChar);
  const std::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

bool IsName(std::string_view text) {
  if (text.empty() || IsDigit(text[0]) || text[0] == '.') return false;
  return std::all_of(text.begin(), text.end(), IsWordChar) && !ConstantWord(text);
}

StatusOr<Expr> ParsePrefix(std::string_view& text, const Symbols& symbols) {
  Parser parser(text, symbols);
  WHET_ASSIGN_OR_RETURN(Expr e, parser.Run());
  text = parser.rest();
  return e;
}

StatusOr<Expr> Parse(std::string_view text, const Symbols& symbols) {
  Parser parser(text, symbols);
  WHET_ASSIGN_OR_RETURN(Expr e, parser.Run());
  parser.Space();
  if (!parser.rest().empty()) return parser.Error("text after the end");
  return e;
}

}  // namespace whet::expr
