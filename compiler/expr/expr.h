// Scalar expressions, shared by tensor expressions (te) and loop programs (loop). Nodes are
// immutable and shared; equality of variables and buffers is identity, of everything else
// structure. Index arithmetic is i64; division and modulo of integers round towards minus infinity,
// so that tiling algebra holds. Arithmetic of every integer type wraps around; simplifying takes
// sums and products of i32 and i64 not to. Division and modulo by 0 give 0; powers with a negative
// exponent are 1 over the power, towards 0. Shifts fill with zeros (`>>` of a signed type with its
// sign); by the type's width or more they give what shifting bit by bit would.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/dtype.h"
#include "compiler/support/ref_ptr.h"

namespace whet::expr {

// Where a buffer lives. A `register` buffer must be indexed by constants once loops are unrolled
// and vectorised: code generation keeps one value per element, never a stack array.
#define WHET_SCOPES(X)     \
  X(kGlobal, "global")     \
  X(kLocal, "local")       \
  X(kShared, "shared")     \
  X(kRegister, "register") \
  X(kTile, "tile")
enum class Scope : uint8_t {
#define X(id, name) id,
  WHET_SCOPES(X)
#undef X
};
std::string_view ToString(Scope s);
StatusOr<Scope> ParseScope(std::string_view text);

struct BufferNode : RefCounted {
  std::string name;  // unique in a program
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  Scope scope = Scope::kGlobal;
  // Known at compile time: blocks that read only constants are hoisted into prepack.
  bool constant = false;
  int64_t num_elements() const;
};
using Buffer = RefPtr<const BufferNode>;
Buffer MakeBuffer(std::string name, DType dtype, std::vector<int64_t> shape,
                  Scope scope = Scope::kGlobal, bool constant = false);

enum class Kind : uint8_t { kInt, kFloat, kVar, kBinary, kNot, kSelect, kCast, kCall, kLoad };

// symbol, precedence (larger binds tighter; 0 = printed as a call)
#define WHET_BINARY_OPS(X) \
  X(kAdd, "+", 5)          \
  X(kSub, "-", 5)          \
  X(kMul, "*", 6)          \
  X(kDiv, "/", 6)          \
  X(kFloorDiv, "//", 6)    \
  X(kFloorMod, "%", 6)     \
  X(kMin, "min", 0)        \
  X(kMax, "max", 0)        \
  X(kEq, "==", 3)          \
  X(kNe, "!=", 3)          \
  X(kLt, "<", 4)           \
  X(kLe, "<=", 4)          \
  X(kAnd, "&&", 2)         \
  X(kOr, "||", 1)          \
  X(kPow, "pow", 0)        \
  X(kBitAnd, "bit_and", 0) \
  X(kBitOr, "bit_or", 0)   \
  X(kBitXor, "bit_xor", 0) \
  X(kShl, "shl", 0)        \
  X(kShr, "shr", 0)
enum class BinaryOp : uint8_t {
#define X(id, sym, prec) id,
  WHET_BINARY_OPS(X)
#undef X
};

// Unary functions of a float. exp, log, tanh, erf (and pow) and the trigonometric and hyperbolic
// ones are expanded into arithmetic before code generation (see vector_math.h), so that every
// machine computes the same bits and no libm is on a hot path. pow2, mantissa and exponent are what
// the expansions need: 2^n of an integral n in [-126, 127] (f64: [-1022, 1023]), and
// x = mantissa(x) * 2^exponent(x) with a mantissa in [1, 2) for a positive normal x.
#define WHET_INTRINSICS(X) \
  X(kExp, "exp")           \
  X(kLog, "log")           \
  X(kSqrt, "sqrt")         \
  X(kTanh, "tanh")         \
  X(kErf, "erf")           \
  X(kAbs, "abs")           \
  X(kFloor, "floor")       \
  X(kCeil, "ceil")         \
  X(kRound, "round")       \
  X(kPow2, "pow2")         \
  X(kMantissa, "mantissa") \
  X(kExponent, "exponent") \
  X(kSin, "sin")           \
  X(kCos, "cos")           \
  X(kTan, "tan")           \
  X(kAsin, "asin")         \
  X(kAcos, "acos")         \
  X(kAtan, "atan")         \
  X(kSinh, "sinh")         \
  X(kCosh, "cosh")         \
  X(kAsinh, "asinh")       \
  X(kAcosh, "acosh")       \
  X(kAtanh, "atanh")
enum class Intrinsic : uint8_t {
#define X(id, name) id,
  WHET_INTRINSICS(X)
#undef X
};
std::string_view ToString(BinaryOp op);
std::string_view ToString(Intrinsic op);

struct ExprNode;
using Expr = RefPtr<const ExprNode>;

struct ExprNode : RefCounted {
  Kind kind = Kind::kInt;
  DType dtype = DType::kI64;
  BinaryOp binary = BinaryOp::kAdd;  // kBinary
  Intrinsic call = Intrinsic::kExp;  // kCall
  int64_t int_value = 0;             // kInt (bool constants too); u64: its bits
  double float_value = 0;            // kFloat
  std::string name;                  // kVar
  Buffer buffer;                     // kLoad
  std::vector<Expr> args;            // operands; indices of a load
};
using Var = Expr;  // an Expr of kind kVar

// Constructors. They fold constants and the identities x+0, x*1, x*0 (integers only), but nothing
// that needs bounds: see simplify.h. Operand types must agree (a bug otherwise).
Expr Int(int64_t v, DType t = DType::kI64);  // `v` modulo the size of the type
Expr Float(double v, DType t = DType::kF32);
Expr Bool(bool v);
Var MakeVar(std::string name, DType t = DType::kI64);
Expr Binary(BinaryOp op, Expr a, Expr b);
Expr Not(Expr a);
Expr Select(Expr cond, Expr then_value, Expr else_value);  // both sides may be evaluated
Expr Cast(DType t, Expr a);
Expr Call(Intrinsic f, Expr a);
Expr Load(Buffer b, std::vector<Expr> indices);

inline Expr operator+(const Expr& a, const Expr& b) { return Binary(BinaryOp::kAdd, a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return Binary(BinaryOp::kSub, a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return Binary(BinaryOp::kMul, a, b); }
inline Expr operator/(const Expr& a, const Expr& b) {
  return Binary(BinaryOp::kDiv, a, b);
}  // floats
inline Expr operator+(const Expr& a, int64_t b) { return a + Int(b, a->dtype); }
inline Expr operator-(const Expr& a, int64_t b) { return a - Int(b, a->dtype); }
inline Expr operator*(const Expr& a, int64_t b) { return a * Int(b, a->dtype); }
inline Expr FloorDiv(const Expr& a, const Expr& b) { return Binary(BinaryOp::kFloorDiv, a, b); }
inline Expr FloorMod(const Expr& a, const Expr& b) { return Binary(BinaryOp::kFloorMod, a, b); }
inline Expr FloorDiv(const Expr& a, int64_t b) { return FloorDiv(a, Int(b, a->dtype)); }
inline Expr FloorMod(const Expr& a, int64_t b) { return FloorMod(a, Int(b, a->dtype)); }
inline Expr Min(const Expr& a, const Expr& b) { return Binary(BinaryOp::kMin, a, b); }
inline Expr Max(const Expr& a, const Expr& b) { return Binary(BinaryOp::kMax, a, b); }
inline Expr Lt(const Expr& a, const Expr& b) { return Binary(BinaryOp::kLt, a, b); }
inline Expr Le(const Expr& a, const Expr& b) { return Binary(BinaryOp::kLe, a, b); }
inline Expr Ge(const Expr& a, const Expr& b) { return Le(b, a); }
inline Expr Eq(const Expr& a, const Expr& b) { return Binary(BinaryOp::kEq, a, b); }
inline Expr And(const Expr& a, const Expr& b) { return Binary(BinaryOp::kAnd, a, b); }
inline Expr Or(const Expr& a, const Expr& b) { return Binary(BinaryOp::kOr, a, b); }

bool IsInt(const Expr& e, int64_t v);
// What `v` is in arithmetic modulo the size of the type (u64: its bits).
int64_t WrapInt(int64_t v, DType t);
// `v` towards zero, in that form; what the type cannot hold becomes the nearest it can, NaN 0.
// bool: not zero.
int64_t SaturateToInt(double v, DType t);
// Towards minus infinity, as // in expressions; wraps where -1 divides the least integer.
int64_t FloorDivInt(int64_t a, int64_t b);
// Of integers of type t in that form, the result in the form of the result's type (comparisons and
// logic: bool). None for `/`.
std::optional<int64_t> BinaryValue(BinaryOp op, int64_t a, int64_t b, DType t);
bool IsTrue(const Expr& e);  // the constant true (a null predicate counts as true)
bool IsFalse(const Expr& e);

// Total structural order; variables by name, buffers by name. 0 when equal.
int Compare(const Expr& a, const Expr& b);
inline bool Same(const Expr& a, const Expr& b) { return a == b || Compare(a, b) == 0; }

// Rebuilds `e` with each node that `f` maps to something replaced (children first when `f` gives
// null).
Expr Rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f);
// Replaces variables (by identity).
struct Substitution {
  std::vector<std::pair<const ExprNode*, Expr>> pairs;
  void Add(const Var& v, Expr e) { pairs.emplace_back(v.get(), std::move(e)); }
};
Expr Substitute(const Expr& e, const Substitution& s);
void Visit(const Expr& e,
           const std::function<void(const ExprNode&)>& f);  // every node, parents first
bool Uses(const Expr& e, const Var& v);

// `((a.i*4 + a.j) // 3)`; parse(print(x)) == x given the same variables and buffers.
std::string ToString(const Expr& e);

}  // namespace whet::expr
