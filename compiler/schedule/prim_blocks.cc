// Primitives that change blocks and buffers: inline, cache_read, cache_write, set_scope,
// start_from, decompose_reduction, transform_layout, pad.
#include "compiler/expr/index_map.h"
#include "compiler/schedule/invariants.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Buffer;
using expr::Expr;

void DropIntermediate(Program& p, const Buffer& b) {
  std::erase_if(p.intermediates, [&](const Buffer& x) { return x == b; });
}

// inline BLOCK: its value takes the place of every read of its buffer. Element-wise blocks only.
Status Inline(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const BlockNode& b = *site.block;
  if (b.reducer != loop::Reducer::kNone) return FailedPrecondition("it is a reduction");
  WHET_RETURN_IF_ERROR(NeedIntermediate(p, b.out->name).status());
  if (Writers(p, b.out).size() != 1)
    return FailedPrecondition("buffer '{}' has several writers", b.out->name);
  const std::vector<int> dims = PlainOutput(b);
  if (dims.size() != b.out_indices.size())
    return FailedPrecondition("it does not write one element per iteration");
  const Buffer out = b.out;
  const Expr value = b.value;
  std::vector<expr::Var> vars;
  for (const loop::Iter& it : b.iters) vars.push_back(it.var);
  Stmt body = RemoveBlock(p.body, &b);
  std::function<Expr(const Expr&)> rewrite = [&](const Expr& e) {
    return expr::Rewrite(e, [&](const Expr& x) -> Expr {
      if (x->kind != expr::Kind::kLoad || !(x->buffer == out)) return nullptr;
      expr::Substitution s;
      for (const expr::Var& v : vars)
        s.Add(v, expr::Int(0));  // an iteration variable of extent 1 may go unused
      for (size_t d = 0; d < dims.size(); ++d) s.pairs[dims[d]].second = rewrite(x->args[d]);
      return Substitute(value, s);
    });
  };
  p.body = loop::MapExprs(body, rewrite);
  DropIntermediate(p, out);
  return OkStatus();
}
const Primitive kInline = {"inline", 1, "inline BLOCK", 1, 1, Inline};

Stmt CopyNest(const std::string& block, const Buffer& from, const Buffer& to,
              const std::vector<std::string>& names) {
  BlockFields f;
  f.name = block;
  f.out = to;
  std::vector<loop::DimRange> domain;
  for (size_t d = 0; d < to->shape.size(); ++d) {
    expr::Var v = expr::MakeVar(names[d]);
    f.iters.push_back({v, to->shape[d], false});
    f.out_indices.push_back(v);
    domain.push_back({expr::Int(0), to->shape[d]});
  }
  f.value = expr::Load(from, f.out_indices);
  return NestFor(std::move(f), domain, {});
}

std::vector<std::string> DimNames(size_t rank) {
  std::vector<std::string> names;
  for (size_t d = 0; d < rank; ++d) names.push_back("d" + std::to_string(d));
  return names;
}

// cache_read BLOCK BUFFER SCOPE NAME: BLOCK reads a copy, made by a new block NAME just before
// BLOCK's nest. A copy of a constant is a constant: packing it costs nothing at run time.
Status CacheRead(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const Buffer from = loop::FindBuffer(p, args[1]);
  if (!from || !loop::Reads(*site.block, from))
    return NotFound("it does not read a buffer '{}'", args[1]);
  WHET_ASSIGN_OR_RETURN(expr::Scope scope, expr::ParseScope(args[2]));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[3]));
  const Buffer to = expr::MakeBuffer(args[3], from->dtype, from->shape, scope, from->constant);
  Stmt copy = CopyNest(args[3], from, to, DimNames(from->shape.size()));
  Stmt reading =
      loop::ReplaceBuffer(Stmt(site.block), from, to, [](const std::vector<Expr>& i) { return i; });
  p.body = InsertBeside(p.body, "", site.block, copy, /*before=*/true);
  p.body = ReplaceBlock(p.body, site.block, reading);
  p.intermediates.push_back(to);
  return OkStatus();
}
const Primitive kCacheRead = {"cache_read", 1, "cache_read BLOCK BUFFER SCOPE NAME", 4, 4,
                              CacheRead};

