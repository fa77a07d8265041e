// The rule for matrix products whose result is too small to keep a processor busy: the reduction is
// split. `parts` sums of every output that do not wait for each other stay in registers, and blocks
// of the reduction are what threads share out, their sums added up in the end.
// Measured: one row of 16 columns over K = 4096 takes 2.4 us in 8 parts and 5.6 as one sum, which
// waits 4 cycles for each multiply-add; 32 columns over 256 0.14 and 0.28 us.
#include <algorithm>
#include <utility>

#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule_reduce.h"

namespace whet::schedule {
namespace {

enum { kSplitRows, kSplitVectors, kSplitLanes, kParts, kBlocks, kSplitKnobs };

// Results beyond that give tiles enough.
constexpr int64_t kMostOutputs = 1024;
constexpr int64_t kLeastReduction = 32;

struct SplitContext : TiledContext {
  using TiledContext::TiledContext;
};

std::vector<Knob> SplitKnobs(const RuleContext& context) {
  const TiledContext& c = Tiled(context);
  std::vector<Knob> k(kSplitKnobs);
  const char* const names[] = {"rows", "vectors", "lanes", "parts", "blocks"};
  for (int i = 0; i < kSplitKnobs; ++i) k[i].name = names[i];
  for (int64_t r = 1; r <= std::min<int64_t>(c.rows, 8); ++r) {
    if (c.rows % r == 0) k[kSplitRows].values.push_back(r);
  }
  k[kSplitVectors].values =
      UpTo({1, 2, 3, 4}, std::max<int64_t>(1, CeilDiv(c.vec, std::max<int64_t>(c.lanes / 2, 1))));
  k[kSplitLanes].values =
      c.lanes >= 8 ? std::vector<int64_t>{c.lanes / 2, c.lanes} : std::vector<int64_t>{c.lanes};
  k[kParts].values = {1, 2, 4, 8};
  k[kBlocks].values = {1, 2, 4, 8, 16};
  return k;
}

std::vector<int64_t> DefaultSplit(const RuleContext& context) {
  const TiledContext& c = Tiled(context);
  const bool blocks = c.r.channels % 4 == 0 && c.r.channels / 2 >= kLeastReduction;
  return {1, 1, c.lanes, 2, blocks ? 2 : 1};
}

Rejection CheckSplit(const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kSplitKnobs) return Rejection::kBadValue;
  const TiledContext& c = Tiled(context);
  // Whole sums are the other rule's.
  if (v[kParts] * v[kBlocks] == 1) return Rejection::kTile;
  if (c.r.channels % (v[kParts] * v[kBlocks]) != 0 ||
      (v[kBlocks] > 1 && c.r.channels / v[kBlocks] < kLeastReduction))
    return Rejection::kTile;
  if (v[kSplitVectors] > 1 && (v[kSplitVectors] - 1) * v[kSplitLanes] >= c.vec)
    return Rejection::kTile;
  const int64_t sums = v[kSplitRows] * v[kSplitVectors] * v[kParts];
  const int64_t operands = v[kSplitVectors] + kSpareRegisters + (v[kSplitVectors] >= 3 ? 1 : 0);
  if (sums + operands > c.target.VectorRegisters() - 1) return Rejection::kRegisters;
  return Rejection::kNone;
}

Estimate EstimateSplit(const RuleContext& context, const std::vector<int64_t>& v) {
  Estimate e;
  if (v.size() != kSplitKnobs) return e;
  const TiledContext& c = Tiled(context);
  const auto size = static_cast<double>(SizeOf(c.a.anchor->out->dtype));
  const auto rows = static_cast<double>(v[kSplitRows]),
             vectors = static_cast<double>(v[kSplitVectors]),
             parts = static_cast<double>(v[kParts]), blocks = static_cast<double>(v[kBlocks]),
             k = static_cast<double>(c.r.channels);
  const auto across = static_cast<double>(CeilDiv(c.vec, v[kSplitVectors] * v[kSplitLanes]));
  const double strips = static_cast<double>(c.rows) / rows * c.others, tiles = strips * across;
  const double sums = rows * vectors;
  e.fma_cycles = tiles * k * sums / 2;
  e.load_cycles = tiles * k * (rows + vectors) / 2;
  // One step of each dependent chain.
  e.latency_cycles = std::max({tiles * k / parts * 4, e.fma_cycles, e.load_cycles});
  e.overhead_cycles =
      tiles * (blocks * (20 + 2 * sums + parts * sums) + 1.5 * k / parts) +
      // Sums of blocks are written, read and added by one thread, after all have been made.
      (blocks > 1 ? 200 + tiles * sums * blocks * 4 : 0);
  e.accumulators = sums * parts;
  e.body_instructions = (sums + rows + vectors) * parts;
  e.vector_bits = static_cast<double>(v[kSplitLanes] * SizeOf(c.a.anchor->out->dtype) * 8);
  e.useful_fraction = static_cast<double>(c.vec) /
                      (across * static_cast<double>(v[kSplitVectors] * v[kSplitLanes]));
  const double weights = size * k * static_cast<double>(c.vec) * (c.a.weight ? 1 : c.others),
               data = size * k * static_cast<double>(c.rows) * c.others;
  e.bytes = c.bytes;
  e.l2_bytes = weights * (c.a.weight ? strips : strips / c.others) + data * across;
  e.l3_bytes = weights + data;
  e.parallel = blocks * c.others * across;
  return e;
}

class SplitWriter : public ReduceWriter {
 public:
  SplitWriter(Schedule& s, const TiledContext& c, const std::vector<int64_t>& v)
      : ReduceWriter(s, c.a, v[kSplitLanes]), v_(v) {}

