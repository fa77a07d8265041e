// Primitives that rearrange loops without moving blocks: split, fuse, reorder, the loop kinds,
// annotate.
#include "compiler/schedule/invariants.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Expr;

// split LOOP FACTOR OUTER INNER: LOOP = OUTER*FACTOR + INNER. Iterations beyond the extent are cut
// by a predicate.
Status Split(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(const ForNode* f, NeedLoop(p, args[0]));
  // A little more than the extent is how a short axis fills a vector or a tile.
  WHET_ASSIGN_OR_RETURN(int64_t factor, NeedInt(args[1], 1, std::max<int64_t>(f->extent, 4096)));
  WHET_RETURN_IF_ERROR(NeedFreeLoop(p, args[2]));
  WHET_RETURN_IF_ERROR(NeedFreeLoop(p, args[3]));
  if (args[2] == args[3]) return InvalidArgument("both new loops are called '{}'", args[2]);
  if (f->for_kind != ForKind::kSerial)
    return FailedPrecondition("loop '{}' is already {}", args[0], loop::ToString(f->for_kind));
  const int64_t outer_extent = (f->extent + factor - 1) / factor;
  const expr::Var outer = expr::MakeVar(args[2]), inner = expr::MakeVar(args[3]);
  const Expr value = outer * factor + inner;
  const Expr cut = f->extent % factor ? expr::Lt(value, expr::Int(f->extent)) : nullptr;
  p.body = ReplaceLoop(p.body, args[0], [&](const ForNode& l) {
    Stmt body = SubstituteLoop(l.body, l.var, value, cut);
    return loop::MakeFor(outer, 0, outer_extent, ForKind::kSerial,
                         loop::MakeFor(inner, 0, factor, ForKind::kSerial, body));
  });
  return OkStatus();
}
const Primitive kSplit = {"split", 1, "split LOOP FACTOR OUTER INNER", 4, 4, Split};

// fuse OUTER INNER FUSED: INNER is the whole body of OUTER.
Status Fuse(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(const ForNode* outer, NeedLoop(p, args[0]));
  WHET_ASSIGN_OR_RETURN(const ForNode* inner, NeedLoop(p, args[1]));
  WHET_RETURN_IF_ERROR(NeedFreeLoop(p, args[2]));
  if (outer->body.get() != inner)
    return FailedPrecondition("'{}' is not the whole body of '{}'", args[1], args[0]);
  if (outer->for_kind != ForKind::kSerial || inner->for_kind != ForKind::kSerial) {
    return FailedPrecondition("only serial loops fuse");
  }
  const expr::Var fused = expr::MakeVar(args[2]);
  const int64_t n = inner->extent;
  if (n > 0 && outer->extent > (int64_t{1} << 40) / n)
    return ResourceExhausted("the fused loop would run more than 2^40 times");
  p.body = ReplaceLoop(p.body, args[0], [&](const ForNode& l) {
    const auto* in = As<ForNode>(l.body);
    // One of the two loops may run once: then no division is needed.
    const Expr hi = n == 1 ? Expr(fused) : l.extent == 1 ? expr::Int(0) : expr::FloorDiv(fused, n);
    const Expr lo = n == 1 ? expr::Int(0) : l.extent == 1 ? Expr(fused) : expr::FloorMod(fused, n);
    Stmt body = SubstituteLoop(in->body, l.var, hi, nullptr);
    body = SubstituteLoop(body, in->var, lo, nullptr);
    return loop::MakeFor(fused, 0, l.extent * n, ForKind::kSerial, body);
  });
  return OkStatus();
}
const Primitive kFuse = {"fuse", 1, "fuse OUTER INNER FUSED", 3, 3, Fuse};

// reorder LOOP...: the listed loops, all on one chain of loops, take the listed order in the places
// they occupy.
Status Reorder(Program& p, const std::vector<std::string>& args) {
  std::vector<const ForNode*> wanted;
  for (const std::string& a : args) {
    WHET_ASSIGN_OR_RETURN(const ForNode* f, NeedLoop(p, a));
    for (const ForNode* w : wanted) {
      if (w == f) return InvalidArgument("'{}' is listed twice", a);
    }
    wanted.push_back(f);
  }
  auto listed = [&](const ForNode* f) {
    return std::find(wanted.begin(), wanted.end(), f) != wanted.end();
  };
  // The outermost listed loop is the one that contains all others; the chain goes down from it.
  const ForNode* top = nullptr;
  std::vector<const ForNode*> chain;
  for (const ForNode* candidate : wanted) {
    std::vector<const ForNode*> c;
    size_t hits = 0;
    for (const ForNode* f = candidate; f && hits < wanted.size(); f = As<ForNode>(f->body)) {
      c.push_back(f);
      hits += listed(f);
    }
    if (hits == wanted.size()) {
      top = candidate;
      chain = c;
    }
  }
  if (!top) return FailedPrecondition("the loops are not nested directly in one another");
  std::vector<const ForNode*> order;
  size_t next = 0;
  for (const ForNode* f : chain) order.push_back(listed(f) ? wanted[next++] : f);
  Stmt body = chain.back()->body;
  for (auto it = order.rbegin(); it != order.rend(); ++it) body = loop::WithBody(**it, body);
  p.body = ReplaceLoop(p.body, top->var->name, [&](const ForNode&) { return body; });
  return OkStatus();
}
const Primitive kReorder = {"reorder", 1, "reorder LOOP LOOP...", 2, 16, Reorder};

