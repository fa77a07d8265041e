// compute_at and reverse_compute_at: move a block's nest into a loop of its consumer (producer).
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
  if (!found) return FailedPrecondition("block '{}' is not inside loop '{}'", site.block->name, at->var->name);
  return r;
}

Expr BindIters(const BlockSite& site, const Expr& e) {
  expr::Substitution s;
  for (size_t i = 0; i < site.block->iters.size(); ++i) s.Add(site.block->iters[i].var, site.block->bindings[i]);
  return Substitute(e, s);
}

// compute_at BLOCK LOOP: the region of BLOCK's buffer that the body of LOOP reads is computed just before it is read.
// All readers must be inside LOOP; the block keeps none of the schedule its own loops had.
Status ComputeAt(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(const ForNode* at, NeedLoop(p, args[1]));
  const BlockNode& b = *site.block;
  WHET_RETURN_IF_ERROR(NeedIntermediate(p, b.out->name).status());
  if (Writers(p, b.out).size() != 1) return FailedPrecondition("buffer '{}' has several writers", b.out->name);
  const std::vector<int> out_dims = PlainOutput(b);
  if (out_dims.size() != b.out_indices.size()) return FailedPrecondition("block '{}' does not write one element per iteration", b.name);
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

// reverse_compute_at BLOCK LOOP: BLOCK consumes what one iteration of LOOP has produced, right after it. BLOCK reads
// the producer's buffer at its own iteration variables.
Status ReverseComputeAt(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(const ForNode* at, NeedLoop(p, args[1]));
  const BlockNode& b = *site.block;
  // The producer: the one writer inside LOOP of a buffer that BLOCK reads.
  const BlockNode* producer = nullptr;
  std::vector<DimRange> domain;
  for (const loop::Iter& it : b.iters) domain.push_back({expr::Int(0), it.extent});
  expr::Bounds outer;
  for (const auto* load : loop::Loads(b.value)) {
    for (const BlockSite& w : Writers(p, load->buffer)) {
      auto ranges = RangesBelow(w, at);
      if (!ranges.ok()) continue;
      producer = w.block;  // the last writer in program order: the update step, not the initial value
      for (const ForNode* f : w.loops) {
        outer.Set(f->var, {f->begin, f->begin + f->extent - 1});
        if (f == at) break;
      }
      for (size_t d = 0; d < load->args.size(); ++d) {
        const DimRange made = loop::RangeOf(BindIters(w, w.block->out_indices[d]), *ranges, load->buffer->shape[d]);
        if (load->args[d]->kind == expr::Kind::kInt) continue;
        bool bound = false;
        for (size_t i = 0; i < b.iters.size(); ++i) {
          if (!(b.iters[i].var == load->args[d])) continue;
          if (b.iters[i].reduce) return FailedPrecondition("block '{}' reduces over '{}'", b.name, b.iters[i].var->name);
          domain[i] = made;
          bound = true;
        }
        if (!bound) return FailedPrecondition("block '{}' reads '{}' at {}, not at an iteration variable", b.name, load->buffer->name, expr::ToString(load->args[d]));
      }
    }
  }
  if (!producer) return FailedPrecondition("nothing that block '{}' reads is written inside '{}'", b.name, args[1]);
  Stmt nest = NestFor(b, domain, outer);
  p.body = RemoveBlock(p.body, &b);
  p.body = InsertBeside(p.body, args[1], producer, nest, /*before=*/false);
  return OkStatus();
}
const Primitive kReverseComputeAt = {"reverse_compute_at", 1, "reverse_compute_at BLOCK LOOP", 2, 2, ReverseComputeAt};

}  // namespace

const Primitive& PrimComputeAt() { return kComputeAt; }
const Primitive& PrimReverseComputeAt() { return kReverseComputeAt; }

}  // namespace whet::schedule