  Status Run() {
    const std::string column = LoopName(*a_.anchor, a_.vector_iter);
    const int64_t tile = v_[kSplitVectors] * lanes_;
    const bool rows = a_.row_iter >= 0;
    WHET_RETURN_IF_ERROR(InlineAll());
    WHET_RETURN_IF_ERROR(PackWeight(tile));
    WHET_RETURN_IF_ERROR(
        Do("pad", {anchor_, AxisName(a_.anchor->iters[a_.vector_iter].var), std::to_string(tile)}));
    WHET_RETURN_IF_ERROR(VectorLast());
    WHET_RETURN_IF_ERROR(Do("split", {column, std::to_string(tile), vo_, anchor_ + ".vi"}));
    WHET_RETURN_IF_ERROR(Do("split", {anchor_ + ".vi", std::to_string(lanes_), vu_, vl_}));
    if (rows) {
      WHET_RETURN_IF_ERROR(Do(
          "split", {LoopName(*a_.anchor, a_.row_iter), std::to_string(v_[kSplitRows]), ro_, ri_}));
    }
    WHET_RETURN_IF_ERROR(Loops(rows));
    if (v_[kBlocks] > 1)
      WHET_RETURN_IF_ERROR(Do("rfactor", {anchor_, kb_, anchor_ + ".block", total_}));
    if (v_[kParts] > 1) WHET_RETURN_IF_ERROR(AddUpParts());
    WHET_RETURN_IF_ERROR(Do("decompose_reduction", {anchor_, ko_}));
    if (v_[kParts] > 1)
      WHET_RETURN_IF_ERROR(Do("decompose_reduction", {parts_total_, parts_loops_[0]}));
    if (v_[kBlocks] == 1) {
      WHET_RETURN_IF_ERROR(PlaceEpilogue(tile_loop_));
    } else {
      WHET_RETURN_IF_ERROR(AddUpBlocks());
    }
    return MakeParallel(parallel_, "", vo_);
  }

