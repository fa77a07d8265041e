// Depthwise convolution and pooling: a window moves over every channel by itself, so that channels
// are the lanes of vectors and nothing is shared between them, for windows that cover all of an
// image too, whatever the layout: a global average of 512x56x56 took 2360 us with rows as lanes,
// 270 with channels, and a depthwise convolution of 512x7x7 34 and 1.6.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule_reduce.h"

namespace whet::schedule {
namespace window {
namespace {

// Operations in all copies of the unrolled body: some twenty compile in a millisecond.
constexpr int64_t kMaxBody = 4000;
// Taps of a window that is unrolled whole. Weights of a larger one do not stay in registers, and
// LLVM, which takes loads out of the loop over tiles, spills them: 5x5 was up to 1.4 times slower.
constexpr int64_t kMaxWhole = 9;
constexpr int64_t kMaxInner = 32;  // of the innermost axis, where only that is unrolled
constexpr int64_t kMaxTaps = 8;    // the same by default

// Knob values by position.
enum { kRows, kVectors, kLanes, kLines, kUnrollWindow, kUnrollChannels, kWalk, kOrder, kKnobs };
const char* const kNames[kKnobs] = {"rows",          "vectors",         "lanes", "lines",
                                    "unroll_window", "unroll_channels", "walk",  "order"};
// Values of kWalk. By taps: all accumulators of a tile are live, and the window's lines are walked
// outside of them. By pixels: the whole window of one column of pixels after the other, whose
// weights and inputs stay in registers.
enum { kByTaps, kByPixels };

struct WindowContext : TiledContext {
  using TiledContext::TiledContext;
  int line_iter = -1;  // the spatial axis next to the row axis along which the window moves
  int64_t line_stride = 1;
  double input_bytes = 0, weight_bytes = 0, output_bytes = 0;
  bool gathers = false;  // a vector of the input lies far apart
  int64_t Lines() const { return Extent(a, line_iter); }
};
const WindowContext& Of(const RuleContext& c) { return static_cast<const WindowContext&>(c); }

// Finds the line axis: of the axes outside of the rows the innermost that a window moves along.
void FindLines(WindowContext& c) {
  const loop::BlockNode& b = *c.a.anchor;
  for (const auto* load : loop::Loads(b.value)) {
    if (load->buffer->constant) continue;
    for (const auto& index : load->args) {
      const expr::Linear l = expr::ToLinear(index);
      int spatial = -1;
      int64_t stride = 1;
      bool reduced = false;
      for (const auto& [atom, k] : l.terms) {
        for (size_t i = 0; i < b.iters.size(); ++i) {
          if (!(b.iters[i].var == atom)) continue;
          reduced |= b.iters[i].reduce;
          const bool other = std::count(c.a.other_iters.begin(), c.a.other_iters.end(), i) > 0;
          if (other && b.iters[i].extent > 1) spatial = static_cast<int>(i), stride = k;
        }
      }
      if (spatial >= 0 && reduced) c.line_iter = spatial, c.line_stride = stride;
    }
  }
}

// How far apart in the program's operands neighbours of `lane` are that a block reads, at most; by
// way of blocks that only move elements (padding, views).
int64_t FarthestStep(const loop::Program& p, const loop::BlockNode& b, const expr::Var& lane) {
  int64_t farthest = 0;
  for (const auto* load : loop::Loads(b.value)) {
    if (load->buffer->constant) continue;
    std::vector<int64_t> steps;  // by dimension
    for (const auto& index : load->args) steps.push_back(expr::ToLinear(index).CoefficientOf(lane));
    int64_t step = 0, size = 1;
    for (size_t d = steps.size(); d-- > 0; size *= load->buffer->shape[d]) step += steps[d] * size;
    for (const BlockSite& before : Writers(p, load->buffer)) {
      step = 0;
      for (const loop::Iter& it : before.block->iters) {
        for (size_t d = 0; d < steps.size(); ++d) {
          if (steps[d] != 0 && before.block->out_indices[d] == it.var)
            step = std::max(step, steps[d] * FarthestStep(p, *before.block, it.var));
        }
      }
    }
    farthest = std::max(farthest, std::abs(step));
  }
  return farthest;
}

// Where the result is to lie in another order than the input: rows of pixels out of channels. What
// only the stride of a window pulls apart is not meant.
bool Gathers(const loop::Program& p, const AnchorAnalysis& a) {
  constexpr int64_t kFar = 4;
  if (a.vector_iter < 0) return false;
  const loop::Iter& lane = a.anchor->iters[static_cast<size_t>(a.vector_iter)];
  return lane.extent > 1 && FarthestStep(p, *a.anchor, lane.var) > kFar;
}

int64_t Taps(const WindowContext& c, const std::vector<int64_t>& v) {
  return (v[kUnrollWindow] == 2   ? c.r.window
          : v[kUnrollWindow] == 1 ? c.r.inner_window
                                  : 1) *
         v[kUnrollChannels];
}

std::vector<Knob> WindowKnobs(const RuleContext& context) {
  const WindowContext& c = Of(context);
  const ReduceExtents& r = c.r;
  const int64_t lanes = c.lanes, vec = c.vec, rows = c.rows;
  std::vector<Knob> k(kKnobs);
  for (int i = 0; i < kKnobs; ++i) k[i].name = kNames[i];
  k[kRows].values = UpTo({1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28}, rows);
  k[kVectors].values =
      UpTo({1, 2, 3, 4, 5, 6, 7, 8}, std::max<int64_t>(1, CeilDiv(vec, lanes / 2)));
  k[kLanes].values =
      lanes >= 8 ? std::vector<int64_t>{lanes / 2, lanes} : std::vector<int64_t>{lanes};
  k[kLines].values = UpTo({1, 2, 4}, c.Lines());
  k[kUnrollWindow].values = {0};
  if (r.window > 1 && r.inner_window <= kMaxInner) k[kUnrollWindow].values.push_back(1);
  if (r.window > 1 && r.window <= kMaxWhole) k[kUnrollWindow].values.push_back(2);
  // The innermost of the axes that are no window's is split.
  const int64_t last_channel = r.channels > 1 ? Extent(c.a, c.a.reduce_iters.back()) : 1;
  for (int64_t u : {1, 2, 3, 4, 8}) {
    if (last_channel % u == 0) k[kUnrollChannels].values.push_back(u);
  }
  k[kWalk].values = {kByTaps};
  if (r.window > r.inner_window) k[kWalk].values.push_back(kByPixels);
  k[kOrder].values = {0, 1, 2};
  return k;
}

// Vectors that are live at once.
int64_t Live(const WindowContext& c, const std::vector<int64_t>& v) {
  const int64_t kw = c.r.inner_window, kh = c.r.window / kw;
  // A maximum compares twice, so that a NaN stays.
  const int64_t spare = c.a.weight ? 0 : 3;
  if (v[kWalk] == kByPixels) {
    const int64_t inputs = ((v[kLines] - 1) * c.line_stride + kh) * kw;
    return (c.a.weight ? c.r.window : 0) + inputs + v[kLines] + 1 + spare;
  }
  const int64_t acc = v[kRows] * v[kVectors];
  if (v[kUnrollWindow] == 0) return acc + 2 + spare;
  return acc + (c.a.weight ? kw : 0) + std::min(kw, v[kRows] * c.a.row_stride) + spare;
}

// Of the body: borders of the rows and of the lines are peeled, or lines are there with and without
// conditions.
int64_t Copies(const WindowContext& c, const std::vector<int64_t>& v) {
  const int64_t rows = std::min<int64_t>(CeilDiv(c.rows, v[kRows]), c.r.window > 1 ? 3 : 2);
  const int64_t lines = std::min<int64_t>(CeilDiv(c.Lines(), v[kLines]), v[kOrder] == 2 ? 3 : 2);
  return rows * (v[kUnrollWindow] == 2 ? lines : 1);
}

Rejection CheckWindow(const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs) return Rejection::kBadValue;
  const WindowContext& c = Of(context);
  const int64_t acc = v[kRows] * v[kVectors];
  // Two for constants of the epilogue.
  if (Live(c, v) > c.target.VectorRegisters() - 2) return Rejection::kRegisters;
  if (acc * v[kLines] * Taps(c, v) * Copies(c, v) * StepsOf(c) > kMaxBody ||
      acc * v[kLines] > MostResults(c))
    return Rejection::kCodeSize;
  // A tile that is mostly padding.
  if (v[kVectors] > 1 && (v[kVectors] - 1) * v[kLanes] >= c.vec) return Rejection::kTile;
  if (v[kRows] > c.rows || v[kLines] > c.Lines()) return Rejection::kTile;
  // Lines share what they read only when whole windows are walked, and these have to be unrolled.
  if (v[kWalk] == kByTaps ? v[kLines] > 1 : v[kUnrollWindow] != 2) return Rejection::kTile;
  // Vectors across groups; where every one is, gathering is all there is.
  const int64_t group = c.a.vector_group, least = c.lanes >= 8 ? c.lanes / 2 : c.lanes;
  const int64_t tile = v[kVectors] * v[kLanes];
  if (group > 0 && group % least == 0 &&
      (group % v[kLanes] != 0 || (group % tile != 0 && tile % group != 0)))
    return Rejection::kTile;
  return Rejection::kNone;
}

double LineTiles(const WindowContext& c, const std::vector<int64_t>& v) {
  return c.others / static_cast<double>(c.Lines()) *
         static_cast<double>(CeilDiv(c.Lines(), v[kLines]));
}

// Too few lines to give threads equal parts: tiles of their channels are shared out too.
bool SharesChannels(const WindowContext& c, const std::vector<int64_t>& v) {
  return v[kOrder] == 0 && LineTiles(c, v) < kEvenParts;
}

// What moves between the caches. Lines of the input are read again for the next line of the output;
// they stay in a cache when what lies between fits.
void EstimateTraffic(const WindowContext& c, const std::vector<int64_t>& v, Estimate& e) {
  constexpr double kUsable = 0.75;  // the stack, other sets than needed
  constexpr double kLine = 64, kWays = 64;
  const double element = static_cast<double>(SizeOf(c.a.anchor->out->dtype));
  const auto vec = static_cast<double>(c.vec);
  const double tile = std::min(vec, static_cast<double>(v[kVectors] * v[kLanes]));
  const auto lines = static_cast<double>(v[kLines]), stride = static_cast<double>(c.line_stride);
  const auto kh = static_cast<double>(c.r.window / c.r.inner_window);
  const double in_lines = (lines - 1) * stride + kh;
  const double again = c.line_iter < 0 ? 1 : std::max(1.0, in_lines / (lines * stride));
  const auto out_width = static_cast<double>(c.rows);
  const double in_width = out_width * static_cast<double>(c.a.row_stride);
  const double l1 = kUsable * static_cast<double>(c.target.l1d_bytes);
  const double l2 = kUsable * static_cast<double>(c.target.l2_bytes);
  const double set_bytes = v[kOrder] == 2 ? tile : vec;
  const double held = (in_lines * in_width + lines * out_width) * set_bytes * element;
  double room = l1;
  if (v[kOrder] == 2 && tile < vec) {
    // Pixels are this many cache lines apart, and use only some of the sets.
    const auto apart = static_cast<int64_t>(vec * element / kLine);
    const double sets = kWays / static_cast<double>(std::gcd(std::max<int64_t>(apart, 1), 64));
    room *= std::min(1.0, sets * std::max(1.0, tile * element / kLine) / kWays);
  }
  const double input = c.input_bytes * (held <= room ? 1 : again);
  // Tiles of all channels, one after the other: what they share lines of is still in the first
  // cache only when they are small. So do the vectors of one tile.
  const double span = static_cast<double>((v[kRows] - 1) * c.a.row_stride + c.r.inner_window);
  const double column = in_lines * span * (v[kOrder] == 1 ? vec : tile) * element;
  double spread = tile == vec ? 1 : v[kOrder] == 1 ? 1 + column / l1 : 1 + 0.4 * column / room;
  // One pixel comes of a whole image: nothing is shared, but lines come in pairs. Of 512 channels
  // of 56x56, pieces of 32, 64, 128, 256 and 512 bytes took 900, 450, 230, 260 and 275 us.
  const bool whole_images = c.rows <= 1 && c.Lines() <= 1;
  if (whole_images)
    spread = tile * element > 4 * kLine ? 1.15 : std::max(1.0, 2 * kLine / (tile * element));
  // Weights of all channels between two uses of the same.
  const double between = c.weight_bytes + (v[kOrder] == 1 ? column : held);
  const double passes =
      v[kOrder] == 2 || between <= l1
          ? 1
          : c.others / lines *
                (v[kOrder] == 1 ? static_cast<double>(CeilDiv(c.rows, v[kRows])) : 1);
  const double weights = c.weight_bytes * passes;
  e.l2_bytes = input * spread + weights + 2 * c.output_bytes;
  if (c.bytes <= l2) return;
  // Pieces of pixels come in with their neighbours, which are gone before they are wanted.
  double astride = whole_images ? spread : 1;
  if (!whole_images && tile < vec && v[kOrder] != 1) {
    const bool pairs = std::fmod(tile * element, 2 * kLine) == 0;
    astride = v[kOrder] == 2 ? (pairs ? 1.4 : 1.8) : (pairs ? 1.1 : 1.25);
  }
  e.l3_bytes = c.bytes * astride;
}

Estimate EstimateWindow(const RuleContext& context, const std::vector<int64_t>& v) {
  Estimate e;
  if (v.size() != kKnobs) return e;
  const WindowContext& c = Of(context);
  const AnchorAnalysis& a = c.a;
  const ReduceExtents& r = c.r;
  const double tile_vec = static_cast<double>(CeilDiv(c.vec, v[kVectors] * v[kLanes]));
  const double tile_rows = static_cast<double>(CeilDiv(c.rows, v[kRows]));
  const auto rows = static_cast<double>(v[kRows]), vectors = static_cast<double>(v[kVectors]),
             lines = static_cast<double>(v[kLines]);
  const double tiles = LineTiles(c, v) * tile_vec * tile_rows;
  const double k = static_cast<double>(r.window * r.channels);
  const auto kw = static_cast<double>(r.inner_window);
  const double acc = rows * vectors * lines;
  // What of the last tile is beyond the rows is not computed.
  const double vectors_out = c.others * static_cast<double>(c.rows) * tile_vec * vectors;
  e.accumulators = acc;
  // A maximum that keeps NaNs is two operations.
  const auto reducer = a.anchor->reducer;
  const bool compares = reducer == loop::Reducer::kMax || reducer == loop::Reducer::kMin;
  const double operations = compares ? 2 : 1;
  e.fma_cycles = vectors_out * (k * operations + 2) / 2;
  double loads = 0, weights = 0;  // of a tile
  const double span = (rows - 1) * static_cast<double>(a.row_stride) + kw;
  const double taps = static_cast<double>(Taps(c, v));
  if (v[kWalk] == kByPixels) {
    const double in_lines = (lines - 1) * static_cast<double>(c.line_stride) + k / kw;
    loads = span * in_lines * vectors;
    weights = k * vectors;
  } else if (v[kUnrollWindow] > 0) {
    loads = std::min(span, rows * kw) * vectors * k / kw;
    weights = vectors * k;
  } else {
    loads = rows * vectors * k;
    weights = vectors * k;
  }
  // Lane by lane, each a load and what puts it into the vector.
  constexpr double kGathered = 1.5;
  const double each = c.gathers ? kGathered * static_cast<double>(v[kLanes]) : 1;
  loads *= each;
  if (a.weight) loads += weights;
  e.load_cycles = tiles * (loads + acc) / 2;
  // Sums wait for themselves; those of the pixels that fit the reordering window go on meanwhile.
  constexpr double kLatency = 4, kWindow = 400, kFrontEnd = 4000;
  const double chains =
      std::max(v[kWalk] == kByPixels ? lines * vectors : acc, kWindow / (1.5 * k));
  e.latency_cycles = vectors_out * k * kLatency / chains;
  e.body_instructions = acc * taps + loads * taps / k;
  // Entering a tile, its addresses; a loop over the window ends unforeseen.
  e.overhead_cycles = tiles * (6 + (taps < k ? 12 + 2 * k / taps : 0));
  // By taps, the loads of a line come in a burst that arithmetic does not hide.
  if (v[kWalk] == kByTaps && v[kUnrollWindow] > 0) e.overhead_cycles += tiles * k / kw * 2;
  // Long bodies without multiply-adds: the front end is what they wait for.
  if (!a.weight)
    e.overhead_cycles += std::max(e.fma_cycles, e.bytes / 40) * acc * taps * operations / kFrontEnd;
  // Between two runs a network's other kernels push the code out of its cache.
  e.overhead_cycles += static_cast<double>(Copies(c, v)) * acc * taps;
  e.useful_fraction =
      static_cast<double>(c.vec) / (tile_vec * static_cast<double>(v[kVectors] * v[kLanes]));
  e.bytes = c.bytes;
  EstimateTraffic(c, v, e);
  const bool channels = v[kOrder] == 2 || SharesChannels(c, v);
  e.parallel = (v[kOrder] == 2 ? 1 : LineTiles(c, v)) * (channels ? tile_vec : 1);
  if (v[kOrder] == 2 || c.others == 1) e.foreign_bytes = c.input_bytes + c.output_bytes / 2;
  return e;
}

// The largest of `values`, which ascend, that divides `extent`, else that fits it; an extent below
// all of them is taken whole.
int64_t Dividing(const std::vector<int64_t>& values, int64_t extent) {
  int64_t best = std::max<int64_t>(extent, 1);
  bool fits = false, divides = false;
  for (int64_t v : values) {
    if (v > extent) break;
    if (fits && divides && extent % v != 0) continue;
    best = v;
    fits = true;
    divides |= extent % v == 0;
  }
  return fits ? best : std::min(best, values.front());
}

std::vector<int64_t> DefaultWindow(const RuleContext& context) {
  const WindowContext& c = Of(context);
  const int64_t vectors = CeilDiv(c.vec, c.lanes);
  std::vector<int64_t> v(kKnobs);
  v[kLanes] = c.lanes;
  if (const int64_t group = c.a.vector_group; group > 0 && group % c.lanes != 0 && c.lanes >= 8)
    v[kLanes] = c.lanes / 2;
  // Channels outside while all fits the second cache, else in the order of memory, in small tiles
  // of lines that are read from the second cache once less.
  v[kOrder] = c.bytes <= static_cast<double>(c.target.l2_bytes) && vectors >= 8 ? 2 : 1;
  const bool small = v[kOrder] == 1 || !c.a.weight;
  v[kRows] = small                ? Dividing({2, 3, 4}, c.rows)
             : c.a.row_stride > 1 ? Dividing({4, 5, 6, 7, 8}, c.rows)
                                  : Dividing({4, 5, 6, 7, 8, 10, 12, 14}, c.rows);
  v[kVectors] = c.rows <= 1      ? std::min<int64_t>(8, vectors)
                : v[kOrder] == 1 ? Dividing({1, 2, 3, 4}, vectors)
                                 : std::min<int64_t>(2, vectors);
  if (const int64_t group = c.a.vector_group; group > 0) {
    const int64_t tile = v[kVectors] * v[kLanes];
    if (group % tile != 0 && tile % group != 0) v[kVectors] = 1;
  }
  v[kUnrollWindow] = c.r.window == 1                ? 0
                     : c.r.window <= kMaxWhole      ? 2
                     : c.r.inner_window <= kMaxTaps ? 1
                                                    : 0;
  v[kWalk] = c.r.window > c.r.inner_window && v[kUnrollWindow] == 2 ? kByPixels : kByTaps;
  v[kLines] = v[kWalk] == kByPixels && v[kOrder] == 1 && c.Lines() > 1 ? 2 : 1;
  v[kUnrollChannels] = 1;
  for (;;) {
    if (CheckWindow(context, v) == Rejection::kNone) return v;
    if (v[kLines] > 1) {
      v[kLines] = 1;
    } else if (v[kWalk] == kByPixels) {
      v[kWalk] = kByTaps;
    } else if (v[kRows] > 1) {
      v[kRows] = std::max<int64_t>(1, v[kRows] / 2);
    } else if (v[kVectors] > 1) {
      v[kVectors] = 1;
    } else if (v[kUnrollWindow] > 0) {
      v[kUnrollWindow] = 0;
    } else {
      return v;
    }
  }
}

// Writes the trace.
class WindowWriter : public ReduceWriter {
 public:
  WindowWriter(Schedule& s, const WindowContext& c, const std::vector<int64_t>& v)
      : ReduceWriter(s, c.a, v[kLanes]), c_(c), v_(v) {}

