// exp, log, tanh, erf and pow of f32 as arithmetic that vectorizes: the same operations, and so the
// same bits up to fused multiply-add, on every instruction set. Polynomials and reductions are
// those of the Cephes library (Moshier 1992). Largest errors found over the tested ranges
// (tests/unit/vector_math_test.cc checks them), in units in the last place:
//   exp 2 (results below 2^-126 become 0), log 2, tanh 3, erf 4; pow(x, y) exact for y in {-1, 0,
//   0.5, 1, 2, 3}, else exp(y * log|x|): 2 + 3 |y log x| ulp.
// NaN and infinities give what the C library gives.
#pragma once
#include "compiler/expr/expr.h"

namespace whet::expr {

// Every such call in the expression expanded; the expression itself when there is none.
Expr ExpandMath(const Expr& e);

}  // namespace whet::expr
