// winograd: a sum over a 3x3 window becomes 16 products of transformed 4x4 patches, of which each
// gives 2x2 results: F(2x2, 3x3) of Winograd 1980, for convolutions Lavin and Gray 2016. A product
// replaces 2.25 of the sum's.
//
// With B^T d B of a patch d, G g G^T of a window's weights g, and A^T m A of the products m,
//   B^T = 1  0 -1  0    G =  1    0    0    A^T = 1  1  1  0
//         0  1  1  0        1/2  1/2  1/2         0  1 -1 -1
//         0 -1  1  0        1/2 -1/2  1/2
//         0  1  0 -1         0    0    1
// Larger tiles, F(4x4, 3x3), multiply less still, but lose three more bits: not offered.
#include <algorithm>
#include <array>

#include "compiler/schedule/analysis.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/window_sum.h"

namespace whet::schedule {

using expr::Expr;

namespace {

constexpr int64_t kTile = 2;   // results of a tile along an axis
constexpr int64_t kPatch = 4;  // what they read
constexpr int64_t kWindow = 3;

Expr At(const Expr& data, const expr::Var& position, const expr::Var& tap, const Expr& where) {
  expr::Substitution s;
  s.Add(tap, where - position);
  return expr::Simplify(Substitute(data, s), {});
}

// Whether `data` uses the two only as their sum.
bool Slides(const Expr& data, const expr::Var& position, const expr::Var& tap) {
  if (!expr::Uses(data, position) || !expr::Uses(data, tap)) return false;
  const Expr moved = At(data, position, tap, expr::MakeVar("t"));
  return !expr::Uses(moved, position) && !expr::Uses(moved, tap);
}

// The two windows' axes among all pairs; `weight` stays where it is along positions.
void FindWindows(const BlockNode& b, WindowSum& sum) {
  for (size_t s = 0; s < b.iters.size(); ++s) {
    if (b.iters[s].reduce || expr::Uses(sum.weight, b.iters[s].var)) continue;
    for (size_t k = 0; k < b.iters.size(); ++k) {
      const int tap = static_cast<int>(k);
      if (!b.iters[k].reduce || b.iters[k].extent != kWindow || tap == sum.row_tap ||
          !Slides(sum.data, b.iters[s].var, b.iters[k].var))
        continue;
      (sum.row < 0 ? sum.row : sum.column) = static_cast<int>(s);
      (sum.row_tap < 0 ? sum.row_tap : sum.column_tap) = tap;
      break;
    }
    if (sum.column >= 0) return;
  }
}

}  // namespace

StatusOr<WindowSum> FindWindowSum(const BlockNode& b) {
  const bool sums_from_zero = b.reducer == loop::Reducer::kSum && b.init &&
                              b.init->kind == expr::Kind::kFloat && b.init->float_value == 0;
  if (!sums_from_zero || !IsFloat(b.out->dtype) || IsHalf(b.out->dtype))
    return FailedPrecondition("it is not a sum of f32 or f64 that starts from 0");
  if (b.value->kind != expr::Kind::kBinary || b.value->binary != expr::BinaryOp::kMul)
    return FailedPrecondition("it does not sum products");
  for (int side : {0, 1}) {
    WindowSum sum;
    sum.data = b.value->args[side];
    sum.weight = b.value->args[1 - side];
    FindWindows(b, sum);
    if (sum.column < 0) continue;
    if (b.iters[sum.row].extent < 1 || b.iters[sum.column].extent < 1)
      return FailedPrecondition("it has no elements");
    for (size_t i = 0; i < b.iters.size(); ++i) {
      const int n = static_cast<int>(i);
      if (n == sum.row || n == sum.column || n == sum.row_tap || n == sum.column_tap) continue;
      const bool in_weight = expr::Uses(sum.weight, b.iters[i].var);
      if (!b.iters[i].reduce && in_weight && expr::Uses(sum.data, b.iters[i].var))
        return FailedPrecondition("both factors differ along '{}'", b.iters[i].var->name);
      (b.iters[i].reduce ? sum.channels : in_weight ? sum.filters : sum.images).push_back(n);
    }
    return sum;
  }
  return FailedPrecondition("it does not sum over a 3x3 window that moves by one element");
}

Expr DataAt(const BlockNode& b, const WindowSum& sum, const Expr& row, const Expr& column) {
  const Expr at_row = At(sum.data, b.iters[sum.row].var, b.iters[sum.row_tap].var, row);
  return At(at_row, b.iters[sum.column].var, b.iters[sum.column_tap].var, column);
}

namespace {

// The block in which no loop was changed yet: a nest of its own, one loop per iteration variable.
Status NeedWholeNest(const BlockSite& site) {
  const BlockNode& b = *site.block;
  bool whole = !site.loops.empty() && site.loops.size() == b.iters.size() && !b.predicate;
  for (size_t i = 0; whole && i < b.iters.size(); ++i) {
    whole = std::any_of(site.loops.begin(), site.loops.end(), [&](const ForNode* f) {
      return f->var == b.bindings[i] && f->begin == 0 && f->extent == b.iters[i].extent &&
             f->for_kind == ForKind::kSerial;
    });
  }
  int blocks = 0;
  if (whole) {
    loop::Walk(site.loops[0]->body,
               [&](const Stmt& s) { blocks += As<BlockNode>(s) != nullptr ? 1 : 0; });
  }
  return blocks == 1 ? OkStatus()
                     : FailedPrecondition("the loops of block '{}' were already changed", b.name);
}

// `values` by an index; a select vanishes where the index is known.
Expr Choose(const Expr& index, const std::vector<Expr>& values) {
  Expr r = values.back();
  for (size_t i = values.size() - 1; i-- > 0;)
    r = expr::Select(expr::Eq(index, expr::Int(static_cast<int64_t>(i))), values[i], r);
  return r;
}

using Four = std::array<Expr, kPatch>;
using Three = std::array<Expr, kWindow>;
Four PatchSide(const Four& d) {  // B^T d
  return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
}
Four WeightSide(const Three& g) {  // G g
  const Expr half = expr::Float(0.5, g[0]->dtype), ends = g[0] + g[2];
  return {g[0], (ends + g[1]) * half, (ends - g[1]) * half, g[2]};
}
std::array<Expr, kTile> ResultSide(const Four& m) {  // A^T m
  return {m[0] + (m[1] + m[2]), (m[1] - m[2]) - m[3]};
}

class Rewriter {
 public:
  Rewriter(Program& p, const BlockSite& site, WindowSum sum)
      : p_(p), site_(site), b_(*site.block), sum_(std::move(sum)) {}