  Status Run() {
    const std::string vec_loop = LoopName(*a_.anchor, a_.vector_iter);
    const std::string vec_axis = AxisName(a_.anchor->iters[a_.vector_iter].var);
    const int64_t tile = v_[kVectors] * lanes_;
    WHET_RETURN_IF_ERROR(InlineAll());
    WHET_RETURN_IF_ERROR(PackWeight(tile));
    WHET_RETURN_IF_ERROR(TurnOperand(tile));
    WHET_RETURN_IF_ERROR(Do("pad", {anchor_, vec_axis, std::to_string(tile)}));
    WHET_RETURN_IF_ERROR(VectorLast());

    const std::string vo = anchor_ + ".vo", vi = anchor_ + ".vi", vu = anchor_ + ".vu",
                      vl = anchor_ + ".vl";
    const std::string ro = anchor_ + ".ro", ri = anchor_ + ".ri";
    const std::string lo = anchor_ + ".lo", li = anchor_ + ".li";
    WHET_RETURN_IF_ERROR(Do("split", {vec_loop, std::to_string(tile), vo, vi}));
    WHET_RETURN_IF_ERROR(Do("split", {vi, std::to_string(lanes_), vu, vl}));
    std::vector<std::string> others;
    std::string line;  // the loop over lines, or over tiles of them
    const bool lines = v_[kLines] > 1;
    for (int i : a_.other_iters) {
      others.push_back(LoopName(*a_.anchor, i));
      if (i != c_.line_iter) continue;
      if (lines) {
        WHET_RETURN_IF_ERROR(Do("split", {others.back(), std::to_string(v_[kLines]), lo, li}));
        others.back() = lo;
      }
      line = others.back();
    }
    const bool rows = a_.row_iter >= 0;
    if (rows)
      WHET_RETURN_IF_ERROR(
          Do("split", {LoopName(*a_.anchor, a_.row_iter), std::to_string(v_[kRows]), ro, ri}));
    WHET_RETURN_IF_ERROR(SplitReduction());

    std::vector<std::string> order = others;
    std::vector<std::string> parallel = others;
    if (v_[kOrder] == 2) {
      order.insert(order.begin(), vo);
      parallel = {vo};
    } else if (v_[kOrder] == 0) {
      order.push_back(vo);
      if (SharesChannels(c_, v_)) parallel = order;
    }
    if (rows) order.push_back(ro);
    if (v_[kOrder] == 1) order.push_back(vo);
    std::string tile_loop = order.back();
    std::vector<std::string> inner = outer_reduce_;
    if (v_[kWalk] == kByTaps) inner.push_back(vu);
    if (v_[kWalk] == kByPixels) inner.insert(inner.begin(), vu);
    const auto at = v_[kWalk] == kByTaps ? inner.end() : inner.begin() + 1;
    if (lines) inner.insert(at, li);
    if (rows) inner.insert(v_[kWalk] == kByTaps ? inner.end() : inner.begin() + 1, ri);
    if (v_[kWalk] == kByPixels) tile_loop = rows ? ri : vu;
    inner.insert(inner.end(), inner_reduce_.begin(), inner_reduce_.end());
    order.insert(order.end(), inner.begin(), inner.end());
    order.push_back(vl);
    if (order.size() > 1) WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vu}));
    if (rows) WHET_RETURN_IF_ERROR(Do("unroll", {ri}));
    if (lines) WHET_RETURN_IF_ERROR(Do("unroll", {li}));
    for (const std::string& u : unrolled_) WHET_RETURN_IF_ERROR(Do("unroll", {u}));
    WHET_RETURN_IF_ERROR(PlaceTurned(v_[kOrder] == 0 || (others.empty() && v_[kOrder] == 2) ? vo
                                     : others.empty()                                       ? ""
                                                      : others.back()));
    const auto first = std::find_if(order.begin(), order.end(), [&](const std::string& l) {
      return std::count(outer_reduce_.begin(), outer_reduce_.end(), l) ||
             std::count(inner_reduce_.begin(), inner_reduce_.end(), l);
    });
    if (first != order.end()) WHET_RETURN_IF_ERROR(Do("decompose_reduction", {anchor_, *first}));
    WHET_RETURN_IF_ERROR(PlaceEpilogue(tile_loop));
    if (rows) WHET_RETURN_IF_ERROR(Do("annotate", {ro, "partition", "1"}));
    if (v_[kOrder] == 2 && !line.empty())
      WHET_RETURN_IF_ERROR(Do("annotate", {line, "partition", "1"}));
    WHET_RETURN_IF_ERROR(MakeParallel(parallel, rows ? ro : "", v_[kOrder] == 1 && rows ? ro : vo));
    if (v_[kOrder] == 2 || line.empty()) return OkStatus();
    return Do("annotate", {outermost_, "partition", "1"});
  }

 private:
  // Reduce loops that stand outside of a tile's loops, and those inside.
  Status SplitReduction() {
    size_t last_window = SIZE_MAX;
    for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
      if (IsWindow(a_, i) && Extent(a_, a_.reduce_iters[i]) > 1) last_window = i;
    }
    for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
      const std::string name = LoopName(*a_.anchor, a_.reduce_iters[i]);
      if (IsWindow(a_, i)) {
        const bool unroll = v_[kUnrollWindow] == 2 || (v_[kUnrollWindow] == 1 && i == last_window);
        if (unroll) unrolled_.push_back(name);
        (unroll && (i == last_window || v_[kWalk] == kByPixels) ? inner_reduce_ : outer_reduce_)
            .push_back(name);
        continue;
      }
      if (v_[kUnrollChannels] > 1 && i + 1 == a_.reduce_iters.size()) {
        WHET_RETURN_IF_ERROR(
            Do("split", {name, std::to_string(v_[kUnrollChannels]), name + ".o", name + ".i"}));
        outer_reduce_.push_back(name + ".o");
        outer_reduce_.push_back(name + ".i");
        unrolled_.push_back(name + ".i");
      } else {
        outer_reduce_.push_back(name);
      }
    }
    return OkStatus();
  }

  const WindowContext& c_;
  const std::vector<int64_t>& v_;
  std::vector<std::string> outer_reduce_, inner_reduce_, unrolled_;
};