 private:
  // Blocks of the reduction outermost; its parts, rows and vectors unrolled innermost.
  Status Loops(bool rows) {
    ko_ = LoopName(*a_.anchor, a_.reduce_iters[0]);
    int64_t extent = Extent(a_, a_.reduce_iters[0]);
    auto split = [&](int64_t ways, const std::string& outer, const std::string& inner) {
      const std::string whole = std::exchange(ko_, inner);
      extent /= ways;
      return Do("split", {whole, std::to_string(extent), outer, inner});
    };
    if (v_[kBlocks] > 1) {
      WHET_RETURN_IF_ERROR(split(v_[kBlocks], kb_, anchor_ + ".kr"));
      parallel_.push_back(kb_);
    }
    if (v_[kParts] > 1) WHET_RETURN_IF_ERROR(split(v_[kParts], ki_, anchor_ + ".ko"));
    for (int i : a_.other_iters) parallel_.push_back(LoopName(*a_.anchor, i));
    parallel_.push_back(vo_);
    std::vector<std::string> order = parallel_;
    if (rows) order.push_back(ro_);
    tile_loop_ = order.back();
    order.push_back(ko_);
    if (v_[kParts] > 1) order.push_back(ki_);
    if (rows) order.push_back(ri_);
    order.push_back(vu_);
    order.push_back(vl_);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl_}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vu_}));
    if (rows) WHET_RETURN_IF_ERROR(Do("unroll", {ri_}));
    return v_[kParts] > 1 ? Do("unroll", {ki_}) : OkStatus();
  }

  // The loops of a block that adds up: all but its vectors, the one that it reduces first, and the
  // vectors' one.
  Status LoopsOf(const std::string& block, std::vector<std::string>& loops, std::string& column) {
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), block));
    const loop::BlockNode& b = *site.block;
    loops.clear();
    for (size_t i = 0; i < b.iters.size(); ++i) {
      const std::string name = LoopName(b, static_cast<int>(i));
      if (b.iters[i].reduce) {
        loops.insert(loops.begin(), name);
      } else if (b.out_indices.back() == b.iters[i].var) {
        column = name;
      } else {
        loops.push_back(name);
      }
    }
    return OkStatus();
  }

  Status AddUpParts() {
    const std::string part = anchor_ + ".part";
    WHET_RETURN_IF_ERROR(Do("rfactor", {anchor_, ki_, part, parts_total_}));
    WHET_RETURN_IF_ERROR(Do("set_scope", {part, "register"}));
    WHET_RETURN_IF_ERROR(Do("reverse_compute_at", {parts_total_, tile_loop_}));
    std::string column;
    WHET_RETURN_IF_ERROR(LoopsOf(parts_total_, parts_loops_, column));
    const std::string vu = parts_total_ + ".vu", vl = parts_total_ + ".vl";
    WHET_RETURN_IF_ERROR(Do("split", {column, std::to_string(lanes_), vu, vl}));
    std::vector<std::string> order = parts_loops_;
    order.push_back(vu);
    order.push_back(vl);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vu}));
    for (const std::string& l : parts_loops_) WHET_RETURN_IF_ERROR(Do("unroll", {l}));
    return OkStatus();
  }

  // After all blocks: a vector of results after the other.
  Status AddUpBlocks() {
    std::vector<std::string> loops;
    std::string column;
    WHET_RETURN_IF_ERROR(LoopsOf(total_, loops, column));
    const std::string vo = total_ + ".vo", vl = total_ + ".vl", block = loops[0];
    WHET_RETURN_IF_ERROR(Do("split", {column, std::to_string(lanes_), vo, vl}));
    std::vector<std::string> order(loops.begin() + 1, loops.end());
    for (const std::string& l : {vo, block, vl}) order.push_back(l);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    WHET_RETURN_IF_ERROR(Do("unroll", {block}));
    WHET_RETURN_IF_ERROR(Do("decompose_reduction", {total_, block}));
    return PlaceEpilogue(vo);
  }

  const std::vector<int64_t>& v_;
  const std::string vo_ = anchor_ + ".vo", vu_ = anchor_ + ".vu", vl_ = anchor_ + ".vl";
  const std::string ro_ = anchor_ + ".ro", ri_ = anchor_ + ".ri";
  const std::string kb_ = anchor_ + ".kb", ki_ = anchor_ + ".ki";
  const std::string total_ = anchor_ + ".total", parts_total_ = anchor_ + ".parts";
  std::string ko_, tile_loop_;
  std::vector<std::string> parallel_, parts_loops_;
};

Status ApplySplit(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kSplitKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kSplitKnobs));
  return SplitWriter(s, Tiled(context), v).Run();
}

// Vectors of columns lie in memory as they are read; else turning them is most of the work.
bool ReadsColumnsInVectors(const AnchorAnalysis& a) {
  for (const auto* load : loop::Loads(a.anchor->value)) {
    if (load->buffer->constant) continue;
    int last = -1;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (load->buffer->shape[d] > 1) last = static_cast<int>(d);
    }
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (expr::Uses(load->args[d], a.anchor->iters[a.vector_iter].var) &&
          static_cast<int>(d) != last)
        return false;
    }
  }
  return true;
}

std::unique_ptr<RuleContext> MatchSplit(const loop::Program& p, const Target& t) {
  loop::Program program = p;
  auto a = AnalyzeAnchor(program);
  if (!a.ok() || Classify(*a) != ReduceClass::kMatmul || a->reduce_iters.size() != 1 ||
      !IsFloat(a->anchor->out->dtype) || !ReadsColumnsInVectors(*a))
    return nullptr;
  const int64_t k = Extent(*a, a->reduce_iters[0]);
  auto c = std::make_unique<SplitContext>(std::move(program), t, std::move(*a));
  const double outputs = static_cast<double>(c->rows * c->vec) * c->others;
  if (k < kLeastReduction || k % 2 != 0 || c->vec == 1 || outputs > kMostOutputs) return nullptr;
  return c;
}

const Rule kRuleSplit = {"matmul_split", 1,          MatchSplit,    SplitKnobs,
                         DefaultSplit,   CheckSplit, EstimateSplit, ApplySplit};

}  // namespace

const Rule& RuleSplit() { return kRuleSplit; }

}  // namespace whet::schedule
