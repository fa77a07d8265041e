// rfactor: a reduction in two levels. The inner one gives a partial result per iteration of a loop,
// the outer one reduces those. Where the partial results stay in registers inside of that loop this
// is blocking over the reduction, with the sums so far in memory; where the loop runs in parallel
// it is a split reduction. Source: Suriana, Adams, Kamil 2017, "Parallel associative reductions in
// Halide".
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Expr;

// The reduced iteration that `f` is a part of: v = count*f + rest, 0 <= rest <= last.
struct Factored {
  int iter = -1;
  int64_t count = 0;
  Expr rest;
  int64_t last = 0;
};

StatusOr<Factored> FactorOf(const BlockSite& site, const ForNode* f) {
  const BlockNode& b = *site.block;
  const expr::Bounds bounds = LoopBounds(site);
  Factored r;
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (!expr::Uses(b.bindings[i], f->var)) continue;
    if (!b.iters[i].reduce || r.iter >= 0)
      return FailedPrecondition("loop '{}' is more than a part of one reduced axis", f->var->name);
    r.iter = static_cast<int>(i);
    expr::Linear rest = expr::ToLinear(expr::Simplify(b.bindings[i], bounds));
    r.count = rest.CoefficientOf(f->var);
    std::erase_if(rest.terms, [&](const auto& t) { return t.first == f->var; });
    r.rest = rest.ToExpr();
    const auto range = bounds.Of(r.rest);
    if (r.count <= 0 || expr::Uses(r.rest, f->var) || !range || range->lo != 0 ||
        range->hi >= r.count)
      return FailedPrecondition("axis '{}' is {}, which is not told by '{}' and the rest",
                                b.iters[i].var->name, expr::ToString(b.bindings[i]), f->var->name);
    r.last = range->hi;
  }
  if (r.iter < 0)
    return FailedPrecondition("block '{}' does not reduce over '{}'", b.name, f->var->name);
  return r;
}

// Every partial result has a first step: what of the predicate the reduced loops take part in holds
// where those but `f` begin.
Status NeedFirstSteps(const BlockSite& site, const ForNode* f) {
  const BlockNode& b = *site.block;
  if (!b.predicate) return OkStatus();
  const expr::Bounds bounds = LoopBounds(site);
  expr::Substitution begin;
  for (const ForNode* l : site.loops) {
    bool reduced = false;
    for (size_t i = 0; i < b.iters.size(); ++i)
      reduced |= b.iters[i].reduce && expr::Uses(b.bindings[i], l->var);
    if (reduced && l != f) begin.Add(l->var, expr::Int(l->begin));
  }
  std::function<Status(const Expr&)> check = [&](const Expr& e) -> Status {
    if (e->kind == expr::Kind::kBinary && e->binary == expr::BinaryOp::kAnd) {
      WHET_RETURN_IF_ERROR(check(e->args[0]));
      return check(e->args[1]);
    }
    bool reduced = expr::Uses(e, f->var);
    for (const auto& [v, unused] : begin.pairs) {
      expr::Visit(e, [&, v = v](const expr::ExprNode& n) { reduced |= &n == v; });
    }
    if (!reduced || bounds.Decide(Substitute(e, begin)).value_or(false)) return OkStatus();
    return FailedPrecondition("a partial result may have no first step: {}", expr::ToString(e));
  };
  return check(b.predicate);
}

