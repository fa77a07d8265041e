// The rules for one reduction with an element-wise prologue and epilogue: convolution
// and matrix product. All keep a tile of rows x vectors of the output in
// registers over the whole reduction, with the weights packed so that they are read one after the
// other, padding folded into the loads (border tiles are peeled), and the epilogue applied to the
// registers before the only store.
#include <algorithm>

#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule_reduce.h"

namespace whet::schedule {
namespace {

// Multiply-adds in all copies of the unrolled body: some twenty compile in a millisecond, and more
// than this were never faster.
constexpr int64_t kMaxBody = 384;

// Knob values by position, the same for both rules.
enum { kRows, kVectors, kLanes, kUnrollWindow, kUnrollChannels, kOrder, kKnobs };
const char* const kNames[kKnobs] = {"rows",          "vectors",         "lanes",
                                    "unroll_window", "unroll_channels", "order"};

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

// Writes the trace.
class TiledWriter : public ReduceWriter {
 public:
  TiledWriter(Schedule& s, const AnchorAnalysis& a, const std::vector<int64_t>& v)
      : ReduceWriter(s, a, v[kLanes]), v_(v) {}

  Status Run() {
    const std::string vec_loop = LoopName(*a_.anchor, a_.vector_iter);
    const std::string vec_axis = AxisName(a_.anchor->iters[a_.vector_iter].var);
    const int64_t tile = v_[kVectors] * lanes_;
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
    WHET_RETURN_IF_ERROR(Do("split", {vi, std::to_string(lanes_), vu, vl}));
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
    return MakeParallel(parallel, rows ? ro : "", v_[kOrder] == 1 && rows ? ro : vo);
  }

 private:
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

  const std::vector<int64_t>& v_;
};

Status ApplyTiled(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kKnobs));
  return TiledWriter(s, Tiled(context).a, v).Run();
}

template <ReduceClass kClass>
constexpr Rule MakeTiled(const char* name) {
  return {name,         2,          MatchReduce<kClass>, TiledKnobs,
          DefaultTiled, CheckTiled, EstimateTiled,       ApplyTiled};
}
const Rule kConv = MakeTiled<ReduceClass::kConv>("conv_direct");
const Rule kMatmul = MakeTiled<ReduceClass::kMatmul>("matmul");

}  // namespace

const Rule& RuleConv() { return kConv; }
const Rule& RuleMatmul() { return kMatmul; }

}  // namespace whet::schedule