// cache_write BLOCK SCOPE NAME COPY: BLOCK writes a new buffer NAME; a new block COPY after its
// nest copies the result.
Status CacheWrite(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(expr::Scope scope, expr::ParseScope(args[1]));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[2]));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[3]));
  const Buffer old = site.block->out;
  if (Writers(p, old).size() != 1)
    return FailedPrecondition("buffer '{}' has several writers", old->name);
  const Buffer made = expr::MakeBuffer(args[2], old->dtype, old->shape, scope, old->constant);
  BlockFields f = *site.block;
  f.out = made;
  std::vector<std::string> names;
  for (const Expr& e : f.out_indices) {
    const bool plain = e->kind == expr::Kind::kVar &&
                       std::find(names.begin(), names.end(), e->name) == names.end();
    names.push_back(plain ? e->name : fmt::format("dim{}", names.size()));
  }
  p.body =
      InsertBeside(p.body, "", site.block, CopyNest(args[3], made, old, names), /*before=*/false);
  p.body = ReplaceBlock(p.body, site.block, loop::MakeBlock(std::move(f)));
  p.intermediates.push_back(made);
  return OkStatus();
}
const Primitive kCacheWrite = {"cache_write", 1, "cache_write BLOCK SCOPE NAME COPY", 4, 4,
                               CacheWrite};

// set_scope BUFFER SCOPE
Status SetScope(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(Buffer b, NeedIntermediate(p, args[0]));
  WHET_ASSIGN_OR_RETURN(expr::Scope scope, expr::ParseScope(args[1]));
  const Buffer to = expr::MakeBuffer(b->name, b->dtype, b->shape, scope, b->constant);
  p.body = loop::ReplaceBuffer(p.body, b, to, [](const std::vector<Expr>& i) { return i; });
  std::replace(p.intermediates.begin(), p.intermediates.end(), b, to);
  return OkStatus();
}
const Primitive kSetScope = {"set_scope", 1, "set_scope BUFFER SCOPE", 2, 2, SetScope};

// The addend of the only sum of `out` with anything in `value`: load(out) + addend; null when there
// is none or `out` is read in another place too. `rest` is `value` with the sum replaced by its
// load.
Expr AddedTo(const Expr& value, const Buffer& out, Expr* rest) {
  int loads = 0;
  for (const auto* l : loop::Loads(value)) loads += l->buffer == out;
  Expr addend;
  auto is_load = [&](const Expr& e) { return e->kind == expr::Kind::kLoad && e->buffer == out; };
  *rest = expr::Rewrite(value, [&](const Expr& e) -> Expr {
    if (addend || e->kind != expr::Kind::kBinary || e->binary != expr::BinaryOp::kAdd)
      return nullptr;
    for (int side : {0, 1}) {
      if (!is_load(e->args[side])) continue;
      addend = e->args[1 - side];
      return e->args[side];
    }
    return nullptr;
  });
  return loads == 1 ? addend : nullptr;
}

