// Loops annotated `partition` are cut where the conditions inside stop being true for all inner
// iterations: border iterations are peeled one by one, so that with a known value their conditions
// are decided at compile time (taps outside a padded image vanish), and the interior runs without
// conditions.
//
// A parallel loop is one range that the runtime cuts, so nothing is peeled off it: its body is
// there twice, without the conditions where they hold for all inner iterations, and with them
// elsewhere.
#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/loop/lower.h"

namespace whet::loop {
namespace {

constexpr int64_t kMaxExtent = 1 << 16;  // each iteration is looked at
constexpr int64_t kMaxPeeled = 8;        // code size: beyond this the loop keeps its conditions

void CollectConditions(const Stmt& s, std::vector<Expr>& conds,
                       std::vector<const ForNode*>& inner) {
  Walk(s, [&](const Stmt& x) {
    if (const auto* f = As<ForNode>(x)) inner.push_back(f);
    auto from_expr = [&](const Expr& e) {
      expr::Visit(e, [&](const expr::ExprNode& n) {
        if (n.kind == expr::Kind::kSelect) Conjuncts(n.args[0], conds);
      });
    };
    if (const auto* c = As<IfNode>(x)) Conjuncts(c->cond, conds);
    if (const auto* st = As<StoreNode>(x)) from_expr(st->value);
  });
}

Stmt Peel(const ForNode& f, int64_t at) {
  expr::Substitution s;
  s.Add(f.var, expr::Int(at));
  return MapExprs(f.body, [&](const Expr& e) { return Substitute(e, s); });
}

Stmt Partition(const ForNode& f, const expr::Bounds& outer) {
  if (f.extent > kMaxExtent) return nullptr;
  std::vector<Expr> conds;
  std::vector<const ForNode*> inner;
  CollectConditions(f.body, conds, inner);
  std::erase_if(conds, [&](const Expr& c) { return !expr::Uses(c, f.var); });
  expr::Bounds bounds = outer;
  for (const ForNode* l : inner) bounds.Set(l->var, {l->begin, l->begin + l->extent - 1});
  std::vector<std::vector<bool>> holds(conds.size());
  for (size_t c = 0; c < conds.size(); ++c) {
    bool ever = false;
    for (int64_t v = f.begin; v < f.begin + f.extent; ++v) {
      bounds.Set(f.var, {v, v});
      holds[c].push_back(bounds.Decide(conds[c]).value_or(false));
      ever |= holds[c].back();
    }
    if (!ever)
      holds[c].assign(f.extent, true);  // it depends on outer loops too: nothing to gain here
  }
  // The longest run of iterations in which all hold.
  int64_t best_begin = 0, best_end = 0, run = 0;
  for (int64_t i = 0; i <= f.extent; ++i) {
    bool all = i < f.extent;
    for (size_t c = 0; all && c < conds.size(); ++c) all = holds[c][i];
    if (all) continue;
    if (i - run > best_end - best_begin) best_begin = run, best_end = i;
    run = i + 1;
  }
  if (best_end - best_begin == f.extent || f.extent - (best_end - best_begin) > kMaxPeeled)
    return nullptr;
  std::vector<Stmt> parts;
  for (int64_t i = 0; i < best_begin; ++i) parts.push_back(Peel(f, f.begin + i));
  if (best_end > best_begin) {
    parts.push_back(
        MakeFor(f.var, f.begin + best_begin, best_end - best_begin, f.for_kind, f.body));
  }
  for (int64_t i = best_end; i < f.extent; ++i) parts.push_back(Peel(f, f.begin + i));
  return MakeSeq(std::move(parts));
}

// What makes `cond`, a comparison of sums, true for all values of the inner loops: that it is for
// their first and last ones. Null when it is not such a sum.
Expr AtCorners(const Expr& cond, const std::vector<const ForNode*>& inner) {
  if (cond->kind != expr::Kind::kBinary ||
      (cond->binary != expr::BinaryOp::kLt && cond->binary != expr::BinaryOp::kLe))
    return nullptr;
  std::vector<Expr> corners = {cond};
  for (const ForNode* f : inner) {
    if (!expr::Uses(cond, f->var)) continue;
    for (const Expr& side : cond->args) {
      for (const auto& [atom, c] : expr::ToLinear(side).terms) {
        if (!(atom == f->var) && expr::Uses(atom, f->var)) return nullptr;
      }
    }
    std::vector<Expr> next;
    for (const Expr& corner : corners) {
      for (int64_t at : {f->begin, f->begin + f->extent - 1}) {
        expr::Substitution s;
        s.Add(f->var, expr::Int(at));
        next.push_back(Substitute(corner, s));
      }
    }
    corners = std::move(next);
    if (corners.size() > 16) return nullptr;
  }
  return Conjunction(corners);
}

Stmt InTwoVersions(const ForNode& f, const expr::Bounds& outer) {
  std::vector<Expr> conds, held, tests;
  std::vector<const ForNode*> inner;
  CollectConditions(f.body, conds, inner);
  for (const Expr& c : conds) {
    if (!expr::Uses(c, f.var)) continue;
    const Expr test = AtCorners(c, inner);
    if (!test) continue;
    held.push_back(c);
    Conjuncts(expr::Simplify(test, outer), tests);
  }
  std::erase_if(tests, [&](const Expr& t) { return outer.Decide(t).value_or(false); });
  const Expr all = Conjunction(tests);
  if (!all || !outer.Decide(all).value_or(true)) return nullptr;
  const Stmt without = MapExprs(f.body, [&](const Expr& e) {
    return expr::Rewrite(e, [&](const Expr& x) -> Expr {
      const bool holds =
          std::any_of(held.begin(), held.end(), [&](const Expr& h) { return expr::Same(h, x); });
      return holds ? expr::Le(expr::Int(0), expr::Int(0)) : nullptr;
    });
  });
  return WithBody(f, MakeSeq({MakeIf(all, without), MakeIf(expr::Not(all), f.body)}));
}

Stmt PartitionIn(const Stmt& s, expr::Bounds bounds) {
  if (const auto* f = As<ForNode>(s)) {
    bounds.Set(f->var, {f->begin, f->begin + f->extent - 1});
    Stmt rebuilt = WithBody(*f, PartitionIn(f->body, bounds));
    if (f->Annotation("partition")) {
      const auto* loop = As<ForNode>(rebuilt);
      Stmt parts = loop->for_kind == ForKind::kParallel ? InTwoVersions(*loop, bounds)
                                                        : Partition(*loop, bounds);
      if (parts) return parts;
    }
    return rebuilt;
  }
  if (const auto* seq = As<SeqNode>(s)) {
    std::vector<Stmt> items;
    for (const Stmt& item : seq->items) items.push_back(PartitionIn(item, bounds));
    return MakeSeq(std::move(items));
  }
  if (const auto* c = As<IfNode>(s)) return MakeIf(c->cond, PartitionIn(c->body, bounds));
  return s;
}

}  // namespace

StatusOr<Program> PartitionLoops(const Program& p) {
  Program r = p;
  if (p.body) r.body = PartitionIn(p.body, {});
  return r;
}

}  // namespace whet::loop
