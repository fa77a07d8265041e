#include "compiler/expr/expr.h"

#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "compiler/support/half.h"

namespace whet::expr {

std::string_view ToString(Scope s) {
  switch (s) {
#define X(id, name) \
  case Scope::id: return name;
    WHET_SCOPES(X)
#undef X
  }
  return "?";
}

StatusOr<Scope> ParseScope(std::string_view text) {
#define X(id, name) \
  if (text == name) return Scope::id;
  WHET_SCOPES(X)
#undef X
  return InvalidArgument("unknown scope '{}'; scopes are global, local, shared, register, tile",
                         text);
}

std::string_view ToString(BinaryOp op) {
  switch (op) {
#define X(id, sym, prec) \
  case BinaryOp::id: return sym;
    WHET_BINARY_OPS(X)
#undef X
  }
  return "?";
}

std::string_view ToString(Intrinsic op) {
  switch (op) {
#define X(id, name) \
  case Intrinsic::id: return name;
    WHET_INTRINSICS(X)
#undef X
  }
  return "?";
}

int64_t BufferNode::num_elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Buffer MakeBuffer(std::string name, DType dtype, std::vector<int64_t> shape, Scope scope,
                  bool constant) {
  auto* b = new BufferNode;
  b->name = std::move(name);
  b->dtype = dtype;
  b->shape = std::move(shape);
  b->scope = scope;
  b->constant = constant;
  return Buffer(b);
}

namespace {

// Integers wrap: a constant from a peer's trace must not be undefined behaviour here.
int64_t Wrap(uint64_t v) { return static_cast<int64_t>(v); }

ExprNode* NewNode(Kind kind, DType dtype) {
  auto* n = new ExprNode;
  n->kind = kind;
  n->dtype = dtype;
  return n;
}

bool IsComparison(BinaryOp op) {
  return op == BinaryOp::kEq || op == BinaryOp::kNe || op == BinaryOp::kLt || op == BinaryOp::kLe;
}
bool IsLogical(BinaryOp op) { return op == BinaryOp::kAnd || op == BinaryOp::kOr; }

// Arguments and result as in Int: already modulo the size of the type.
int64_t Shift(BinaryOp op, int64_t a, uint64_t by, DType t) {
  const bool all_out = by >= static_cast<uint64_t>(8 * SizeOf(t));
  if (op == BinaryOp::kShl) return all_out ? 0 : Wrap(static_cast<uint64_t>(a) << by);
  if (IsUnsigned(t)) return all_out ? 0 : Wrap(static_cast<uint64_t>(a) >> by);
  return a >> (all_out ? 63 : by);
}

// By squaring; to a negative exponent 1 over that, towards zero.
int64_t IntPow(int64_t a, int64_t b, DType t) {
  const bool negative = !IsUnsigned(t) && b < 0;
  if (negative && a != 1 && a != -1) return 0;
  const auto bits = static_cast<uint64_t>(b);
  uint64_t power = 1, square = static_cast<uint64_t>(a);
  for (uint64_t n = negative ? 0 - bits : bits; n != 0; n >>= 1) {
    if (n & 1) power *= square;
    square *= square;
  }
  return Wrap(power);
}

std::optional<int64_t> UnsignedValue64(BinaryOp op, uint64_t a, uint64_t b) {
  switch (op) {
    case BinaryOp::kFloorDiv: return b == 0 ? 0 : Wrap(a / b);
    case BinaryOp::kFloorMod: return b == 0 ? 0 : Wrap(a % b);
    case BinaryOp::kMin: return Wrap(std::min(a, b));
    case BinaryOp::kMax: return Wrap(std::max(a, b));
    case BinaryOp::kLt: return a < b;
    case BinaryOp::kLe: return a <= b;
    default: return std::nullopt;
  }
}

// x+0, 0+x, x-0, x*1, x*0, x//1, x%1 and the logical units; null when none applies.
Expr FoldIdentity(BinaryOp op, const Expr& a, const Expr& b) {
  switch (op) {
    case BinaryOp::kAdd:
      if (IsInt(a, 0)) return b;
      if (IsInt(b, 0)) return a;
      break;
    case BinaryOp::kSub:
      if (IsInt(b, 0)) return a;
      break;
    case BinaryOp::kMul:
      if (IsInt(a, 1) || IsInt(b, 0)) return b;
      if (IsInt(b, 1) || IsInt(a, 0)) return a;
      break;
    case BinaryOp::kFloorDiv:
      if (IsInt(b, 1)) return a;
      break;
    case BinaryOp::kFloorMod:
      if (IsInt(b, 1)) return Int(0, a->dtype);
      break;
    case BinaryOp::kAnd:
      if (IsTrue(a) || IsFalse(b)) return b;
      if (IsTrue(b) || IsFalse(a)) return a;
      break;
    case BinaryOp::kOr:
      if (IsFalse(a) || IsTrue(b)) return b;
      if (IsFalse(b) || IsTrue(a)) return a;
      break;
    default: break;
  }
  return nullptr;
}

}  // namespace

int64_t WrapInt(int64_t v, DType t) {
  switch (t) {
    case DType::kBool: return v != 0;
    case DType::kU8: return static_cast<uint8_t>(v);
    case DType::kI8: return static_cast<int8_t>(v);
    case DType::kU16: return static_cast<uint16_t>(v);
    case DType::kI16: return static_cast<int16_t>(v);
    case DType::kU32: return static_cast<uint32_t>(v);
    case DType::kI32: return static_cast<int32_t>(v);
    default: return v;
  }
}

int64_t SaturateToInt(double v, DType t) {
  if (t == DType::kBool) return v != 0;
  if (std::isnan(v)) return 0;
  const int bits = static_cast<int>(8 * SizeOf(t)) - (IsUnsigned(t) ? 0 : 1);
  const double end = std::ldexp(1.0, bits);  // one above the highest
  const uint64_t highest = ~uint64_t{0} >> (64 - bits);
  if (v >= end) return Wrap(highest);
  if (IsUnsigned(t)) return v <= 0 ? 0 : Wrap(static_cast<uint64_t>(v));
  return v <= -end ? -Wrap(highest) - 1 : static_cast<int64_t>(v);
}

int64_t FloorDivInt(int64_t a, int64_t b) {
  if (b == -1) return Wrap(0 - static_cast<uint64_t>(a));
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

std::optional<int64_t> BinaryValue(BinaryOp op, int64_t a, int64_t b, DType t) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  if (t == DType::kU64) {
    if (const auto v = UnsignedValue64(op, ua, ub)) return v;
  }
  switch (op) {
    case BinaryOp::kAdd: return WrapInt(Wrap(ua + ub), t);
    case BinaryOp::kSub: return WrapInt(Wrap(ua - ub), t);
    case BinaryOp::kMul: return WrapInt(Wrap(ua * ub), t);
    case BinaryOp::kFloorDiv: return WrapInt(b == 0 ? 0 : FloorDivInt(a, b), t);
    case BinaryOp::kFloorMod:
      return WrapInt(b == 0 ? 0 : Wrap(ua - static_cast<uint64_t>(FloorDivInt(a, b)) * ub), t);
    case BinaryOp::kMin: return std::min(a, b);
    case BinaryOp::kMax: return std::max(a, b);
    case BinaryOp::kEq: return a == b;
    case BinaryOp::kNe: return a != b;
    case BinaryOp::kLt: return a < b;
    case BinaryOp::kLe: return a <= b;
    case BinaryOp::kAnd: return a && b;
    case BinaryOp::kOr: return a || b;
    case BinaryOp::kBitAnd: return a & b;
    case BinaryOp::kBitOr: return a | b;
    case BinaryOp::kBitXor: return a ^ b;
    case BinaryOp::kShl:
    case BinaryOp::kShr: return WrapInt(Shift(op, a, ub, t), t);
    case BinaryOp::kPow: return WrapInt(IntPow(a, b, t), t);
    case BinaryOp::kDiv: return std::nullopt;
  }
  return std::nullopt;
}

Expr Int(int64_t v, DType t) {
  auto* n = NewNode(Kind::kInt, t);
  n->int_value = WrapInt(v, t);
  return Expr(n);
}

Expr Float(double v, DType t) {
  auto* n = NewNode(Kind::kFloat, t);
  n->float_value = RoundToFloat(t, v);
  return Expr(n);
}

Expr Bool(bool v) { return Int(v ? 1 : 0, DType::kBool); }

Var MakeVar(std::string name, DType t) {
  auto* n = NewNode(Kind::kVar, t);
  n->name = std::move(name);
  return Expr(n);
}

Expr Binary(BinaryOp op, Expr a, Expr b) {
  WHET_CHECK(a->dtype == b->dtype, "{} {} {}", ::whet::ToString(a->dtype), ToString(op),
             ::whet::ToString(b->dtype));
  const DType type = IsComparison(op) || IsLogical(op) ? DType::kBool : a->dtype;
  if (a->kind == Kind::kInt && b->kind == Kind::kInt) {
    if (const auto v = BinaryValue(op, a->int_value, b->int_value, a->dtype)) return Int(*v, type);
  }
  if (Expr e = FoldIdentity(op, a, b)) return e;
  auto* n = NewNode(Kind::kBinary, type);
  n->binary = op;
  n->args = {std::move(a), std::move(b)};
  return Expr(n);
}

Expr Not(Expr a) {
  WHET_CHECK(a->dtype == DType::kBool);
  if (a->kind == Kind::kInt) return Bool(!a->int_value);
  auto* n = NewNode(Kind::kNot, DType::kBool);
  n->args = {std::move(a)};
  return Expr(n);
}

Expr Select(Expr cond, Expr then_value, Expr else_value) {
  WHET_CHECK(cond->dtype == DType::kBool && then_value->dtype == else_value->dtype);
  if (IsTrue(cond)) return then_value;
  if (IsFalse(cond)) return else_value;
  auto* n = NewNode(Kind::kSelect, then_value->dtype);
  n->args = {std::move(cond), std::move(then_value), std::move(else_value)};
  return Expr(n);
}

Expr Cast(DType t, Expr a) {
  if (a->dtype == t) return a;
  auto* n = NewNode(Kind::kCast, t);
  n->args = {std::move(a)};
  return Expr(n);
}

Expr Call(Intrinsic f, Expr a) {
  WHET_CHECK(IsFloat(a->dtype));
  auto* n = NewNode(Kind::kCall, a->dtype);
  n->call = f;
  n->args = {std::move(a)};
  return Expr(n);
}

Expr Load(Buffer b, std::vector<Expr> indices) {
  WHET_CHECK(b->shape.size() == indices.size(), "{} has rank {}, {} indices", b->name,
             b->shape.size(), indices.size());
  auto* n = NewNode(Kind::kLoad, b->dtype);
  n->buffer = std::move(b);
  n->args = std::move(indices);
  return Expr(n);
}

bool IsInt(const Expr& e, int64_t v) {
  return e && e->kind == Kind::kInt && e->int_value == v && e->dtype != DType::kBool;
}
bool IsTrue(const Expr& e) {
  return !e || (e->kind == Kind::kInt && e->dtype == DType::kBool && e->int_value != 0);
}
bool IsFalse(const Expr& e) {
  return e && e->kind == Kind::kInt && e->dtype == DType::kBool && e->int_value == 0;
}

int Compare(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  auto cmp = [](auto x, auto y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (int c = cmp(a->kind, b->kind)) return c;
  if (int c = cmp(a->dtype, b->dtype)) return c;
  switch (a->kind) {
    case Kind::kInt: return cmp(a->int_value, b->int_value);
    case Kind::kFloat: return cmp(a->float_value, b->float_value);
    case Kind::kVar: {
      if (int c = a->name.compare(b->name)) return c < 0 ? -1 : 1;
      return cmp(a.get(), b.get());  // two variables of one name: only their identity differs
    }
    case Kind::kBinary:
      if (int c = cmp(a->binary, b->binary)) return c;
      break;
    case Kind::kCall:
      if (int c = cmp(a->call, b->call)) return c;
      break;
    case Kind::kLoad:
      if (a->buffer != b->buffer) {
        if (int c = a->buffer->name.compare(b->buffer->name)) return c < 0 ? -1 : 1;
        return cmp(a->buffer.get(), b->buffer.get());
      }
      break;
    case Kind::kNot:
    case Kind::kSelect:
    case Kind::kCast: break;
  }
  if (int c = cmp(a->args.size(), b->args.size())) return c;
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (int c = Compare(a->args[i], b->args[i])) return c;
  }
  return 0;
}

namespace {

Expr Rebuild(const ExprNode& e, std::vector<Expr> args) {
  switch (e.kind) {
    case Kind::kBinary: return Binary(e.binary, args[0], args[1]);
    case Kind::kNot: return Not(args[0]);
    case Kind::kSelect: return Select(args[0], args[1], args[2]);
    case Kind::kCast: return Cast(e.dtype, args[0]);
    case Kind::kCall: return Call(e.call, args[0]);
    case Kind::kLoad: return Load(e.buffer, std::move(args));
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kVar: break;
  }
  WHET_CHECK(false, "a leaf has no operands");
}

// Results for nodes with several parents: they stay shared, and an expression that is small as a
// graph is not walked as the large tree it stands for.
using Rewritten = std::unordered_map<const ExprNode*, Expr>;

template <typename F>
Expr RewriteWith(const Expr& e, const F& f, Rewritten& done);

template <typename F>
Expr RewriteNode(const Expr& e, const F& f, Rewritten& done) {
  if (Expr r = f(e)) return r;
  std::vector<Expr> args;
  bool changed = false;
  args.reserve(e->args.size());
  for (const Expr& a : e->args) {
    args.push_back(RewriteWith(a, f, done));
    changed |= !(args.back() == a);
  }
  return changed ? Rebuild(*e, std::move(args)) : e;
}

template <typename F>
Expr RewriteWith(const Expr& e, const F& f, Rewritten& done) {
  if (e->args.empty()) {
    Expr r = f(e);
    return r ? r : e;
  }
  if (!e->Shared()) return RewriteNode(e, f, done);
  if (auto it = done.find(e.get()); it != done.end()) return it->second;
  Expr r = RewriteNode(e, f, done);
  done.emplace(e.get(), r);
  return r;
}

}  // namespace

Expr Rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f) {
  Rewritten done;
  return RewriteWith(e, f, done);
}