// start_from BLOCK CONSUMER: the sum BLOCK starts from what CONSUMER, its only reader, adds to it,
// instead of from 0: one operation less per element. The addend reads inputs of the program only.
Status StartFrom(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(BlockSite consumer, loop::FindBlock(p, args[1]));
  const BlockNode &b = *site.block, &c = *consumer.block;
  const bool from_zero =
      b.init && ((b.init->kind == expr::Kind::kFloat && b.init->float_value == 0) ||
                 (b.init->kind == expr::Kind::kInt && b.init->int_value == 0));
  if (b.reducer != loop::Reducer::kSum || !from_zero)
    return FailedPrecondition("it is not a sum that starts from 0");
  WHET_RETURN_IF_ERROR(NeedIntermediate(p, b.out->name).status());
  const std::vector<BlockSite> readers = Readers(p, b.out);
  if (Writers(p, b.out).size() != 1 || readers.size() != 1 || readers[0].block != &c ||
      c.reducer != loop::Reducer::kNone)
    return FailedPrecondition("'{}' is not the only reader of '{}', element by element", args[1],
                              b.out->name);
  Expr rest;
  const Expr addend = AddedTo(c.value, b.out, &rest);
  if (!addend) return FailedPrecondition("'{}' adds nothing to '{}'", args[1], b.out->name);
  for (const auto* l : loop::Loads(addend)) {
    const bool input = std::any_of(p.params.begin(), p.params.end(), [&](const loop::Param& x) {
      return x.buffer == l->buffer && x.role == loop::Role::kInput;
    });
    if (!input || loop::Reads(b, l->buffer))
      return FailedPrecondition("what is added reads '{}'", l->buffer->name);
  }
  // CONSUMER's iteration variables in terms of BLOCK's.
  const std::vector<int> dims = PlainOutput(b);
  if (dims.size() != b.out_indices.size())
    return FailedPrecondition("block '{}' does not write one element per iteration", b.name);
  expr::Substitution s;
  for (const auto* l : loop::Loads(c.value)) {
    if (!(l->buffer == b.out)) continue;
    for (size_t d = 0; d < l->args.size(); ++d) {
      for (const loop::Iter& it : c.iters) {
        if (it.var == l->args[d] && it.extent == b.iters[dims[d]].extent)
          s.Add(it.var, b.iters[dims[d]].var);
      }
    }
  }
  for (const loop::Iter& it : c.iters) {
    const bool known = std::any_of(s.pairs.begin(), s.pairs.end(),
                                   [&](const auto& x) { return x.first == it.var.get(); });
    if (!known && expr::Uses(addend, it.var))
      return FailedPrecondition("what is added differs along '{}', '{}' does not", it.var->name,
                                b.out->name);
  }
  BlockFields starting = b, adding = c;
  starting.init = Substitute(addend, s);
  adding.value = rest;
  p.body = ReplaceBlock(p.body, &b, loop::MakeBlock(std::move(starting)));
  p.body = ReplaceBlock(p.body, &c, loop::MakeBlock(std::move(adding)));
  return OkStatus();
}
const Primitive kStartFrom = {"start_from", 1, "start_from BLOCK CONSUMER", 2, 2, StartFrom};

// decompose_reduction BLOCK LOOP: the initial value is written by a block BLOCK.init just before
// LOOP. Where loops outside of LOOP are reduced too, only in the first iteration of those.
Status DecomposeReduction(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const BlockNode& b = *site.block;
  if (!b.init) return FailedPrecondition("it is not a reduction with an initial value");
  WHET_ASSIGN_OR_RETURN(const ForNode* at, NeedLoop(p, args[1]));
  bool below = false;
  std::vector<const ForNode*> inner;
  size_t first = site.loops.size();  // from here on an element is visited once per step
  Expr when;
  for (size_t l = 0; l < site.loops.size(); ++l) {
    const ForNode* f = site.loops[l];
    below |= f == at;
    if (below) inner.push_back(f);
    if (below) first = std::min(first, l);
    bool reduced = false, spatial = false;
    for (size_t i = 0; !below && i < b.iters.size(); ++i) {
      if (expr::Uses(b.bindings[i], f->var)) (b.iters[i].reduce ? reduced : spatial) = true;
    }
    if (!reduced || f->extent == 1) continue;
    if (spatial) return FailedPrecondition("loop '{}' is both spatial and reduced", f->var->name);
    first = std::min(first, l);
    const Expr at_begin = expr::Eq(f->var, expr::Int(f->begin));
    when = when ? expr::And(when, at_begin) : at_begin;
  }
  if (!below) return FailedPrecondition("it is not inside loop '{}'", args[1]);
  BlockFields init;
  init.name = b.name + ".init";
  init.out = b.out;
  init.predicate = b.predicate;
  expr::Substitution rename;
  std::vector<const ForNode*> kept;
  for (const ForNode* f : inner) {
    bool spatial = false;
    for (size_t i = 0; i < b.iters.size(); ++i)
      spatial |= !b.iters[i].reduce && expr::Uses(b.bindings[i], f->var);
    if (!spatial) continue;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      if (b.iters[i].reduce && expr::Uses(b.bindings[i], f->var))
        return FailedPrecondition("loop '{}' is both spatial and reduced", f->var->name);
    }
    kept.push_back(f);
    rename.Add(f->var, expr::MakeVar(f->var->name + ".init"));
  }
  expr::Substitution iters;
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (b.iters[i].reduce) continue;
    expr::Var v = expr::MakeVar(b.iters[i].var->name);
    iters.Add(b.iters[i].var, v);
    init.iters.push_back({v, b.iters[i].extent, false});
    init.bindings.push_back(Substitute(b.bindings[i], rename));
  }
  for (const Expr& e : b.out_indices) init.out_indices.push_back(Substitute(e, iters));
  init.value = Substitute(b.init, iters);
  // In a loop that computes an element again (compute_at put the block there) the sum would not
  // start again.
  if (!OncePerElement(site, first)) {
    return FailedPrecondition(
        "an element of '{}' is computed in several iterations of loops inside '{}'", b.out->name,
        args[1]);
  }
  if (init.predicate) {
    for (const ForNode* f : inner) {
      if (std::find(kept.begin(), kept.end(), f) == kept.end() &&
          expr::Uses(init.predicate, f->var)) {
        return FailedPrecondition("the block's predicate depends on the reduced loop '{}'",
                                  f->var->name);
      }
    }
    init.predicate = Substitute(init.predicate, rename);
  }
  if (when) init.predicate = init.predicate ? expr::And(when, init.predicate) : when;
  Stmt nest = loop::MakeBlock(std::move(init));
  for (size_t i = kept.size(); i-- > 0;) {
    nest = loop::MakeFor(rename.pairs[i].second, kept[i]->begin, kept[i]->extent, kept[i]->for_kind,
                         nest);
  }
  BlockFields update = b;
  update.init = nullptr;
  p.body = ReplaceBlock(p.body, &b, loop::MakeBlock(std::move(update)));
  p.body = ReplaceLoop(p.body, args[1], [&](const ForNode& f) {
    return loop::MakeSeq({nest, loop::WithBody(f, f.body)});
  });
  return OkStatus();
}
const Primitive kDecomposeReduction = {
    "decompose_reduction", 1, "decompose_reduction BLOCK LOOP", 2, 2, DecomposeReduction};