  Status Run() {
    rows_ = (b_.iters[sum_.row].extent + kTile - 1) / kTile;
    columns_ = (b_.iters[sum_.column].extent + kTile - 1) / kTile;
    for (const char* part : {".d", ".u", ".v", ".m"})
      WHET_RETURN_IF_ERROR(NeedFreeBlockAndBuffer(p_, b_.name + part));
    std::vector<Stmt> nests = {Data(), Weights(), Patches(), Products(), Results()};
    p_.body = ReplaceLoop(p_.body, site_.loops[0]->var->name,
                          [&](const ForNode&) { return loop::MakeSeq(nests); });
    return OkStatus();
  }

 private:
  // A new stage in the making: iteration variables by what they stand for.
  struct Part {
    BlockFields f;
    std::vector<loop::DimRange> domain;
    expr::Substitution renamed;  // of the block's variables
    expr::Bounds bounds;
  };
  Part Start(const char* suffix) {
    Part part;
    part.f.name = b_.name + suffix;
    return part;
  }
  expr::Var Axis(Part& part, const std::string& name, int64_t extent, bool reduce = false) {
    const expr::Var v = expr::MakeVar("v_" + name);
    part.f.iters.push_back({v, extent, reduce});
    part.domain.push_back({expr::Int(0), extent});
    part.bounds.Set(v, {0, extent - 1});
    if (!reduce) part.f.out_indices.push_back(v);
    return v;
  }
  std::vector<Expr> Axes(Part& part, const std::vector<int>& iters, bool reduce = false) {
    std::vector<Expr> vars;
    for (int i : iters) {
      vars.push_back(Axis(part, AxisName(b_.iters[i].var), b_.iters[i].extent, reduce));
      part.renamed.Add(b_.iters[i].var, vars.back());
    }
    return vars;
  }
  Stmt Finish(Part part, Expr value, bool constant = false) {
    std::vector<int64_t> shape;
    for (const loop::Iter& it : part.f.iters) {
      if (!it.reduce) shape.push_back(it.extent);
    }
    part.f.out =
        expr::MakeBuffer(part.f.name, b_.out->dtype, shape, expr::Scope::kGlobal, constant);
    part.f.value = expr::Simplify(value, part.bounds);
    p_.intermediates.push_back(part.f.out);
    made_.push_back(part.f.out);
    return NestFor(std::move(part.f), part.domain, {});
  }
  static std::vector<Expr> Joined(std::initializer_list<std::vector<Expr>> lists) {
    std::vector<Expr> all;
    for (const auto& l : lists) all.insert(all.end(), l.begin(), l.end());
    return all;
  }

