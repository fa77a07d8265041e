// Convolutions over 3x3 windows that move by one element, by Winograd's F(2x2, 3x3). Blocks of rows
// of tiles run in parallel: their patches are transformed into one plane per element of a patch,
// which stays in L2; then, for a few vectors of filters at a time, each plane is multiplied by its
// weights like a matrix, with a tile of patches x vectors in registers over all channels, and the
// products become results, with the epilogue applied before the only store. On one core with
// AVX-512 the least estimate takes 742, 674, 675 and 1012 us for 56x56x64, 28x28x128, 14x14x256 and
// 7x7x512; the best of some 30 points of conv_direct took 1297, 1317, 1353 and 1488.
#include <algorithm>
#include <functional>

#include "compiler/schedule/analysis.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule.h"
#include "compiler/schedule/window_sum.h"

namespace whet::schedule {
namespace {

constexpr int64_t kMaxProductBody = 512;  // multiply-adds of the unrolled body, both copies
constexpr int64_t kPlanes = 16;
constexpr int64_t kFewBlocks = 4;

enum { kTileRows, kPatches, kFilters, kUnroll, kFirst, kWinogradKnobs };
const char* const kWinogradNames[kWinogradKnobs] = {"tile_rows", "rows", "vectors",
                                                    "unroll_channels", "transform_first"};

struct WinogradContext : RuleContext {
  WinogradContext(loop::Program p, Target t, AnchorAnalysis found, WindowSum window)
      : RuleContext(std::move(p), std::move(t)), a(std::move(found)), sum(std::move(window)) {
    auto extent = [&](int i) { return a.anchor->iters[i].extent; };
    rows = (extent(sum.row) + 1) / 2;
    columns = (extent(sum.column) + 1) / 2;
    filters = extent(sum.filters[0]);
    for (int i : sum.images) images *= extent(i);
    for (int i : sum.channels) channels *= extent(i);
    elements = static_cast<double>(images * extent(sum.row) * extent(sum.column));
    for (const loop::Param& param : program.params) {
      if (param.buffer == a.weight) continue;
      bytes += static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
    }
    item = SizeOf(a.anchor->out->dtype);
    lanes = target.Lanes(item);
  }
  AnchorAnalysis a;  // points into `program`
  WindowSum sum;
  int64_t rows = 1, columns = 1;  // of tiles
  int64_t images = 1, channels = 1, filters = 1, lanes = 1, item = 4;
  double elements = 1, bytes = 0;  // `bytes` without the weights
};
const WinogradContext& Of(const RuleContext& c) { return static_cast<const WinogradContext&>(c); }

int64_t Groups(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<Knob> WinogradKnobs(const RuleContext& context) {
  const WinogradContext& c = Of(context);
  std::vector<Knob> k(kWinogradKnobs);
  for (int i = 0; i < kWinogradKnobs; ++i) k[i].name = kWinogradNames[i];
  for (int64_t r = 1; r <= c.rows; ++r) {
    if (c.rows % r == 0) k[kTileRows].values.push_back(r);
  }
  k[kPatches].values = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 28};
  std::erase_if(k[kPatches].values, [&](int64_t v) { return v > c.rows * c.columns; });
  k[kFilters].values = {1, 2, 3, 4};
  std::erase_if(k[kFilters].values,
                [&](int64_t v) { return v > 1 && (v - 1) * c.lanes >= c.filters; });
  for (int64_t u : {1, 2, 4, 8}) {
    if (c.channels % u == 0) k[kUnroll].values.push_back(u);
  }
  k[kFirst].values = {0, 1};
  return k;
}

Rejection CheckWinograd(const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kWinogradKnobs) return Rejection::kBadValue;
  const WinogradContext& c = Of(context);
  const int64_t acc = v[kPatches] * v[kFilters];
  if (acc + v[kFilters] + 1 > c.target.VectorRegisters() - 1) return Rejection::kRegisters;
  const int64_t block = v[kTileRows] * c.columns;
  if (v[kPatches] > block) return Rejection::kTile;
  const int64_t copies = block % v[kPatches] ? 2 : 1;
  if (acc * v[kUnroll] * copies > kMaxProductBody) return Rejection::kCodeSize;
  // Planes that every group of filters reads again.
  const int64_t planes = kPlanes * block * c.channels * c.item;
  if (v[kTileRows] > 1 && planes > c.target.l2_bytes) return Rejection::kTile;
  // With few blocks it is groups of filters that threads share, which costs one of them nothing.
  const int64_t blocks = c.images * (c.rows / v[kTileRows]);
  if (!v[kFirst] && blocks < kFewBlocks) return Rejection::kTile;
  // With many there is no need to have all planes in memory at once.
  if (v[kFirst] && blocks >= kFewBlocks && blocks * planes > c.target.l2_bytes)
    return Rejection::kTile;
  return Rejection::kNone;
}

Estimate EstimateWinograd(const RuleContext& context, const std::vector<int64_t>& v) {
  Estimate e;
  if (v.size() != kWinogradKnobs) return e;
  const WinogradContext& c = Of(context);
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const int64_t block = v[kTileRows] * c.columns;
  const double blocks = d(c.images * (c.rows / v[kTileRows]));
  const double groups = d(Groups(c.filters, v[kFilters] * c.lanes));
  const double tiles = d(c.images * c.rows * c.columns);
  const double k = d(c.channels), acc = d(v[kPatches] * v[kFilters]);
  // Products: the last tile of a block runs with what rows are left.
  const double row_tiles = d(Groups(block, v[kPatches]));
  const double steps = blocks * groups * d(kPlanes) * k;
  e.accumulators = acc;
  e.fma_cycles = steps * d(block * v[kFilters]) / 2;
  // Two loads in every cycle are not reached: one vector of filters, with a load per multiply-add,
  // took a tenth longer than two.
  constexpr double kLoads = 1.1;
  e.load_cycles = kLoads * steps * (d(block) + row_tiles * d(v[kFilters])) / 2;
  e.latency_cycles = steps * row_tiles * 4;
  e.body_instructions = (acc + d(v[kPatches] + v[kFilters])) * d(v[kUnroll]);
  // Per vector of a tile, as measured with 16 channels each, where transforming is most of the
  // work: 16 loads, 32 additions and 16 stores in; 16 loads, 24 additions, the epilogue and 4
  // stores out.
  constexpr double kVector = 45;
  const double in = tiles * d(Groups(c.channels, c.lanes)), out = tiles * groups * d(v[kFilters]);
  e.overhead_cycles = kVector * (in + out) +
                      blocks * groups * d(kPlanes) * row_tiles * (20 + acc + 2 * k / d(v[kUnroll]));
  e.useful_fraction = c.elements / (4 * tiles) * d(c.filters) / (groups * d(v[kFilters] * c.lanes));
  e.parallel = v[kFirst] ? blocks * groups : blocks;
  const double l1 = d(c.target.l1d_bytes), l2 = d(c.target.l2_bytes), item = d(c.item);
  const double patches = d(kPlanes * block) * k * item;      // of a block
  const double panel = k * d(v[kFilters] * c.lanes) * item;  // weights of a plane for a group
  const double weights = d(kPlanes) * groups * panel;
  e.bytes = c.bytes + weights;
  // A thread multiplies all patches by weights of its own, or its own patches by all weights.
  e.foreign_bytes = v[kFirst] ? blocks * patches : weights;
  const double products = d(kPlanes * block * v[kFilters] * c.lanes) * item;
  // Each group reads all planes, and each tile of a plane its panel, unless L1 keeps it.
  const double panels = panel < l1 / 2 ? 1 : row_tiles;
  e.l2_bytes = blocks * (patches * (groups + 1) + weights * panels);
  // Nothing hides what products cost that leave L1 before they become results.
  constexpr double kL2BytesPerCycle = 64;
  if (products > 1.5 * l1) e.overhead_cycles += blocks * groups * 2 * products / kL2BytesPerCycle;
  // Every block reads all weights again, and every group its patches, from L2 where they stay. Of
  // L2 that is two thirds for weights, since with 64 channels blocks of 7 rows of 28 tiles took a
  // tenth longer than of 4.
  e.l3_bytes = c.bytes + weights * (weights + patches + products <= 2 * l2 / 3 ? 1 : blocks);
  if (patches + products + d(kPlanes) * panel > 3 * l2 / 4) e.l3_bytes += blocks * patches * groups;
  if (v[kFirst] && blocks * patches > l2 / 2) e.l3_bytes += 2 * blocks * patches;
  return e;
}

// The least estimate. One of them is valid: a row of tiles, one patch and one vector.
std::vector<int64_t> DefaultWinograd(const RuleContext& context) {
  const WinogradContext& c = Of(context);
  const std::vector<Knob> knobs = WinogradKnobs(context);
  std::vector<int64_t> v(kWinogradKnobs), best;
  double least = 0;
  std::function<void(size_t)> choose = [&](size_t k) {
    if (k < kWinogradKnobs) {
      for (int64_t value : knobs[k].values) {
        v[k] = value;
        choose(k + 1);
      }
      return;
    }
    if (CheckWinograd(c, v) != Rejection::kNone) return;
    const double cycles = EstimateWinograd(c, v).Cycles();
    if (best.empty() || cycles < least) best = v, least = cycles;
  };
  choose(0);
  return best;
}

class WinogradWriter {
 public:
  WinogradWriter(Schedule& s, const WinogradContext& c, const std::vector<int64_t>& v)
      : s_(s), c_(c), a_(c.a), v_(v), anchor_(a_.anchor->name) {}