// transform_layout BUFFER MAP: the buffer's elements move; what is computed does not. The map must
// be one to one.
Status TransformLayout(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(Buffer b, NeedIntermediate(p, args[0]));
  WHET_ASSIGN_OR_RETURN(expr::IndexMap map, expr::IndexMap::Parse(args[1]));
  if (map.vars.size() != b->shape.size())
    return InvalidArgument("the map takes {} indices, '{}' has {}", map.vars.size(), b->name,
                           b->shape.size());
  expr::Bounds bounds;
  for (size_t d = 0; d < map.vars.size(); ++d)
    bounds.Set(map.vars[d], {0, std::max<int64_t>(b->shape[d] - 1, 0)});
  for (const Expr& e : map.out) {
    // Every part of it: then no coefficient or sum is beyond what indices can be.
    bool known = true;
    expr::Visit(e, [&](const expr::ExprNode& n) { known &= bounds.Of(Expr(&n)).has_value(); });
    const auto range = bounds.Of(e);
    if (!known || range->lo < 0 || range->hi > (int64_t{1} << 36))
      return InvalidArgument("the map's {} leaves 0..2^36", expr::ToString(e));
  }
  if (!Determine(map.out, map.vars, bounds))
    return InvalidArgument("the map {} is not one to one", map.ToString());
  const Buffer to =
      expr::MakeBuffer(b->name, b->dtype, map.ApplyToShape(b->shape), b->scope, b->constant);
  if (to->num_elements() < b->num_elements() || to->num_elements() > 4 * b->num_elements() + 4096) {
    return InvalidArgument("the map takes {} elements to {}", b->num_elements(),
                           to->num_elements());
  }
  p.body = loop::ReplaceBuffer(p.body, b, to, [&](const std::vector<Expr>& i) {
    std::vector<Expr> moved = map.Apply(i);
    // What two indices told together may be told by one: then it is an axis of the block.
    for (Expr& e : moved) {
      const expr::Linear whole = expr::JoinDivMod(expr::ToLinear(e));
      if (whole.terms.size() < expr::ToLinear(e).terms.size()) e = whole.ToExpr();
    }
    return moved;
  });
  std::replace(p.intermediates.begin(), p.intermediates.end(), b, to);
  return OkStatus();
}
const Primitive kTransformLayout = {"transform_layout", 1, "transform_layout BUFFER MAP", 2, 2,
                                    TransformLayout};

