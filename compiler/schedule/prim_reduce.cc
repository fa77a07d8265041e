// Primitives for reductions along a contiguous axis and for what is divided by their results:
// interleave, reciprocal.
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"

namespace whet::schedule {
namespace {

using expr::Buffer;
using expr::Expr;

// Whether the reduction may start from its initial value several times: an identity, or any number
// where the same operand twice is as good as once.
bool StartsFromIdentity(const BlockNode& b) {
  if (!b.init) return false;
  const bool is_float = b.init->kind == expr::Kind::kFloat;
  if (!is_float && b.init->kind != expr::Kind::kInt) return false;
  if (b.reducer == loop::Reducer::kMax || b.reducer == loop::Reducer::kMin) return true;
  const double v = is_float ? b.init->float_value : static_cast<double>(b.init->int_value);
  return v == te::Identity(b.reducer);
}

int AxisOf(const BlockNode& b, std::string_view axis) {
  for (size_t i = 0; i < b.iters.size(); ++i) {
    std::string_view name = b.iters[i].var->name;
    if (name == axis || (name.rfind("v_", 0) == 0 && name.substr(2) == axis))
      return static_cast<int>(i);
  }
  return -1;
}

// The block's loops are as the program had them at first: one per iteration variable, and nothing
// else inside.
Status NeedUntouched(const BlockSite& site) {
  const BlockNode& b = *site.block;
  // A loop that runs once may bind nothing.
  bool same = !b.predicate && !site.loops.empty();
  std::vector<const ForNode*> bound;
  for (size_t i = 0; same && i < b.iters.size(); ++i) {
    const auto f = std::find_if(site.loops.begin(), site.loops.end(), [&](const ForNode* l) {
      return b.bindings[i] == l->var && l->extent == b.iters[i].extent && l->begin == 0 &&
             l->for_kind == ForKind::kSerial;
    });
    if (f != site.loops.end()) bound.push_back(*f);
    same = f != site.loops.end() || b.iters[i].extent == 1;
  }
  for (const ForNode* l : site.loops)
    same &= l->extent == 1 || std::count(bound.begin(), bound.end(), l) == 1;
  if (same) {
    loop::Walk(site.loops[0]->body,
               [&](const Stmt& s) { same &= As<BlockNode>(s) == nullptr || s.get() == &b; });
  }
  if (same) return OkStatus();
  return FailedPrecondition("the loops of block '{}' were already changed", b.name);
}

std::vector<loop::DimRange> WholeDomain(const BlockFields& f) {
  std::vector<loop::DimRange> domain;
  for (const loop::Iter& it : f.iters) domain.push_back({expr::Int(0), it.extent});
  return domain;
}

// interleave BLOCK AXIS FACTOR NAME: BLOCK reduces over AXIS in two steps. A new block NAME
// combines the elements whose place on AXIS has the same rest modulo FACTOR, for every rest; BLOCK
// combines those. With FACTOR lanes or a multiple of them the first step runs on whole vectors,
// whose sums do not wait for one another. Before the block's loops are changed.
Status Interleave(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const BlockNode& b = *site.block;
  WHET_ASSIGN_OR_RETURN(int64_t factor, NeedInt(args[2], 1, 4096));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[3]));
  const int axis = AxisOf(b, args[1]);
  if (axis < 0) return NotFound("block '{}' has no axis '{}'", b.name, args[1]);
  if (b.reducer == loop::Reducer::kNone || !b.iters[axis].reduce)
    return FailedPrecondition("block '{}' does not reduce over '{}'", b.name, args[1]);
  if (!StartsFromIdentity(b))
    return FailedPrecondition(
        "block '{}' does not start from a number that leaves others as they are", b.name);
  WHET_RETURN_IF_ERROR(NeedUntouched(site));
  const loop::Iter old = b.iters[axis];
  const int64_t steps = (old.extent + factor - 1) / factor;