  Status Run() {
    WHET_RETURN_IF_ERROR(SplitOff());
    WHET_RETURN_IF_ERROR(Do("pad", {anchor_, Axis(c_.sum.filters[0]), Text(Width())}));
    WHET_RETURN_IF_ERROR(Do("winograd", {anchor_}));
    for (const std::string& b : a_.before) WHET_RETURN_IF_ERROR(Do("inline", {b}));
    WHET_RETURN_IF_ERROR(Weights());
    WHET_RETURN_IF_ERROR(Do("cache_write", {m_, "register", m_ + ".acc", m_ + ".store"}));
    WHET_RETURN_IF_ERROR(Do("transform_layout", {results_, VectorLast()}));
    WHET_RETURN_IF_ERROR(Epilogue());
    WHET_RETURN_IF_ERROR(Results());
    WHET_RETURN_IF_ERROR(Products());
    WHET_RETURN_IF_ERROR(Patches());
    std::vector<std::string> outer = images_;
    if (v_[kFirst]) outer.push_back(order_[images_.size()]);
    return Parallel(outer, order_[outer.size()], "par");
  }

 private:
  Status Do(const char* primitive, std::vector<std::string> args) {
    return s_.Apply(primitive, std::move(args));
  }
  static std::string Text(int64_t n) { return std::to_string(n); }
  std::string Axis(int iter) const { return AxisName(a_.anchor->iters[iter].var); }
  int64_t Width() const { return v_[kFilters] * c_.lanes; }

