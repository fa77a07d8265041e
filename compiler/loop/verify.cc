#include "compiler/loop/verify.h"

#include <algorithm>

namespace whet::loop {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& p) : program_(p) {
    for (const Param& param : p.params) buffers_.push_back(param.buffer.get());
    for (const Buffer& b : p.intermediates) buffers_.push_back(b.get());
  }

  Status Run() {
    std::vector<std::string> names;
    for (const auto* b : buffers_) names.push_back(b->name);
    std::sort(names.begin(), names.end());
    auto dup = std::adjacent_find(names.begin(), names.end());
    if (dup != names.end()) return Internal("two buffers are called '{}'", *dup);
    return program_.body ? Check(program_.body, 0) : OkStatus();
  }

 private:
  Status Check(const Stmt& s, int depth) {
    switch (s->kind) {
      case StmtKind::kFor: {
        const auto* f = As<ForNode>(s);
        if (f->for_kind == ForKind::kParallel && depth > 0)
          return Internal("parallel loop '{}' is not outermost", f->var->name);
        for (const ForNode* outer : loops_) {
          if (outer->var == f->var) return Internal("loop '{}' is nested in itself", f->var->name);
        }
        loops_.push_back(f);
        Status st = Check(f->body, depth + 1);
        loops_.pop_back();
        return st;
      }
      case StmtKind::kSeq:
        for (const Stmt& item : As<SeqNode>(s)->items) WHET_RETURN_IF_ERROR(Check(item, depth));
        return OkStatus();
      case StmtKind::kIf: {
        WHET_RETURN_IF_ERROR(CheckExpr(As<IfNode>(s)->cond, {}, "if"));
        return Check(As<IfNode>(s)->body, depth + 1);
      }
      case StmtKind::kStore: {
        const auto* st = As<StoreNode>(s);
        WHET_RETURN_IF_ERROR(Known(st->out, st->indices.size()));
        for (const Expr& e : st->indices) WHET_RETURN_IF_ERROR(CheckExpr(e, {}, st->out->name));
        return CheckExpr(st->value, {}, st->out->name);
      }
      case StmtKind::kBlock: return CheckBlock(*As<BlockNode>(s));
    }
    return OkStatus();
  }

  Status CheckBlock(const BlockNode& b) {
    for (const Expr& e : b.bindings) WHET_RETURN_IF_ERROR(CheckExpr(e, {}, b.name));
    if (b.predicate) WHET_RETURN_IF_ERROR(CheckExpr(b.predicate, {}, b.name));
    WHET_RETURN_IF_ERROR(Known(b.out, b.out_indices.size()));
    std::vector<const expr::ExprNode*> iters;
    expr::Bounds bounds;
    for (const Iter& i : b.iters) {
      iters.push_back(i.var.get());
      bounds.Set(i.var, {0, i.extent - 1});
    }
    for (size_t d = 0; d < b.out_indices.size(); ++d) {
      WHET_RETURN_IF_ERROR(CheckExpr(b.out_indices[d], iters, b.name));
      auto r = bounds.Of(b.out_indices[d]);
      if (r && (r->lo < 0 || r->hi >= b.out->shape[d])) {
        return Internal("block '{}' writes '{}' at {}..{} of dimension {}, extent {}", b.name,
                        b.out->name, r->lo, r->hi, d, b.out->shape[d]);
      }
    }
    if (b.init) WHET_RETURN_IF_ERROR(CheckExpr(b.init, iters, b.name));
    return CheckExpr(b.value, iters, b.name);
  }

  Status Known(const Buffer& b, size_t indices) {
    if (std::find(buffers_.begin(), buffers_.end(), b.get()) == buffers_.end())
      return Internal("buffer '{}' is not declared", b->name);
    if (indices != b->shape.size())
      return Internal("buffer '{}' has rank {}, {} indices", b->name, b->shape.size(), indices);
    return OkStatus();
  }

  Status CheckExpr(const Expr& e, const std::vector<const expr::ExprNode*>& iters,
                   const std::string& where) {
    Status st = OkStatus();
    expr::Visit(e, [&](const expr::ExprNode& n) {
      if (!st.ok()) return;
      if (n.kind == expr::Kind::kLoad) st = Known(n.buffer, n.args.size());
      if (n.kind != expr::Kind::kVar) return;
      if (std::find(iters.begin(), iters.end(), &n) != iters.end()) return;
      for (const ForNode* f : loops_) {
        if (f->var.get() == &n) return;
      }
      st = Internal("variable '{}' in '{}' is not bound", n.name, where);
    });
    return st;
  }

  const Program& program_;
  std::vector<const expr::BufferNode*> buffers_;
  std::vector<const ForNode*> loops_;
};

}  // namespace

Status Verify(const Program& p) { return Verifier(p).Run(); }

}  // namespace whet::loop