  // What the windows read, with zeros where tiles hang over.
  Stmt Data() {
    Part part = Start(".d");
    Axes(part, sum_.images);
    const int64_t rows = kTile * rows_ + kPatch - kTile,
                  columns = kTile * columns_ + kPatch - kTile;
    const expr::Var row = Axis(part, AxisName(b_.iters[sum_.row].var), rows);
    const expr::Var column = Axis(part, AxisName(b_.iters[sum_.column].var), columns);
    Axes(part, sum_.channels);
    Expr value = Substitute(DataAt(b_, sum_, row, column), part.renamed);
    const int64_t used_rows = b_.iters[sum_.row].extent + kWindow - 1,
                  used_columns = b_.iters[sum_.column].extent + kWindow - 1;
    const Expr inside =
        expr::And(expr::Lt(row, expr::Int(used_rows)), expr::Lt(column, expr::Int(used_columns)));
    value = expr::Select(expr::Simplify(inside, part.bounds), value, expr::Float(0, b_.out->dtype));
    return Finish(std::move(part), value);
  }

  // In f64, so that only the result is rounded.
  Stmt Weights() {
    Part part = Start(".u");
    const expr::Var xi = Axis(part, "xi", kPatch * kPatch);
    Axes(part, sum_.channels);
    Axes(part, sum_.filters);
    const Expr weight = Substitute(sum_.weight, part.renamed);
    std::array<Four, kWindow> columns;
    for (int c = 0; c < kWindow; ++c) {
      Three g;
      for (int r = 0; r < kWindow; ++r) {
        expr::Substitution tap;
        tap.Add(b_.iters[sum_.row_tap].var, expr::Int(r));
        tap.Add(b_.iters[sum_.column_tap].var, expr::Int(c));
        g[r] = expr::Cast(DType::kF64, Substitute(weight, tap));
      }
      columns[c] = WeightSide(g);
    }
    std::vector<Expr> all;
    for (int r = 0; r < kPatch; ++r) {
      for (const Expr& e : WeightSide({columns[0][r], columns[1][r], columns[2][r]}))
        all.push_back(expr::Cast(b_.out->dtype, e));
    }
    bool constant = true;
    for (const auto* l : loop::Loads(weight)) constant &= l->buffer->constant;
    return Finish(std::move(part), Choose(xi, all), constant);
  }

  Stmt Patches() {
    Part part = Start(".v");
    const expr::Var xi = Axis(part, "xi", kPatch * kPatch);
    const auto images = Axes(part, sum_.images);
    const expr::Var tile = Axis(part, "tile", rows_ * columns_);
    const auto channels = Axes(part, sum_.channels);
    const Expr row = expr::FloorDiv(tile, columns_) * kTile,
               column = expr::FloorMod(tile, columns_) * kTile;
    std::array<Four, kPatch> side;
    for (int c = 0; c < kPatch; ++c) {
      Four d;
      for (int r = 0; r < kPatch; ++r)
        d[r] = expr::Load(made_[0], Joined({images, {row + r, column + c}, channels}));
      side[c] = PatchSide(d);
    }
    std::vector<Expr> all;
    for (int r = 0; r < kPatch; ++r) {
      for (const Expr& e : PatchSide({side[0][r], side[1][r], side[2][r], side[3][r]}))
        all.push_back(e);
    }
    return Finish(std::move(part), Choose(xi, all));
  }