  // Results of tiles are in registers, and one block stores them.
  Status SplitOff() {
    if (a_.anchor_is_output) {
      final_ = anchor_ + ".store";
      results_ = anchor_ + ".acc";
      return Do("cache_write", {anchor_, "register", results_, final_});
    }
    results_ = a_.anchor->out->name;
    final_ = a_.after.back();
    for (size_t i = 0; i + 1 < a_.after.size(); ++i)
      WHET_RETURN_IF_ERROR(Do("inline", {a_.after[i]}));
    return Do("set_scope", {results_, "register"});
  }

  // The buffer's dimension of filters goes last.
  std::string VectorLast() const {
    std::string from, to, last;
    for (size_t d = 0; d < a_.anchor->out_indices.size(); ++d) {
      const std::string name = "d" + Text(static_cast<int64_t>(d));
      from += (d ? ", " : "") + name;
      if (a_.anchor->out_indices[d] == a_.anchor->iters[c_.sum.filters[0]].var) {
        last = name;
      } else {
        to += name + ", ";
      }
    }
    return fmt::format("({}) -> ({}{})", from, to, last);
  }

  // Read one after the other; made ahead of time, all 16 of a window together.
  Status Weights() {
    const std::string channel = Axis(c_.sum.channels[0]), filter = Axis(c_.sum.filters[0]);
    WHET_RETURN_IF_ERROR(Do("transform_layout",
                            {u_, fmt::format("(x, c, f) -> (f // {0}, x, c, f % {0})", Width())}));
    WHET_RETURN_IF_ERROR(Do("reorder", {u_ + "." + filter, u_ + "." + channel, u_ + ".xi"}));
    return Do("unroll", {u_ + ".xi"});
  }

