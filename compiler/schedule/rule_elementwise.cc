// Element-wise programs (one output, no reduction) and the fallback for everything else: each nest
// is vectorized over its contiguous axis, its other axes fused into the parallel range.
#include <algorithm>
#include <cmath>

#include "compiler/schedule/analysis.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule.h"

namespace whet::schedule {
namespace {

using expr::Expr;

enum { kFlatLanes, kFlatUnroll, kFlatAcross, kFlatKnobs };

struct BytesContext : RuleContext {
  using RuleContext::RuleContext;
  double bytes = 0;
  double turned_elements = 0;  // read across vectors: one number from each of many lines
  int64_t across = 1;          // extent of the axis along which such numbers are neighbours
};

// The axis along which an operand is contiguous that is read across the output's vectors: the next
// numbers of the same lines are wanted by its next iterations. -1: all operands lie along vectors.
int AcrossIter(const loop::BlockNode& b) {
  if (b.out_indices.empty() || b.reducer != loop::Reducer::kNone) return -1;
  const Expr vector = b.out_indices.back();
  for (const auto* l : loop::Loads(b.value)) {
    if (l->args.empty() || l->args.back() == vector) continue;
    const bool crosses =
        std::any_of(l->args.begin(), l->args.end() - 1, [&](const Expr& a) { return a == vector; });
    for (size_t i = 0; crosses && i < b.iters.size(); ++i) {
      if (b.iters[i].var == l->args.back() && b.iters[i].extent > 1) return static_cast<int>(i);
    }
  }
  return -1;
}

std::vector<Knob> Knobs(const RuleContext& c) {
  const int64_t lanes = c.target.Lanes(4);
  std::vector<Knob> knobs = {{"lanes", {std::max<int64_t>(lanes / 2, 1), lanes}},
                             {"unroll", {1, 2, 4, 8}}};
  std::vector<int64_t> across = {1};
  for (const int64_t v : {8, 16, 32}) {
    if (v <= static_cast<const BytesContext&>(c).across) across.push_back(v);
  }
  if (across.size() > 1) knobs.push_back({"across", across});
  return knobs;
}
std::vector<int64_t> Default(const RuleContext& c) {
  const int64_t across = static_cast<const BytesContext&>(c).across;
  std::vector<int64_t> v = {c.target.Lanes(4), 1};
  if (across >= 8) v.push_back(across >= 16 ? 16 : 8);
  return v;
}
int64_t Across(const std::vector<int64_t>& v) {
  return v.size() > kFlatAcross ? v[kFlatAcross] : 1;
}
bool IsPoint(const std::vector<int64_t>& v) {
  return v.size() == kFlatKnobs || v.size() == kFlatAcross;
}
Rejection Check(const RuleContext&, const std::vector<int64_t>& v) {
  return IsPoint(v) ? Rejection::kNone : Rejection::kBadValue;
}

Estimate EstimateBytes(const RuleContext& c, const std::vector<int64_t>& v) {
  Estimate e;
  e.bytes = static_cast<const BytesContext&>(c).bytes;
  e.load_cycles = e.bytes / static_cast<double>(4 * v[kFlatLanes]);
  e.overhead_cycles = e.load_cycles / static_cast<double>(v[kFlatUnroll]);
  e.body_instructions = static_cast<double>(4 * v[kFlatUnroll]);
  // A gather loads lane by lane. Without blocks each of its lines comes anew from beyond the first
  // cache for every number of it; with blocks, for every block.
  const double turned = static_cast<const BytesContext&>(c).turned_elements;
  e.load_cycles += turned;
  if (turned > 0)
    e.l2_bytes = e.bytes + turned * 64 / static_cast<double>(std::min<int64_t>(Across(v), 16));
  return e;
}

bool IsElementwise(const loop::Program& p) {
  for (const BlockSite& s : loop::AllBlocks(p)) {
    if (s.block->reducer != loop::Reducer::kNone) return false;
  }
  return true;
}

// Vectorizes one root-level nest over the axis its output is contiguous in; fuses the others, in
// physical order, into a parallel loop. A nest without such an axis, or whose reduction runs over
// all of it, stays scalar. Operands read across vectors are read in blocks of `across` of their
// contiguous axis.
Status ScheduleNest(Schedule& s, const std::string& block, int64_t lanes, int64_t unroll,
                    int64_t across) {
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
    const int turned = across > 1 ? AcrossIter(b) : -1;
    std::string inside;
    if (turned >= 0 && b.iters[turned].extent >= across) {
      const auto at = std::find(spatial.begin(), spatial.end(), LoopName(b, turned));
      if (at != spatial.end()) {
        inside = block + ".ti";
        WHET_RETURN_IF_ERROR(
            s.Apply("split", {*at, std::to_string(across), block + ".to", inside}));
        *at = block + ".to";
      }
    }
    std::vector<std::string> order = spatial;
    order.push_back(vo);
    if (!inside.empty()) order.push_back(inside);
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
  if (spatial.empty()) return OkStatus();
  std::string outer = spatial[0];
  for (size_t i = 1; i < spatial.size(); ++i) {
    const std::string fused = block + ".par" + std::to_string(i);
    WHET_RETURN_IF_ERROR(s.Apply("fuse", {outer, spatial[i], fused}));
    outer = fused;
  }
  return s.Apply("parallel", {outer});
}

Status ApplyAll(Schedule& s, const RuleContext&, const std::vector<int64_t>& v) {
  if (!IsPoint(v))
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kFlatKnobs));
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
  std::vector<std::string> blocks;
  for (const BlockSite& site : loop::AllBlocks(s.program())) blocks.push_back(site.block->name);
  for (const std::string& b : blocks)
    WHET_RETURN_IF_ERROR(ScheduleNest(s, b, v[kFlatLanes], v[kFlatUnroll], Across(v)));
  return OkStatus();
}

std::unique_ptr<RuleContext> MatchAny(const loop::Program& p, const Target& t) {
  auto c = std::make_unique<BytesContext>(p, t);
  for (const loop::Param& param : p.params)
    c->bytes += static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
  for (const BlockSite& site : loop::AllBlocks(p)) {
    const int turned = AcrossIter(*site.block);
    if (turned < 0) continue;
    c->across = std::max(c->across, site.block->iters[turned].extent);
    c->turned_elements += static_cast<double>(site.block->out->num_elements());
  }
  return c;
}
std::unique_ptr<RuleContext> MatchElementwise(const loop::Program& p, const Target& t) {
  return IsElementwise(p) ? MatchAny(p, t) : nullptr;
}

const Rule kElementwise = {"elementwise", 1,     MatchElementwise, Knobs,
                           Default,       Check, EstimateBytes,    ApplyAll};
const Rule kGeneric = {"generic", 1, MatchAny, Knobs, Default, Check, EstimateBytes, ApplyAll};

}  // namespace

const Rule& RuleElementwise() { return kElementwise; }
const Rule& RuleGeneric() { return kGeneric; }

}  // namespace whet::schedule