  Stmt Products() {
    Part part = Start(".m");
    const expr::Var xi = Axis(part, "xi", kPatch * kPatch);
    const auto images = Axes(part, sum_.images);
    const expr::Var tile = Axis(part, "tile", rows_ * columns_);
    const auto filters = Axes(part, sum_.filters);
    const auto channels = Axes(part, sum_.channels, /*reduce=*/true);
    part.f.reducer = loop::Reducer::kSum;
    part.f.init = expr::Float(0, b_.out->dtype);
    const Expr v = expr::Load(made_[2], Joined({{xi}, images, {tile}, channels})),
               u = expr::Load(made_[1], Joined({{xi}, channels, filters}));
    return Finish(std::move(part), v * u);
  }

  // Takes the block's place.
  Stmt Results() {
    BlockFields f = b_;
    f.iters.clear();
    f.reducer = loop::Reducer::kNone;
    f.init = nullptr;
    std::vector<loop::DimRange> domain;
    expr::Bounds bounds;
    for (const loop::Iter& it : b_.iters) {
      if (it.reduce) continue;
      f.iters.push_back(it);
      domain.push_back({expr::Int(0), it.extent});
      bounds.Set(it.var, {0, it.extent - 1});
    }
    const expr::Var row = b_.iters[sum_.row].var, column = b_.iters[sum_.column].var;
    std::vector<Expr> images, filters;
    for (int i : sum_.images) images.push_back(b_.iters[i].var);
    for (int i : sum_.filters) filters.push_back(b_.iters[i].var);
    const Expr tile = expr::FloorDiv(row, kTile) * columns_ + expr::FloorDiv(column, kTile);
    std::array<std::array<Expr, kTile>, kPatch> side;
    for (int c = 0; c < kPatch; ++c) {
      Four m;
      for (int r = 0; r < kPatch; ++r)
        m[r] = expr::Load(made_[3], Joined({{expr::Int(kPatch * r + c)}, images, {tile}, filters}));
      side[c] = ResultSide(m);
    }
    std::vector<Expr> rows;
    for (int r = 0; r < kTile; ++r) {
      const auto y = ResultSide({side[0][r], side[1][r], side[2][r], side[3][r]});
      rows.push_back(Choose(expr::FloorMod(column, kTile), {y.begin(), y.end()}));
    }
    f.value = expr::Simplify(Choose(expr::FloorMod(row, kTile), rows), bounds);
    return NestFor(std::move(f), domain, {});
  }

  Program& p_;
  const BlockSite& site_;
  const BlockNode& b_;
  const WindowSum sum_;
  int64_t rows_ = 0, columns_ = 0;  // tiles
  std::vector<expr::Buffer> made_;  // d, u, v, m
};

// winograd BLOCK: the sum BLOCK over a 3x3 window that moves by one element becomes BLOCK.d (what
// it reads), BLOCK.u and BLOCK.v (weights and 4x4 patches transformed), BLOCK.m (their products,
// summed over the channels), and BLOCK, which makes the elements of 2x2 tiles of them. Equal up to
// rounding, relative to what a whole patch holds; an infinity or NaN reaches all results of a tile.
Status Winograd(Program& p, const std::vector<std::string>& args) {
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, args[0]));
  WHET_ASSIGN_OR_RETURN(WindowSum sum, FindWindowSum(*site.block));
  WHET_RETURN_IF_ERROR(NeedWholeNest(site));
  if (PlainOutput(*site.block).size() != site.block->out_indices.size())
    return FailedPrecondition("it does not write one element per iteration");
  return Rewriter(p, site, std::move(sum)).Run();
}
const Primitive kWinograd = {"winograd", 1, "winograd BLOCK", 1, 1, Winograd};

}  // namespace

const Primitive& PrimWinograd() { return kWinograd; }

}  // namespace whet::schedule
