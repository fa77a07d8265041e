// Element-wise programs (one output, no reduction) and the fallback for everything else: each nest
// is vectorized over its contiguous axis, its other axes fused into the parallel range. Operands
// that lie across the output's vectors are read along their own contiguous axis, block by block,
// and turned in registers: transposes of 128x768 and 512x512 ran at 1.8 and 1.2 to 1.35 times the
// speed of oneDNN's reorder, and at 0.22 and 0.25 with gathers.
#include <algorithm>
#include <cmath>

#include "compiler/schedule/analysis.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule.h"

namespace whet::schedule {
namespace {

using expr::Expr;

enum { kFlatLanes, kFlatUnroll, kFlatAcross, kFlatKnobs };

// Operands that are contiguous along another axis than the output.
struct Turned {
  int iter = -1;                                // that axis
  int vector_iter = -1;                         // the output's
  std::vector<const expr::ExprNode*> operands;  // that can be read in blocks of both
  int64_t gathered = 0;                         // operands that cannot
};

struct BytesContext : RuleContext {
  using RuleContext::RuleContext;
  double bytes = 0;
  double turned_elements = 0, gathered_elements = 0;  // read across vectors
  int64_t operands = 0;                               // most of one nest that are read in blocks
  int64_t across = 1;                                 // the largest block of any nest
  int64_t operand_extent = 1, vector_extent = 1;
  int64_t element_bytes = 8;  // of the smallest of these operands
};

int AxisAt(const loop::BlockNode& b, const Expr& e) {
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (b.iters[i].var == e && b.iters[i].extent > 1) return static_cast<int>(i);
  }
  return -1;
}

// One index is the axis itself, the others do without it.
bool IsPlainIn(const expr::ExprNode& load, const expr::Var& v) {
  int uses = 0, plain = 0;
  for (const Expr& a : load.args) {
    uses += expr::Uses(a, v);
    plain += a == v;
  }
  return uses == 1 && plain == 1;
}

// Or a few elements apart, which loads and shuffles have to be paid for but no gathers.
bool LiesAlong(const expr::ExprNode& load, const expr::Var& v) {
  for (size_t d = 0; d + 1 < load.args.size(); ++d) {
    if (expr::Uses(load.args[d], v)) return false;
  }
  int64_t step = 0;
  for (const auto& [atom, c] : expr::ToLinear(load.args.back()).terms) {
    if (atom == v) {
      step += c;
    } else if (expr::Uses(atom, v)) {
      return false;
    }
  }
  return step >= 1 && step <= 4;
}

Turned FindTurned(const loop::BlockNode& b) {
  Turned t;
  if (b.out_indices.empty() || b.reducer != loop::Reducer::kNone) return t;
  t.vector_iter = AxisAt(b, b.out_indices.back());
  if (t.vector_iter < 0) return t;
  const expr::Var vector = b.iters[static_cast<size_t>(t.vector_iter)].var;
  const auto loads = loop::Loads(b.value);
  for (const auto* l : loads) {
    if (!expr::Uses(Expr(l), vector) || LiesAlong(*l, vector)) continue;
    const int iter = AxisAt(b, l->args.back());
    bool fits = iter >= 0 && (t.iter < 0 || t.iter == iter) && IsPlainIn(*l, vector) &&
                IsPlainIn(*l, b.iters[static_cast<size_t>(iter)].var) && !l->buffer->constant &&
                l->buffer->dtype != DType::kBool && !(l->buffer == b.out);
    for (const auto* other : loads)
      fits &= !(other->buffer == l->buffer) || expr::Same(Expr(other), Expr(l));
    if (!fits) {
      ++t.gathered;
      continue;
    }
    t.iter = iter;
    const bool known = std::any_of(t.operands.begin(), t.operands.end(),
                                   [&](const auto* o) { return o->buffer == l->buffer; });
    if (!known) t.operands.push_back(l);
  }
  return t;
}

// Blocks are squares of both axes, not beyond what one vector holds.
int64_t LargestBlock(const loop::BlockNode& b, const Turned& t, const Target& target) {
  if (t.operands.empty()) return 1;
  int64_t n = std::min(b.iters[static_cast<size_t>(t.iter)].extent,
                       b.iters[static_cast<size_t>(t.vector_iter)].extent);
  for (const auto* o : t.operands) n = std::min<int64_t>(n, target.Lanes(SizeOf(o->buffer->dtype)));
  return n;
}

std::vector<Knob> Knobs(const RuleContext& c) {
  const int64_t lanes = c.target.Lanes(4);
  std::vector<Knob> knobs = {{"lanes", {std::max<int64_t>(lanes / 2, 1), lanes}},
                             {"unroll", {1, 2, 4, 8}}};
  std::vector<int64_t> across = {1};
  for (const int64_t v : {4, 8, 16}) {
    if (v <= std::min(static_cast<const BytesContext&>(c).across, lanes)) across.push_back(v);
  }
  if (across.size() > 1) knobs.push_back({"across", across});
  return knobs;
}
int64_t Across(const std::vector<int64_t>& v) {
  return v.size() > kFlatAcross ? v[kFlatAcross] : 1;
}
Rejection Check(const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kFlatKnobs && v.size() != kFlatAcross) return Rejection::kBadValue;
  const int64_t across = Across(v);
  if (across == 1) return Rejection::kNone;
  // The vectors of a nest in blocks are as long as these.
  if (v[kFlatLanes] != context.target.Lanes(4)) return Rejection::kTile;
  const int64_t operands = static_cast<const BytesContext&>(context).operands;
  // One shuffle needs its two operands and a result beside the block.
  if (across * operands + 2 > context.target.VectorRegisters()) return Rejection::kRegisters;
  return Rejection::kNone;
}
std::vector<int64_t> Default(const RuleContext& c) {
  std::vector<int64_t> v = {c.target.Lanes(4), 1};
  const std::vector<Knob> knobs = Knobs(c);
  if (knobs.size() <= kFlatAcross) return v;
  v.push_back(1);
  for (const int64_t across : knobs[kFlatAcross].values) {
    const int64_t old = std::exchange(v[kFlatAcross], across);
    if (Check(c, v) != Rejection::kNone) v[kFlatAcross] = old;
  }
  return v;
}

