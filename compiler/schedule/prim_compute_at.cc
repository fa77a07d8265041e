// compute_at and reverse_compute_at: move a block's nest into a loop of its consumer (producer).
#include <limits>
#include <optional>

#include "compiler/loop/lower.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Expr;
using expr::ExprNode;
using loop::DimRange;
using loop::LoopRanges;

// Splits the loops around a block into those fixed at `loop` (it included) and those below it.
StatusOr<LoopRanges> RangesBelow(const BlockSite& site, const ForNode* at) {
  LoopRanges r;
  bool below = false, found = false;
  for (const ForNode* f : site.loops) {
    if (below) {
      r.AddInner(*f);
    } else {
      r.AddFixed(*f);
    }
    if (f == at) below = found = true;
  }
  if (!found)
    return FailedPrecondition("block '{}' is not inside loop '{}'", site.block->name,
                              at->var->name);
  return r;
}

Expr BindIters(const BlockSite& site, const Expr& e) {
  expr::Substitution s;
  for (size_t i = 0; i < site.block->iters.size(); ++i)
    s.Add(site.block->iters[i].var, site.block->bindings[i]);
  return Substitute(e, s);
}

// compute_at BLOCK LOOP: the region of BLOCK's buffer that the body of LOOP reads is computed just
// before it is read. All readers must be inside LOOP; the block keeps none of the schedule its own
// loops had.
Status ComputeAt(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(const ForNode* at, NeedLoop(p, args[1]));
  const BlockNode& b = *site.block;
  WHET_RETURN_IF_ERROR(NeedIntermediate(p, b.out->name).status());
  if (Writers(p, b.out).size() != 1)
    return FailedPrecondition("buffer '{}' has several writers", b.out->name);
  const std::vector<int> out_dims = PlainOutput(b);
  if (out_dims.size() != b.out_indices.size())
    return FailedPrecondition("block '{}' does not write one element per iteration", b.name);
  std::vector<BlockSite> readers = Readers(p, b.out);
  if (readers.empty()) return FailedPrecondition("nothing reads '{}'", b.out->name);

  std::vector<DimRange> region(b.out->shape.size());
  bool first = true;
  expr::Bounds outer;
  for (const BlockSite& r : readers) {
    WHET_ASSIGN_OR_RETURN(LoopRanges ranges, RangesBelow(r, at));
    for (const auto* load : loop::Loads(r.block->value)) {
      if (!(load->buffer == b.out)) continue;
      for (size_t d = 0; d < region.size(); ++d) {
        DimRange x = loop::RangeOf(BindIters(r, load->args[d]), ranges, b.out->shape[d]);
        region[d] = first ? x : loop::Union(region[d], x, ranges, b.out->shape[d]);
      }
      first = false;
    }
    if (outer.Find(at->var.get()) == nullptr) {
      for (const ForNode* f : r.loops) {
        outer.Set(f->var, {f->begin, f->begin + f->extent - 1});
        if (f == at) break;
      }
    }
  }
  std::vector<DimRange> domain;
  for (const loop::Iter& it : b.iters) domain.push_back({expr::Int(0), it.extent});
  for (size_t d = 0; d < region.size(); ++d) domain[out_dims[d]] = region[d];
  Stmt nest = NestFor(b, domain, outer);
  const BlockNode* anchor = readers[0].block;
  p.body = RemoveBlock(p.body, &b);
  p.body = InsertBeside(p.body, args[1], anchor, nest, /*before=*/true);
  return OkStatus();
}
const Primitive kComputeAt = {"compute_at", 1, "compute_at BLOCK LOOP", 2, 2, ComputeAt};

// Terms of a producer's predicate that say which of its inner iterations are made, where one loop
// alone tells the index along a dimension, rest + loop: what the consumer's iteration along it says
// takes the loop's place.
struct PartlyMade {
  Expr term, rest;
  expr::Var loop;
  int iter = -1;  // of the consumer
};

