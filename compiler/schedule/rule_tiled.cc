// The rules for one reduction with an element-wise prologue and epilogue: convolution, depthwise
// convolution, pooling and matrix product. All keep a tile of rows x vectors of the output in
// registers over the whole reduction, with the weights packed so that they are read one after the
// other, padding folded into the loads (border tiles are peeled), and the epilogue applied to the
// registers before the only store.
#include <algorithm>

#include "compiler/schedule/analysis.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule.h"

namespace whet::schedule {
namespace {

// Multiply-adds in all copies of the unrolled body: some twenty compile in a millisecond, and more
// than this were never faster.
constexpr int64_t kMaxBody = 384;
constexpr int kSpareRegisters = 1;  // one for a broadcast

// Knob values by position, the same for the four rules.
enum { kRows, kVectors, kLanes, kUnrollWindow, kUnrollChannels, kOrder, kKnobs };
const char* const kNames[kKnobs] = {"rows",          "vectors",         "lanes",
                                    "unroll_window", "unroll_channels", "order"};

int64_t Extent(const AnchorAnalysis& a, int iter) {
  return iter < 0 ? 1 : a.anchor->iters[iter].extent;
}
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct ReduceExtents {
  int64_t window = 1;        // all window axes
  int64_t inner_window = 1;  // the innermost window axis
  int64_t longest_window = 1;
  int64_t channels = 1;
};

bool IsWindow(const AnchorAnalysis& a, size_t position) {
  // reduce_iters lists window axes first; channels are those no spatial axis shares an index with.
  const loop::BlockNode& b = *a.anchor;
  const expr::Var v = b.iters[a.reduce_iters[position]].var;
  for (const auto* load : loop::Loads(b.value)) {
    for (const auto& index : load->args) {
      if (!expr::Uses(index, v)) continue;
      for (size_t i = 0; i < b.iters.size(); ++i) {
        // The channels of a group stand beside the group's number.
        if (a.vector_group > 0 && static_cast<int>(i) == a.vector_iter) continue;
        if (!b.iters[i].reduce && expr::Uses(index, b.iters[i].var)) return true;
      }
    }
  }
  return false;
}

ReduceExtents Reductions(const AnchorAnalysis& a) {
  ReduceExtents r;
  for (size_t i = 0; i < a.reduce_iters.size(); ++i) {
    const int64_t e = Extent(a, a.reduce_iters[i]);
    if (IsWindow(a, i)) {
      r.window *= e;
      r.inner_window = e;
      r.longest_window = std::max(r.longest_window, e);
    } else {
      r.channels *= e;
    }
  }
  return r;
}

// A program's anchor and the numbers that checks and estimates use.
struct TiledContext : RuleContext {
  TiledContext(loop::Program p, Target t, AnchorAnalysis found)
      : RuleContext(std::move(p), std::move(t)), a(std::move(found)) {
    r = Reductions(a);
    vec = Extent(a, a.vector_iter);
    rows = Extent(a, a.row_iter);
    for (int i : a.other_iters) others *= static_cast<double>(Extent(a, i));
    for (const loop::Param& param : program.params)
      bytes += static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
    lanes = target.Lanes(SizeOf(a.anchor->out->dtype));
  }
  AnchorAnalysis a;  // points into `program`
  ReduceExtents r;
  int64_t vec = 1, rows = 1, lanes = 1;
  double others = 1, bytes = 0;
};
const TiledContext& Tiled(const RuleContext& c) { return static_cast<const TiledContext&>(c); }

std::vector<int64_t> UpTo(std::vector<int64_t> values, int64_t limit) {
  std::erase_if(values, [&](int64_t v) { return v > limit && v != values.front(); });
  return values;
}

std::vector<Knob> TiledKnobs(const RuleContext& context) {
  const TiledContext& c = Tiled(context);
  const ReduceExtents& r = c.r;
  const int64_t lanes = c.lanes, vec = c.vec, rows = c.rows;
  std::vector<Knob> k(kKnobs);
  for (int i = 0; i < kKnobs; ++i) k[i].name = kNames[i];
  k[kRows].values = UpTo({1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28}, rows);
  k[kVectors].values =
      UpTo({1, 2, 3, 4, 5, 6, 7, 8}, std::max<int64_t>(1, CeilDiv(vec, lanes / 2)));
  k[kLanes].values =
      lanes >= 8 ? std::vector<int64_t>{lanes / 2, lanes} : std::vector<int64_t>{lanes};
  k[kUnrollWindow].values = {0};  // as the primitive's limit allows
  if (r.window > 1 && r.inner_window <= kMaxUnroll) k[kUnrollWindow].values.push_back(1);
  if (r.window > 1 && r.longest_window <= kMaxUnroll) k[kUnrollWindow].values.push_back(2);
  for (int64_t u : {1, 2, 3, 4, 8}) {
    if (r.channels % u == 0) k[kUnrollChannels].values.push_back(u);
  }
  k[kOrder].values = {0, 1, 2};
  return k;
}

Rejection CheckTiled(const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs) return Rejection::kBadValue;
  const TiledContext& c = Tiled(context);
  const ReduceExtents& r = c.r;
  const int64_t acc = v[kRows] * v[kVectors];
  const int64_t operands = c.a.input_uses_vector ? 2 : v[kVectors] + kSpareRegisters;
  const int64_t registers = c.target.VectorRegisters();
  if (acc + operands > registers - 1 + (acc == 1 ? 1 : 0)) return Rejection::kRegisters;
  const int64_t taps = (v[kUnrollWindow] == 2   ? r.window
                        : v[kUnrollWindow] == 1 ? r.inner_window
                                                : 1) *
                       v[kUnrollChannels];
  // Left border, interior, right border; or the interior and what is left of the rows.
  const int64_t copies = r.window > 1 ? 3 : c.rows % v[kRows] ? 2 : 1;
  if (acc * taps * copies > kMaxBody) return Rejection::kCodeSize;
  // A tile that is mostly padding.
  if (v[kVectors] > 1 && (v[kVectors] - 1) * v[kLanes] >= c.vec) return Rejection::kTile;
  if (v[kRows] > c.rows) return Rejection::kTile;
  // Vectors across groups; where every one is, gathering is all there is.
  const int64_t group = c.a.vector_group, least = c.lanes >= 8 ? c.lanes / 2 : c.lanes;
  const int64_t tile = v[kVectors] * v[kLanes];
  if (group > 0 && group % least == 0 &&
      (group % v[kLanes] != 0 || (group % tile != 0 && tile % group != 0)))
    return Rejection::kTile;
  return Rejection::kNone;
}

Estimate EstimateTiled(const RuleContext& context, const std::vector<int64_t>& v) {
  Estimate e;
  if (v.size() != kKnobs) return e;
  const TiledContext& c = Tiled(context);
  const AnchorAnalysis& a = c.a;
  const ReduceExtents& r = c.r;
  const int64_t vec = c.vec, rows = c.rows;
  const double tile_vec = static_cast<double>(CeilDiv(vec, v[kVectors] * v[kLanes]));
  const double tile_rows = static_cast<double>(CeilDiv(rows, v[kRows]));
  const double tiles = c.others * tile_vec * tile_rows;
  const double k = static_cast<double>(r.window * r.channels);
  const double acc = static_cast<double>(v[kRows] * v[kVectors]);
  e.accumulators = acc;
  e.fma_cycles = tiles * k * acc / 2;
  // Loads per reduction step: a broadcast per row and a vector per vector of weights; depthwise
  // reads a vector of data per row and vector, shared between neighbouring taps when the window is
  // unrolled.
  double loads = a.input_uses_vector ? acc : static_cast<double>(v[kRows]);
  if (a.input_uses_vector && v[kUnrollWindow] > 0 && r.inner_window > 1) {
    const double span = static_cast<double>((v[kRows] - 1) * a.row_stride + r.inner_window);
    loads = span * static_cast<double>(v[kVectors]) / static_cast<double>(r.inner_window);
  }
  if (a.weight) loads += static_cast<double>(v[kVectors]);
  e.load_cycles = tiles * k * loads / 2;
  e.latency_cycles = tiles * k * 4;  // one step of a dependent chain
  const double taps = static_cast<double>((v[kUnrollWindow] == 2   ? r.window
                                           : v[kUnrollWindow] == 1 ? r.inner_window
                                                                   : 1) *
                                          v[kUnrollChannels]);
  e.body_instructions = acc * taps + loads * taps;
  e.overhead_cycles = tiles * (20 + 2 * acc + 2 * k / taps);
  e.useful_fraction =
      static_cast<double>(vec * rows) / (tile_vec * static_cast<double>(v[kVectors] * v[kLanes]) *
                                         tile_rows * static_cast<double>(v[kRows]));
  e.bytes = c.bytes;
  return e;
}

std::vector<int64_t> DefaultTiled(const RuleContext& context) {
  const TiledContext& c = Tiled(context);
  std::vector<int64_t> v = {4, 2, c.lanes, 0, 1, 0};
  v[kVectors] = std::min<int64_t>(v[kVectors], std::max<int64_t>(1, CeilDiv(c.vec, v[kLanes])));
  if (const int64_t group = c.a.vector_group; group > 0) {
    if (group % c.lanes != 0 && c.lanes >= 8) v[kLanes] = c.lanes / 2;
    const int64_t tile = v[kVectors] * v[kLanes];
    if (group % tile != 0 && tile % group != 0) v[kVectors] = 1;
  }
  v[kRows] = std::min<int64_t>(v[kRows], c.rows);
  v[kUnrollWindow] =
      c.a.input_uses_vector && c.r.window > 1 && c.r.inner_window <= kMaxUnroll ? 1 : 0;
  return v;
}

// Writes the trace. Names of new loops derive from the anchor's, so that they are unique and
// readable.
class TiledWriter {
 public:
  TiledWriter(Schedule& s, const AnchorAnalysis& a, const std::vector<int64_t>& v)
      : s_(s), a_(a), v_(v), anchor_(a_.anchor->name) {}