Estimate EstimateBytes(const RuleContext& context, const std::vector<int64_t>& v) {
  const auto& c = static_cast<const BytesContext&>(context);
  Estimate e;
  e.bytes = c.bytes;
  e.load_cycles = e.bytes / static_cast<double>(4 * v[kFlatLanes]);
  e.overhead_cycles = e.load_cycles / static_cast<double>(v[kFlatUnroll]);
  e.body_instructions = static_cast<double>(4 * v[kFlatUnroll]);
  const auto across = static_cast<double>(Across(v));
  const bool blocks = Across(v) > 1;
  // A gather loads lane by lane, and each of its lines comes anew from beyond the first cache for
  // every number of it.
  const double gathered = c.gathered_elements + (blocks ? 0 : c.turned_elements);
  e.load_cycles += gathered;
  e.l2_bytes = gathered > 0 ? e.bytes + gathered * 64 : 0;
  if (!blocks) return e;
  // Of a vector: its load, its store, and a shuffle a step, of which those within 128 bits come two
  // at a time where vectors are not the longest. What crosses a line costs once more.
  const auto element = static_cast<double>(c.element_bytes);
  const double bytes = across * element, piece = std::min(across, 16 / element);
  const double zips = std::log2(piece) * (bytes > 32 ? 1 : 0.5);
  const auto crosses = [&](int64_t extent) {
    return extent % Across(v) == 0 ? 0 : std::min(1.0, bytes / 64);
  };
  const double cycles = 1.5 + zips + std::log2(across / piece) + 0.5 * crosses(c.operand_extent) +
                        2 * crosses(c.vector_extent);
  const auto padded = [&](int64_t extent) {
    const auto n = static_cast<double>(extent);
    return std::ceil(n / across) * across / n;
  };
  const double vectors =
      c.turned_elements / across * padded(c.operand_extent) * padded(c.vector_extent);
  e.load_cycles = gathered + vectors * cycles;
  e.body_instructions = across * (std::log2(across) + 2);
  // Two blocks of an operand come together best: lines come in pairs, and of more of them, or of
  // the output's that are not full yet, too many lie in one set. What a block leaves of a line is
  // read again.
  const double used = bytes * static_cast<double>(v[kFlatUnroll]);
  e.overhead_cycles = vectors / across * (v[kFlatUnroll] == 2 ? 4 : v[kFlatUnroll] <= 4 ? 6 : 7);
  if (used < 32)
    e.l2_bytes = std::max(e.l2_bytes, e.bytes) + c.turned_elements * element * (64 / used - 1);
  return e;
}

