// Reads what ToString(Expr) prints: parse(print(x)) is x, node by node, when the names mean the
// same variables and buffers. Text may come from a file or a peer, so nothing in it aborts: types
// and ranks are checked before a node is made, and length, nesting and numbers have caps. Pure
// functions; safe from any thread.
//
//   or     := and ('||' and)*          left to right, as all levels;
//   and    := eq ('&&' eq)*            the constructors fold constants as they always do
//   eq     := less (('=='|'!=') less)*
//   less   := sum (('<'|'<=') sum)*
//   sum    := product (('+'|'-') product)*
//   product:= atom (('*'|'/'|'//'|'%') atom)*
//   atom   := '(' or ')' | '!' atom | number | name | buffer '[' or, ... ']'
//           | function '(' or, ... ')'
//   number := -12 (i64) | 1.5f (f32) | 1.5d (f64) | 1.5h (f16) | 1.5b (bf16)
//           | inff | -inff | nanf | true | false
// Functions: min, max, pow, select, the intrinsics, and the name of a type. A type's name around a
// plain integer is a constant of that type, i32(5); a cast of an i64 constant is i32(i64(5)).
#pragma once
#include <string_view>
#include <vector>

#include "compiler/expr/expr.h"

namespace whet::expr {

// What names mean. A later entry hides an earlier one of the same name.
struct Symbols {
  std::vector<Var> vars;
  std::vector<Buffer> buffers;
  Var FindVar(std::string_view name) const;        // null when there is none
  Buffer FindBuffer(std::string_view name) const;  // null when there is none
};

inline constexpr size_t kMaxExprBytes = 1 << 20;  // lowered transcendental functions print long
inline constexpr int kMaxExprDepth = 400;  // recursive visitors must not exhaust a thread's stack

// The whole text is one expression.
StatusOr<Expr> Parse(std::string_view text, const Symbols& symbols);
// One expression at the start of `text`, which is left at what follows it. For parsers of larger
// texts.
StatusOr<Expr> ParsePrefix(std::string_view& text, const Symbols& symbols);

// Letters, digits, '_' and '.', not starting with a digit or '.', and not a word that prints as a
// constant.
bool IsName(std::string_view text);
// The longest run of name characters at the start of `text`, which it is taken from.
std::string_view TakeWord(std::string_view& text);

}  // namespace whet::expr