  Status Run() {
    const std::string vec_loop = LoopName(*a_.anchor, a_.vector_iter);
    const std::string vec_axis = AxisName(a_.anchor->iters[a_.vector_iter].var);
    const int64_t tile = v_[kVectors] * v_[kLanes];
    WHET_RETURN_IF_ERROR(InlineAll());
    WHET_RETURN_IF_ERROR(PackWeight(tile));
    WHET_RETURN_IF_ERROR(TurnOperand(tile));
    WHET_RETURN_IF_ERROR(Do("pad", {anchor_, vec_axis, std::to_string(tile)}));
    WHET_RETURN_IF_ERROR(VectorLast());

    // Loops of the anchor.
    const std::string vo = anchor_ + ".vo", vi = anchor_ + ".vi", vu = anchor_ + ".vu",
                      vl = anchor_ + ".vl";
    const std::string ro = anchor_ + ".ro", ri = anchor_ + ".ri";
    WHET_RETURN_IF_ERROR(Do("split", {vec_loop, std::to_string(tile), vo, vi}));
    WHET_RETURN_IF_ERROR(Do("split", {vi, std::to_string(v_[kLanes]), vu, vl}));
    std::vector<std::string> others;
    for (int i : a_.other_iters) others.push_back(LoopName(*a_.anchor, i));
    const bool rows = a_.row_iter >= 0;
    if (rows)
      WHET_RETURN_IF_ERROR(
          Do("split", {LoopName(*a_.anchor, a_.row_iter), std::to_string(v_[kRows]), ro, ri}));
    std::vector<std::string> reduce, unrolled;
    WHET_RETURN_IF_ERROR(SplitReduction(reduce, unrolled));

    std::vector<std::string> order = others;
    std::vector<std::string> parallel = others;
    if (v_[kOrder] == 2) {
      order.insert(order.begin(), vo);
      parallel = order;
    } else if (v_[kOrder] == 0) {
      order.push_back(vo);
    }
    if (rows) order.push_back(ro);
    if (v_[kOrder] == 1) order.push_back(vo);
    const std::string innermost_outer = order.back();
    order.insert(order.end(), reduce.begin(), reduce.end());
    if (rows) order.push_back(ri);
    order.push_back(vu);
    order.push_back(vl);
    if (order.size() > 1) WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vu}));
    if (rows) WHET_RETURN_IF_ERROR(Do("unroll", {ri}));
    for (const std::string& u : unrolled) WHET_RETURN_IF_ERROR(Do("unroll", {u}));
    WHET_RETURN_IF_ERROR(PlaceTurned(v_[kOrder] == 0 || (others.empty() && v_[kOrder] == 2) ? vo
                                     : others.empty()                                       ? ""
                                                      : others.back()));
    if (!reduce.empty()) WHET_RETURN_IF_ERROR(Do("decompose_reduction", {anchor_, reduce[0]}));
    WHET_RETURN_IF_ERROR(PlaceEpilogue(innermost_outer));
    if (rows) WHET_RETURN_IF_ERROR(Do("annotate", {ro, "partition", "1"}));
    return MakeParallel(parallel, rows ? ro : "", vo);
  }

 private:
  Status Do(const char* primitive, std::vector<std::string> args) {
    return s_.Apply(primitive, std::move(args));
  }

  // Everything element-wise goes into the anchor or into the last block.
  Status InlineAll() {
    if (a_.anchor_is_output) {
      final_ = anchor_ + ".store";
      WHET_RETURN_IF_ERROR(Do("cache_write", {anchor_, "register", anchor_ + ".acc", final_}));
      acc_ = anchor_ + ".acc";
    } else {
      final_ = a_.after.back();
      acc_ = a_.anchor->out->name;
      for (size_t i = 0; i + 1 < a_.after.size(); ++i)
        WHET_RETURN_IF_ERROR(Do("inline", {a_.after[i]}));
      WHET_RETURN_IF_ERROR(Do("set_scope", {acc_, "register"}));
    }
    for (const std::string& b : a_.before) WHET_RETURN_IF_ERROR(Do("inline", {b}));
    // A bias costs nothing as the value the sum starts from; where nothing is added it stays.
    (void)Do("start_from", {anchor_, final_});
    return OkStatus();
  }

  // weight -> [vector // tile][reduce axes in loop order][the rest][vector % tile], padded with
  // zeros.
  Status PackWeight(int64_t tile) {
    if (!a_.weight) return OkStatus();
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), anchor_));
    const expr::ExprNode* load = nullptr;
    for (const auto* l : loop::Loads(site.block->value)) {
      if (l->buffer->name == a_.weight->name) load = l;
    }
    if (!load) return OkStatus();
    int vec_dim = -1;
    std::vector<int> dim_of_reduce(a_.reduce_iters.size(), -1), rest;
    for (size_t d = 0; d < load->args.size(); ++d) {
      bool placed = false;
      if (load->args[d] == a_.anchor->iters[a_.vector_iter].var)
        vec_dim = static_cast<int>(d), placed = true;
      for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
        if (load->args[d] == a_.anchor->iters[a_.reduce_iters[i]].var)
          dim_of_reduce[i] = static_cast<int>(d), placed = true;
      }
      if (!placed) rest.push_back(static_cast<int>(d));
    }
    // Indexed in another way, or a single column: read as it is.
    if (vec_dim < 0 || a_.weight->shape[static_cast<size_t>(vec_dim)] == 1) return OkStatus();
    const std::string packed = anchor_ + ".w";
    WHET_RETURN_IF_ERROR(Do("cache_read", {anchor_, a_.weight->name, "global", packed}));
    WHET_RETURN_IF_ERROR(Do("pad", {packed, "d" + std::to_string(vec_dim), std::to_string(tile)}));
    std::string from, to = fmt::format("d{} // {}", vec_dim, tile);
    for (size_t d = 0; d < load->args.size(); ++d) from += (d ? ", d" : "d") + std::to_string(d);
    for (int d : rest) to += fmt::format(", d{}", d);
    for (int d : dim_of_reduce) {
      if (d >= 0) to += fmt::format(", d{}", d);
    }
    return Do("transform_layout",
              {packed, fmt::format("({}) -> ({}, d{} % {})", from, to, vec_dim, tile)});
  }

  // A matrix that lies across the vectors, as one that is transposed on its way here does, is
  // turned into vectors for all rows: for a tile of columns when these are outside of the rows,
  // else all of it. What each row reads for itself is gathered.
  Status TurnOperand(int64_t tile) {
    if (a_.row_iter < 0) return OkStatus();
    const expr::Var row = a_.anchor->iters[a_.row_iter].var;
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), anchor_));
    const auto loads = loop::Loads(site.block->value);
    for (const auto* load : loads) {
      const expr::BufferNode& b = *load->buffer;
      int dim = -1, last = -1;
      bool plain = !b.constant && !expr::Uses(expr::Expr(load), row);
      for (size_t d = 0; d < load->args.size(); ++d) {
        const auto kind = load->args[d]->kind;
        plain &= kind == expr::Kind::kVar || kind == expr::Kind::kInt;
        if (b.shape[d] > 1) last = static_cast<int>(d);
        if (load->args[d] == a_.anchor->iters[a_.vector_iter].var) dim = static_cast<int>(d);
      }
      plain &= std::count_if(loads.begin(), loads.end(),
                             [&](const auto* other) { return other->buffer == load->buffer; }) == 1;
      if (!plain || dim < 0 || dim == last || b.shape[static_cast<size_t>(dim)] == 1) continue;
      turned_ = anchor_ + ".b";
      turned_dim_ = dim;
      std::string from, to;
      for (int d = 0; d < static_cast<int>(load->args.size()); ++d) {
        from += fmt::format("{}d{}", d ? ", " : "", d);
        if (d != dim) to += fmt::format("d{}, ", d);
      }
      WHET_RETURN_IF_ERROR(Do("cache_read", {anchor_, b.name, "global", turned_}));
      WHET_RETURN_IF_ERROR(Do("pad", {turned_, fmt::format("d{}", dim), std::to_string(tile)}));
      return Do("transform_layout", {turned_, fmt::format("({}) -> ({}d{})", from, to, dim)});
    }
    return OkStatus();
  }

  // Inside of loop `at`; before all loops when empty.
  Status PlaceTurned(const std::string& at) {
    if (turned_.empty()) return OkStatus();
    if (!at.empty()) WHET_RETURN_IF_ERROR(Do("compute_at", {turned_, at}));
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), turned_));
    std::vector<std::string> order;
    for (size_t i = 0; i < site.block->iters.size(); ++i) {
      if (static_cast<int>(i) != turned_dim_)
        order.push_back(LoopName(*site.block, static_cast<int>(i)));
    }
    const std::string vu = turned_ + ".vu", vl = turned_ + ".vl";
    WHET_RETURN_IF_ERROR(
        Do("split", {LoopName(*site.block, turned_dim_), std::to_string(v_[kLanes]), vu, vl}));
    order.push_back(vu);
    order.push_back(vl);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    return Do("vectorize", {vl});
  }

  // The accumulators' buffer gets the vector axis innermost.
  Status VectorLast() {
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), anchor_));
    const auto& indices = site.block->out_indices;
    std::string from, to, last;
    for (size_t d = 0; d < indices.size(); ++d) {
      const std::string name = "d" + std::to_string(d);
      from += (d ? ", " : "") + name;
      if (indices[d] == a_.anchor->iters[a_.vector_iter].var) {
        last = name;
      } else {
        to += name + ", ";
      }
    }
    if (indices.size() < 2 || indices.back() == a_.anchor->iters[a_.vector_iter].var)
      return OkStatus();
    return Do("transform_layout", {acc_, fmt::format("({}) -> ({}{})", from, to, last)});
  }

  Status SplitReduction(std::vector<std::string>& reduce, std::vector<std::string>& unrolled) {
    size_t last_window = SIZE_MAX;
    for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
      if (IsWindow(a_, i) && Extent(a_, a_.reduce_iters[i]) > 1) last_window = i;
    }
    for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
      const std::string name = LoopName(*a_.anchor, a_.reduce_iters[i]);
      if (IsWindow(a_, i)) {
        reduce.push_back(name);
        if (v_[kUnrollWindow] == 2 || (v_[kUnrollWindow] == 1 && i == last_window))
          unrolled.push_back(name);
        continue;
      }
      if (v_[kUnrollChannels] > 1 && i + 1 == a_.reduce_iters.size()) {
        WHET_RETURN_IF_ERROR(
            Do("split", {name, std::to_string(v_[kUnrollChannels]), name + ".o", name + ".i"}));
        reduce.push_back(name + ".o");
        reduce.push_back(name + ".i");
        unrolled.push_back(name + ".i");
      } else {
        reduce.push_back(name);
      }
    }
    return OkStatus();
  }

  // The last block runs on the registers of one tile.
  Status PlaceEpilogue(const std::string& at) {
    WHET_RETURN_IF_ERROR(Do("reverse_compute_at", {final_, at}));
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), final_));
    const loop::BlockNode& b = *site.block;
    // Its vector axis is the output's contiguous one; axes of extent 1 may come after it.
    std::string vec;
    std::vector<std::string> loops;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      const std::string name = LoopName(b, static_cast<int>(i));
      if (b.out_indices[a_.vector_dim] == b.iters[i].var) {
        vec = name;
      } else {
        loops.push_back(name);
      }
    }
    if (vec.empty()) return Internal("block '{}' has no contiguous axis", final_);
    WHET_RETURN_IF_ERROR(
        Do("split", {vec, std::to_string(v_[kLanes]), final_ + ".vu", final_ + ".vl"}));
    std::vector<std::string> order = loops;
    order.push_back(final_ + ".vu");
    order.push_back(final_ + ".vl");
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {final_ + ".vl"}));
    WHET_RETURN_IF_ERROR(Do("unroll", {final_ + ".vu"}));
    for (const std::string& l : loops) {
      const loop::ForNode* f = loop::FindLoop(s_.program(), l);
      if (f && f->extent > 1) WHET_RETURN_IF_ERROR(Do("unroll", {l}));
    }
    return OkStatus();
  }

  Status MakeParallel(std::vector<std::string> loops, const std::string& row_outer,
                      const std::string& vec_outer) {
    if (loops.empty())
      loops.push_back(v_[kOrder] == 1 && !row_outer.empty() ? row_outer : vec_outer);
    std::string outer = loops[0];
    for (size_t i = 1; i < loops.size(); ++i) {
      const std::string fused = anchor_ + ".par" + std::to_string(i);
      WHET_RETURN_IF_ERROR(Do("fuse", {outer, loops[i], fused}));
      outer = fused;
    }
    if (outer == row_outer) return OkStatus();  // partitioned: stays serial
    return Do("parallel", {outer});
  }

  Schedule& s_;
  const AnchorAnalysis& a_;
  const std::vector<int64_t>& v_;
  std::string anchor_, final_, acc_;
  std::string turned_;  // block and buffer of TurnOperand; empty: none
  int turned_dim_ = -1;
};

