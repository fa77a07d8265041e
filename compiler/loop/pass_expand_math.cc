// Replaces calls of exp, log, tanh, erf and pow by arithmetic, in blocks, before anything looks
// inside expressions.
#include "compiler/expr/vector_math.h"
#include "compiler/loop/lower.h"

namespace whet::loop {

StatusOr<Program> ExpandMath(const Program& p) {
  Program r = p;
  if (p.body) r.body = MapExprs(p.body, [](const Expr& e) { return expr::ExpandMath(e); });
  return r;
}

}  // namespace whet::loop