bool IsElementwise(const loop::Program& p) {
  for (const BlockSite& s : loop::AllBlocks(p)) {
    if (s.block->reducer != loop::Reducer::kNone) return false;
  }
  return true;
}

std::string ParallelName(const std::string& block, const std::vector<std::string>& loops) {
  return loops.size() > 1 ? fmt::format("{}.par{}", block, loops.size() - 1) : loops[0];
}

Status FuseParallel(Schedule& s, const std::string& block, const std::vector<std::string>& loops) {
  if (loops.empty()) return OkStatus();
  std::string outer = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) {
    const std::string fused = block + ".par" + std::to_string(i);
    WHET_RETURN_IF_ERROR(s.Apply("fuse", {outer, loops[i], fused}));
    outer = fused;
  }
  return s.Apply("parallel", {outer});
}

// Vectorizes one root-level nest over the axis its output is contiguous in; fuses the others, in
// physical order, into a parallel loop. A nest without such an axis, or whose reduction runs over
// all of it, stays scalar.
Status ScheduleNest(Schedule& s, const std::string& block, int64_t lanes, int64_t unroll) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s.program(), block));
  const loop::Program keep = s.program();
  const loop::BlockNode& b = *site.block;
  std::vector<std::string> spatial, reduce;
  std::string vec;
  int64_t vec_extent = 1;
  for (const auto& index : b.out_indices) {
    for (size_t i = 0; i < b.iters.size(); ++i) {
      if (b.iters[i].reduce || !(b.iters[i].var == index)) continue;
      const std::string name = LoopName(b, static_cast<int>(i));
      if (&index == &b.out_indices.back() && b.iters[i].extent > 1) {
        vec = name;
        vec_extent = b.iters[i].extent;
      } else {
        spatial.push_back(name);
      }
    }
  }
  for (size_t i = 0; i < b.iters.size(); ++i) {
    const std::string name = LoopName(b, static_cast<int>(i));
    if (b.iters[i].reduce) {
      reduce.push_back(name);
    } else if (name != vec && std::find(spatial.begin(), spatial.end(), name) == spatial.end()) {
      spatial.push_back(name);
    }
  }
  const bool reducing = b.reducer != loop::Reducer::kNone;
  std::string outer_vec;
  if (!vec.empty() && vec_extent >= 2) {
    lanes = std::min<int64_t>(lanes, int64_t{1} << static_cast<int>(
                                         std::ceil(std::log2(static_cast<double>(vec_extent)))));
    const std::string vo = block + ".vo", vi = block + ".vi", vu = block + ".vu",
                      vl = block + ".vl";
    unroll = std::min<int64_t>(reducing ? 1 : unroll, (vec_extent + lanes - 1) / lanes);
    WHET_RETURN_IF_ERROR(s.Apply("split", {vec, std::to_string(lanes * unroll), vo, vi}));
    WHET_RETURN_IF_ERROR(s.Apply("split", {vi, std::to_string(lanes), vu, vl}));
    std::vector<std::string> order = spatial;
    order.push_back(vo);
    order.insert(order.end(), reduce.begin(), reduce.end());
    order.push_back(vu);
    order.push_back(vl);
    WHET_RETURN_IF_ERROR(s.Apply("reorder", order));
    WHET_RETURN_IF_ERROR(s.Apply("vectorize", {vl}));
    WHET_RETURN_IF_ERROR(s.Apply("unroll", {vu}));
    outer_vec = vo;
  } else {
    if (!vec.empty()) spatial.push_back(vec);
    std::vector<std::string> order = spatial;
    order.insert(order.end(), reduce.begin(), reduce.end());
    if (order.size() > 1) WHET_RETURN_IF_ERROR(s.Apply("reorder", order));
  }
  if (spatial.empty() && !outer_vec.empty()) spatial.push_back(outer_vec);
  return FuseParallel(s, block, spatial);
}

