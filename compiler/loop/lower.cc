#include "compiler/loop/lower.h"

#include "compiler/loop/verify.h"

namespace whet::loop {

const std::vector<Pass>& LowerPasses() {
  // The order. Reasons stand between the entries.
  static const std::vector<Pass> passes = {
      {"expand_math", ExpandMath},
      {"lower_blocks", LowerBlocks},
      // Only stores have conditions that stand alone; blocks hide theirs in predicates and selects.
      {"hoist_conditions", HoistConditions},
      // Before partitioning: it copies loop bodies, and one buffer must not get two shapes.
      {"place_buffers", PlaceBuffers},
      {"simplify", SimplifyProgram},
      // After simplification has decided what bounds alone can decide, so that only real borders
      // are peeled.
      {"partition_loops", PartitionLoops},
      {"simplify_peeled", SimplifyProgram},
  };
  return passes;
}

namespace {

StatusOr<Program> RunPasses(Program p, const LowerOptions& options) {
  for (const Pass& pass : LowerPasses()) {
    const Stmt before = p.body;
    auto next = pass.run(p);
    if (!next.ok()) return Annotate(next.status(), pass.name);
    p = std::move(*next);
    WHET_RETURN_IF_ERROR(Annotate(Verify(p), fmt::format("after pass {}", pass.name)));
    if (options.dump && !(before == p.body)) options.dump(pass.name, p);
  }
  return p;
}

}  // namespace

StatusOr<Lowered> Lower(const Program& scheduled, const LowerOptions& options) {
  WHET_RETURN_IF_ERROR(Annotate(Verify(scheduled), "scheduled program"));
  WHET_ASSIGN_OR_RETURN(PrepackSplit split, SplitPrepack(scheduled));
  Lowered r;
  r.packed = split.packed;
  if (split.prepack.body) {
    WHET_ASSIGN_OR_RETURN(r.prepack, RunPasses(std::move(split.prepack), options));
  }
  WHET_ASSIGN_OR_RETURN(r.main, RunPasses(std::move(split.main), options));
  return r;
}

void Conjuncts(const Expr& cond, std::vector<Expr>& out) {
  if (expr::IsTrue(cond)) return;
  if (cond->kind == expr::Kind::kBinary && cond->binary == expr::BinaryOp::kAnd) {
    Conjuncts(cond->args[0], out);
    Conjuncts(cond->args[1], out);
    return;
  }
  for (const Expr& e : out) {
    if (expr::Same(e, cond)) return;
  }
  out.push_back(cond);
}

Expr Conjunction(const std::vector<Expr>& terms) {
  Expr c;
  for (const Expr& t : terms) c = c ? expr::And(c, t) : t;
  return c;
}

}  // namespace whet::loop