Expr Substitute(const Expr& e, const Substitution& s) {
  Rewritten done;
  auto replace = [&](const Expr& x) -> Expr {
    if (x->kind != Kind::kVar) return nullptr;
    for (const auto& [var, value] : s.pairs) {
      if (var == x.get()) return value;
    }
    return nullptr;
  };
  return RewriteWith(e, replace, done);
}

namespace {

// False from `f` ends the walk.
template <typename F>
bool VisitOnce(const Expr& e, const F& f, std::unordered_set<const ExprNode*>& seen) {
  if (e->Shared() && !e->args.empty() && !seen.insert(e.get()).second) return true;
  if (!f(*e)) return false;
  for (const Expr& a : e->args) {
    if (!VisitOnce(a, f, seen)) return false;
  }
  return true;
}

}  // namespace

void Visit(const Expr& e, const std::function<void(const ExprNode&)>& f) {
  std::unordered_set<const ExprNode*> seen;
  auto all = [&](const ExprNode& n) {
    f(n);
    return true;
  };
  if (e) VisitOnce(e, all, seen);
}

bool Uses(const Expr& e, const Var& v) {
  std::unordered_set<const ExprNode*> seen;
  return !VisitOnce(e, [&](const ExprNode& n) { return &n != v.get(); }, seen);
}

}  // namespace whet::expr