// One nest in blocks of `across` by `across` elements: operands come in as vectors along their own
// contiguous axis and go on as vectors along the output's. `unroll` blocks along the former follow
// one another.
Status ScheduleTurned(Schedule& s, const std::string& block, const Turned& turned, int64_t unroll,
                      int64_t across) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s.program(), block));
  const loop::Program keep = s.program();
  const loop::BlockNode& b = *site.block;
  const loop::Iter &own = b.iters[static_cast<size_t>(turned.iter)],
                   &vector = b.iters[static_cast<size_t>(turned.vector_iter)];
  const std::string to = block + ".to", tu = block + ".tu", ti = block + ".ti", vo = block + ".vo",
                    vl = block + ".vl";
  std::vector<std::string> spatial, inner = {vo};
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (b.iters[i].extent == 1) spatial.push_back(LoopName(b, static_cast<int>(i)));
  }
  for (const Expr& index : b.out_indices) {
    const int i = AxisAt(b, index);
    if (i >= 0 && i != turned.vector_iter && i != turned.iter) spatial.push_back(LoopName(b, i));
  }
  spatial.push_back(to);  // what a block leaves of a line, the next one takes
  unroll = std::min(unroll, own.extent / across);
  const std::string own_loop = LoopName(b, turned.iter);
  WHET_RETURN_IF_ERROR(
      s.Apply("split", {LoopName(b, turned.vector_iter), std::to_string(across), vo, vl}));
  if (unroll > 1) {
    const std::string th = block + ".th";
    WHET_RETURN_IF_ERROR(s.Apply("split", {own_loop, std::to_string(across * unroll), to, th}));
    WHET_RETURN_IF_ERROR(s.Apply("split", {th, std::to_string(across), tu, ti}));
    inner.push_back(tu);
  } else {
    WHET_RETURN_IF_ERROR(s.Apply("split", {own_loop, std::to_string(across), to, ti}));
  }
  std::vector<std::string> order = spatial;
  order.insert(order.end(), inner.begin(), inner.end());
  order.insert(order.end(), {ti, vl});
  WHET_RETURN_IF_ERROR(s.Apply("reorder", order));
  WHET_RETURN_IF_ERROR(s.Apply("vectorize", {vl}));
  WHET_RETURN_IF_ERROR(s.Apply("unroll", {ti}));
  for (size_t k = 0; k < turned.operands.size(); ++k) {
    const expr::ExprNode& o = *turned.operands[k];
    const std::string copy = fmt::format("{}.t{}", block, k);
    WHET_RETURN_IF_ERROR(s.Apply("cache_read", {block, o.buffer->name, "register", copy}));
    // Whole blocks beyond an end too: with zeros there, no lane has to keep what it had.
    for (size_t d = 0; d < o.args.size(); ++d) {
      if (o.args[d] == vector.var || o.args[d] == own.var)
        WHET_RETURN_IF_ERROR(s.Apply("pad", {copy, fmt::format("d{}", d), std::to_string(across)}));
    }
    WHET_RETURN_IF_ERROR(s.Apply("compute_at", {copy, inner.back()}));
    for (size_t d = 0; d < o.args.size(); ++d) {
      const std::string loop = fmt::format("{}.d{}", copy, d);
      if (o.args[d] == vector.var) WHET_RETURN_IF_ERROR(s.Apply("unroll", {loop}));
      if (o.args[d] == own.var) WHET_RETURN_IF_ERROR(s.Apply("vectorize", {loop}));
    }
  }
  if (vector.extent % across) WHET_RETURN_IF_ERROR(s.Apply("annotate", {vo, "partition", "1"}));
  WHET_RETURN_IF_ERROR(FuseParallel(s, block, spatial));
  if (own.extent % (across * unroll) == 0) return OkStatus();
  return s.Apply("annotate", {ParallelName(block, spatial), "partition", "1"});
}