void CollectPartlyMade(const BlockNode& b, const ExprNode& load, const BlockSite& w,
                       const ForNode* at, const LoopRanges& ranges, std::vector<PartlyMade>& made) {
  std::vector<Expr> terms;
  // Loops that run once become their number.
  if (w.block->predicate) loop::Conjuncts(expr::Simplify(w.block->predicate, ranges.all), terms);
  const auto first = std::find(w.loops.begin(), w.loops.end(), at) + 1;
  for (size_t d = 0; d < load.args.size(); ++d) {
    const expr::Linear index =
        expr::ToLinear(expr::Simplify(BindIters(w, w.block->out_indices[d]), ranges.all));
    const ForNode* along = nullptr;
    int inner = 0;
    for (auto f = first; f != w.loops.end(); ++f) {
      if (!expr::Uses(index.ToExpr(), (*f)->var)) continue;
      ++inner;
      if (index.CoefficientOf((*f)->var) == 1) along = *f;
    }
    if (inner != 1 || !along) continue;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      if (!(b.iters[i].var == load.args[d])) continue;
      for (const Expr& t : terms) {
        const bool others = std::any_of(first, w.loops.end(), [&](const ForNode* f) {
          return f != along && expr::Uses(t, f->var);
        });
        if (others || !expr::Uses(t, along->var)) continue;
        const Expr rest = expr::Add(index, expr::ToLinear(along->var), -1).ToExpr();
        made.push_back({t, rest, along->var, static_cast<int>(i)});
      }
    }
  }
}

// All of a reduction happens inside one iteration of `at`.
Status NeedFinished(const BlockSite& w, const ForNode* at) {
  for (const ForNode* f : w.loops) {
    for (size_t i = 0; i < w.block->iters.size(); ++i) {
      if (w.block->iters[i].reduce && f->extent > 1 && expr::Uses(w.block->bindings[i], f->var)) {
        return FailedPrecondition("block '{}' is still reducing over '{}' there", w.block->name,
                                  f->var->name);
      }
    }
    if (f == at) break;
  }
  return OkStatus();
}

// In which iterations of the fixed loops `w` makes anything at all: its predicate with the inner
// loops' part at its least.
StatusOr<Expr> WhenMade(const BlockSite& w, const LoopRanges& ranges) {
  std::vector<Expr> terms, kept;
  loop::Conjuncts(w.block->predicate, terms);
  for (const Expr& t : terms) {
    bool inner = false;
    expr::Visit(t, [&](const expr::ExprNode& n) {
      inner |= n.kind == expr::Kind::kVar && ranges.inner.Find(&n);
    });
    Expr when = t;
    if (inner) {
      const bool less = t->kind == expr::Kind::kBinary &&
                        (t->binary == expr::BinaryOp::kLt || t->binary == expr::BinaryOp::kLe);
      if (!less || !ranges.all.Of(t->args[0] - t->args[1]))
        return FailedPrecondition("block '{}' runs only if {}", w.block->name, expr::ToString(t));
      const DimRange least =
          loop::RangeOf(t->args[0] - t->args[1], ranges, std::numeric_limits<int64_t>::max());
      when = expr::Binary(t->binary, least.lo, expr::Int(0));
    }
    if (!ranges.all.Decide(when).value_or(false)) kept.push_back(when);
  }
  return loop::Conjunction(kept);
}

// The iterations of `b` that read what `w` makes in one iteration of the fixed loops, by iteration
// variable.
Status RestrictTo(const BlockNode& b, const expr::ExprNode& load, const BlockSite& w,
                  const LoopRanges& ranges, std::vector<std::optional<DimRange>>& made) {
  for (size_t d = 0; d < load.args.size(); ++d) {
    // Where the range moves with the fixed loops, it says also which of their iterations make
    // nothing (those cut by a predicate), so it must not be rounded up to the whole dimension.
    const Expr index = BindIters(w, w.block->out_indices[d]);
    DimRange range = loop::RangeOf(index, ranges, std::numeric_limits<int64_t>::max());
    if (range.lo->kind == expr::Kind::kInt)
      range = loop::RangeOf(index, ranges, load.buffer->shape[d]);
    if (load.args[d]->kind == expr::Kind::kInt && load.buffer->shape[d] == 1) continue;
    bool bound = false;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      if (!(b.iters[i].var == load.args[d])) continue;
      if (b.iters[i].reduce)
        return FailedPrecondition("block '{}' reduces over '{}'", b.name, b.iters[i].var->name);
      if (b.iters[i].extent > load.buffer->shape[d]) {
        return FailedPrecondition("block '{}' runs beyond what it reads of '{}' along '{}'", b.name,
                                  load.buffer->name, b.iters[i].var->name);
      }
      if (made[i] && !(expr::Same(made[i]->lo, range.lo) && made[i]->extent == range.extent)) {
        return FailedPrecondition(
            "block '{}' reads along '{}' at two places that are not made together", b.name,
            b.iters[i].var->name);
      }
      made[i] = range;
      bound = true;
    }
    if (!bound)
      return FailedPrecondition("block '{}' reads '{}' at {}, not at an iteration variable", b.name,
                                load.buffer->name, expr::ToString(load.args[d]));
  }
  return OkStatus();
}