  Status Epilogue() {
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), final_));
    const loop::BlockNode& b = *site.block;
    std::string row, column, filter;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      const std::string name = LoopName(b, static_cast<int>(i));
      int iter = -1;
      for (size_t d = 0; d < b.out_indices.size(); ++d) {
        if (b.out_indices[d] == b.iters[i].var) iter = a_.output_iters[d];
      }
      if (iter >= 0 && iter == c_.sum.row) {
        row = name;
      } else if (iter >= 0 && iter == c_.sum.column) {
        column = name;
      } else if (iter >= 0 && iter == c_.sum.filters[0]) {
        filter = name;
      } else {
        images_.push_back(name);
      }
    }
    const auto loop = [&](const char* suffix) { return final_ + suffix; };
    WHET_RETURN_IF_ERROR(Do("split", {row, Text(2 * v_[kTileRows]), loop(".ho"), loop(".hr")}));
    WHET_RETURN_IF_ERROR(Do("split", {loop(".hr"), "2", loop(".hi"), loop(".ha")}));
    WHET_RETURN_IF_ERROR(Do("split", {column, "2", loop(".wo"), loop(".wa")}));
    WHET_RETURN_IF_ERROR(Do("split", {filter, Text(Width()), loop(".vo"), loop(".vi")}));
    WHET_RETURN_IF_ERROR(Do("split", {loop(".vi"), Text(c_.lanes), loop(".vu"), loop(".vl")}));
    order_ = images_;
    order_.push_back(loop(v_[kFirst] ? ".vo" : ".ho"));
    order_.push_back(loop(v_[kFirst] ? ".ho" : ".vo"));
    inner_ = order_.back();
    for (const char* l : {".hi", ".wo", ".ha", ".wa", ".vu", ".vl"}) order_.push_back(loop(l));
    WHET_RETURN_IF_ERROR(Do("reorder", order_));
    WHET_RETURN_IF_ERROR(Do("vectorize", {loop(".vl")}));
    for (const char* l : {".vu", ".wa", ".ha"}) WHET_RETURN_IF_ERROR(Do("unroll", {loop(l)}));
    // The last column of tiles may hang over.
    return Do("annotate", {loop(".wo"), "partition", "1"});
  }

  // A tile of results, in registers.
  Status Results() {
    WHET_RETURN_IF_ERROR(Do("compute_at", {anchor_, final_ + ".wo"}));
    const auto loop = [&](int iter) { return anchor_ + "." + Axis(iter); };
    const std::string vu = anchor_ + ".vu", vl = anchor_ + ".vl";
    WHET_RETURN_IF_ERROR(Do("split", {loop(c_.sum.filters[0]), Text(c_.lanes), vu, vl}));
    WHET_RETURN_IF_ERROR(Do("reorder", {vu, loop(c_.sum.row), loop(c_.sum.column), vl}));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    for (const std::string& l : {vu, loop(c_.sum.row), loop(c_.sum.column)})
      WHET_RETURN_IF_ERROR(Do("unroll", {l}));
    return OkStatus();
  }

  // A matrix product per plane.
  Status Products() {
    const std::string store = m_ + ".store";
    WHET_RETURN_IF_ERROR(Do("compute_at", {store, inner_}));
    WHET_RETURN_IF_ERROR(Do("compute_at", {m_, inner_}));
    const std::string to = m_ + ".to", ti = m_ + ".ti", vu = m_ + ".vu", vl = m_ + ".vl";
    const std::string filter = "." + Axis(c_.sum.filters[0]),
                      channel = m_ + "." + Axis(c_.sum.channels[0]);
    WHET_RETURN_IF_ERROR(Do("split", {m_ + ".tile", Text(v_[kPatches]), to, ti}));
    WHET_RETURN_IF_ERROR(Do("split", {m_ + filter, Text(c_.lanes), vu, vl}));
    std::vector<std::string> order = {m_ + ".xi"};
    for (int i : c_.sum.images) order.push_back(m_ + "." + Axis(i));
    order.push_back(to);
    std::vector<std::string> unrolled = {vu, ti};
    std::string reduced = channel;
    if (v_[kUnroll] > 1) {
      reduced = channel + ".o";
      unrolled.push_back(channel + ".i");
      WHET_RETURN_IF_ERROR(Do("split", {channel, Text(v_[kUnroll]), reduced, channel + ".i"}));
    }
    order.push_back(reduced);
    if (v_[kUnroll] > 1) order.push_back(channel + ".i");
    for (const std::string& l : {ti, vu, vl}) order.push_back(l);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    for (const std::string& l : unrolled) WHET_RETURN_IF_ERROR(Do("unroll", {l}));
    WHET_RETURN_IF_ERROR(Do("decompose_reduction", {m_, reduced}));
    // Weights are one long stream, of which a plane's panel comes while the one before is
    // multiplied: with weights from L3 that takes a tenth to a half off the time; elsewhere asking
    // is free.
    constexpr int64_t kFarthest = 32 << 10;
    const int64_t panel = c_.channels * Width() * c_.item;
    WHET_RETURN_IF_ERROR(Do("annotate", {reduced, "prefetch", Text(std::min(panel, kFarthest))}));
    WHET_RETURN_IF_ERROR(Do("reverse_compute_at", {store, to}));
    WHET_RETURN_IF_ERROR(
        Do("split", {store + filter, Text(c_.lanes), store + ".vu", store + ".vl"}));
    WHET_RETURN_IF_ERROR(Do("vectorize", {store + ".vl"}));
    for (const char* l : {".vu", ".tile"}) WHET_RETURN_IF_ERROR(Do("unroll", {store + l}));
    // The tile of what rows are left over is compiled apart.
    return Do("annotate", {to, "partition", "1"});
  }

  Status Patches() {
    if (!v_[kFirst]) WHET_RETURN_IF_ERROR(Do("compute_at", {p_, final_ + ".ho"}));
    const std::string tr = p_ + ".tr", tc = p_ + ".tc", co = p_ + ".co", cl = p_ + ".cl",
                      d = anchor_ + ".d", channel = "." + Axis(c_.sum.channels[0]);
    WHET_RETURN_IF_ERROR(Do("split", {p_ + ".tile", Text(c_.columns), tr, tc}));
    WHET_RETURN_IF_ERROR(Do("split", {p_ + channel, Text(c_.lanes), co, cl}));
    std::vector<std::string> images;
    for (int i : c_.sum.images) images.push_back(p_ + "." + Axis(i));
    std::vector<std::string> order = images;
    for (const std::string& l : {tr, tc, co, p_ + ".xi", cl}) order.push_back(l);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {cl}));
    WHET_RETURN_IF_ERROR(Do("unroll", {p_ + ".xi"}));
    // Each element of a patch is read once.
    WHET_RETURN_IF_ERROR(Do("set_scope", {d, "register"}));
    WHET_RETURN_IF_ERROR(Do("compute_at", {d, co}));
    WHET_RETURN_IF_ERROR(Do("vectorize", {d + channel}));
    for (int i : {c_.sum.row, c_.sum.column})
      WHET_RETURN_IF_ERROR(Do("unroll", {d + "." + Axis(i)}));
    WHET_RETURN_IF_ERROR(Do("annotate", {tc, "partition", "1"}));
    return v_[kFirst] ? Parallel(images, tr, "patches") : OkStatus();
  }

  // `outer` and `last` as one loop that the runtime splits.
  Status Parallel(std::vector<std::string> outer, const std::string& last,
                  const std::string& name) {
    outer.push_back(last);
    std::string all = outer[0];
    for (size_t i = 1; i < outer.size(); ++i) {
      const std::string fused = fmt::format("{}.{}{}", anchor_, name, i);
      WHET_RETURN_IF_ERROR(Do("fuse", {all, outer[i], fused}));
      all = fused;
    }
    return Do("parallel", {all});
  }

  Schedule& s_;
  const WinogradContext& c_;
  const AnchorAnalysis& a_;
  const std::vector<int64_t>& v_;
  const std::string anchor_;
  const std::string u_ = anchor_ + ".u", p_ = anchor_ + ".v", m_ = anchor_ + ".m";
  std::string final_, results_, inner_;  // block and buffer of results; the loop of a group
  std::vector<std::string> images_, order_;
};

