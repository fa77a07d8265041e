#include "compiler/schedule/invariants.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>

namespace whet::schedule {
namespace {

using expr::Expr;
using expr::ExprNode;
using loop::As;
using loop::BlockSite;
using loop::ForKind;
using loop::ForNode;

constexpr int kMaxLoops = 64;                       // around one block
constexpr int kMaxDepth = 300;                      // of an expression: visitors are recursive
constexpr int kMaxNodes = 1 << 16;                  // of all expressions together
constexpr int64_t kMaxElements = int64_t{1} << 36;  // of one buffer

// Collects what is known from equations "this linear form has a known value".
class Knowledge {
 public:
  Knowledge(const std::vector<expr::Var>& unknown, const expr::Bounds& bounds) : bounds_(bounds) {
    for (const expr::Var& v : unknown) {
      const expr::Interval* r = bounds.Find(v.get());
      if (!r || !r->single()) unknown_.push_back(v.get());
    }
  }

  // Only iterations in which this holds count: sums that it cuts do not reach as far.
  void Assume(const Expr& predicate) {
    if (!predicate || predicate->kind != expr::Kind::kBinary) return;
    if (predicate->binary == expr::BinaryOp::kAnd) {
      Assume(predicate->args[0]);
      return Assume(predicate->args[1]);
    }
    if (predicate->binary != expr::BinaryOp::kLt) return;
    cuts_.push_back(
        expr::ToLinear(expr::Simplify(predicate->args[0] - predicate->args[1], bounds_)));
  }

  void Learn(const Expr& e) { forms_.push_back(expr::ToLinear(expr::Simplify(e, bounds_))); }

  bool All() {
    Run();
    return unknown_.empty();
  }
  bool Tells(const expr::Var& v) {
    Run();
    return std::find(unknown_.begin(), unknown_.end(), v.get()) == unknown_.end();
  }

 private:
  void Run() {
    for (bool changed = true; changed && !unknown_.empty();) {
      changed = false;
      for (size_t i = 0; i < forms_.size(); ++i)
        changed |= Solve(expr::Linear(forms_[i]));  // Solve may add forms
    }
  }

  bool Known(const Expr& atom) const {
    for (const Expr& k : known_) {
      if (expr::Same(k, atom)) return true;
    }
    bool known = true;
    expr::Visit(atom, [&](const ExprNode& n) {
      known &= n.kind != expr::Kind::kVar ||
               std::find(unknown_.begin(), unknown_.end(), &n) == unknown_.end();
      known &= n.kind != expr::Kind::kLoad;
    });
    return known;
  }

  // c1*a1 + c2*a2 + ... with |c1| <= |c2| <= ...: the last atom is told when its step is larger
  // than all that the others can add, then the one before it, and so on (a mixed radix).
  bool Solve(const expr::Linear& form) {
    std::vector<std::pair<int64_t, Expr>> open;
    for (const auto& [atom, c] : form.terms) {
      if (Known(atom)) continue;
      if (c == std::numeric_limits<int64_t>::min()) return false;
      open.emplace_back(std::abs(c), atom);
    }
    std::stable_sort(open.begin(), open.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<__int128> reach = {0};
    __int128 least = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      const auto& [c, atom] = open[i];
      const auto range = bounds_.Of(atom);
      if (!range) return false;
      least += static_cast<__int128>(c) * range->lo;
      reach.push_back(reach.back() +
                      static_cast<__int128>(c) * (static_cast<__int128>(range->hi) - range->lo));
      for (const expr::Linear& cut : cuts_) {
        if (Begins(form, open, i + 1, cut))
          reach.back() = std::min(reach.back(), -1 - static_cast<__int128>(cut.constant) - least);
      }
    }
    bool learned = false;
    for (size_t i = open.size(); i-- > 0;) {
      if (open[i].first <= reach[i]) break;
      Know(open[i].second);
      learned = true;
    }
    return learned;
  }