void InlineAll(Schedule& s) {
  // Element-wise intermediates that nothing but element-wise code reads are inlined; a value that a
  // reduction reads many times is worth keeping.
  for (bool changed = true; changed;) {
    changed = false;
    const loop::Program p = s.program();
    for (const BlockSite& site : loop::AllBlocks(p)) {
      if (site.block->reducer != loop::Reducer::kNone) continue;
      bool feeds_reduction = false, is_output = false;
      for (const BlockSite& r : Readers(p, site.block->out))
        feeds_reduction |= r.block->reducer != loop::Reducer::kNone;
      for (const loop::Param& param : p.params) is_output |= param.buffer == site.block->out;
      if (is_output || (feeds_reduction && !IsElementwise(p))) continue;
      if (s.Apply("inline", {site.block->name}).ok()) {
        changed = true;
        break;
      }
    }
  }
}

Status ApplyAll(Schedule& s, const RuleContext& c, const std::vector<int64_t>& v) {
  if (Check(c, v) == Rejection::kBadValue)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kFlatKnobs));
  InlineAll(s);
  const loop::Program inlined = s.program();
  for (const BlockSite& site : loop::AllBlocks(inlined)) {
    const loop::BlockNode& b = *site.block;
    const Turned turned = FindTurned(b);
    if (Across(v) > 1 && Across(v) <= LargestBlock(b, turned, c.target)) {
      WHET_RETURN_IF_ERROR(ScheduleTurned(s, b.name, turned, v[kFlatUnroll], Across(v)));
    } else {
      WHET_RETURN_IF_ERROR(ScheduleNest(s, b.name, v[kFlatLanes], v[kFlatUnroll]));
    }
  }
  return OkStatus();
}

std::unique_ptr<RuleContext> MatchAny(const loop::Program& p, const Target& t) {
  auto c = std::make_unique<BytesContext>(p, t);
  for (const loop::Param& param : p.params)
    c->bytes += static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
  Schedule inlined(p);
  InlineAll(inlined);
  const loop::Program after = inlined.program();
  for (const BlockSite& site : loop::AllBlocks(after)) {
    const Turned turned = FindTurned(*site.block);
    const auto elements = static_cast<double>(site.block->out->num_elements());
    const auto operands = static_cast<int64_t>(turned.operands.size());
    c->across = std::max(c->across, LargestBlock(*site.block, turned, t));
    c->operands = std::max(c->operands, operands);
    for (const auto* o : turned.operands)
      c->element_bytes = std::min<int64_t>(c->element_bytes, SizeOf(o->buffer->dtype));
    if (operands > 0) {
      c->operand_extent = site.block->iters[static_cast<size_t>(turned.iter)].extent;
      c->vector_extent = site.block->iters[static_cast<size_t>(turned.vector_iter)].extent;
    }
    c->turned_elements += elements * static_cast<double>(operands);
    c->gathered_elements += elements * static_cast<double>(turned.gathered);
  }
  return c;
}
std::unique_ptr<RuleContext> MatchElementwise(const loop::Program& p, const Target& t) {
  return IsElementwise(p) ? MatchAny(p, t) : nullptr;
}

const Rule kElementwise = {"elementwise", 2,     MatchElementwise, Knobs,
                           Default,       Check, EstimateBytes,    ApplyAll};
const Rule kGeneric = {"generic", 2, MatchAny, Knobs, Default, Check, EstimateBytes, ApplyAll};

}  // namespace

const Rule& RuleElementwise() { return kElementwise; }
const Rule& RuleGeneric() { return kGeneric; }

}  // namespace whet::schedule