Status ApplyWinograd(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kWinogradKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(),
                           static_cast<int>(kWinogradKnobs));
  return WinogradWriter(s, Of(context), v).Run();
}

// Channels are what the image's elements are contiguous along, so that vectors of them are read.
bool ReadsChannelsInVectors(const loop::Program& p, const AnchorAnalysis& a, int channel) {
  Schedule s(p);
  if (!s.Apply("winograd", {a.anchor->name}).ok()) return false;
  for (const std::string& b : a.before) {
    if (!s.Apply("inline", {b}).ok()) return false;
  }
  auto site = loop::FindBlock(s.program(), a.anchor->name + ".d");
  if (!site.ok()) return false;
  const std::string name = AxisName(a.anchor->iters[channel].var);
  bool vectors = false;
  for (const auto* load : loop::Loads(site->block->value)) {
    int last = -1;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (load->buffer->shape[d] > 1) last = static_cast<int>(d);
    }
    for (const loop::Iter& it : site->block->iters) {
      if (AxisName(it.var) != name || !expr::Uses(expr::Expr(load), it.var)) continue;
      if (last < 0 || !(load->args[last] == it.var)) return false;
      vectors = true;
    }
  }
  return vectors;
}

std::unique_ptr<RuleContext> MatchWinograd(const loop::Program& p, const Target& t) {
  loop::Program program = p;
  auto a = AnalyzeAnchor(program);
  if (!a.ok()) return nullptr;
  auto sum = FindWindowSum(*a->anchor);
  if (!sum.ok() || sum->filters.size() != 1 || sum->channels.size() != 1 ||
      sum->filters[0] != a->vector_iter || !a->weight)
    return nullptr;
  // Fewer of either leave lanes empty, and a transformation pays by its use for many filters.
  const int64_t lanes = t.Lanes(SizeOf(a->anchor->out->dtype));
  if (a->anchor->iters[sum->channels[0]].extent < lanes ||
      a->anchor->iters[sum->filters[0]].extent < lanes ||
      !ReadsChannelsInVectors(program, *a, sum->channels[0]))
    return nullptr;
  return std::make_unique<WinogradContext>(std::move(program), t, std::move(*a), std::move(*sum));
}

const Rule kRuleWinograd = {"conv_winograd",  3,
                            MatchWinograd,    WinogradKnobs,
                            DefaultWinograd,  CheckWinograd,
                            EstimateWinograd, ApplyWinograd};

}  // namespace

const Rule& RuleWinograd() { return kRuleWinograd; }

}  // namespace whet::schedule
