// Gives every intermediate buffer its place and size. One that is used only inside some loops
// shrinks to the region one iteration of those loops touches and lives in the thread's scratch (or
// in registers); one that connects root-level nests is a workspace of the kernel.
#include <algorithm>

#include "compiler/loop/lower.h"
#include "compiler/loop/region.h"

namespace whet::loop {
namespace {

struct Access {
  std::vector<Expr> indices;
  std::vector<const ForNode*> loops;
  // Of a store: whether it adds to what is there, and under which conditions it is run.
  bool accumulates = false;
  std::vector<Expr> conditions;
};

class Collector {
 public:
  explicit Collector(const Buffer& b) : buffer_(b) {}
  std::vector<Access> Run(const Stmt& s) {
    Visit(s);
    return std::move(found_);
  }

 private:
  void Visit(const Stmt& s) {
    if (const auto* f = As<ForNode>(s)) {
      loops_.push_back(f);
      Visit(f->body);
      loops_.pop_back();
    } else if (const auto* seq = As<SeqNode>(s)) {
      for (const Stmt& item : seq->items) Visit(item);
    } else if (const auto* c = As<IfNode>(s)) {
      AddLoads(c->cond);
      conditions_.push_back(c->cond);
      Visit(c->body);
      conditions_.pop_back();
    } else if (const auto* st = As<StoreNode>(s)) {
      const size_t before = found_.size();
      AddLoads(st->value);
      if (st->out == buffer_)
        found_.push_back({st->indices, loops_, found_.size() > before, conditions_});
    }
  }
  void AddLoads(const Expr& e) {
    for (const auto* l : Loads(e)) {
      if (l->buffer == buffer_) found_.push_back({l->args, loops_, false, {}});
    }
  }
  Buffer buffer_;
  std::vector<const ForNode*> loops_;
  std::vector<Expr> conditions_;
  std::vector<Access> found_;
};

// A sum that goes on from one iteration of a loop to the next: it starts only in some of them, and
// its place does not move with the loop.
bool Carries(const ForNode& f, const std::vector<Access>& accesses) {
  bool sums = false, starts_in_some = false;
  for (const Access& a : accesses) {
    if (a.accumulates) {
      sums |= std::none_of(a.indices.begin(), a.indices.end(),
                           [&](const Expr& e) { return expr::Uses(e, f.var); });
    } else {
      starts_in_some |= std::any_of(a.conditions.begin(), a.conditions.end(),
                                    [&](const Expr& e) { return expr::Uses(e, f.var); });
    }
  }
  return sums && starts_in_some;
}

// How many of the outer loops all accesses share and give each iteration its own values.
size_t CommonDepth(const std::vector<Access>& accesses) {
  size_t depth = accesses[0].loops.size();
  for (const Access& a : accesses) {
    size_t d = 0;
    while (d < depth && d < a.loops.size() && a.loops[d] == accesses[0].loops[d]) ++d;
    depth = d;
  }
  for (size_t d = 0; d < depth; ++d) {
    if (Carries(*accesses[0].loops[d], accesses)) return d;
  }
  return depth;
}

}  // namespace

StatusOr<Program> PlaceBuffers(const Program& p) {
  Program r = p;
  r.intermediates.clear();
  for (const Buffer& b : p.intermediates) {
    std::vector<Access> accesses = Collector(b).Run(r.body);
    if (accesses.empty()) continue;
    const size_t depth = CommonDepth(accesses);
    if (depth == 0) {
      if (b->scope != expr::Scope::kGlobal) {
        return FailedPrecondition("buffer '{}' of scope {} is used across outermost loops", b->name,
                                  expr::ToString(b->scope));
      }
      r.params.push_back({b, Role::kWorkspace});
      continue;
    }
    std::vector<DimRange> region(b->shape.size());
    bool first = true;
    for (const Access& a : accesses) {
      LoopRanges ranges;
      for (size_t i = 0; i < a.loops.size(); ++i) {
        if (i < depth) {
          ranges.AddFixed(*a.loops[i]);
        } else {
          ranges.AddInner(*a.loops[i]);
        }
      }
      for (size_t d = 0; d < region.size(); ++d) {
        DimRange x = RangeOf(a.indices[d], ranges, b->shape[d]);
        region[d] = first ? x : Union(region[d], x, ranges, b->shape[d]);
      }
      first = false;
    }
    std::vector<int64_t> shape;
    for (const DimRange& d : region) shape.push_back(d.extent);
    const Buffer placed = expr::MakeBuffer(b->name, b->dtype, shape, b->scope, b->constant);
    r.body = ReplaceBuffer(r.body, b, placed, [&](const std::vector<Expr>& indices) {
      std::vector<Expr> moved;
      for (size_t d = 0; d < indices.size(); ++d) moved.push_back(indices[d] - region[d].lo);
      return moved;
    });
    r.intermediates.push_back(placed);
  }
  return r;
}

}  // namespace whet::loop