Status ApplyTiled(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kKnobs));
  return TiledWriter(s, Tiled(context).a, v).Run();
}

enum class Class { kNone, kConv, kDepthwise, kPool, kMatmul };
Class Classify(const AnchorAnalysis& a) {
  bool window = false;
  for (size_t i = 0; i < a.reduce_iters.size(); ++i) window |= IsWindow(a, i);
  const size_t operands = loop::Loads(a.anchor->value).size();
  if (operands == 1 && a.input_uses_vector) return Class::kPool;  // also reductions over outer axes
  if (operands == 2 && window && a.input_uses_vector) return Class::kDepthwise;
  if (operands == 2 && window) return Class::kConv;
  if (operands == 2) return Class::kMatmul;
  return Class::kNone;
}

template <Class kClass>
std::unique_ptr<RuleContext> Match(const loop::Program& p, const Target& t) {
  loop::Program program = p;
  auto a = AnalyzeAnchor(program);
  if (!a.ok() || Classify(*a) != kClass) return nullptr;
  return std::make_unique<TiledContext>(std::move(program), t, std::move(*a));
}

template <Class kClass>
constexpr Rule Make(const char* name) {
  return {name, 2, Match<kClass>, TiledKnobs, DefaultTiled, CheckTiled, EstimateTiled, ApplyTiled};
}
const Rule kConv = Make<Class::kConv>("conv_direct");
const Rule kDepthwise = Make<Class::kDepthwise>("depthwise");
const Rule kPool = Make<Class::kPool>("pool");
const Rule kMatmul = Make<Class::kMatmul>("matmul");

}  // namespace

const Rule& RuleConv() { return kConv; }
const Rule& RuleDepthwise() { return kDepthwise; }
const Rule& RulePool() { return kPool; }
const Rule& RuleMatmul() { return kMatmul; }

}  // namespace whet::schedule
