// fuse_axes: two axes of a block become one. Unlike `fuse`, which joins two loops and leaves what
// the block computes over alone, this changes the block, so that tiles of the one axis may cross
// the ends of the inner one: all pixels of an image are rows of one matrix.
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Expr;

StatusOr<int> AxisOf(const BlockNode& b, const std::string& name) {
  for (size_t i = 0; i < b.iters.size(); ++i) {
    const std::string& own = b.iters[i].var->name;
    if (own == name || own == "v_" + name) return static_cast<int>(i);
  }
  return NotFound("block '{}' has no axis '{}'", b.name, name);
}

// fuse_axes BLOCK AXIS AXIS NAME: the outer axis and the inner one become NAME = outer * (extent of
// inner) + inner, and one loop BLOCK.NAME takes the place of theirs, which hold nothing else.
// Before the loops are changed.
Status FuseAxes(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const BlockNode& b = *site.block;
  WHET_ASSIGN_OR_RETURN(int outer, AxisOf(b, args[1]));
  WHET_ASSIGN_OR_RETURN(int inner, AxisOf(b, args[2]));
  const std::string loop_name = b.name + "." + args[3];
  WHET_RETURN_IF_ERROR(NeedFreeLoop(p, loop_name));
  if (outer == inner) return InvalidArgument("both axes are '{}'", args[1]);
  if (b.iters[outer].reduce != b.iters[inner].reduce)
    return FailedPrecondition("one of '{}' and '{}' is reduced", args[1], args[2]);
  if (auto taken = AxisOf(b, args[3]); taken.ok() && *taken != outer && *taken != inner)
    return InvalidArgument("block '{}' has an axis '{}' already", b.name, args[3]);
  const ForNode *outer_loop = nullptr, *inner_loop = nullptr;
  for (const ForNode* f : site.loops) {
    if (f->begin != 0 || f->for_kind != ForKind::kSerial) continue;
    if (f->var == b.bindings[outer] && f->extent == b.iters[outer].extent) outer_loop = f;
    if (f->var == b.bindings[inner] && f->extent == b.iters[inner].extent) inner_loop = f;
  }
  if (!outer_loop || !inner_loop)
    return FailedPrecondition("the loops of '{}' and '{}' were already changed", args[1], args[2]);
  if (outer_loop->body.get() != inner_loop)
    return FailedPrecondition("'{}' is not the whole body of '{}'", inner_loop->var->name,
                              outer_loop->var->name);
  bool alone = true;
  loop::Walk(inner_loop->body,
             [&](const Stmt& s) { alone &= As<BlockNode>(s) == nullptr || s.get() == &b; });
  if (!alone) return FailedPrecondition("loop '{}' holds other blocks too", inner_loop->var->name);
  for (size_t i = 0; i < b.iters.size(); ++i) {
    const bool other = static_cast<int>(i) != outer && static_cast<int>(i) != inner;
    if (other &&
        (expr::Uses(b.bindings[i], outer_loop->var) || expr::Uses(b.bindings[i], inner_loop->var)))
      return FailedPrecondition("axis '{}' moves with them", b.iters[i].var->name);
  }
  if (b.predicate &&
      (expr::Uses(b.predicate, outer_loop->var) || expr::Uses(b.predicate, inner_loop->var)))
    return FailedPrecondition("the block's predicate depends on them");
  const int64_t n = b.iters[inner].extent;
  if (n < 1 || b.iters[outer].extent > (int64_t{1} << 40) / n)
    return ResourceExhausted("the fused axis would have more than 2^40 iterations");

  const expr::Var axis = expr::MakeVar("v_" + args[3]), loop_var = expr::MakeVar(loop_name);
  expr::Substitution s;
  s.Add(b.iters[outer].var, b.iters[outer].extent == 1 ? expr::Int(0) : expr::FloorDiv(axis, n));
  s.Add(b.iters[inner].var, b.iters[outer].extent == 1 ? Expr(axis)
                            : n == 1                   ? expr::Int(0)
                                                       : expr::FloorMod(axis, n));
  BlockFields f = b;
  f.value = Substitute(b.value, s);
  if (b.init) f.init = Substitute(b.init, s);
  for (Expr& e : f.out_indices) e = Substitute(e, s);
  f.iters[outer] = {axis, b.iters[outer].extent * n, b.iters[outer].reduce};
  f.bindings[outer] = loop_var;
  f.iters.erase(f.iters.begin() + inner);
  f.bindings.erase(f.bindings.begin() + inner);
  const Stmt body = inner_loop->body;
  const int64_t extent = b.iters[outer].extent * n;
  const std::string at = outer_loop->var->name;
  const Stmt fused = ReplaceBlock(body, &b, loop::MakeBlock(std::move(f)));
  p.body = ReplaceLoop(p.body, at, [&](const ForNode&) {
    return loop::MakeFor(loop_var, 0, extent, ForKind::kSerial, fused);
  });
  return OkStatus();
}
const Primitive kFuseAxes = {"fuse_axes", 1, "fuse_axes BLOCK AXIS AXIS NAME", 4, 4, FuseAxes};

}  // namespace

const Primitive& PrimFuseAxes() { return kFuseAxes; }

}  // namespace whet::schedule