  BlockFields part;
  part.name = args[3];
  part.reducer = b.reducer;
  part.init = b.init;
  std::vector<int64_t> shape;
  expr::Substitution rename;
  for (const loop::Iter& it : b.iters) {
    if (it.reduce) continue;
    const expr::Var v = expr::MakeVar(it.var->name);
    part.iters.push_back({v, it.extent, false});
    part.out_indices.push_back(v);
    shape.push_back(it.extent);
    rename.Add(it.var, v);
  }
  std::string lane_name = old.var->name + "_l";
  while (AxisOf(b, lane_name) >= 0) lane_name += "l";
  const expr::Var lane = expr::MakeVar(lane_name), step = expr::MakeVar(old.var->name);
  part.iters.push_back({lane, factor, false});
  part.out_indices.push_back(lane);
  shape.push_back(factor);
  for (const loop::Iter& it : b.iters) {
    if (!it.reduce || it.var == old.var) continue;
    const expr::Var v = expr::MakeVar(it.var->name);
    part.iters.push_back({v, it.extent, true});
    rename.Add(it.var, v);
  }
  part.iters.push_back({step, steps, true});
  const Expr at = step * factor + lane;
  rename.Add(old.var, at);
  part.value = Substitute(b.value, rename);
  if (old.extent % factor)
    part.value = expr::Select(expr::Lt(at, expr::Int(old.extent)), part.value, b.init);
  const Buffer made = expr::MakeBuffer(args[3], b.out->dtype, shape, b.out->scope, b.out->constant);
  part.out = made;

  BlockFields rest = b;
  rest.iters.clear();
  std::vector<Expr> from;
  expr::Var over = expr::MakeVar(old.var->name);
  for (const loop::Iter& it : b.iters) {
    if (it.reduce) continue;
    rest.iters.push_back(it);
    from.emplace_back(it.var);
  }
  rest.iters.push_back({over, factor, true});
  from.emplace_back(over);
  rest.value = expr::Load(made, from);

  const std::vector<loop::DimRange> part_domain = WholeDomain(part),
                                    rest_domain = WholeDomain(rest);
  const Stmt both = loop::MakeSeq(
      {NestFor(std::move(part), part_domain, {}), NestFor(std::move(rest), rest_domain, {})});
  p.body = InsertBeside(p.body, "", site.block, both, /*before=*/true);
  p.body = RemoveBlock(p.body, site.block);
  p.intermediates.push_back(made);
  return OkStatus();
}
const Primitive kInterleave = {"interleave", 1, "interleave BLOCK AXIS FACTOR NAME", 4, 4,
                               Interleave};

// Whether the buffer's numbers are between 1 and the number of terms (or NaN): sums of exp(x - top)
// where top is the largest x of those summed, so that one term is 1 and none is more.
bool IsSumOfShiftedExps(const Program& p, const Buffer& sum) {
  const std::vector<BlockSite> sums = Writers(p, sum);
  if (sums.size() != 1 || sums[0].block->reducer != loop::Reducer::kSum) return false;
  const BlockNode& s = *sums[0].block;
  auto is_zero = [](const Expr& e) {
    return e && e->kind == expr::Kind::kFloat && e->float_value == 0;
  };
  if (!is_zero(s.init) || s.value->kind != expr::Kind::kLoad) return false;
  // The summed stage: exp(x[i] - top[i']).
  const std::vector<BlockSite> exps = Writers(p, s.value->buffer);
  if (exps.size() != 1 || exps[0].block->reducer != loop::Reducer::kNone) return false;
  const BlockNode& e = *exps[0].block;
  const std::vector<int> dims = PlainOutput(e);
  if (dims.size() != e.out_indices.size() || e.value->kind != expr::Kind::kCall ||
      e.value->call != expr::Intrinsic::kExp)
    return false;
  const Expr d = e.value->args[0];
  if (d->kind != expr::Kind::kBinary || d->binary != expr::BinaryOp::kSub ||
      d->args[1]->kind != expr::Kind::kLoad)
    return false;
  const std::vector<BlockSite> tops = Writers(p, d->args[1]->buffer);
  if (tops.size() != 1 || tops[0].block->reducer != loop::Reducer::kMax) return false;
  const BlockNode& m = *tops[0].block;
  const bool from_least =
      m.init && m.init->kind == expr::Kind::kFloat && std::isinf(m.init->float_value);
  if (!from_least || m.iters.size() != s.iters.size() ||
      m.out_indices.size() != s.out_indices.size())
    return false;
  // All three in terms of the sum's variables: what is summed is exp(X - top at the same row), and
  // top's terms are X with the same variables reduced.
  expr::Substitution to_sum;
  for (size_t i = 0; i < e.iters.size(); ++i) to_sum.Add(e.iters[i].var, expr::Int(0));
  for (size_t k = 0; k < dims.size(); ++k) to_sum.pairs[dims[k]].second = s.value->args[k];
  const Expr x = Substitute(d->args[0], to_sum);
  const Expr top = Substitute(d->args[1], to_sum);
  expr::Substitution of_max;
  for (size_t i = 0; i < m.iters.size(); ++i) {
    if (m.iters[i].extent != s.iters[i].extent || m.iters[i].reduce != s.iters[i].reduce)
      return false;
    of_max.Add(m.iters[i].var, s.iters[i].var);
  }
  if (!expr::Same(Substitute(m.value, of_max), x)) return false;
  for (size_t k = 0; k < m.out_indices.size(); ++k) {
    if (!expr::Same(Substitute(m.out_indices[k], of_max), top->args[k]) ||
        !expr::Same(s.out_indices[k], top->args[k]))
      return false;
  }
  return true;
}

