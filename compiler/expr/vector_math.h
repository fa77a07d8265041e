// exp, log, tanh, erf, pow and the trigonometric and hyperbolic functions as arithmetic that
// vectorizes: the same operations, and so the same bits up to fused multiply-add, on every
// instruction set. Polynomials and reductions are those of the Cephes library (Moshier 1992), sine,
// cosine and arc sine those of fdlibm (Sun 1993), the reduction of large f32 angles Payne and
// Hanek's; f32 exp and erf are minimax polynomials of our own, without a division. Largest errors
// found over the tested ranges (tests/unit/vector_math_test.cc checks them), in units in the last
// place:
//   f32: exp 2 (results below 2^-126 become 0), log 2, tanh 3, erf 4; sin, cos, tan, asin, acos,
//   atan, sinh, cosh, asinh, acosh and atanh 1 (they are evaluated in f64), angles of any size;
//   f64: exp, log, asin, acos, atan, atanh 2, sin, cos 3, tanh, tan, cosh, asinh, acosh, erf 4,
//   sinh 5; angles up to 2^31, beyond that as of an angle a few units in the last place off.
//   pow(x, y): exact for a constant y in {-1, 0, 0.5, 1, 2, 3} up to a rounding per product, else
//   exp(y * log|x|): 2 + 3 |y log x| ulp.
// f16 and bf16 are computed in f32. NaN, infinities and zeros give what the C library gives, but a
// constant exponent of 0.5 is the square root, which has none of -infinity and keeps the sign of 0.
#pragma once
#include "compiler/expr/expr.h"

namespace whet::expr {

// Every such call in the expression expanded; the expression itself when there is none.
Expr ExpandMath(const Expr& e);

}  // namespace whet::expr
