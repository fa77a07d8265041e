// Blocks become guarded stores: iteration variables are replaced by their bindings, a reduction
// combines with what is stored already. A select that only guards a padded read turns into a
// condition on the whole step:
//   acc + select(c, x, 0) * w   ->   if c: acc + x * w        (sum: adding 0 is left out; also
//                                                              where the select is converted first)
//   max(acc, select(c, x, -inf)) ->  if c: max(acc, x)
// unless the condition differs between the lanes of a vector, where a masked load is better.
#include "compiler/loop/lower.h"

namespace whet::loop {
namespace {

bool IsNeutral(const Expr& e, Reducer r) {
  const double identity = te::Identity(r);
  return (e->kind == expr::Kind::kFloat && e->float_value == identity) ||
         (e->kind == expr::Kind::kInt && static_cast<double>(e->int_value) == identity);
}

// Takes a guarding select out of a factor of `e` (sum) or of `e` itself (min, max); null when there
// is none.
Expr TakeGuard(const Expr& e, Reducer r, const std::vector<Var>& lanes, Expr* guard) {
  if (e->kind == expr::Kind::kSelect && IsNeutral(e->args[2], r)) {
    for (const Var& v : lanes) {
      if (expr::Uses(e->args[0], v)) return nullptr;
    }
    *guard = *guard ? expr::And(*guard, e->args[0]) : e->args[0];
    return e->args[1];
  }
  if (r == Reducer::kSum && e->kind == expr::Kind::kCast) {
    const Expr taken = TakeGuard(e->args[0], r, lanes, guard);
    return taken ? expr::Cast(e->dtype, taken) : nullptr;
  }
  if (r == Reducer::kSum && e->kind == expr::Kind::kBinary && e->binary == expr::BinaryOp::kMul) {
    for (int side = 0; side < 2; ++side) {
      if (Expr taken = TakeGuard(e->args[side], r, lanes, guard)) {
        return side == 0 ? taken * e->args[1] : e->args[0] * taken;
      }
    }
  }
  return nullptr;
}

Stmt LowerBlock(const BlockNode& b, const std::vector<const ForNode*>& loops) {
  expr::Substitution s;
  expr::Bounds bounds;
  std::vector<Var> lanes;
  for (const ForNode* f : loops) {
    bounds.Set(f->var, {f->begin, f->begin + f->extent - 1});
    if (f->for_kind == ForKind::kVectorized) lanes.push_back(f->var);
  }
  for (size_t i = 0; i < b.iters.size(); ++i) s.Add(b.iters[i].var, b.bindings[i]);
  auto bound = [&](const Expr& e) { return Simplify(Substitute(e, s), bounds); };
  std::vector<Expr> indices;
  for (const Expr& e : b.out_indices) indices.push_back(bound(e));
  Expr value = bound(b.value);
  Expr guard;
  while (b.reducer != Reducer::kNone) {
    Expr taken = TakeGuard(value, b.reducer, lanes, &guard);
    if (!taken) break;
    value = taken;
  }
  if (b.reducer != Reducer::kNone)
    value = te::Combine(b.reducer, expr::Load(b.out, indices), value);
  Stmt store = MakeIf(guard, MakeStore(b.out, indices, value));
  if (b.init) {
    Expr first;  // all reduce variables at their start
    for (size_t i = 0; i < b.iters.size(); ++i) {
      if (!b.iters[i].reduce) continue;
      Expr at_start = bounds.Decide(expr::Eq(b.bindings[i], expr::Int(0))).value_or(false)
                          ? nullptr
                          : expr::Eq(b.bindings[i], expr::Int(0));
      if (at_start) first = first ? expr::And(first, at_start) : at_start;
    }
    store = MakeSeq({MakeIf(first, MakeStore(b.out, indices, bound(b.init))), store});
  }
  const Expr predicate = b.predicate ? Simplify(b.predicate, bounds) : nullptr;
  Stmt r = MakeIf(predicate, store);
  return r ? r : Removed();
}

Stmt LowerIn(const Stmt& s, std::vector<const ForNode*>& loops) {
  if (const auto* f = As<ForNode>(s)) {
    loops.push_back(f);
    Stmt body = LowerIn(f->body, loops);
    loops.pop_back();
    const auto* seq = As<SeqNode>(body);
    return seq && seq->items.empty() ? body : WithBody(*f, body);
  }
  if (const auto* seq = As<SeqNode>(s)) {
    std::vector<Stmt> items;
    for (const Stmt& item : seq->items) items.push_back(LowerIn(item, loops));
    Stmt r = MakeSeq(std::move(items));
    return r ? r : Removed();
  }
  if (const auto* b = As<BlockNode>(s)) return LowerBlock(*b, loops);
  return s;
}

}  // namespace

StatusOr<Program> LowerBlocks(const Program& p) {
  Program r = p;
  std::vector<const ForNode*> loops;
  if (p.body) r.body = LowerIn(p.body, loops);
  return r;
}

namespace {

Stmt Hoist(const Stmt& s) {
  return Map(s, [](const Stmt& x) -> Stmt {
    if (const auto* outer = As<IfNode>(x)) {  // if a: if b -> if a && b
      if (const auto* inner = As<IfNode>(outer->body))
        return MakeIf(expr::And(outer->cond, inner->cond), inner->body);
      return nullptr;
    }
    const auto* f = As<ForNode>(x);
    if (!f || f->for_kind == ForKind::kParallel) return nullptr;
    const auto* c = As<IfNode>(f->body);
    if (!c) return nullptr;
    std::vector<Expr> terms, stay, move;
    Conjuncts(c->cond, terms);
    for (const Expr& t : terms) (expr::Uses(t, f->var) ? stay : move).push_back(t);
    if (move.empty()) return nullptr;
    return MakeIf(Conjunction(move), WithBody(*f, MakeIf(Conjunction(stay), c->body)));
  });
}

}  // namespace

StatusOr<Program> HoistConditions(const Program& p) {
  Program r = p;
  if (p.body) r.body = Hoist(p.body);
  return r;
}

}  // namespace whet::loop