// reverse_compute_at BLOCK LOOP: BLOCK consumes what one iteration of LOOP has produced, right
// after it. BLOCK reads the producer's buffer at its own iteration variables.
Status ReverseComputeAt(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(const ForNode* at, NeedLoop(p, args[1]));
  const BlockNode& b = *site.block;
  if (Writers(p, b.out).size() != 1)
    return FailedPrecondition("buffer '{}' has several writers", b.out->name);
  // The producer: the last writer in program order inside LOOP of a buffer that BLOCK reads.
  const BlockNode* producer = nullptr;
  std::vector<std::optional<DimRange>> made(b.iters.size());
  std::vector<Expr> when;
  std::vector<PartlyMade> partly;
  expr::Bounds outer;
  const auto loads = loop::Loads(b.value);
  for (const auto* load : loads) {
    for (const BlockSite& w : Writers(p, load->buffer)) {
      auto ranges = RangesBelow(w, at);
      if (!ranges.ok()) continue;
      for (const auto* other : loads) {
        if (other->buffer == load->buffer && !expr::Same(Expr(other), Expr(load))) {
          return FailedPrecondition(
              "block '{}' reads '{}' at two places, which are not made together", b.name,
              load->buffer->name);
        }
      }
      WHET_RETURN_IF_ERROR(NeedFinished(w, at));
      producer = w.block;
      for (const ForNode* f : w.loops) {
        outer.Set(f->var, {f->begin, f->begin + f->extent - 1});
        if (f == at) break;
      }
      WHET_RETURN_IF_ERROR(RestrictTo(b, *load, w, *ranges, made));
      WHET_ASSIGN_OR_RETURN(Expr e, WhenMade(w, *ranges));
      loop::Conjuncts(e, when);
      CollectPartlyMade(b, *load, w, at, *ranges, partly);
    }
  }
  if (!producer)
    return FailedPrecondition("nothing that block '{}' reads is written inside '{}'", b.name,
                              args[1]);
  std::vector<DimRange> domain;
  for (size_t i = 0; i < b.iters.size(); ++i)
    domain.push_back(made[i].value_or(DimRange{expr::Int(0), b.iters[i].extent}));
  Stmt nest = NestFor(b, domain, outer);
  if (!when.empty() || !partly.empty()) {
    expr::Bounds bounds = outer;
    loop::Walk(nest, [&](const Stmt& s) {
      if (const auto* f = As<ForNode>(s)) bounds.Set(f->var, {f->begin, f->begin + f->extent - 1});
    });
    nest = loop::Map(nest, [&](const Stmt& s) -> Stmt {
      const auto* moved = As<BlockNode>(s);
      if (!moved) return nullptr;
      BlockFields f = *moved;
      // The conditions on the fixed loops first: they may move out.
      std::vector<Expr> terms = when;
      loop::Conjuncts(f.predicate, terms);
      for (const PartlyMade& m : partly) {
        expr::Substitution number;
        number.Add(m.loop, f.bindings[m.iter] - m.rest);
        const Expr t = expr::Simplify(Substitute(m.term, number), bounds);
        if (!expr::IsTrue(t)) loop::Conjuncts(t, terms);
      }
      f.predicate = loop::Conjunction(terms);
      return loop::MakeBlock(std::move(f));
    });
  }
  p.body = RemoveBlock(p.body, &b);
  p.body = InsertBeside(p.body, args[1], producer, nest, /*before=*/false);
  return OkStatus();
}
const Primitive kReverseComputeAt = {"reverse_compute_at", 1, "reverse_compute_at BLOCK LOOP", 2, 2,
                                     ReverseComputeAt};

}  // namespace

const Primitive& PrimComputeAt() { return kComputeAt; }
const Primitive& PrimReverseComputeAt() { return kReverseComputeAt; }

}  // namespace whet::schedule