  // Whether the first `n` of `open` are the terms of `cut`, each added.
  static bool Begins(const expr::Linear& form, const std::vector<std::pair<int64_t, Expr>>& open,
                     size_t n, const expr::Linear& cut) {
    if (cut.terms.size() != n) return false;
    for (size_t i = 0; i < n; ++i) {
      auto has = [&](const expr::Linear& l) {
        return std::any_of(l.terms.begin(), l.terms.end(), [&](const auto& t) {
          return t.second == open[i].first && expr::Same(t.first, open[i].second);
        });
      };
      if (!has(cut) || !has(form)) return false;
    }
    return true;
  }

  void Know(const Expr& atom) {
    known_.push_back(atom);
    std::erase(unknown_, atom.get());
    if (atom->kind != expr::Kind::kBinary) return;
    const bool div = atom->binary == expr::BinaryOp::kFloorDiv,
               mod = atom->binary == expr::BinaryOp::kFloorMod;
    if (!div && !mod) return;
    // x // c and x % c together tell x.
    const Expr twin = expr::Binary(div ? expr::BinaryOp::kFloorMod : expr::BinaryOp::kFloorDiv,
                                   atom->args[0], atom->args[1]);
    if (atom->args[1]->kind == expr::Kind::kInt && Known(twin))
      forms_.push_back(expr::ToLinear(atom->args[0]));
  }

  const expr::Bounds& bounds_;
  std::vector<const ExprNode*> unknown_;
  std::vector<Expr> known_;
  std::vector<expr::Linear> forms_, cuts_;
};

class Sizes {
 public:
  Status Add(const Expr& e, int depth = 1) {
    if (!e) return OkStatus();
    if (depth > kMaxDepth)
      return ResourceExhausted("an expression would be more than {} levels deep", kMaxDepth);
    if (--nodes_left_ < 0)
      return ResourceExhausted("the program's expressions would have more than {} nodes",
                               kMaxNodes);
    for (const Expr& a : e->args) WHET_RETURN_IF_ERROR(Add(a, depth + 1));
    return OkStatus();
  }
  Status Add(const loop::BlockNode& b) {
    for (const Expr& e : b.bindings) WHET_RETURN_IF_ERROR(Add(e));
    for (const Expr& e : b.out_indices) WHET_RETURN_IF_ERROR(Add(e));
    WHET_RETURN_IF_ERROR(Add(b.predicate));
    WHET_RETURN_IF_ERROR(Add(b.init));
    return Add(b.value);
  }