// rfactor BLOCK LOOP PARTIAL TOTAL: LOOP, a part of an axis that BLOCK reduces, becomes a spatial
// one: BLOCK writes a new buffer PARTIAL with a first dimension for it, and a new block TOTAL after
// BLOCK's nest reduces PARTIAL over it, from BLOCK's initial value. Sums are added up in another
// order.
Status RFactor(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(const ForNode* f, NeedLoop(p, args[1]));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[2]));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[3]));
  const BlockNode& b = *site.block;
  if (std::find(site.loops.begin(), site.loops.end(), f) == site.loops.end())
    return FailedPrecondition("block '{}' is not inside loop '{}'", b.name, args[1]);
  if (b.reducer == loop::Reducer::kNone || !b.init)
    return FailedPrecondition("it is not a reduction with an initial value");
  if (f->begin != 0) return FailedPrecondition("loop '{}' starts at {}", args[1], f->begin);
  if (Writers(p, b.out).size() != 1)
    return FailedPrecondition("buffer '{}' has several writers", b.out->name);
  const std::vector<int> dims = PlainOutput(b);
  if (dims.size() != b.out_indices.size())
    return FailedPrecondition("it does not write one element per iteration");
  for (size_t i = 0; i < b.iters.size(); ++i) {
    const bool indexes = std::count(dims.begin(), dims.end(), static_cast<int>(i)) > 0;
    if (!b.iters[i].reduce && !indexes && b.iters[i].extent > 1)
      return FailedPrecondition("axis '{}' does not index the output", b.iters[i].var->name);
  }
  WHET_ASSIGN_OR_RETURN(Factored factored, FactorOf(site, f));
  WHET_RETURN_IF_ERROR(NeedFirstSteps(site, f));
  std::vector<int64_t> shape = {f->extent};
  shape.insert(shape.end(), b.out->shape.begin(), b.out->shape.end());
  const expr::Buffer partial =
      expr::MakeBuffer(args[2], b.out->dtype, shape, expr::Scope::kGlobal, b.out->constant);

  // BLOCK: v -> count*outer + inner.
  BlockFields part = b;
  const expr::Var whole = b.iters[factored.iter].var;
  std::string name = whole->name + "_o";
  while (std::any_of(b.iters.begin(), b.iters.end(),
                     [&](const loop::Iter& it) { return it.var->name == name; }))
    name += "_o";
  const expr::Var outer = expr::MakeVar(name), inner = expr::MakeVar(whole->name);
  expr::Substitution split;
  split.Add(whole, outer * factored.count + inner);
  part.iters[factored.iter] = {inner, factored.last + 1, true};
  part.bindings[factored.iter] = factored.rest;
  part.iters.insert(part.iters.begin(), {outer, f->extent, false});
  part.bindings.insert(part.bindings.begin(), Expr(f->var));
  part.value = Substitute(b.value, split);
  part.out = partial;
  part.out_indices.insert(part.out_indices.begin(), Expr(outer));
  // The least and the largest of the initial value and anything are not changed by taking it again.
  const double identity = te::Identity(b.reducer);
  if (b.reducer == loop::Reducer::kSum || b.reducer == loop::Reducer::kProd)
    part.init = IsFloat(b.out->dtype) ? expr::Float(identity, b.out->dtype)
                                      : expr::Int(static_cast<int64_t>(identity), b.out->dtype);

  BlockFields total;
  total.name = args[3];
  total.out = b.out;
  total.reducer = b.reducer;
  expr::Substitution own;
  std::vector<loop::DimRange> domain;
  for (const loop::Iter& it : b.iters) {
    if (it.reduce) continue;
    total.iters.push_back({expr::MakeVar(it.var->name), it.extent, false});
    own.Add(it.var, total.iters.back().var);
    domain.push_back({expr::Int(0), it.extent});
  }
  total.iters.push_back({expr::MakeVar(outer->name), f->extent, true});
  domain.push_back({expr::Int(0), f->extent});
  for (const Expr& e : b.out_indices) total.out_indices.push_back(Substitute(e, own));
  total.init = Substitute(b.init, own);
  std::vector<Expr> from = {total.iters.back().var};
  from.insert(from.end(), total.out_indices.begin(), total.out_indices.end());
  total.value = expr::Load(partial, from);

  const Stmt part_block = loop::MakeBlock(std::move(part));
  p.body = InsertBeside(p.body, "", &b, NestFor(std::move(total), domain, {}), /*before=*/false);
  p.body = ReplaceBlock(p.body, &b, part_block);
  p.intermediates.push_back(partial);
  return OkStatus();
}
const Primitive kRFactor = {"rfactor", 1, "rfactor BLOCK LOOP PARTIAL TOTAL", 4, 4, RFactor};

}  // namespace

const Primitive& PrimRFactor() { return kRFactor; }

}  // namespace whet::schedule