Status SetKind(Program& p, const std::string& name, ForKind kind) {
  WHET_ASSIGN_OR_RETURN(const ForNode* f, NeedLoop(p, name));
  if (f->for_kind != ForKind::kSerial)
    return FailedPrecondition("it is already {}", loop::ToString(f->for_kind));
  if (kind == ForKind::kUnrolled && f->extent > kMaxUnroll)
    return InvalidArgument("unrolling {} iterations; the limit is {}", f->extent, kMaxUnroll);
  if (kind == ForKind::kVectorized && f->extent > 64)
    return InvalidArgument("a vector of {} lanes; the limit is 64", f->extent);
  if (kind != ForKind::kUnrolled) {
    for (const BlockSite& s : loop::AllBlocks(p)) {
      bool inside = false;
      for (const ForNode* l : s.loops) inside |= l == f;
      for (size_t i = 0; inside && i < s.block->iters.size(); ++i) {
        if (s.block->iters[i].reduce && expr::Uses(s.block->bindings[i], f->var) &&
            !(kind == ForKind::kVectorized && CombinesLanes(s, f))) {
          return FailedPrecondition("block '{}' reduces over it", s.block->name);
        }
      }
    }
  }
  if (kind == ForKind::kVectorized) {
    bool has_loop = false;
    loop::Walk(f->body, [&](const Stmt& s) { has_loop |= As<ForNode>(s) != nullptr; });
    if (has_loop) return FailedPrecondition("a vectorized loop is innermost, it has loops inside");
  }
  p.body = ReplaceLoop(p.body, name, [&](const ForNode& l) {
    return loop::MakeFor(l.var, l.begin, l.extent, kind, l.body, l.annotations);
  });
  return OkStatus();
}
Status Vectorize(Program& p, const std::vector<std::string>& a) {
  return SetKind(p, a[0], ForKind::kVectorized);
}
Status Unroll(Program& p, const std::vector<std::string>& a) {
  return SetKind(p, a[0], ForKind::kUnrolled);
}
Status Parallel(Program& p, const std::vector<std::string>& a) {
  for (const Stmt& root :
       As<SeqNode>(p.body) ? As<SeqNode>(p.body)->items : std::vector<Stmt>{p.body}) {
    const auto* f = As<ForNode>(root);
    if (f && f->var->name == a[0]) return SetKind(p, a[0], ForKind::kParallel);
  }
  return FailedPrecondition(
      "only an outermost loop runs in parallel: it becomes the range the runtime splits");
}
const Primitive kVectorize = {"vectorize", 1, "vectorize LOOP", 1, 1, Vectorize};
const Primitive kUnroll = {"unroll", 1, "unroll LOOP", 1, 1, Unroll};
const Primitive kParallel = {"parallel", 1, "parallel LOOP", 1, 1, Parallel};

// annotate LOOP KEY VALUE: advice to lowering. `partition`: peel the iterations in which conditions
// inside are not all true, so that the rest runs without them; of a parallel loop, have the body
// once more without them. `prefetch`: vectors of constants that the loop reads as it goes on are
// asked for VALUE bytes ahead.
Status AnnotateLoop(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(const ForNode* f, NeedLoop(p, args[0]));
  WHET_ASSIGN_OR_RETURN(int64_t value, NeedInt(args[2], 0, 1 << 20));
  if (args[1] != "partition" && args[1] != "prefetch")
    return InvalidArgument("unknown annotation '{}'; known are partition and prefetch", args[1]);
  if (f->for_kind == ForKind::kVectorized) {
    return FailedPrecondition("a {} loop has no annotations", loop::ToString(f->for_kind));
  }
  p.body = ReplaceLoop(p.body, args[0], [&](const ForNode& l) {
    auto annotations = l.annotations;
    annotations.emplace_back(args[1], value);
    return loop::MakeFor(l.var, l.begin, l.extent, l.for_kind, l.body, annotations);
  });
  return OkStatus();
}
const Primitive kAnnotate = {"annotate", 1, "annotate LOOP KEY VALUE", 3, 3, AnnotateLoop};

}  // namespace

const Primitive& PrimSplit() { return kSplit; }
const Primitive& PrimFuse() { return kFuse; }
const Primitive& PrimReorder() { return kReorder; }
const Primitive& PrimVectorize() { return kVectorize; }
const Primitive& PrimUnroll() { return kUnroll; }
const Primitive& PrimParallel() { return kParallel; }
const Primitive& PrimAnnotate() { return kAnnotate; }

}  // namespace whet::schedule
