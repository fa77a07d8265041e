#include <fmt/format.h>

#include "compiler/loop/loop.h"

namespace whet::loop {
namespace {

std::string Indices(const std::vector<Expr>& e) {
  std::string s;
  for (size_t i = 0; i < e.size(); ++i) s += (i ? ", " : "") + expr::ToString(e[i]);
  return s;
}

std::string BlockText(const BlockNode& b, const std::string& pad) {
  std::string s = pad + "block " + b.name + "(";
  for (size_t i = 0; i < b.iters.size(); ++i) {
    s += fmt::format("{}{}{}:{} = {}", i ? ", " : "", b.iters[i].reduce ? "reduce " : "",
                     b.iters[i].var->name, b.iters[i].extent, expr::ToString(b.bindings[i]));
  }
  s += ")";
  if (b.predicate) s += " if " + expr::ToString(b.predicate);
  s += fmt::format("\n{}  {}[{}] ", pad, b.out->name, Indices(b.out_indices));
  if (b.reducer != Reducer::kNone) s += std::string(te::ToString(b.reducer));
  s += "= " + expr::ToString(b.value);
  if (b.init) s += " from " + expr::ToString(b.init);
  return s + "\n";
}

std::string BufferText(const Buffer& b) {
  return fmt::format("{}: {}{} {}[{}]", b->name, b->constant ? "const " : "",
                     ::whet::ToString(b->dtype), expr::ToString(b->scope),
                     fmt::join(b->shape, ","));
}

}  // namespace

std::string ToString(const Stmt& s, int indent) {
  if (!s) return "";
  const std::string pad(indent, ' ');
  switch (s->kind) {
    case StmtKind::kFor: {
      const auto* f = As<ForNode>(s);
      std::string text = fmt::format("{}{} {} in [{}, {})", pad, ToString(f->for_kind),
                                     f->var->name, f->begin, f->begin + f->extent);
      for (const auto& [k, v] : f->annotations) text += fmt::format(" {}={}", k, v);
      return text + "\n" + ToString(f->body, indent + 2);
    }
    case StmtKind::kSeq: {
      std::string text;
      for (const Stmt& item : As<SeqNode>(s)->items) text += ToString(item, indent);
      return text;
    }
    case StmtKind::kBlock: return BlockText(*As<BlockNode>(s), pad);
    case StmtKind::kStore: {
      const auto* st = As<StoreNode>(s);
      return fmt::format("{}{}[{}] = {}\n", pad, st->out->name, Indices(st->indices),
                         expr::ToString(st->value));
    }
    case StmtKind::kIf: {
      const auto* c = As<IfNode>(s);
      return fmt::format("{}if {}\n{}", pad, expr::ToString(c->cond),
                         ToString(c->body, indent + 2));
    }
  }
  return "";
}

std::string ToString(const Program& p) {
  std::string s = fmt::format("program {}\n", p.name);
  for (const Param& param : p.params) {
    const char* role = param.role == Role::kInput    ? "input"
                       : param.role == Role::kOutput ? "output"
                                                     : "workspace";
    s += fmt::format("{} {}\n", role, BufferText(param.buffer));
  }
  for (const Buffer& b : p.intermediates) s += fmt::format("buffer {}\n", BufferText(b));
  return s + ToString(p.body);
}

}  // namespace whet::loop