// reciprocal BLOCK BUFFER NAME: BLOCK multiplies by 1 / BUFFER, which a new block NAME computes,
// where it divided by BUFFER: one division per element of BUFFER and a rounding more, which sums
// have room for. Only for a buffer of numbers whose reciprocals neither overflow nor lose bits.
Status Reciprocal(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  const BlockNode& b = *site.block;
  WHET_ASSIGN_OR_RETURN(Buffer divisor, NeedIntermediate(p, args[1]));
  WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p, args[2]));
  if (!IsSumOfShiftedExps(p, divisor))
    return FailedPrecondition(
        "'{}' is not the sum of exp(x - top) over the elements that top is the largest of",
        divisor->name);
  const Buffer made =
      expr::MakeBuffer(args[2], divisor->dtype, divisor->shape, divisor->scope, divisor->constant);
  int divisions = 0;
  BlockFields by = b;
  by.value = expr::Rewrite(b.value, [&](const Expr& e) -> Expr {
    if (e->kind != expr::Kind::kBinary || e->binary != expr::BinaryOp::kDiv) return nullptr;
    const Expr& d = e->args[1];
    if (d->kind != expr::Kind::kLoad || !(d->buffer == divisor)) return nullptr;
    ++divisions;
    return e->args[0] * expr::Load(made, d->args);
  });
  if (divisions == 0)
    return FailedPrecondition("block '{}' does not divide by '{}'", b.name, divisor->name);
  BlockFields f;
  f.name = args[2];
  f.out = made;
  for (size_t d = 0; d < made->shape.size(); ++d) {
    const expr::Var v = expr::MakeVar("d" + std::to_string(d));
    f.iters.push_back({v, made->shape[d], false});
    f.out_indices.push_back(v);
  }
  f.value = expr::Float(1, made->dtype) / expr::Load(divisor, f.out_indices);
  const std::vector<loop::DimRange> domain = WholeDomain(f);
  p.body = InsertBeside(p.body, "", site.block, NestFor(std::move(f), domain, {}), /*before=*/true);
  p.body = ReplaceBlock(p.body, site.block, loop::MakeBlock(std::move(by)));
  p.intermediates.push_back(made);
  return OkStatus();
}
const Primitive kReciprocal = {"reciprocal", 1, "reciprocal BLOCK BUFFER NAME", 3, 3, Reciprocal};

}  // namespace

const Primitive& PrimInterleave() { return kInterleave; }
const Primitive& PrimReciprocal() { return kReciprocal; }

}  // namespace whet::schedule
