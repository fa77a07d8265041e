// Lowering: from a scheduled program of blocks to statements that code generation emits one by one.
// The ordered list of passes is in lower.cc; each pass is a function of one program, and the
// verifier runs after each.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compiler/loop/loop.h"

namespace whet::loop {

// The scheduled program, split in two: `prepack` reads only constants and writes the packed ones,
// once, ahead of time; `main` is what runs. Buffers with one name are one buffer.
struct Lowered {
  Program prepack;  // params: constant inputs, then packed outputs; no body when nothing is packed
  Program main;  // params: inputs, outputs, packed constants (as inputs), workspaces, in this order
  std::vector<Buffer> packed;
};

struct LowerOptions {
  // Called after each pass that changed the program, for --dump; may be null.
  std::function<void(const std::string& pass, const Program&)> dump;
};

StatusOr<Lowered> Lower(const Program& scheduled, const LowerOptions& options = {});

// The passes.
struct PrepackSplit {
  Program prepack, main;
  std::vector<Buffer> packed;
};
StatusOr<PrepackSplit> SplitPrepack(const Program& p);
StatusOr<Program> ExpandMath(
    const Program& p);  // exp, log, tanh, erf, pow become arithmetic (vector_math.h)
StatusOr<Program> LowerBlocks(const Program& p);  // blocks become (guarded) stores
StatusOr<Program> HoistConditions(
    const Program& p);  // an `if` moves out of the loops it does not depend on
StatusOr<Program> PlaceBuffers(
    const Program& p);  // buffers shrink to what one iteration of their loops uses
StatusOr<Program> PartitionLoops(
    const Program& p);  // annotated loops are peeled where conditions are not all true
StatusOr<Program> SimplifyProgram(const Program& p);

// Everything after the split, in order, as Lower runs it.
struct Pass {
  const char* name;
  StatusOr<Program> (*run)(const Program&);
};
const std::vector<Pass>& LowerPasses();

// The conjuncts of a condition.
void Conjuncts(const Expr& cond, std::vector<Expr>& out);
Expr Conjunction(const std::vector<Expr>& terms);  // null (true) when empty

}  // namespace whet::loop
