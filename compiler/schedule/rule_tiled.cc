// The rules for convolution and matrix product. A tile of rows x vectors of the output stays in
// registers over the reduction, the weights are packed so that they are read one after the other,
// padding is folded into the loads (border tiles are peeled), and the epilogue is applied to a tile
// before the only store of the result.
//
// Rows are the pixels of all lines where these follow each other in every operand (1x1, stride 1).
// Blocks of rows and of columns say which operand stays in the second-level cache; with a block of
// the reduction (BLIS calls the three mc, nc and kc) the sums so far are kept in memory, one block
// of the output at a time.
//
// Measured beside oneDNN 2.6 on AVX-512, untuned: products of 512 to 2048 at 0.92 to 0.97 of the
// rate of multiply-adds and about as fast as its best, 1x1 convolutions 0.94 to 1.28 times. A
// single row reads its weights at the speed of memory: 2 to 16 streams of weights instead of one,
// asking 2 to 16 KiB ahead, and pages of 2 MiB gained nothing for 1x4096x4096.
//
// Over the usual file length: what a tile may be, what it costs and how it is written stand
// together, since each has to follow the others.
#include <algorithm>
#include <numeric>

#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule_reduce.h"

namespace whet::schedule {
namespace {

// Multiply-adds in all copies of the unrolled body: some twenty compile in a millisecond, and more
// than this were never faster.
constexpr int64_t kMaxBody = 512;

// Knob values by position, the same for both rules. Blocks: 0 is all of it.
enum {
  kRows,
  kVectors,
  kLanes,
  kUnrollWindow,
  kUnrollChannels,
  kOrder,
  kReduceBlock,  // channels
  kRowBlock,     // rows
  kColumnBlock,  // tiles of columns
  kPackRows,     // 1: the rows of a block are copied together
  kKnobs
};
const char* const kNames[kKnobs] = {"rows",  "vectors", "lanes", "unroll_window", "unroll_channels",
                                    "order", "kc",      "mc",    "nc_tiles",      "pack_rows"};

// Where the loops over rows (ro), column tiles (vo) and the other axes stand, outermost first.
enum Order {
  kColumnsThenRows,  // others vo ro: a panel of weights stays, rows stream
  kRowsThenColumns,  // others ro vo
  kColumnsFirst,     // vo others ro: a panel of weights stays for a whole image
};

// All rows of the anchor are one axis: those of `fused`, innermost first, and the row axis. Filled
// in where they follow each other in memory in every operand.
struct RowsContext : TiledContext {
  using TiledContext::TiledContext;
  std::vector<int> fused;    // of the anchor's axes
  bool plain_rows = false;   // no window moves along the rows
  std::vector<int> others_;  // the other spatial axes that stay
  std::string final_block;
  std::vector<std::string>
      final_axes;  // those of the last block that `fused` become, then its rows
};
const RowsContext& Rows(const RuleContext& c) { return static_cast<const RowsContext&>(c); }

// Whether `outer` and `inner` appear in an expression of `b` only as neighbouring indices of whole
// dimensions. Axes of extent 1, as a window of one element has, are 0.
bool FollowEachOther(const loop::BlockNode& b, const expr::Expr& of, int outer_axis,
                     int inner_axis) {
  const loop::Iter &outer = b.iters[static_cast<size_t>(outer_axis)],
                   &inner = b.iters[static_cast<size_t>(inner_axis)];
  expr::Bounds bounds;
  for (const loop::Iter& it : b.iters) bounds.Set(it.var, {0, it.extent - 1});
  const expr::Expr e = expr::Simplify(of, bounds);
  auto plain = [&](const expr::ExprNode& load) {
    const auto& shape = load.buffer->shape;
    int at = -1;
    for (size_t d = 0; d < load.args.size(); ++d) {
      const bool uses = expr::Uses(load.args[d], outer.var) || expr::Uses(load.args[d], inner.var);
      if (!uses) continue;
      if (at < 0 && d + 1 < load.args.size() && load.args[d] == outer.var &&
          load.args[d + 1] == inner.var && shape[d + 1] == inner.extent) {
        at = static_cast<int>(d);
      } else if (static_cast<int>(d) != at + 1 || at < 0) {
        return false;
      }
    }
    return true;
  };
  bool good = true;
  const expr::Expr rest = expr::Rewrite(e, [&](const expr::Expr& x) -> expr::Expr {
    if (x->kind != expr::Kind::kLoad) return nullptr;
    good &= plain(*x);
    return expr::Int(0, DType::kI64)->dtype == x->dtype ? expr::Int(0) : expr::Float(0, x->dtype);
  });
  return good && !expr::Uses(rest, outer.var) && !expr::Uses(rest, inner.var);
}

// What InlineAll leaves, without a trace.
class Inlined : public ReduceWriter {
 public:
  Inlined(Schedule& s, const AnchorAnalysis& a) : ReduceWriter(s, a, 1) {}
  using ReduceWriter::InlineAll;
  const std::string& last() const { return final_; }
};

void FindRows(RowsContext& c) {
  c.others_ = c.a.other_iters;
  c.plain_rows = true;
  for (size_t i = 0; i < c.a.reduce_iters.size(); ++i) c.plain_rows &= !IsWindow(c.a, i);
  if (c.a.row_iter < 0 || c.a.vector_group > 0) return;
  Schedule s(c.program);
  Inlined writer(s, c.a);
  if (!writer.InlineAll().ok()) return;
  auto anchor = loop::FindBlock(s.program(), c.a.anchor->name);
  auto last = loop::FindBlock(s.program(), writer.last());
  if (!anchor.ok() || !last.ok()) return;
  const loop::BlockNode &b = *anchor->block, &f = *last->block;
  auto loop_of = [](const BlockSite& site, int iter) -> const ForNode* {
    for (const ForNode* l : site.loops) {
      if (l->var == site.block->bindings[static_cast<size_t>(iter)]) return l;
    }
    return nullptr;
  };
  // The last block's axis that an axis of the anchor becomes.
  auto own_axis = [&](int iter) {
    for (const auto* load : loop::Loads(f.value)) {
      if (!(load->buffer == b.out)) continue;
      for (size_t d = 0; d < load->args.size(); ++d) {
        if (!(b.out_indices[d] == b.iters[static_cast<size_t>(iter)].var)) continue;
        for (size_t i = 0; i < f.iters.size(); ++i) {
          if (f.iters[i].var == load->args[d]) return static_cast<int>(i);
        }
      }
    }
    return -1;
  };
  int inner = c.a.row_iter, own_inner = own_axis(inner);
  std::vector<int> axes = {own_inner};
  while (!c.others_.empty() && own_inner >= 0) {
    size_t at = c.others_.size();
    // Axes of extent 1 do not come between.
    while (at > 0 && Extent(c.a, c.others_[at - 1]) == 1) --at;
    if (at == 0) break;
    const int outer = c.others_[at - 1], own_outer = own_axis(outer);
    const ForNode *outer_loop = loop_of(*anchor, outer), *inner_loop = loop_of(*anchor, inner);
    if (own_outer < 0 || !outer_loop || !inner_loop || outer_loop->body.get() != inner_loop) break;
    const ForNode *own_outer_loop = loop_of(*last, own_outer),
                  *own_inner_loop = loop_of(*last, own_inner);
    if (!own_outer_loop || !own_inner_loop || own_outer_loop->body.get() != own_inner_loop) break;
    if (!FollowEachOther(b, b.value, outer, inner) ||
        (b.init && !FollowEachOther(b, b.init, outer, inner)) ||
        !FollowEachOther(b, expr::Load(b.out, b.out_indices), outer, inner) ||
        !FollowEachOther(f, f.value, own_outer, own_inner) ||
        !FollowEachOther(f, expr::Load(f.out, f.out_indices), own_outer, own_inner))
      break;
    c.fused.push_back(outer);
    axes.push_back(own_outer);
    c.rows *= Extent(c.a, outer);
    c.others /= static_cast<double>(Extent(c.a, outer));
    c.others_.erase(c.others_.begin() + static_cast<int64_t>(at) - 1);
    // One more would have to follow the two as they are one; images of a batch do so rarely.
    break;
  }
  c.plain_rows |= !c.fused.empty();
  for (int i : axes) {
    if (c.fused.empty()) break;
    c.final_axes.push_back(AxisName(f.iters[static_cast<size_t>(i)].var));
  }
}

double ElementBytes(const TiledContext& c) {
  return static_cast<double>(SizeOf(c.a.anchor->out->dtype));
}

// 0, and the divisors of n from `least` on and below n that are nearest to the targets, within a
// factor of two.
std::vector<int64_t> DivisorsNear(int64_t n, std::vector<int64_t> targets, int64_t least) {
  std::vector<int64_t> found = {0};
  for (int64_t t : targets) {
    int64_t best = 0;
    for (int64_t d = std::max<int64_t>(least, 1); d <= n / 2; ++d) {
      if (n % d == 0 && (best == 0 || std::abs(d - t) < std::abs(best - t))) best = d;
    }
    if (best > 0 && best >= t / 2 && best <= t * 2) found.push_back(best);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Bytes of what one column tile of `columns` reads of the weights.
double PanelBytes(const TiledContext& c, int64_t columns) {
  return ElementBytes(c) * static_cast<double>(c.r.window * c.r.channels * columns);
}

std::vector<Knob> TiledKnobs(const RuleContext& context) {
  const TiledContext& c = Tiled(context);
  const ReduceExtents& r = c.r;
  const int64_t lanes = c.lanes, vec = c.vec, rows = c.rows;
  std::vector<Knob> k(kKnobs);
  for (int i = 0; i < kKnobs; ++i) k[i].name = kNames[i];
  k[kRows].values = UpTo({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28}, rows);
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
  k[kOrder].values = {kColumnsThenRows, kRowsThenColumns, kColumnsFirst};
  for (int i : {kReduceBlock, kRowBlock, kColumnBlock, kPackRows}) k[i].values = {0};
  if (c.a.vector_group > 0 || !c.a.weight || rows * static_cast<int64_t>(c.others) < 4) return k;
  // Where a panel of weights or the rows that it meets do not stay in the nearest cache.
  const double panel = PanelBytes(c, 2 * lanes);
  const double l1 = static_cast<double>(c.target.l1d_bytes);
  // A panel of two vectors fills the first level with kc rows, a block of as many rows half of the
  // second level with mc. BLIS' models of both are off by as much as these targets are apart.
  const auto kc = std::max<int64_t>(
      1, c.target.l1d_bytes / (2 * lanes) / SizeOf(c.a.anchor->out->dtype) / r.window);
  const auto mc = std::max<int64_t>(8, c.target.l2_bytes / 2 / SizeOf(c.a.anchor->out->dtype) / kc);
  if (panel > l1 / 2 && !c.a.reduce_iters.empty()) {
    k[kReduceBlock].values =
        DivisorsNear(r.channels, {kc / 4, kc / 2, kc * 3 / 4, kc, kc * 3 / 2, kc * 2, kc * 3}, 8);
  }
  const double all_rows = ElementBytes(c) * static_cast<double>(rows * r.channels);
  if (r.window == 1 && all_rows > 4 * l1) {
    k[kRowBlock].values = DivisorsNear(rows, {mc / 8, mc / 4, mc / 2, mc}, 8);
    k[kPackRows].values = {0, 1};
  }
  if (k[kReduceBlock].values.size() > 1 || k[kRowBlock].values.size() > 1)
    k[kColumnBlock].values = UpTo({0, 1, 2, 4, 8, 16}, CeilDiv(vec, lanes));
  return k;
}

// How often a body is unrolled.
int64_t Taps(const ReduceExtents& r, const std::vector<int64_t>& v) {
  const int64_t window = v[kUnrollWindow] == 2   ? r.window
                         : v[kUnrollWindow] == 1 ? r.inner_window
                                                 : 1;
  return window * v[kUnrollChannels];
}

bool Blocked(const std::vector<int64_t>& v) {
  return v[kReduceBlock] > 0 || v[kRowBlock] > 0 || v[kColumnBlock] > 0;
}

// Which of the loops around a tile threads share out, outermost first.
struct Shared {
  bool columns = false, rows = false;  // tiles of them, besides the other axes and blocks
  int64_t row_chunks = 1;              // of the rows within a tile of columns
  double parts = 1;
  bool by_columns = false;  // a thread reads all rows, but its own weights
};

Shared SharedOut(const RowsContext& c, const std::vector<int64_t>& v) {
  const int64_t tiles = CeilDiv(c.vec, v[kVectors] * v[kLanes]), row_tiles = c.rows / v[kRows];
  Shared s;
  s.parts = c.others;
  if (Blocked(v)) {
    const double columns = v[kColumnBlock] > 0 ? static_cast<double>(tiles / v[kColumnBlock]) : 1;
    const double rows = v[kRowBlock] > 0 ? static_cast<double>(c.rows / v[kRowBlock]) : 1;
    s.parts = v[kOrder] == kColumnsFirst ? columns : c.others * columns * rows;
    s.by_columns = columns > 1 && (v[kOrder] != kRowsThenColumns || rows == 1);
    return s;
  }
  const auto shares_columns = [&] {
    s.columns = true;
    s.parts *= static_cast<double>(tiles);
  };
  if (v[kOrder] == kColumnsFirst) {
    shares_columns();
    s.by_columns = tiles > 1;
    return s;
  }
  // Rows without borders, in tiles that are all whole, and nothing else to do between the loops.
  const bool rows = c.plain_rows && c.a.weight && row_tiles * v[kRows] == c.rows;
  if (v[kOrder] == kRowsThenColumns) {
    if (s.parts < kEvenParts && rows) {
      s.rows = true;
      s.parts *= static_cast<double>(row_tiles);
      if (row_tiles == 1) shares_columns();
    }
    s.by_columns = s.columns && c.others == 1;
    return s;
  }
  if (s.parts >= kEvenParts) return s;
  s.by_columns = c.others == 1 && tiles > 1;
  shares_columns();
  constexpr int64_t kChunk = 4;  // tiles, at least
  const double tile_parts = s.parts;
  for (int64_t d = 2; rows && s.parts < kEvenParts && d <= row_tiles / kChunk; ++d) {
    if (row_tiles % d != 0) continue;
    s.row_chunks = d;
    s.parts = tile_parts * static_cast<double>(d);
  }
  return s;
}

Rejection CheckBlocks(const RowsContext& c, const std::vector<int64_t>& v) {
  if (!Blocked(v)) return v[kPackRows] ? Rejection::kTile : Rejection::kNone;
  const int64_t tiles = CeilDiv(c.vec, v[kVectors] * v[kLanes]);
  if (v[kColumnBlock] > 0 && (v[kColumnBlock] >= tiles || tiles % v[kColumnBlock] != 0))
    return Rejection::kTile;
  if (v[kRowBlock] > 0 && v[kRowBlock] < 2 * v[kRows]) return Rejection::kTile;
  // Where lines end within a tile that a block cuts off is not proven to be written once.
  if (!c.fused.empty() && v[kRowBlock] > 0 && v[kRowBlock] % v[kRows] != 0) return Rejection::kTile;
  if (v[kReduceBlock] % v[kUnrollChannels] != 0) return Rejection::kTile;
  if (v[kOrder] == kColumnsFirst) {
    // The sums of one block of columns of all lines: the image is not cut.
    if (v[kRowBlock] > 0 || v[kPackRows] > 0 || v[kReduceBlock] == 0 || v[kColumnBlock] == 0)
      return Rejection::kTile;
    return Rejection::kNone;
  }
  // The blocks are what runs in parallel.
  if (v[kRowBlock] == 0 && v[kColumnBlock] == 0) return Rejection::kTile;
  // Lines of an image are short: all of their weights would be read for each of them.
  if (c.r.window > 1) return Rejection::kTile;
  // Copied rows are read again for each tile of columns.
  if (v[kPackRows] && (v[kColumnBlock] == 1 || tiles < 3)) return Rejection::kTile;
  return Rejection::kNone;
}

Rejection CheckTiled(const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs) return Rejection::kBadValue;
  const RowsContext& c = Rows(context);
  const ReduceExtents& r = c.r;
  const int64_t acc = v[kRows] * v[kVectors];
  // What unrolled bodies are seen to need without spills: with 32 registers one more where LLVM
  // loads three vectors of weights ahead; with 16, where it does not, all of them, of a single row
  // only the sums. 4 x 24 is as fast as 6 x 16 there. Where a multiply-add can not read
  // a broadcast itself, more of these.
  const int64_t registers = c.target.VectorRegisters();
  const bool few = registers == 16 && !c.a.input_uses_vector && StepsOf(c) == 1;
  const int64_t operands =
      (c.a.input_uses_vector  ? 2
       : few && v[kRows] == 1 ? kSpareRegisters
                              : v[kVectors] + kSpareRegisters + (v[kVectors] >= 3 && !few)) +
      (StepsOf(c) > 1 ? 2 : 0);  // a widened operand and a product
  if (acc + operands > registers - (few ? 0 : 1) + (acc == 1)) return Rejection::kRegisters;
  if (registers == 16 && v[kVectors] == 1 && v[kRows] > 8) return Rejection::kRegisters;
  // Left border, interior, right border; or the interior and what is left of the rows.
  const int64_t in_block = v[kRowBlock] > 0 ? v[kRowBlock] : c.rows;
  const int64_t copies = r.window > 1 ? 3 : in_block % v[kRows] ? 2 : 1;
  if (acc * Taps(r, v) * copies * StepsOf(c) > kMaxBody || acc > MostResults(c))
    return Rejection::kCodeSize;
  // A tile that is mostly padding.
  if (v[kVectors] > 1 && (v[kVectors] - 1) * v[kLanes] >= c.vec) return Rejection::kTile;
  if (v[kRows] > c.rows) return Rejection::kTile;
  // Vectors across groups; where every one is, gathering is all there is.
  const int64_t group = c.a.vector_group, least = c.lanes >= 8 ? c.lanes / 2 : c.lanes;
  const int64_t tile = v[kVectors] * v[kLanes];
  if (group > 0 && group % least == 0 &&
      (group % v[kLanes] != 0 || (group % tile != 0 && tile % group != 0)))
    return Rejection::kTile;
  return CheckBlocks(c, v);
}

// Bytes of a cache that pieces of `used` bytes fill, one in each of `rows` that are `pitch` bytes
// apart: where the pitch is a multiple of many lines, they all lie in the same sets. 2048x2048x2048
// in blocks of 512 rows took 1.1 times as long as in blocks of 256.
double Spread(double rows, double used, int64_t pitch) {
  constexpr int64_t kPage = 4096;  // what lies beyond is spread by where the pages are
  return rows * std::max(used, static_cast<double>(std::gcd(pitch, kPage)));
}

int64_t RowBytes(const RowsContext& c) { return SizeOf(c.a.anchor->out->dtype) * c.r.channels; }

// What hardware asks for in vain where an output that does not stay in the second level is written
// in pieces of rows, a column of tiles after the other: the lines that follow a piece. 16 -> 96
// channels on 112x112, K = 16, took 1.5 times as long in two columns of three vectors as with whole
// rows, 2.2 times in six of one; where there is more to compute most of it is hidden.
double TornRows(const RowsContext& c, const std::vector<int64_t>& v, double l2) {
  constexpr int64_t kInVain = 2 * 64;  // bytes
  const int64_t size = SizeOf(c.a.anchor->out->dtype), row = size * c.vec;
  const double all = static_cast<double>(c.rows * row) * c.others;
  // Of pieces of some tiles; `rows` are written before the next piece of the same row.
  auto torn = [&](double rows, int64_t tiles) {
    const int64_t piece = std::min(size * tiles * v[kVectors] * v[kLanes], row);
    const auto vain = static_cast<double>(std::min(kInVain, row - piece));
    return rows * static_cast<double>(row) < l2 ? 0 : all * vain / static_cast<double>(piece);
  };
  const auto rows = static_cast<double>(c.rows);
  const double mc = v[kRowBlock] > 0 ? static_cast<double>(v[kRowBlock]) : rows;
  if (v[kOrder] == kColumnsFirst) return torn(rows * c.others, 1);
  if (v[kOrder] == kRowsThenColumns) return v[kColumnBlock] > 0 ? torn(mc, v[kColumnBlock]) : 0;
  return torn(mc, 1) + (v[kColumnBlock] > 0 ? torn(rows, v[kColumnBlock]) : 0);
}

// What passes between the caches: how often each operand is read from beyond one of `bytes`.
struct Traffic {
  double near = 0;  // from the second level into the first
  double far = 0;   // from beyond the second
};
Traffic TrafficOf(const RowsContext& c, const std::vector<int64_t>& v) {
  const double size = ElementBytes(c), others = c.others;
  const double l1 = 0.5 * static_cast<double>(c.target.l1d_bytes);
  const double l2 = 0.7 * static_cast<double>(std::max<int64_t>(c.target.l2_bytes, 1 << 18));
  const double k = static_cast<double>(c.r.window * c.r.channels);
  const double channels = static_cast<double>(c.r.channels);
  const double kc = v[kReduceBlock] > 0 ? static_cast<double>(v[kReduceBlock]) : channels;
  const double passes = channels / kc;
  const double tile = static_cast<double>(v[kVectors] * v[kLanes]);
  const double tiles = static_cast<double>(CeilDiv(c.vec, v[kVectors] * v[kLanes]));
  const double nc = v[kColumnBlock] > 0 ? static_cast<double>(v[kColumnBlock]) : tiles;
  const double rows = static_cast<double>(c.rows);
  const double mc = v[kRowBlock] > 0 ? static_cast<double>(v[kRowBlock]) : rows;
  const double mr = static_cast<double>(v[kRows]);
  const double col_blocks = std::ceil(tiles / nc), row_blocks = rows / mc;
  const double stride = static_cast<double>(c.a.row_stride * c.a.row_stride);
  // One column tile and one row tile in one block of the reduction, in bytes.
  const double panel = size * c.r.window * kc * tile;
  const double strip = size * kc * mr * (c.r.window > 1 ? c.r.window / c.r.inner_window : 1);
  const double weights = size * k * c.vec, data = size * channels * rows * stride * others;
  const double sums = 2 * (passes > 1 ? passes : 0.5) * size * rows * others * c.vec;
  Traffic t;
  const bool shared_weights = c.a.weight != nullptr;
  const double images = shared_weights ? others : 1;  // that read the same panel
  const double per_others = shared_weights ? 1 : others;
  // What one sweep over the inner two loops touches, and how often each operand is swept.
  double weight_sweeps, data_sweeps, weight_near, data_near;
  if (v[kOrder] == kColumnsFirst) {
    weight_sweeps = 1;
    const double image = size * kc * rows * stride * images;
    data_sweeps = image < l2 ? (v[kReduceBlock] > 0 ? col_blocks : 1) : tiles;
    if (data < l2) data_sweeps = 1;
    weight_near = panel + strip < l1 ? 1 : images * rows / mr;
    data_near = tiles;
  } else {
    // Blocks of rows and columns around; in one of them `data_block` meets every panel.
    const double data_block =
                     v[kPackRows] ? size * kc * mc : stride * Spread(mc, size * kc, RowBytes(c)),
                 weight_block = panel * nc;
    const bool columns_outer = v[kOrder] == kColumnsThenRows;
    if (columns_outer) {
      data_sweeps = data_block + 2 * panel < l2 ? col_blocks : tiles;
      weight_sweeps = row_blocks * images;
      weight_near = panel + strip < l1 ? row_blocks * images : images * rows / mr;
      data_near = tiles;
    } else {
      data_sweeps = col_blocks;
      weight_sweeps = (weight_block + strip < l2 ? row_blocks : rows / mr) * images;
      weight_near = weight_block + strip < l1 ? row_blocks * images : images * rows / mr;
      data_near = strip + panel < l1 ? col_blocks : tiles;
    }
    if (weights / per_others < l2 / 2 && images > 1) weight_sweeps = 1;
    if (data / others + weights / per_others < l2) weight_sweeps = data_sweeps = 1;
  }
  const auto row_bytes = static_cast<int64_t>(size) * c.vec;  // of the output
  const double block_sums =
      Spread(mc * (v[kOrder] == kColumnsFirst ? images : 1), size * nc * tile, row_bytes);
  t.near = weights * weight_near + data * data_near + sums;
  t.far = weights * weight_sweeps + data * data_sweeps +
          (block_sums < l2 / 2 ? size * rows * others * c.vec : sums);
  if (v[kPackRows]) t.near += 2 * data * col_blocks;
  t.far += TornRows(c, v, l2);
  return t;
}

Estimate EstimateTiled(const RuleContext& context, const std::vector<int64_t>& v) {
  Estimate e;
  if (v.size() != kKnobs) return e;
  const RowsContext& c = Rows(context);
  const AnchorAnalysis& a = c.a;
  const ReduceExtents& r = c.r;
  const int64_t vec = c.vec;
  const double tile_vec = static_cast<double>(CeilDiv(vec, v[kVectors] * v[kLanes]));
  const double k = static_cast<double>(r.window * r.channels);
  const int64_t in_block = v[kRowBlock] > 0 ? v[kRowBlock] : c.rows;
  const double blocks = static_cast<double>(c.rows / in_block) * c.others * tile_vec;
  const double vectors = static_cast<double>(v[kVectors]);
  const double taps = static_cast<double>(Taps(r, v));
  const double passes = v[kReduceBlock] > 0 ? static_cast<double>(r.channels / v[kReduceBlock]) : 1;
  // The sums so far of a block, read and written once per block of the reduction.
  const double sums = ElementBytes(c) * static_cast<double>(v[kVectors] * v[kLanes]) *
                      (v[kColumnBlock] > 0 ? static_cast<double>(v[kColumnBlock]) : tile_vec) *
                      (v[kOrder] == kColumnsFirst ? static_cast<double>(c.rows) * c.others
                                                  : static_cast<double>(in_block));
  const double add_sum = sums > static_cast<double>(c.target.l1d_bytes) / 2 ? 4 : 1.5;
  // Ending a tile's loop and starting it again, once per block of the reduction: 8 x 48 in blocks
  // of 96 was 0.05 slower than 13 x 32 without blocks on 128x3072x768, 0.24 on 128x768x3072, and 5
  // x 64 in blocks of 80 was 0.1 slower on 320 -> 1280 channels of 7x7, where 6 cycles promised a
  // gain.
  constexpr double kPass = 50;
  const auto steps = static_cast<double>(StepsOf(c));
  // A whole tile, and what is left of the rows.
  auto add = [&](double tiles, int64_t rows) {
    if (rows == 0) return;
    const double acc = static_cast<double>(rows) * vectors;
    // Loads per reduction step: a broadcast per row and a vector per vector of weights. A single
    // vector per row lets the broadcast be a part of the multiply-add, which costs the same load.
    const double loads = a.input_uses_vector ? acc : static_cast<double>(rows) + vectors;
    const double fma = tiles * k * acc * steps / 2, load = tiles * k * loads * steps / 2;
    const double latency = tiles * k * 4;  // one step of a dependent chain
    e.fma_cycles += fma;
    e.load_cycles += load;
    e.latency_cycles += std::max({latency, fma, load});
    e.overhead_cycles +=
        tiles *
        (20 + 2 * acc + (passes > 1 ? passes : 0) * (kPass + add_sum * acc) + 1.5 * k / taps);
  };
  add(blocks * static_cast<double>(in_block / v[kRows]), v[kRows]);
  add(blocks, in_block % v[kRows]);
  const double acc = static_cast<double>(v[kRows] * v[kVectors]);
  e.accumulators = acc;
  e.body_instructions = (acc + static_cast<double>(v[kRows] + v[kVectors])) * taps * steps;
  e.vector_bits = static_cast<double>(v[kLanes] * SizeOf(a.anchor->out->dtype) * 8);
  e.useful_fraction =
      static_cast<double>(vec) / (tile_vec * static_cast<double>(v[kVectors] * v[kLanes]));
  e.bytes = c.bytes;
  const Traffic t = TrafficOf(c, v);
  e.l2_bytes = t.near;
  e.l3_bytes = t.far;
  const Shared shared = SharedOut(c, v);
  e.parallel = shared.parts;
  const double stride = static_cast<double>(a.row_stride * a.row_stride);
  const double data =
      ElementBytes(c) * static_cast<double>(r.channels * c.rows) * stride * c.others;
  const double weights = a.weight ? PanelBytes(c, vec) : 0;
  e.foreign_bytes =
      shared.by_columns ? data + std::max(0.0, c.bytes - data - weights) / 2 : weights;
  return e;
}

std::vector<int64_t> DefaultTiled(const RuleContext& context) {
  const TiledContext& c = Tiled(context);
  std::vector<int64_t> v = {4, 2, c.lanes, 0, 1, kColumnsThenRows, 0, 0, 0, 0};
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
  TiledWriter(Schedule& s, const RowsContext& c, const std::vector<int64_t>& v)
      : ReduceWriter(s, c.a, v[kLanes]), c_(c), v_(v), shared_(SharedOut(c, v)) {}

  Status Run() {
    const std::string vec_loop = LoopName(*a_.anchor, a_.vector_iter);
    const std::string vec_axis = AxisName(a_.anchor->iters[a_.vector_iter].var);
    const int64_t tile = v_[kVectors] * lanes_;
    const bool rows = a_.row_iter >= 0;
    reduce_block_ = v_[kReduceBlock];
    WHET_RETURN_IF_ERROR(InlineAll());
    WHET_RETURN_IF_ERROR(PackWeight(tile));
    WHET_RETURN_IF_ERROR(TurnOperand(tile));
    if (rows) row_loop_ = LoopName(*a_.anchor, a_.row_iter);
    WHET_RETURN_IF_ERROR(FuseRows());
    WHET_RETURN_IF_ERROR(Do("pad", {anchor_, vec_axis, std::to_string(tile)}));
    WHET_RETURN_IF_ERROR(VectorLast());

    // Loops of the anchor.
    WHET_RETURN_IF_ERROR(Do("split", {vec_loop, std::to_string(tile), vo_, anchor_ + ".vi"}));
    WHET_RETURN_IF_ERROR(Do("split", {anchor_ + ".vi", std::to_string(lanes_), vu_, vl_}));
    WHET_RETURN_IF_ERROR(SplitBlocks());
    if (rows) WHET_RETURN_IF_ERROR(Do("split", {row_loop_, std::to_string(v_[kRows]), ro_, ri_}));
    if (rows && shared_.row_chunks > 1) {
      const int64_t chunk = c_.rows / v_[kRows] / shared_.row_chunks;
      const std::string inner = ro_ + ".i";
      WHET_RETURN_IF_ERROR(Do("split", {ro_, std::to_string(chunk), rp_, inner}));
      ro_ = inner;
    }
    std::vector<std::string> reduce, unrolled;
    WHET_RETURN_IF_ERROR(SplitReduction(reduce, unrolled));
    WHET_RETURN_IF_ERROR(Order(reduce));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl_}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vu_}));
    if (rows) WHET_RETURN_IF_ERROR(Do("unroll", {ri_}));
    for (const std::string& u : unrolled) WHET_RETURN_IF_ERROR(Do("unroll", {u}));
    WHET_RETURN_IF_ERROR(PlaceTurned(TurnedAt()));
    if (v_[kReduceBlock] > 0) WHET_RETURN_IF_ERROR(AddUpBlocks());
    WHET_RETURN_IF_ERROR(Prefetch(reduce, unrolled));
    if (!reduce.empty()) WHET_RETURN_IF_ERROR(Do("decompose_reduction", {anchor_, reduce[0]}));
    WHET_RETURN_IF_ERROR(PlaceEpilogue(tile_loop_));
    if (v_[kReduceBlock] > 0) WHET_RETURN_IF_ERROR(StartBlocks());
    if (v_[kPackRows]) WHET_RETURN_IF_ERROR(CopyRows());
    const bool whole = std::count(parallel_.begin(), parallel_.end(), ro_) > 0;
    if (rows && !whole) WHET_RETURN_IF_ERROR(Do("annotate", {ro_, "partition", "1"}));
    return MakeParallel(parallel_, rows && !whole ? ro_ : "",
                        v_[kOrder] == kRowsThenColumns && rows ? ro_ : vo_);
  }

 private:
  // Weights that do not stay in the second level between two runs of a network are asked for ahead
  // of time: hardware does not run ahead far enough while multiply-adds keep the core busy. With
  // cold weights 3x3 of 512 channels on 7x7 took 0.65 of the time, 128x3072x768 0.8; with warm ones
  // 0.85 and 0.9. Smaller weights lost up to 0.04. A single row is a stream anyway.
  Status Prefetch(const std::vector<std::string>& reduce,
                  const std::vector<std::string>& unrolled) {
    constexpr int64_t kAhead = 4096;  // bytes; from 2048 to 8192 there was little difference
    const auto l2 = static_cast<double>(c_.target.l2_bytes);
    if (!a_.weight || v_[kRows] < 2 || PanelBytes(c_, c_.vec) < l2 / 2) return OkStatus();
    for (size_t i = reduce.size(); i-- > 0;) {
      if (std::count(unrolled.begin(), unrolled.end(), reduce[i])) continue;
      return Do("annotate", {reduce[i], "prefetch", std::to_string(kAhead)});
    }
    return OkStatus();
  }

  // Pixels of all lines as one axis of the anchor, of what follows and of the sums between them.
  Status FuseRows() {
    if (c_.fused.empty()) return OkStatus();
    const std::string outer = AxisName(a_.anchor->iters[c_.fused[0]].var),
                      inner = AxisName(a_.anchor->iters[a_.row_iter].var);
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), anchor_));
    std::string from, to;
    for (size_t d = 0; d < site.block->out_indices.size(); ++d) {
      const std::string name = "d" + std::to_string(d);
      from += (d ? ", " : "") + name;
      const std::string separator = to.empty() ? "" : ", ";
      if (site.block->out_indices[d] == a_.anchor->iters[c_.fused[0]].var) {
        to += fmt::format("{}{} * {} + d{}", separator, name, Extent(a_, a_.row_iter), d + 1);
      } else if (!(site.block->out_indices[d] == a_.anchor->iters[a_.row_iter].var)) {
        to += separator + name;
      }
    }
    row_loop_ = anchor_ + ".p";
    WHET_RETURN_IF_ERROR(Do("fuse_axes", {anchor_, outer, inner, "p"}));
    WHET_RETURN_IF_ERROR(Do("fuse_axes", {final_, c_.final_axes[1], c_.final_axes[0], "p"}));
    return Do("transform_layout", {acc_, fmt::format("({}) -> ({})", from, to)});
  }

  Status SplitBlocks() {
    if (v_[kColumnBlock] > 0) {
      WHET_RETURN_IF_ERROR(Do("split", {vo_, std::to_string(v_[kColumnBlock]), vb_, vo_ + ".i"}));
      vo_ += ".i";
    }
    if (v_[kRowBlock] > 0) {
      WHET_RETURN_IF_ERROR(
          Do("split", {row_loop_, std::to_string(v_[kRowBlock]), rb_, anchor_ + ".rm"}));
      row_loop_ = anchor_ + ".rm";
    }
    return OkStatus();
  }

  Status SplitReduction(std::vector<std::string>& reduce, std::vector<std::string>& unrolled) {
    size_t last_window = SIZE_MAX;
    for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
      if (IsWindow(a_, i) && Extent(a_, a_.reduce_iters[i]) > 1) last_window = i;
    }
    for (size_t i = 0; i < a_.reduce_iters.size(); ++i) {
      std::string name = LoopName(*a_.anchor, a_.reduce_iters[i]);
      if (IsWindow(a_, i)) {
        reduce.push_back(name);
        if (v_[kUnrollWindow] == 2 || (v_[kUnrollWindow] == 1 && i == last_window))
          unrolled.push_back(name);
        continue;
      }
      const bool last = i + 1 == a_.reduce_iters.size();
      if (last && v_[kReduceBlock] > 0) {
        const std::string inner = name + ".k";
        WHET_RETURN_IF_ERROR(Do("split", {name, std::to_string(v_[kReduceBlock]), kb_, inner}));
        name = inner;
      }
      if (v_[kUnrollChannels] > 1 && last) {
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

  // Puts the loops into their order; says which run in parallel and which holds a tile.
  Status Order(const std::vector<std::string>& reduce) {
    std::vector<std::string> others;
    for (int i : c_.others_) others.push_back(LoopName(*a_.anchor, i));
    const bool rows = a_.row_iter >= 0;
    std::vector<std::string> blocks;
    if (v_[kColumnBlock] > 0) blocks.push_back(vb_);
    if (v_[kRowBlock] > 0) blocks.push_back(rb_);
    if (v_[kOrder] == kRowsThenColumns) std::reverse(blocks.begin(), blocks.end());
    std::vector<std::string> order;
    auto append = [&](const std::vector<std::string>& l) {
      order.insert(order.end(), l.begin(), l.end());
    };
    if (v_[kOrder] == kColumnsFirst) {
      append(blocks);
      if (v_[kReduceBlock] > 0) order.push_back(kb_);
      order.push_back(vo_);
      parallel_ = blocks.empty() ? std::vector<std::string>{vo_} : blocks;
      if (blocks.empty()) parallel_.insert(parallel_.end(), others.begin(), others.end());
      append(others);
    } else {
      append(others);
      append(blocks);
      parallel_ = order;
      if (v_[kReduceBlock] > 0) order.push_back(kb_);
      if (v_[kOrder] == kColumnsThenRows) order.push_back(vo_);
    }
    others_ = others;
    if (shared_.row_chunks > 1) order.push_back(rp_);
    // Blocks are shared out as they are, and so are columns that come first.
    if (blocks.empty() && v_[kOrder] == kColumnsThenRows && shared_.columns) parallel_ = order;
    if (rows) order.push_back(ro_);
    if (v_[kOrder] == kRowsThenColumns) {
      if (rows && shared_.rows) parallel_ = order;
      order.push_back(vo_);
      if (shared_.columns) parallel_ = order;
    }
    tile_loop_ = order.back();
    append(reduce);
    if (rows) order.push_back(ri_);
    order.push_back(vu_);
    order.push_back(vl_);
    return order.size() > 1 ? Do("reorder", order) : OkStatus();
  }

  std::string TurnedAt() const {
    if (v_[kOrder] == kColumnsThenRows || (others_.empty() && v_[kOrder] == kColumnsFirst))
      return vo_;
    return others_.empty() ? "" : others_.back();
  }

  // A tile's sums over one block of the reduction go to those so far.
  Status AddUpBlocks() {
    const std::string part = anchor_ + ".part";
    WHET_RETURN_IF_ERROR(Do("rfactor", {anchor_, kb_, part, total_}));
    WHET_RETURN_IF_ERROR(Do("set_scope", {acc_, "global"}));
    WHET_RETURN_IF_ERROR(Do("set_scope", {part, "register"}));
    WHET_RETURN_IF_ERROR(Do("reverse_compute_at", {total_, tile_loop_}));
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), total_));
    const loop::BlockNode& b = *site.block;
    std::string vec;
    std::vector<std::string> loops;
    for (size_t i = 0; i < b.iters.size(); ++i) {
      (b.out_indices.back() == b.iters[i].var ? vec : loops.emplace_back()) =
          LoopName(b, static_cast<int>(i));
    }
    const std::string vu = total_ + ".vu", vl = total_ + ".vl";
    WHET_RETURN_IF_ERROR(Do("split", {vec, std::to_string(lanes_), vu, vl}));
    std::vector<std::string> order = loops;
    order.push_back(vu);
    order.push_back(vl);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {vl}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vu}));
    for (const std::string& l : loops) WHET_RETURN_IF_ERROR(Do("unroll", {l}));
    total_loops_ = loops;
    return OkStatus();
  }

  // The first block starts the sums; after the epilogue is in place, which reads the last.
  Status StartBlocks() { return Do("decompose_reduction", {total_, total_loops_[0]}); }

  // The rows of a block, for one block of the reduction, next to each other.
  Status CopyRows() {
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), anchor_));
    const expr::ExprNode* load = nullptr;
    for (const auto* l : loop::Loads(site.block->value)) {
      if (!l->buffer->constant) load = l;
    }
    if (!load) return OkStatus();
    const std::string copy = anchor_ + ".a";
    WHET_RETURN_IF_ERROR(Do("cache_read", {anchor_, load->buffer->name, "global", copy}));
    const std::string at = v_[kReduceBlock] > 0 ? kb_ : parallel_.back();
    WHET_RETURN_IF_ERROR(Do("compute_at", {copy, at}));
    WHET_ASSIGN_OR_RETURN(BlockSite made, loop::FindBlock(s_.program(), copy));
    std::string last;
    for (size_t i = 0; i < made.block->iters.size(); ++i)
      last = LoopName(*made.block, static_cast<int>(i));
    const ForNode* f = loop::FindLoop(s_.program(), last);
    if (!f || f->extent % lanes_ != 0) return OkStatus();
    WHET_RETURN_IF_ERROR(Do("split", {last, std::to_string(lanes_), copy + ".vu", copy + ".vl"}));
    return Do("vectorize", {copy + ".vl"});
  }

  const RowsContext& c_;
  const std::vector<int64_t>& v_;
  const Shared shared_;
  std::string vo_ = anchor_ + ".vo", ro_ = anchor_ + ".ro";
  const std::string vb_ = anchor_ + ".vb", vu_ = anchor_ + ".vu", vl_ = anchor_ + ".vl";
  const std::string rb_ = anchor_ + ".rb", rp_ = anchor_ + ".rp", ri_ = anchor_ + ".ri";
  const std::string kb_ = anchor_ + ".kb", total_ = anchor_ + ".total";
  std::string row_loop_, tile_loop_;
  std::vector<std::string> parallel_, others_, total_loops_;
};

Status ApplyTiled(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  if (v.size() != kKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kKnobs));
  return TiledWriter(s, Rows(context), v).Run();
}

template <ReduceClass kClass>
std::unique_ptr<RuleContext> MatchTiled(const loop::Program& p, const Target& t) {
  loop::Program program = p;
  auto a = AnalyzeAnchor(program);
  if (!a.ok() || Classify(*a) != kClass) return nullptr;
  auto c = std::make_unique<RowsContext>(std::move(program), t, std::move(*a));
  FindRows(*c);
  return c;
}

template <ReduceClass kClass>
constexpr Rule MakeTiled(const char* name) {
  return {name,         4,          MatchTiled<kClass>, TiledKnobs,
          DefaultTiled, CheckTiled, EstimateTiled,      ApplyTiled};
}
const Rule kConv = MakeTiled<ReduceClass::kConv>("conv_direct");
const Rule kMatmul = MakeTiled<ReduceClass::kMatmul>("matmul");

}  // namespace

const Rule& RuleConv() { return kConv; }
const Rule& RuleMatmul() { return kMatmul; }

}  // namespace whet::schedule
