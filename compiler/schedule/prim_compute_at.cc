// compute_at and reverse_compute_at: move a block's nest into a loop of its consumer (producer).
#include <limits>
#include <optional>

#include "compiler/loop/lower.h"
#include "compiler/schedule/invariants.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Expr;
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

// A reduction that goes on outside of `at` is finished in the last iteration of its loops there:
// adds that condition. Refuses where an element is visited in several iterations of other loops.
Status AddFinished(const BlockSite& w, const ForNode* at, std::vector<Expr>& when) {
  size_t first = w.loops.size();
  for (size_t l = 0; l < w.loops.size(); ++l) {
    const ForNode* f = w.loops[l];
    bool reduced = false;
    for (size_t i = 0; i < w.block->iters.size(); ++i)
      reduced |= w.block->iters[i].reduce && expr::Uses(w.block->bindings[i], f->var);
    if (reduced && f->extent > 1) {
      if (w.block->predicate && expr::Uses(w.block->predicate, f->var))
        return FailedPrecondition("block '{}' is still reducing over '{}' there", w.block->name,
                                  f->var->name);
      first = std::min(first, l);
      loop::Conjuncts(expr::Eq(f->var, expr::Int(f->begin + f->extent - 1)), when);
    }
    if (f == at) break;
  }
  if (!OncePerElement(w, first))
    return FailedPrecondition("elements of '{}' are visited again after loop '{}'",
                              w.block->out->name, w.loops[first]->var->name);
  return OkStatus();
}

// What an index of a buffer is in one iteration of the fixed loops: `fixed` + `inner`, the latter
// in loops below; a consumer's axis takes these values.
struct Place {
  expr::Linear fixed, inner;
  int64_t dim = 0;
  int axis = -1;
};

void SplitInner(const Expr& e, const LoopRanges& ranges, expr::Linear* fixed, expr::Linear* inner) {
  const expr::Linear all = expr::ToLinear(expr::Simplify(e, ranges.all));
  fixed->constant = all.constant;
  for (const auto& term : all.terms) {
    bool below = false;
    expr::Visit(term.first, [&](const expr::ExprNode& n) {
      below |= n.kind == expr::Kind::kVar && ranges.inner.Find(&n);
    });
    (below ? inner : fixed)->terms.push_back(term);
  }
}

// A part of a producer's predicate that the consumer has to repeat for its own axis: `difference` <
// 0 (or <= 0) cuts the values of `axis` at less than the buffer's dimension.
struct Cut {
  expr::BinaryOp op;
  expr::Linear fixed;  // of the difference, with the axis' fixed part taken off
  int axis = -1;
};

// In which iterations of the fixed loops `w` makes anything at all: its predicate with the inner
// loops' part at its least.
StatusOr<Expr> WhenMade(const BlockSite& w, const LoopRanges& ranges,
                        const std::vector<Place>& places, std::vector<Cut>& cuts) {
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
      const Expr difference = t->args[0] - t->args[1];
      const DimRange least = loop::RangeOf(difference, ranges, std::numeric_limits<int64_t>::max());
      when = expr::Binary(t->binary, least.lo, expr::Int(0));
      expr::Linear fixed, below;
      SplitInner(difference, ranges, &fixed, &below);
      for (const Place& p : places) {
        const expr::Linear apart = expr::Add(below, p.inner, -1);
        if (!apart.terms.empty() || apart.constant != 0 || p.axis < 0) continue;
        // Where the dimension ends the consumer's own axis does.
        const expr::Linear to_end = expr::Add(fixed, p.fixed, -1);
        const bool end =
            to_end.terms.empty() && t->binary == expr::BinaryOp::kLt && -to_end.constant >= p.dim;
        if (!end) cuts.push_back({t->binary, to_end, p.axis});
        break;
      }
    }
    if (!ranges.all.Decide(when).value_or(false)) kept.push_back(when);
  }
  return loop::Conjunction(kept);
}

