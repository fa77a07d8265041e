// Simplifies every expression under the ranges of its loops and drops conditions that are decided.
#include "compiler/loop/lower.h"

namespace whet::loop {
namespace {

Stmt SimplifyIn(const Stmt& s, expr::Bounds bounds) {
  switch (s->kind) {
    case StmtKind::kFor: {
      const auto* f = As<ForNode>(s);
      bounds.Set(f->var, {f->begin, f->begin + f->extent - 1});
      Stmt body = SimplifyIn(f->body, bounds);
      if (!body) return nullptr;
      return WithBody(*f, body);
    }
    case StmtKind::kSeq: {
      std::vector<Stmt> items;
      for (const Stmt& item : As<SeqNode>(s)->items) items.push_back(SimplifyIn(item, bounds));
      return MakeSeq(std::move(items));
    }
    case StmtKind::kIf: {
      const auto* c = As<IfNode>(s);
      std::vector<Expr> terms, open;
      Conjuncts(expr::SimplifyLowered(c->cond, bounds), terms);
      for (const Expr& t : terms) {
        auto d = bounds.Decide(t);
        if (d && !*d) return nullptr;
        if (!d) open.push_back(t);
      }
      return MakeIf(Conjunction(open), SimplifyIn(c->body, bounds));
    }
    case StmtKind::kStore: {
      const auto* st = As<StoreNode>(s);
      std::vector<Expr> indices;
      for (const Expr& e : st->indices) indices.push_back(expr::SimplifyLowered(e, bounds));
      return MakeStore(st->out, std::move(indices), expr::SimplifyLowered(st->value, bounds));
    }
    case StmtKind::kBlock: return s;
  }
  return s;
}

}  // namespace

StatusOr<Program> SimplifyProgram(const Program& p) {
  Program r = p;
  if (p.body) r.body = SimplifyIn(p.body, {});
  return r;
}

}  // namespace whet::loop