Status ApplyWindow(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kKnobs));
  return WindowWriter(s, Of(context), v).Run();
}

template <ReduceClass kClass>
std::unique_ptr<RuleContext> MatchWindow(const loop::Program& p, const Target& t) {
  loop::Program program = p;
  auto a = AnalyzeAnchor(program);
  if (!a.ok() || Classify(*a) != kClass) return nullptr;
  auto c = std::make_unique<WindowContext>(std::move(program), t, std::move(*a));
  FindLines(*c);
  c->gathers = Gathers(c->program, c->a);
  for (const loop::Param& param : c->program.params) {
    const auto bytes =
        static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
    (param.role == loop::Role::kOutput ? c->output_bytes
     : param.buffer->constant          ? c->weight_bytes
                                       : c->input_bytes) += bytes;
  }
  return c;
}

template <ReduceClass kClass>
constexpr Rule MakeWindow(const char* name) {
  return {name,          4,           MatchWindow<kClass>, WindowKnobs,
          DefaultWindow, CheckWindow, EstimateWindow,      ApplyWindow};
}
const Rule kDepthwise = MakeWindow<ReduceClass::kDepthwise>("depthwise");
const Rule kPool = MakeWindow<ReduceClass::kPool>("pool");

}  // namespace
}  // namespace window

const Rule& RuleDepthwise() { return window::kDepthwise; }
const Rule& RulePool() { return window::kPool; }

}  // namespace whet::schedule