 private:
  int nodes_left_ = kMaxNodes;
};

Status CheckSizes(const loop::Program& p, const std::vector<BlockSite>& sites) {
  Sizes sizes;
  for (const BlockSite& s : sites) {
    if (s.loops.size() > kMaxLoops)
      return ResourceExhausted("block '{}' would be in more than {} loops", s.block->name,
                               kMaxLoops);
    WHET_RETURN_IF_ERROR(sizes.Add(*s.block));
  }
  for (const expr::Buffer& b : p.intermediates) {
    int64_t elements = 1;
    for (int64_t d : b->shape) {
      if (d > 0 && elements > kMaxElements / d)
        return ResourceExhausted("buffer '{}' would have more than {} elements", b->name,
                                 kMaxElements);
      elements *= std::max<int64_t>(d, 1);
    }
  }
  return OkStatus();
}

Status CheckNames(const loop::Program& p, const std::vector<BlockSite>& sites) {
  std::set<std::string_view> loops, blocks;
  Status st = OkStatus();
  loop::Walk(p.body, [&](const loop::Stmt& s) {
    const auto* f = As<ForNode>(s);
    if (f && st.ok() && !loops.insert(f->var->name).second)
      st = FailedPrecondition("there would be two loops '{}'", f->var->name);
  });
  for (const BlockSite& s : sites) {
    if (st.ok() && !blocks.insert(s.block->name).second)
      st = FailedPrecondition("there would be two blocks '{}'", s.block->name);
  }
  return st;
}

Status CheckOrder(const std::vector<BlockSite>& sites) {
  for (size_t r = 0; r < sites.size(); ++r) {
    for (const auto* load : loop::Loads(sites[r].block->value)) {
      for (size_t w = r; w < sites.size(); ++w) {
        if (sites[w].block->out == load->buffer) {
          return FailedPrecondition("block '{}' would read '{}' before block '{}' writes it",
                                    sites[r].block->name, load->buffer->name, sites[w].block->name);
        }
      }
    }
  }
  return OkStatus();
}

bool Inside(const BlockSite& s, const ForNode* f) {
  return std::find(s.loops.begin(), s.loops.end(), f) != s.loops.end();
}

// Every access of the buffer is inside `f`: lowering gives each iteration its own.
bool IsPrivate(const loop::Program& p, const std::vector<BlockSite>& sites, const expr::Buffer& b,
               const ForNode* f) {
  if (std::find(p.intermediates.begin(), p.intermediates.end(), b) == p.intermediates.end())
    return false;
  for (const BlockSite& s : sites) {
    if ((s.block->out == b || loop::Reads(*s.block, b)) && !Inside(s, f)) return false;
  }
  return true;
}

Status CheckIndependent(const loop::Program& p, const std::vector<BlockSite>& sites,
                        const BlockSite& s, const ForNode* f) {
  const loop::BlockNode& b = *s.block;
  if (f->for_kind == ForKind::kVectorized && CombinesLanes(s, f)) return OkStatus();
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (b.iters[i].reduce && expr::Uses(b.bindings[i], f->var)) {
      return FailedPrecondition("block '{}' would reduce over the {} loop '{}'", b.name,
                                loop::ToString(f->for_kind), f->var->name);
    }
  }
  if (f->extent <= 1) return OkStatus();
  if (f->for_kind == ForKind::kParallel && IsPrivate(p, sites, b.out, f)) return OkStatus();
  expr::Bounds bounds;
  std::vector<expr::Var> unknown;
  for (const ForNode* l : s.loops) {
    bounds.Set(l->var, {l->begin, l->begin + l->extent - 1});
    if (l == f || !unknown.empty()) unknown.push_back(l->var);
  }
  expr::Substitution bind;
  for (size_t i = 0; i < b.iters.size(); ++i) bind.Add(b.iters[i].var, b.bindings[i]);
  Knowledge known(unknown, bounds);
  known.Assume(b.predicate);
  for (const Expr& e : b.out_indices) known.Learn(Substitute(e, bind));
  if (!known.Tells(f->var)) {
    return FailedPrecondition(
        "iterations of the {} loop '{}' would write the same elements of '{}'",
        loop::ToString(f->for_kind), f->var->name, b.out->name);
  }
  return OkStatus();
}

// A sum with an initial value starts where all reduced variables are 0, so that step must come
// first for each element and come once: no loop may be part of both, and an element is not visited
// twice per step.
Status CheckReductions(const std::vector<BlockSite>& sites) {
  for (const BlockSite& s : sites) {
    const loop::BlockNode& b = *s.block;
    if (b.reducer == loop::Reducer::kNone) continue;
    size_t first = s.loops.size();
    for (size_t l = s.loops.size(); l-- > 0;) {
      bool reduced = false, spatial = false;
      for (size_t i = 0; i < b.iters.size(); ++i) {
        if (expr::Uses(b.bindings[i], s.loops[l]->var))
          (b.iters[i].reduce ? reduced : spatial) = true;
      }
      if (reduced) first = l;
      if (reduced && spatial && s.loops[l]->extent > 1) {
        return FailedPrecondition("loop '{}' would be both spatial and reduced in block '{}'",
                                  s.loops[l]->var->name, b.name);
      }
    }
    if (b.init && first < s.loops.size() && !OncePerElement(s, first)) {
      return FailedPrecondition(
          "elements of '{}' would be visited several times per step of the reduction", b.out->name);
    }
  }
  return OkStatus();
}

Status CheckKinds(const loop::Program& p, const std::vector<BlockSite>& sites) {
  for (const BlockSite& s : sites) {
    for (size_t i = 0; i < s.loops.size(); ++i) {
      const ForNode* f = s.loops[i];
      if (f->for_kind == ForKind::kParallel && i > 0)
        return FailedPrecondition("the parallel loop '{}' would not be outermost", f->var->name);
      if (f->for_kind == ForKind::kVectorized && i + 1 < s.loops.size()) {
        return FailedPrecondition("the vectorized loop '{}' would not be innermost", f->var->name);
      }
      if (f->for_kind == ForKind::kParallel || f->for_kind == ForKind::kVectorized)
        WHET_RETURN_IF_ERROR(CheckIndependent(p, sites, s, f));
    }
  }
  return OkStatus();
}

}  // namespace