// pad BLOCK AXIS MULTIPLE: the axis' extent and the dimension it writes grow to a multiple. Reads
// that would leave their buffer give 0 there; nobody reads what is computed beyond the old extent.
// Before the block's loops are changed.
Status Pad(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const BlockNode& b = *site.block;
  WHET_ASSIGN_OR_RETURN(int64_t multiple, NeedInt(args[2], 1, 4096));
  int axis = -1;
  for (size_t i = 0; i < b.iters.size(); ++i) {
    std::string_view name = b.iters[i].var->name;
    if (name == args[1] || name == "v_" + args[1]) axis = static_cast<int>(i);
  }
  if (axis < 0) return NotFound("block '{}' has no axis '{}'", b.name, args[1]);
  const loop::Iter it = b.iters[axis];
  if (it.reduce) return FailedPrecondition("axis '{}' is reduced", args[1]);
  WHET_RETURN_IF_ERROR(NeedIntermediate(p, b.out->name).status());
  if (Writers(p, b.out).size() != 1)
    return FailedPrecondition("buffer '{}' has several writers", b.out->name);
  const ForNode* of_axis = nullptr;
  for (const ForNode* f : site.loops) {
    if (f->var == b.bindings[axis] && f->extent == it.extent) of_axis = f;
  }
  if (!of_axis) return FailedPrecondition("the loop of axis '{}' was already changed", args[1]);
  bool alone = true;
  loop::Walk(of_axis->body,
             [&](const Stmt& s) { alone &= As<BlockNode>(s) == nullptr || s.get() == &b; });
  if (!alone) return FailedPrecondition("loop '{}' holds other blocks too", of_axis->var->name);
  const int64_t padded = (it.extent + multiple - 1) / multiple * multiple;
  if (padded == it.extent) return OkStatus();
  std::vector<int64_t> shape = b.out->shape;
  bool found = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (b.out_indices[d] == it.var) {
      shape[d] = padded;
      found = true;
    } else if (expr::Uses(b.out_indices[d], it.var)) {
      return FailedPrecondition("the output index {} mixes axis '{}'",
                                expr::ToString(b.out_indices[d]), args[1]);
    }
  }
  if (!found) return FailedPrecondition("axis '{}' does not index the output", args[1]);
  BlockFields f = b;
  f.iters[axis].extent = padded;
  expr::Bounds bounds;
  for (const loop::Iter& i : f.iters) bounds.Set(i.var, {0, i.extent - 1});
  auto guarded = [&](const Expr& x) -> Expr {
    if (x->kind != expr::Kind::kLoad || !expr::Uses(x, it.var)) return nullptr;
    for (size_t d = 0; d < x->args.size(); ++d) {
      auto range = bounds.Of(x->args[d]);
      if (!expr::Uses(x->args[d], it.var) ||
          (range && range->lo >= 0 && range->hi < x->buffer->shape[d]))
        continue;
      const Expr zero = IsFloat(x->dtype) ? expr::Float(0, x->dtype) : expr::Int(0, x->dtype);
      return expr::Select(expr::Lt(it.var, expr::Int(it.extent)), x, zero);
    }
    return x;
  };
  f.value = expr::Rewrite(b.value, guarded);
  if (f.init) f.init = expr::Rewrite(b.init, guarded);
  const Buffer to =
      expr::MakeBuffer(b.out->name, b.out->dtype, shape, b.out->scope, b.out->constant);
  const Buffer from = b.out;
  f.out = to;
  p.body = ReplaceBlock(p.body, &b, loop::MakeBlock(std::move(f)));
  p.body = ReplaceLoop(p.body, of_axis->var->name, [&](const ForNode& l) {
    return loop::MakeFor(l.var, 0, padded, l.for_kind, l.body, l.annotations);
  });
  p.body = loop::ReplaceBuffer(p.body, from, to, [](const std::vector<Expr>& i) { return i; });
  std::replace(p.intermediates.begin(), p.intermediates.end(), from, to);
  return OkStatus();
}
const Primitive kPad = {"pad", 1, "pad BLOCK AXIS MULTIPLE", 3, 3, Pad};

}  // namespace

const Primitive& PrimInline() { return kInline; }
const Primitive& PrimCacheRead() { return kCacheRead; }
const Primitive& PrimCacheWrite() { return kCacheWrite; }
const Primitive& PrimSetScope() { return kSetScope; }
const Primitive& PrimStartFrom() { return kStartFrom; }
const Primitive& PrimDecomposeReduction() { return kDecomposeReduction; }
const Primitive& PrimTransformLayout() { return kTransformLayout; }
const Primitive& PrimPad() { return kPad; }

}  // namespace whet::schedule