// The iterations of `b` that read what `w` makes in one iteration of the fixed loops, by iteration
// variable.
Status RestrictTo(const BlockNode& b, const expr::ExprNode& load, const BlockSite& w,
                  const LoopRanges& ranges, std::vector<std::optional<DimRange>>& made,
                  std::vector<Place>& places) {
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
      // One step of it per iteration, or all; that none is done twice is looked at in the end.
      const bool all = range.lo->kind == expr::Kind::kInt && range.extent == b.iters[i].extent;
      if (b.iters[i].reduce && range.extent != 1 && !all)
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
      Place place;
      SplitInner(index, ranges, &place.fixed, &place.inner);
      place.dim = load.buffer->shape[d];
      place.axis = static_cast<int>(i);
      places.push_back(std::move(place));
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
  std::vector<Cut> cuts;
  expr::Bounds outer;
  const auto loads = loop::Loads(b.value);
  for (const auto* load : loads) {
    std::vector<BlockSite> writers = Writers(p, load->buffer);
    std::erase_if(writers, [&](const BlockSite& w) { return !RangesBelow(w, at).ok(); });
    for (const BlockSite& w : writers) {
      auto ranges = RangesBelow(w, at);
      for (const auto* other : loads) {
        if (other->buffer == load->buffer && !expr::Same(Expr(other), Expr(load))) {
          return FailedPrecondition(
              "block '{}' reads '{}' at two places, which are not made together", b.name,
              load->buffer->name);
        }
      }
      producer = w.block;
      for (const ForNode* f : w.loops) {
        outer.Set(f->var, {f->begin, f->begin + f->extent - 1});
        if (f == at) break;
      }
      std::vector<Place> places;
      WHET_RETURN_IF_ERROR(RestrictTo(b, *load, w, *ranges, made, places));
      if (w.block != writers.back().block) continue;  // the last one finishes what the others begin
      WHET_RETURN_IF_ERROR(AddFinished(w, at, when));
      WHET_ASSIGN_OR_RETURN(Expr e, WhenMade(w, *ranges, places, cuts));
      loop::Conjuncts(e, when);
    }
  }
  if (!producer)
    return FailedPrecondition("nothing that block '{}' reads is written inside '{}'", b.name,
                              args[1]);
  std::vector<DimRange> domain;
  for (size_t i = 0; i < b.iters.size(); ++i)
    domain.push_back(made[i].value_or(DimRange{expr::Int(0), b.iters[i].extent}));
  Stmt nest = NestFor(b, domain, outer);
  if (!when.empty() || !cuts.empty()) {
    nest = loop::Map(nest, [&](const Stmt& s) -> Stmt {
      const auto* moved = As<BlockNode>(s);
      if (!moved) return nullptr;
      BlockFields f = *moved;
      for (const Cut& cut : cuts) {
        const expr::Linear value =
            expr::Add(cut.fixed, expr::ToLinear(f.bindings[static_cast<size_t>(cut.axis)]));
        loop::Conjuncts(expr::Binary(cut.op, value.ToExpr(), expr::Int(0)), when);
      }
      const Expr extra = loop::Conjunction(when);
      f.predicate = f.predicate ? expr::And(extra, f.predicate) : extra;
      return loop::MakeBlock(std::move(f));
    });
  }
  const bool reduces = b.reducer != loop::Reducer::kNone;
  const std::string name = b.name;
  p.body = RemoveBlock(p.body, &b);
  p.body = InsertBeside(p.body, args[1], producer, nest, /*before=*/false);
  if (reduces) {
    WHET_ASSIGN_OR_RETURN(BlockSite moved, loop::FindBlock(p, name));
    if (!OncePerIteration(moved))
      return FailedPrecondition("steps of the reduction '{}' would be done several times", name);
  }
  return OkStatus();
}
const Primitive kReverseComputeAt = {"reverse_compute_at", 1, "reverse_compute_at BLOCK LOOP", 2, 2,
                                     ReverseComputeAt};

}  // namespace

const Primitive& PrimComputeAt() { return kComputeAt; }
const Primitive& PrimReverseComputeAt() { return kReverseComputeAt; }

}  // namespace whet::schedule