bool Determine(const std::vector<Expr>& indices, const std::vector<expr::Var>& unknown,
               const expr::Bounds& bounds) {
  Knowledge k(unknown, bounds);
  for (const Expr& e : indices) k.Learn(e);
  return k.All();
}

// The predicate lets a block run in one iteration of a loop only.
static bool OnlyAt(const Expr& predicate, const expr::Var& v) {
  if (!predicate || predicate->kind != expr::Kind::kBinary) return false;
  if (predicate->binary == expr::BinaryOp::kAnd)
    return OnlyAt(predicate->args[0], v) || OnlyAt(predicate->args[1], v);
  return predicate->binary == expr::BinaryOp::kEq && predicate->args[0] == v &&
         predicate->args[1]->kind == expr::Kind::kInt;
}

bool CombinesLanes(const BlockSite& site, const ForNode* f) {
  const loop::BlockNode& b = *site.block;
  if (b.reducer == loop::Reducer::kNone || b.init || IsHalf(b.out->dtype)) return false;
  // A condition would have to be the same in all lanes.
  if (b.predicate && expr::Uses(b.predicate, f->var)) return false;
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (!b.iters[i].reduce && expr::Uses(b.bindings[i], f->var)) return false;
  }
  return true;
}

bool OncePerElement(const BlockSite& site, size_t first_loop) {
  const loop::BlockNode& b = *site.block;
  expr::Bounds bounds;
  std::vector<expr::Var> unknown;
  for (size_t l = 0; l < site.loops.size(); ++l) {
    const ForNode* f = site.loops[l];
    bounds.Set(f->var, {f->begin, f->begin + f->extent - 1});
    bool reduced = false;
    for (size_t i = 0; i < b.iters.size(); ++i)
      reduced |= b.iters[i].reduce && expr::Uses(b.bindings[i], f->var);
    if (l >= first_loop && !reduced && !OnlyAt(b.predicate, f->var)) unknown.push_back(f->var);
  }
  if (unknown.empty()) return true;
  expr::Substitution bind;
  for (size_t i = 0; i < b.iters.size(); ++i) bind.Add(b.iters[i].var, b.bindings[i]);
  Knowledge known(unknown, bounds);
  known.Assume(b.predicate);
  for (const Expr& e : b.out_indices) known.Learn(Substitute(e, bind));
  return known.All();
}

bool OncePerIteration(const BlockSite& site) {
  const loop::BlockNode& b = *site.block;
  expr::Bounds bounds;
  std::vector<expr::Var> unknown;
  for (const ForNode* f : site.loops) {
    bounds.Set(f->var, {f->begin, f->begin + f->extent - 1});
    if (!OnlyAt(b.predicate, f->var)) unknown.push_back(f->var);
  }
  Knowledge known(unknown, bounds);
  known.Assume(b.predicate);
  for (const Expr& e : b.bindings) known.Learn(e);
  return known.All();
}

bool WritesOutputOnce(const loop::Program& p) {
  int outputs = 0, writers = 0;
  for (const loop::Param& param : p.params) outputs += param.role == loop::Role::kOutput;
  if (outputs != 1) return false;
  for (const BlockSite& s : loop::AllBlocks(p)) {
    const bool output = std::any_of(p.params.begin(), p.params.end(), [&](const loop::Param& x) {
      return x.buffer == s.block->out && x.role == loop::Role::kOutput;
    });
    if (!output) continue;
    ++writers;
    if (s.block->reducer != loop::Reducer::kNone || !OncePerElement(s, 0)) return false;
  }
  return writers == 1;
}

Status CheckInvariants(const loop::Program& p) {
  const std::vector<BlockSite> sites = loop::AllBlocks(p);
  WHET_RETURN_IF_ERROR(CheckSizes(p, sites));
  WHET_RETURN_IF_ERROR(CheckNames(p, sites));
  WHET_RETURN_IF_ERROR(CheckOrder(sites));
  WHET_RETURN_IF_ERROR(CheckReductions(sites));
  return CheckKinds(p, sites);
}

}  // namespace whet::schedule
