#include "compiler/schedule/prim_util.h"

#include "compiler/expr/parse.h"

namespace whet::schedule {

using expr::Expr;

StatusOr<const ForNode*> NeedLoop(const Program& p, const std::string& name) {
  if (const ForNode* f = loop::FindLoop(p, name)) return f;
  std::string known;
  loop::Walk(p.body, [&](const Stmt& s) {
    if (const auto* f = As<ForNode>(s)) known += (known.empty() ? "" : ", ") + f->var->name;
  });
  return NotFound("no loop '{}'; the program has {}", name, known);
}

StatusOr<int64_t> NeedInt(const std::string& text, int64_t lo, int64_t hi) {
  int64_t v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size())
    return InvalidArgument("'{}' is not a number", text);
  if (v < lo || v > hi) return InvalidArgument("{} is outside {}..{}", v, lo, hi);
  return v;
}

StatusOr<expr::Buffer> NeedIntermediate(const Program& p, const std::string& name) {
  for (const expr::Buffer& b : p.intermediates) {
    if (b->name == name) return b;
  }
  return NotFound("no intermediate buffer '{}'", name);
}

namespace {
Status NeedLegalName(const std::string& name) {
  if (name.empty() || name.size() > 100)
    return InvalidArgument("a name has 1 to 100 characters, '{}' has {}", name, name.size());
  // A name must read back as one in a program's text.
  if (!expr::IsName(name))
    return InvalidArgument(
        "'{}' is not a name: letters, digits, '_' and '.', a letter or '_' first", name);
  return OkStatus();
}
}  // namespace

Status NeedFreeLoop(const Program& p, const std::string& name) {
  WHET_RETURN_IF_ERROR(NeedLegalName(name));
  return loop::FindLoop(p, name) ? InvalidArgument("a loop '{}' exists already", name) : OkStatus();
}

Status NeedFreeBlockAndBuffer(const Program& p, const std::string& name) {
  WHET_RETURN_IF_ERROR(NeedLegalName(name));
  if (loop::FindBlock(p, name).ok() || loop::FindBuffer(p, name)) {
    return InvalidArgument("a block or buffer '{}' exists already", name);
  }
  return OkStatus();
}

Stmt ReplaceLoop(const Stmt& root, const std::string& name,
                 const std::function<Stmt(const ForNode&)>& f) {
  return loop::Map(root, [&](const Stmt& s) -> Stmt {
    const auto* l = As<ForNode>(s);
    return l && l->var->name == name ? f(*l) : nullptr;
  });
}

Stmt SubstituteLoop(const Stmt& body, const expr::Var& var, const Expr& value, const Expr& extra) {
  expr::Substitution sub;
  sub.Add(var, value);
  return loop::Map(body, [&](const Stmt& s) -> Stmt {
    const auto* b = As<BlockNode>(s);
    if (!b) return nullptr;
    BlockFields n = *b;
    for (Expr& e : n.bindings) e = Substitute(e, sub);
    if (n.predicate) n.predicate = Substitute(n.predicate, sub);
    if (extra) n.predicate = n.predicate ? expr::And(n.predicate, extra) : extra;
    return loop::MakeBlock(std::move(n));
  });
}

Stmt ReplaceBlock(const Stmt& root, const BlockNode* block, const Stmt& by) {
  return loop::Map(root, [&](const Stmt& s) -> Stmt { return s.get() == block ? by : nullptr; });
}

Stmt RemoveBlock(const Stmt& root, const BlockNode* block) {
  return ReplaceBlock(root, block, loop::Removed());
}

namespace {
bool Contains(const Stmt& s, const BlockNode* block) {
  bool found = false;
  loop::Walk(s, [&](const Stmt& x) { found |= x.get() == block; });
  return found;
}

Stmt InsertInto(const Stmt& body, const BlockNode* inside, const Stmt& added, bool before) {
  std::vector<Stmt> items;
  if (const auto* seq = As<SeqNode>(body)) {
    items = seq->items;
  } else {
    items = {body};
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (!Contains(items[i], inside)) continue;
    items.insert(items.begin() + static_cast<int64_t>(i) + (before ? 0 : 1), added);
    break;
  }
  return loop::MakeSeq(std::move(items));
}
}  // namespace

Stmt InsertBeside(const Stmt& root, const std::string& parent, const BlockNode* inside,
                  const Stmt& added, bool before) {
  if (parent.empty()) return InsertInto(root, inside, added, before);
  return ReplaceLoop(root, parent, [&](const ForNode& f) {
    return loop::WithBody(f, InsertInto(f.body, inside, added, before));
  });
}

std::vector<BlockSite> Writers(const Program& p, const expr::Buffer& b) {
  std::vector<BlockSite> r;
  for (BlockSite& s : loop::AllBlocks(p)) {
    if (s.block->out == b) r.push_back(std::move(s));
  }
  return r;
}

std::vector<BlockSite> Readers(const Program& p, const expr::Buffer& b) {
  std::vector<BlockSite> r;
  for (BlockSite& s : loop::AllBlocks(p)) {
    if (loop::Reads(*s.block, b)) r.push_back(std::move(s));
  }
  return r;
}

expr::Bounds LoopBounds(const BlockSite& site) {
  expr::Bounds b;
  for (const ForNode* f : site.loops) b.Set(f->var, {f->begin, f->begin + f->extent - 1});
  return b;
}

std::vector<int> PlainOutput(const BlockNode& b) {
  std::vector<int> dims;
  for (const Expr& e : b.out_indices) {
    int found = -1;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      if (b.iters[i].var == e && !b.iters[i].reduce) found = static_cast<int>(i);
    }
    for (int d : dims) {
      if (d == found) return {};
    }
    if (found < 0) return {};
    dims.push_back(found);
  }
  return dims;
}

Stmt NestFor(BlockFields fields, const std::vector<loop::DimRange>& domain,
             const expr::Bounds& outer) {
  expr::Bounds bounds = outer;
  std::vector<std::pair<expr::Var, int64_t>> loops;
  fields.bindings.clear();
  fields.predicate = nullptr;
  for (size_t i = 0; i < fields.iters.size(); ++i) {
    std::string axis = fields.iters[i].var->name;
    if (axis.rfind("v_", 0) == 0) axis = axis.substr(2);
    expr::Var var = expr::MakeVar(fields.name + "." + axis);
    loops.emplace_back(var, domain[i].extent);
    bounds.Set(var, {0, domain[i].extent - 1});
    const Expr at = expr::Simplify(domain[i].lo + var, bounds);
    fields.bindings.push_back(at);
    for (const Expr& inside :
         {expr::Ge(at, expr::Int(0)), expr::Lt(at, expr::Int(fields.iters[i].extent))}) {
      auto decided = bounds.Decide(inside);
      if (decided && *decided) continue;
      fields.predicate = fields.predicate ? expr::And(fields.predicate, inside) : inside;
    }
  }
  Stmt nest = loop::MakeBlock(std::move(fields));
  for (auto it = loops.rbegin(); it != loops.rend(); ++it) {
    nest = loop::MakeFor(it->first, 0, it->second, ForKind::kSerial, nest);
  }
  return nest;
}

}  // namespace whet::schedule
