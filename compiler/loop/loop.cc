#include "compiler/loop/loop.h"

#include <fmt/format.h>

namespace whet::loop {

std::string_view ToString(ForKind k) {
  switch (k) {
    case ForKind::kSerial: return "for";
    case ForKind::kParallel: return "parallel";
    case ForKind::kVectorized: return "vectorized";
    case ForKind::kUnrolled: return "unrolled";
  }
  return "?";
}

int64_t ForNode::Annotation(std::string_view key, int64_t missing) const {
  for (const auto& [k, v] : annotations) {
    if (k == key) return v;
  }
  return missing;
}

Stmt MakeFor(Var var, int64_t begin, int64_t extent, ForKind kind, Stmt body,
             std::vector<std::pair<std::string, int64_t>> annotations) {
  WHET_CHECK(body && extent >= 0);
  auto* n = new ForNode;
  n->var = std::move(var);
  n->begin = begin;
  n->extent = extent;
  n->for_kind = kind;
  n->body = std::move(body);
  n->annotations = std::move(annotations);
  return Stmt(n);
}

Stmt WithBody(const ForNode& f, Stmt body) {
  return MakeFor(f.var, f.begin, f.extent, f.for_kind, std::move(body), f.annotations);
}

Stmt MakeSeq(std::vector<Stmt> items) {
  std::vector<Stmt> flat;
  for (Stmt& s : items) {
    if (!s) continue;
    if (const auto* seq = As<SeqNode>(s)) {
      flat.insert(flat.end(), seq->items.begin(), seq->items.end());
    } else {
      flat.push_back(std::move(s));
    }
  }
  if (flat.empty()) return nullptr;
  if (flat.size() == 1) return flat[0];
  auto* n = new SeqNode;
  n->items = std::move(flat);
  return Stmt(n);
}

Stmt Removed() { return Stmt(new SeqNode); }

Stmt MakeBlock(BlockFields fields) {
  WHET_CHECK(fields.iters.size() == fields.bindings.size());
  if (expr::IsTrue(fields.predicate)) fields.predicate = nullptr;
  return Stmt(new BlockNode(std::move(fields)));
}

Stmt MakeStore(Buffer out, std::vector<Expr> indices, Expr value) {
  auto* n = new StoreNode;
  n->out = std::move(out);
  n->indices = std::move(indices);
  n->value = std::move(value);
  return Stmt(n);
}

Stmt MakeIf(Expr cond, Stmt body) {
  if (expr::IsTrue(cond)) return body;
  if (expr::IsFalse(cond) || !body) return nullptr;
  auto* n = new IfNode;
  n->cond = std::move(cond);
  n->body = std::move(body);
  return Stmt(n);
}

namespace {
bool IsEmpty(const Stmt& s) {
  const auto* seq = As<SeqNode>(s);
  return !s || (seq && seq->items.empty());
}
}  // namespace

Stmt Map(const Stmt& s, const std::function<Stmt(const Stmt&)>& f) {
  Stmt rebuilt = s;
  if (const auto* loop = As<ForNode>(s)) {
    Stmt body = Map(loop->body, f);
    if (IsEmpty(body)) return Removed();
    if (!(body == loop->body)) rebuilt = WithBody(*loop, body);
  } else if (const auto* seq = As<SeqNode>(s)) {
    std::vector<Stmt> items;
    bool changed = false;
    for (const Stmt& item : seq->items) {
      items.push_back(Map(item, f));
      changed |= !(items.back() == item);
    }
    if (changed) {
      rebuilt = MakeSeq(std::move(items));
      if (!rebuilt) return Removed();
    }
  } else if (const auto* cond = As<IfNode>(s)) {
    Stmt body = Map(cond->body, f);
    if (IsEmpty(body)) return Removed();
    if (!(body == cond->body)) rebuilt = MakeIf(cond->cond, body);
  }
  Stmt r = f(rebuilt);
  return r ? r : rebuilt;
}

void Walk(const Stmt& s, const std::function<void(const Stmt&)>& f) {
  if (!s) return;
  f(s);
  if (const auto* loop = As<ForNode>(s)) Walk(loop->body, f);
  if (const auto* cond = As<IfNode>(s)) Walk(cond->body, f);
  if (const auto* seq = As<SeqNode>(s)) {
    for (const Stmt& item : seq->items) Walk(item, f);
  }
}

Stmt MapExprs(const Stmt& s, const std::function<Expr(const Expr&)>& f) {
  return Map(s, [&](const Stmt& x) -> Stmt {
    if (const auto* b = As<BlockNode>(x)) {
      BlockFields n = *b;
      for (Expr& e : n.bindings) e = f(e);
      for (Expr& e : n.out_indices) e = f(e);
      if (n.predicate) n.predicate = f(n.predicate);
      if (n.init) n.init = f(n.init);
      n.value = f(n.value);
      return MakeBlock(std::move(n));
    }
    if (const auto* st = As<StoreNode>(x)) {
      std::vector<Expr> indices;
      for (const Expr& e : st->indices) indices.push_back(f(e));
      return MakeStore(st->out, std::move(indices), f(st->value));
    }
    if (const auto* c = As<IfNode>(x)) {
      Stmt r = MakeIf(f(c->cond), c->body);
      return r ? r : Removed();
    }
    return nullptr;
  });
}

Stmt ReplaceBuffer(const Stmt& s, const Buffer& from, const Buffer& to,
                   const std::function<std::vector<Expr>(const std::vector<Expr>&)>& indices) {
  std::function<Expr(const Expr&)> in_expr = [&](const Expr& e) {
    return expr::Rewrite(e, [&](const Expr& x) -> Expr {
      if (x->kind != expr::Kind::kLoad || !(x->buffer == from)) return nullptr;
      std::vector<Expr> args;
      for (const Expr& a : x->args) args.push_back(in_expr(a));
      return expr::Load(to, indices(args));
    });
  };
  return Map(MapExprs(s, in_expr), [&](const Stmt& x) -> Stmt {
    if (const auto* b = As<BlockNode>(x); b && b->out == from) {
      BlockFields n = *b;
      n.out = to;
      n.out_indices = indices(b->out_indices);
      return MakeBlock(std::move(n));
    }
    if (const auto* st = As<StoreNode>(x); st && st->out == from) {
      return MakeStore(to, indices(st->indices), st->value);
    }
    return nullptr;
  });
}

std::vector<const expr::ExprNode*> Loads(const Expr& e) {
  std::vector<const expr::ExprNode*> loads;
  expr::Visit(e, [&](const expr::ExprNode& n) {
    if (n.kind == expr::Kind::kLoad) loads.push_back(&n);
  });
  return loads;
}

bool Reads(const BlockNode& b, const Buffer& buffer) {
  for (const auto* l : Loads(b.value)) {
    if (l->buffer == buffer) return true;
  }
  return false;
}

namespace {
void Collect(const Stmt& s, std::vector<const ForNode*>& loops, std::vector<BlockSite>& out) {
  if (const auto* loop = As<ForNode>(s)) {
    loops.push_back(loop);
    Collect(loop->body, loops, out);
    loops.pop_back();
  } else if (const auto* seq = As<SeqNode>(s)) {
    for (const Stmt& item : seq->items) Collect(item, loops, out);
  } else if (const auto* block = As<BlockNode>(s)) {
    out.push_back({block, loops});
  } else if (const auto* cond = As<IfNode>(s)) {
    Collect(cond->body, loops, out);
  }
}
}  // namespace

std::vector<BlockSite> AllBlocks(const Program& p) {
  std::vector<BlockSite> out;
  std::vector<const ForNode*> loops;
  Collect(p.body, loops, out);
  return out;
}

StatusOr<BlockSite> FindBlock(const Program& p, std::string_view name) {
  std::string known;
  for (BlockSite& site : AllBlocks(p)) {
    if (site.block->name == name) return std::move(site);
    known += (known.empty() ? "" : ", ") + site.block->name;
  }
  return NotFound("no block '{}'; the program has {}", name, known);
}

const ForNode* FindLoop(const Program& p, std::string_view name) {
  const ForNode* found = nullptr;
  Walk(p.body, [&](const Stmt& s) {
    if (const auto* loop = As<ForNode>(s); loop && loop->var->name == name) found = loop;
  });
  return found;
}

Buffer FindBuffer(const Program& p, std::string_view name) {
  for (const Param& param : p.params) {
    if (param.buffer->name == name) return param.buffer;
  }
  for (const Buffer& b : p.intermediates) {
    if (b->name == name) return b;
  }
  return nullptr;
}

bool NameTaken(const Program& p, std::string_view name) {
  return FindLoop(p, name) || FindBuffer(p, name) || FindBlock(p, name).ok();
}

namespace {

// What a reduction starts from; the ends of an integer type stand for the infinities.
Expr InitialValue(Reducer r, DType t) {
  if (IsFloat(t)) return expr::Float(te::Identity(r), t);
  if (r != Reducer::kMax && r != Reducer::kMin)
    return expr::Int(static_cast<int64_t>(te::Identity(r)), t);
  const bool is_unsigned = IsUnsigned(t);
  const int64_t bits = t == DType::kBool ? 1 : 8 * SizeOf(t);
  const int64_t highest = static_cast<int64_t>(~uint64_t{0} >> (64 - bits + (is_unsigned ? 0 : 1)));
  return expr::Int(r == Reducer::kMin ? highest : is_unsigned ? 0 : -highest - 1, t);
}

}  // namespace

StatusOr<Program> FromTe(const std::string& name, const te::Func& func,
                         const std::vector<expr::IndexMap>& inputs,
                         const std::vector<expr::IndexMap>& outputs) {
  Program p;
  p.name = name;
  std::vector<Stmt> nests;
  for (const te::Stage& s : func.stages) {
    BlockFields b;
    b.name = s.name;
    b.out = s.out;
    b.reducer = s.reducer;
    b.value = s.value;
    std::vector<std::pair<Var, int64_t>> loops;
    auto add = [&](const te::Axis& a, bool reduce) {
      Var loop = expr::MakeVar(s.name + "." + a.name);
      loops.emplace_back(loop, a.extent);
      b.iters.push_back({a.var, a.extent, reduce});
      b.bindings.push_back(loop);
    };
    for (const te::Axis& a : s.axes) {
      add(a, false);
      b.out_indices.push_back(a.var);
    }
    for (const te::Axis& a : s.reduce) add(a, true);
    if (s.reducer != Reducer::kNone) b.init = InitialValue(s.reducer, s.out->dtype);
    Stmt nest = MakeBlock(std::move(b));
    for (auto it = loops.rbegin(); it != loops.rend(); ++it) {
      nest = MakeFor(it->first, 0, it->second, ForKind::kSerial, nest);
    }
    nests.push_back(nest);
  }
  p.body = MakeSeq(std::move(nests));
  if (!p.body) return InvalidArgument("'{}' computes nothing", name);

  auto bind = [&](const Buffer& b, const expr::IndexMap& map, Role role) -> Status {
    if (map.vars.size() != b->shape.size()) {
      return InvalidArgument("layout {} of '{}' has rank {}, the tensor {}", map.ToString(),
                             b->name, map.vars.size(), b->shape.size());
    }
    if (map.IsIdentity()) {
      p.params.push_back({b, role});
      return OkStatus();
    }
    Buffer physical =
        expr::MakeBuffer(b->name, b->dtype, map.ApplyToShape(b->shape), b->scope, b->constant);
    p.body = ReplaceBuffer(p.body, b, physical,
                           [&](const std::vector<Expr>& i) { return map.Apply(i); });
    p.params.push_back({physical, role});
    return OkStatus();
  };
  if (inputs.size() != func.inputs.size() || outputs.size() != func.outputs.size()) {
    return InvalidArgument("'{}' has {} inputs and {} outputs, {} and {} layouts", name,
                           func.inputs.size(), func.outputs.size(), inputs.size(), outputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    WHET_RETURN_IF_ERROR(bind(func.inputs[i], inputs[i], Role::kInput));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    WHET_RETURN_IF_ERROR(bind(func.outputs[i], outputs[i], Role::kOutput));
  }
  for (const te::Stage& s : func.stages) {
    bool is_output = false;
    for (const Buffer& o : func.outputs) is_output |= o == s.out;
    if (!is_output) p.intermediates.push_back(s.out);
  }
  return p;
}

}  // namespace whet::loop
