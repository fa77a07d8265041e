// Programs of several stages along rows: softmax, normalisations, sums and maxima over the
// contiguous axis. All stages of a few rows are computed together, so that a row is read from
// memory once: what has a row's length stays in registers or in the first-level cache between
// stages, what has one number per row in registers. Reductions run on vectors of partial results
// (interleave), whose lanes are combined at the end. Measured on softmax of 1536 rows of 128: 4
// times the speed of stages one after the other; layernorm of 128 rows of 768: 4 times.
#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/expr/vector_math.h"
#include "compiler/schedule/analysis.h"
#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule.h"

namespace whet::schedule {
namespace {

using expr::Expr;

enum { kRowsAtOnce, kRowSums, kRowUnroll, kRowKeep, kRowKnobs };

constexpr int64_t kLeastLength = 8;  // shorter rows leave most lanes empty

// What one stage does per row, for estimates.
struct RowStage {
  double vector_ops = 0;  // per vector along the row; 0: one number per row
  double vector_loads = 0;
  double divisions = 0;  // per vector, or per row
  bool reduction = false, stored = false;
  double chain = 0;  // cycles from one partial result to the next
};

struct RowsContext : RuleContext {
  using RuleContext::RuleContext;
  int64_t length = 1;     // of a row: the reduced contiguous axis
  int64_t repeat = 1;     // of further reduced axes outside of it
  int64_t rows = 1;       // how many
  int64_t near_rows = 1;  // extent of the innermost axis of rows
  int64_t lanes = 1;
  std::vector<RowStage> stages;
  int64_t kept = 0;  // stages of a row's length that a later one reads
  double bytes = 0;
};
const RowsContext& Rows(const RuleContext& c) { return static_cast<const RowsContext&>(c); }

bool IsReduction(const loop::BlockNode& b) { return b.reducer != loop::Reducer::kNone; }

bool IsExpensive(const Expr& e) {
  bool found = false;
  expr::Visit(e, [&](const expr::ExprNode& n) {
    found |= n.kind == expr::Kind::kCall ||
             (n.kind == expr::Kind::kBinary &&
              (n.binary == expr::BinaryOp::kDiv || n.binary == expr::BinaryOp::kPow));
  });
  return found;
}

bool IsOutput(const loop::Program& p, const expr::Buffer& b) {
  return std::any_of(p.params.begin(), p.params.end(),
                     [&](const loop::Param& x) { return x.buffer == b; });
}

// The rows of a program, by its blocks after `InlineStages`.
struct RowShape {
  std::string last;              // the block that writes the output
  bool per_row = false;          // the output has one number per row
  std::vector<int> row_iters;    // of `last`, outermost first
  std::vector<int> inner_iters;  // the others, the contiguous one last; empty when per_row
};

// Element-wise stages that are cheap or read once disappear into their readers; numbers per row
// stay.
Status InlineStages(Schedule& s) {
  for (bool changed = true; changed;) {
    changed = false;
    const loop::Program p = s.program();
    const std::vector<BlockSite> sites = loop::AllBlocks(p);
    int64_t rows = 0, whole = 0;
    for (const BlockSite& site : sites) {
      if (!IsReduction(*site.block)) continue;
      rows = site.block->out->num_elements();
      whole = rows;
      for (const loop::Iter& it : site.block->iters) whole *= it.reduce ? it.extent : 1;
    }
    for (const BlockSite& site : sites) {
      const loop::BlockNode& b = *site.block;
      if (IsReduction(b) || IsOutput(p, b.out) || b.out->constant) continue;
      const int64_t n = b.out->num_elements();
      if (n == rows && n != whole) continue;
      if (n == whole && IsExpensive(b.value)) {
        size_t reads = 0;
        for (const BlockSite& r : Readers(p, b.out)) {
          for (const auto* l : loop::Loads(r.block->value)) reads += l->buffer == b.out;
        }
        if (reads > 1) continue;
      }
      if (s.Apply("inline", {b.name}).ok()) {
        changed = true;
        break;
      }
    }
  }
  return OkStatus();
}

// A sum of products of which one side is the same for several rows: a product of matrices, which
// has better schedules.
bool IsContraction(const loop::BlockNode& b, const expr::Var& k) {
  Expr e = b.value;
  while (e->kind == expr::Kind::kCast) e = e->args[0];
  if (b.reducer != loop::Reducer::kSum || e->kind != expr::Kind::kBinary ||
      e->binary != expr::BinaryOp::kMul)
    return false;
  for (const Expr& side : e->args) {
    if (!expr::Uses(side, k)) return false;
  }
  for (const loop::Iter& it : b.iters) {
    if (it.reduce || it.extent == 1) continue;
    for (const Expr& side : e->args) {
      if (!expr::Uses(side, it.var)) return true;
    }
  }
  return false;
}

// NotFound when the program's stages do not all run along rows of one length.
StatusOr<RowShape> ShapeOf(const loop::Program& p, RowsContext* context) {
  int64_t rows = -1, length = -1, whole = -1;
  const std::vector<BlockSite> sites = loop::AllBlocks(p);
  for (const BlockSite& site : sites) {
    const loop::BlockNode& b = *site.block;
    if (b.out->constant) return NotFound("constants are computed");
    if (PlainOutput(b).size() != b.out_indices.size())
      return NotFound("block '{}' does not write one element per iteration", b.name);
    if (!IsReduction(b)) continue;
    const loop::Iter* k = nullptr;
    int64_t terms = 1;
    for (const loop::Iter& it : b.iters) {
      if (!it.reduce) continue;
      k = &it;
      terms *= it.extent;
    }
    if (!k) return NotFound("block '{}' reduces over nothing", b.name);
    if (IsContraction(b, k->var)) return NotFound("block '{}' multiplies matrices", b.name);
    bool along = false;
    for (const auto* l : loop::Loads(b.value)) {
      for (size_t d = 0; d < l->args.size(); ++d) {
        if (!expr::Uses(l->args[d], k->var)) continue;
        if (d + 1 != l->args.size() || !(l->args[d] == k->var))
          return NotFound("block '{}' does not read along its rows", b.name);
        along = true;
      }
    }
    const int64_t n = b.out->num_elements();
    if (!along || (rows >= 0 && (rows != n || length != k->extent || whole != n * terms)))
      return NotFound("block '{}' reduces rows of another form", b.name);
    rows = n;
    length = k->extent;
    whole = n * terms;
  }
  for (const BlockSite& site : sites) {
    const int64_t n = site.block->out->num_elements();
    if (!IsReduction(*site.block) && n != rows && n != whole)
      return NotFound("block '{}' is not along the rows", site.block->name);
  }
  if (rows < 1 || length < kLeastLength) return NotFound("no rows of {} or more", kLeastLength);

  RowShape r;
  const loop::BlockNode& last = *sites.back().block;
  r.last = last.name;
  int outputs = 0;
  for (const BlockSite& site : sites) outputs += IsOutput(p, site.block->out);
  if (outputs != 1 || !IsOutput(p, last.out)) return NotFound("not one output, written last");
  const std::vector<int> dims = PlainOutput(last);
  if (IsReduction(last) || last.out->num_elements() == rows) {
    r.per_row = true;
    r.row_iters = dims;
  } else if (last.out->num_elements() == whole) {
    std::set<int> row;
    for (const auto* l : loop::Loads(last.value)) {
      const std::vector<BlockSite> by = Writers(p, l->buffer);
      if (by.empty() || l->buffer->num_elements() != rows) continue;
      for (const int i : dims) {
        for (const Expr& a : l->args) {
          if (expr::Uses(a, last.iters[i].var)) row.insert(i);
        }
      }
    }
    bool inner = false;
    int64_t covered = 1;
    for (const int i : dims) {
      const bool of_rows =
          row.count(i) > 0 || (last.iters[i].extent == 1 && !inner && i != dims.back());
      if (of_rows && inner) return NotFound("rows lie inside of what is reduced");
      inner |= !of_rows;
      (of_rows ? r.row_iters : r.inner_iters).push_back(i);
      if (of_rows) covered *= last.iters[i].extent;
    }
    if (r.inner_iters.empty() || last.iters[r.inner_iters.back()].extent != length ||
        covered != rows)
      return NotFound("the output does not lie along the rows");
  } else {
    return NotFound("the output has neither an element per row nor per element");
  }
  if (context) {
    context->rows = rows;
    context->length = length;
    context->repeat = whole / rows / length;
    if (!r.row_iters.empty()) context->near_rows = last.iters[r.row_iters.back()].extent;
  }
  return r;
}

// Vector operations of a value: what a multiplication shares with an addition costs once.
void CountOps(const Expr& value, RowStage& s) {
  std::set<Expr> seen;
  const Expr e = expr::ExpandMath(value);
  std::function<void(const Expr&)> visit = [&](const Expr& x) {
    if (x->args.empty() || !seen.insert(x).second) return;
    for (const Expr& a : x->args) visit(a);
    switch (x->kind) {
      case expr::Kind::kLoad: s.vector_loads += 1; return;
      case expr::Kind::kCall: s.vector_ops += x->call == expr::Intrinsic::kPow2 ? 3 : 2; return;
      case expr::Kind::kBinary: break;
      default: s.vector_ops += 1; return;
    }
    const bool adds = x->binary == expr::BinaryOp::kAdd || x->binary == expr::BinaryOp::kSub;
    auto is_mul = [](const Expr& a) {
      return a->kind == expr::Kind::kBinary && a->binary == expr::BinaryOp::kMul;
    };
    if (x->binary == expr::BinaryOp::kDiv) {
      s.divisions += 1;
    } else if (!adds || !(is_mul(x->args[0]) || is_mul(x->args[1]))) {
      s.vector_ops += 1;
    }
  };
  visit(e);
}

class RowsWriter {
 public:
  RowsWriter(Schedule& s, const RowsContext& c, const std::vector<int64_t>& v)
      : s_(s),
        c_(c),
        at_once_(v[kRowsAtOnce]),
        sums_(v[kRowSums]),
        unroll_(v[kRowUnroll]),
        keep_(v[kRowKeep] == 1) {}

  Status Run() {
    WHET_RETURN_IF_ERROR(InlineStages(s_));
    WHET_ASSIGN_OR_RETURN(shape_, ShapeOf(s_.program(), nullptr));
    WHET_RETURN_IF_ERROR(PrepareStages());
    WHET_RETURN_IF_ERROR(SplitRows());
    std::vector<std::string> stages;
    for (const BlockSite& site : loop::AllBlocks(s_.program())) stages.push_back(site.block->name);
    stages.pop_back();
    for (size_t i = stages.size(); i-- > 0;) {
      WHET_RETURN_IF_ERROR(Do("compute_at", {stages[i], rows_loop_}));
      WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), stages[i]));
      const bool along = IsAlong(*site.block);
      if (!along || keep_)
        WHET_RETURN_IF_ERROR(Do("set_scope", {site.block->out->name, "register"}));
    }
    for (const std::string& b : stages) WHET_RETURN_IF_ERROR(ScheduleStage(b));
    WHET_RETURN_IF_ERROR(ScheduleStage(shape_.last));
    return Do("parallel", {rows_loop_});
  }

 private:
  Status Do(const std::string& primitive, std::vector<std::string> args) {
    return s_.Apply(primitive, std::move(args));
  }

  bool IsAlong(const loop::BlockNode& b) const {
    return !IsReduction(b) && lengthy_.count(b.name) > 0;
  }

  // Block by block, while each still has its own loops: what is divided by, reductions in steps of
  // vectors, and stages of a row's length in whole vectors.
  Status PrepareStages() {
    const loop::Program first = s_.program();  // keeps what sites point to
    const std::vector<BlockSite> before = loop::AllBlocks(first);
    for (const BlockSite& site : before) {
      for (const BlockSite& r : before) {
        if (!IsReduction(*site.block) || IsReduction(*r.block) ||
            !loop::Reads(*r.block, site.block->out))
          continue;
        // Refused wherever it would not be safe or there is nothing to divide.
        (void)Do("reciprocal",
                 {r.block->name, site.block->out->name, site.block->name + ".reciprocal"});
      }
    }
    const loop::BlockNode* last = loop::FindBlock(first, shape_.last)->block;
    if (IsReduction(*last)) {
      const std::string sum = shape_.last;
      WHET_RETURN_IF_ERROR(Do("cache_write", {sum, "global", sum + ".acc", sum + ".store"}));
      shape_.last = sum + ".store";
      last = loop::FindBlock(s_.program(), shape_.last)->block;
      shape_.row_iters.clear();
      for (size_t i = 0; i < last->iters.size(); ++i)
        shape_.row_iters.push_back(static_cast<int>(i));
    }
    const int64_t whole = c_.rows * c_.length * c_.repeat;
    const int64_t vectors = (c_.length + c_.lanes - 1) / c_.lanes;
    const loop::Program prepared = s_.program();
    for (const BlockSite& site : loop::AllBlocks(prepared)) {
      const loop::BlockNode& b = *site.block;
      if (IsReduction(b)) {
        std::string k;
        for (const loop::Iter& it : b.iters) {
          if (it.reduce) k = AxisName(it.var);
        }
        const int64_t sums = std::min(sums_, vectors);
        WHET_RETURN_IF_ERROR(
            Do("interleave", {b.name, k, std::to_string(sums * c_.lanes), b.name + ".part"}));
        if (sums > 1) {
          const std::string axis =
              AxisName(loop::FindBlock(s_.program(), b.name)->block->iters.back().var);
          WHET_RETURN_IF_ERROR(
              Do("interleave", {b.name, axis, std::to_string(c_.lanes), b.name + ".lanes"}));
        }
      } else if (b.out->num_elements() == whole && whole != c_.rows) {
        lengthy_.insert(b.name);
        if (b.name != shape_.last && c_.length % c_.lanes) {
          const int dim = PlainOutput(b).back();
          WHET_RETURN_IF_ERROR(
              Do("pad", {b.name, AxisName(b.iters[dim].var), std::to_string(c_.lanes)}));
        }
      }
    }
    return OkStatus();
  }

  // The loops of the last block: rows in one parallel loop, some of the innermost axis at a time.
  Status SplitRows() {
    const loop::Program keep = s_.program();
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(keep, shape_.last));
    const loop::BlockNode& b = *site.block;
    std::vector<std::string> rows;
    for (const int i : shape_.row_iters) rows.push_back(LoopName(b, i));
    for (const int i : shape_.inner_iters) inner_.push_back(LoopName(b, i));
    if (rows.empty()) {
      // A single row: an outer loop of one iteration to compute the stages in.
      if (inner_.empty()) return FailedPrecondition("block '{}' has no loops", b.name);
      std::string& outermost = inner_[0];
      const std::string name = outermost;
      outermost = name + "o";
      const loop::ForNode* f = loop::FindLoop(s_.program(), name);
      rows_loop_ = shape_.last + ".row";
      return Do("split", {name, std::to_string(f->extent), rows_loop_, outermost});
    }
    if (at_once_ > 1) {
      const std::string near = rows.back();
      near_ = shape_.last + ".ri";
      rows.back() = shape_.last + ".ro";
      WHET_RETURN_IF_ERROR(Do("split", {near, std::to_string(at_once_), rows.back(), near_}));
    }
    std::vector<std::string> order = rows;
    if (!near_.empty()) order.push_back(near_);
    order.insert(order.end(), inner_.begin(), inner_.end());
    if (order.size() > 1) WHET_RETURN_IF_ERROR(Do("reorder", order));
    rows_loop_ = rows[0];
    for (size_t i = 1; i < rows.size(); ++i) {
      const std::string fused = shape_.last + ".par" + std::to_string(i);
      WHET_RETURN_IF_ERROR(Do("fuse", {rows_loop_, rows[i], fused}));
      rows_loop_ = fused;
    }
    return OkStatus();
  }

  // The loops of one stage inside of the rows' loop: further reduced axes, steps along the row,
  // then the rows at hand and the vectors of one step, all of these written out.
  Status ScheduleStage(const std::string& name) {
    const loop::Program keep = s_.program();
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(keep, name));
    const loop::BlockNode& b = *site.block;
    std::vector<std::string> rows, reduced;
    std::vector<std::string> along;  // spatial loops along the row, the contiguous one last
    bool inside = false;
    for (const ForNode* f : site.loops) {
      if (!inside) {
        inside = f->var->name == rows_loop_;
        continue;
      }
      const std::string& loop = f->var->name;
      // By name: a loop that runs once binds nothing.
      bool reduces = false, contiguous = false;
      for (const loop::Iter& it : b.iters) {
        if (loop != name + "." + AxisName(it.var)) continue;
        reduces = it.reduce;
        contiguous = !b.out_indices.empty() && it.var == b.out_indices.back();
      }
      if (reduces) {
        reduced.push_back(loop);
      } else if (name == shape_.last ? std::count(inner_.begin(), inner_.end(), loop) > 0
                                     : (IsAlong(b) && IsInner(b, *f)) ||
                                           (IsReduction(b) && contiguous && IsPartial(name))) {
        along.push_back(loop);
      } else {
        rows.push_back(loop);
      }
    }
    if (IsReduction(b) && !IsPartial(name)) return CombineLanes(name, rows, reduced);
    if (along.empty()) return UnrollAll(rows);
    const std::string contiguous = along.back();
    along.pop_back();
    const std::string vectors = name + ".vu", lanes = name + ".vl";
    std::vector<std::string> order = along;
    std::string steps;
    if (IsReduction(b)) {
      WHET_RETURN_IF_ERROR(Do("split", {contiguous, std::to_string(c_.lanes), vectors, lanes}));
      order.insert(order.end(), reduced.begin(), reduced.end());
      if (!reduced.empty()) steps = reduced.back();
    } else {
      const std::string body = name + ".vi";
      steps = name + ".vo";
      const int64_t n =
          (loop::FindLoop(s_.program(), contiguous)->extent + c_.lanes - 1) / c_.lanes;
      const int64_t unroll = keep_ ? n : std::min(unroll_, n);
      WHET_RETURN_IF_ERROR(
          Do("split", {contiguous, std::to_string(c_.lanes * unroll), steps, body}));
      WHET_RETURN_IF_ERROR(Do("split", {body, std::to_string(c_.lanes), vectors, lanes}));
      order.push_back(steps);
    }
    const std::string outermost = order.empty() ? "" : order[0];
    order.insert(order.end(), rows.begin(), rows.end());
    order.push_back(vectors);
    order.push_back(lanes);
    WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(Do("vectorize", {lanes}));
    WHET_RETURN_IF_ERROR(Do("unroll", {vectors}));
    WHET_RETURN_IF_ERROR(UnrollAll(rows));
    // What adds up a few vectors, and rows that are kept in registers, have no loop left.
    if (!steps.empty()) {
      const bool flat = keep_ || name.ends_with(".lanes");
      WHET_RETURN_IF_ERROR(flat ? Do("unroll", {steps})
                                : Do("annotate", {steps, "partition", "1"}));
    }
    return IsReduction(b) ? Do("decompose_reduction", {name, outermost}) : OkStatus();
  }

  bool IsPartial(const std::string& name) const {
    return name.ends_with(".part") || name.ends_with(".lanes");
  }
  // One of the loops over what is reduced elsewhere: the contiguous dimension and those before it
  // that hold the further reduced elements.
  bool IsInner(const loop::BlockNode& b, const ForNode& f) const {
    const std::vector<int> dims = PlainOutput(b);
    int64_t elements = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      if (expr::Uses(b.bindings[dims[d]], f.var)) return true;
      if (d + 1 < dims.size()) elements *= b.iters[dims[d]].extent;
      if (elements >= c_.repeat) break;
    }
    return false;
  }

  Status CombineLanes(const std::string& name, const std::vector<std::string>& rows,
                      const std::vector<std::string>& reduced) {
    std::vector<std::string> order = rows;
    order.insert(order.end(), reduced.begin(), reduced.end());
    if (order.size() > 1) WHET_RETURN_IF_ERROR(Do("reorder", order));
    WHET_RETURN_IF_ERROR(UnrollAll(rows));
    WHET_RETURN_IF_ERROR(Do("decompose_reduction", {name, reduced.back()}));
    return Do("vectorize", {reduced.back()});
  }

  Status UnrollAll(const std::vector<std::string>& loops) {
    for (const std::string& l : loops) WHET_RETURN_IF_ERROR(Do("unroll", {l}));
    return OkStatus();
  }

  Schedule& s_;
  const RowsContext& c_;
  const int64_t at_once_, sums_, unroll_;
  const bool keep_;
  RowShape shape_;
  std::set<std::string> lengthy_;   // element-wise blocks of a row's length
  std::vector<std::string> inner_;  // loops of the last block along the row
  std::string rows_loop_, near_;
};

int64_t VectorsOf(const RowsContext& c) { return (c.length + c.lanes - 1) / c.lanes; }

std::vector<Knob> RowsKnobs(const RuleContext& context) {
  const RowsContext& c = Rows(context);
  auto up_to = [](std::vector<int64_t> values, int64_t most) {
    std::erase_if(values, [&](int64_t v) { return v > std::max<int64_t>(most, 1); });
    return values;
  };
  std::vector<int64_t> rows = {1, 2, 4, 8};
  std::erase_if(rows, [&](int64_t v) { return c.near_rows % v != 0; });
  return {{"rows", rows},
          {"sums", up_to({1, 2, 4, 8}, VectorsOf(c))},
          {"unroll", up_to({1, 2, 4, 8}, VectorsOf(c))},
          {"keep", {0, 1}}};
}

Rejection CheckRows(const RuleContext& context, const std::vector<int64_t>& v) {
  const RowsContext& c = Rows(context);
  if (v.size() != kRowKnobs) return Rejection::kBadValue;
  const int64_t registers = c.target.Has("avx512f") ? 32 : 16;
  if (v[kRowsAtOnce] * v[kRowSums] > registers / 2) return Rejection::kRegisters;
  if (v[kRowsAtOnce] * v[kRowUnroll] > 32) return Rejection::kCodeSize;
  if (v[kRowKeep]) {
    // All vectors of the rows at hand live, beside what a function needs.
    if (c.repeat > 1 ||
        v[kRowsAtOnce] * VectorsOf(c) * std::max<int64_t>(c.kept, 1) > registers * 3 / 4)
      return Rejection::kRegisters;
    if (v[kRowUnroll] != 1) return Rejection::kTile;  // the row is written out whatever it is
  }
  return Rejection::kNone;
}

std::vector<int64_t> DefaultRows(const RuleContext& context) {
  const RowsContext& c = Rows(context);
  const std::vector<Knob> knobs = RowsKnobs(c);
  // Several rows at a time: the ends of their reductions wait together.
  auto most = [&](int knob, int64_t limit) {
    int64_t best = 1;
    for (const int64_t v : knobs[knob].values) best = v <= limit ? v : best;
    return best;
  };
  return {most(kRowsAtOnce, 4), most(kRowSums, 2), most(kRowUnroll, 4), 0};
}

Estimate EstimateRows(const RuleContext& context, const std::vector<int64_t>& v) {
  const RowsContext& c = Rows(context);
  const double vectors = static_cast<double>(VectorsOf(c) * c.repeat);
  const auto rows = static_cast<double>(c.rows);
  const auto at_once = static_cast<double>(v[kRowsAtOnce]), sums = static_cast<double>(v[kRowSums]);
  const double unroll = v[kRowKeep] ? vectors : static_cast<double>(v[kRowUnroll]);
  Estimate e;
  double tail = 0;  // latencies at the end of reductions, per group of rows
  for (const RowStage& s : c.stages) {
    if (s.vector_ops == 0 && s.vector_loads == 0) {
      tail += 12 * s.divisions + 4;
      e.fma_cycles += rows * (2 + 4 * s.divisions);
      continue;
    }
    e.fma_cycles += rows * vectors * (s.vector_ops / 2 + 10 * s.divisions);
    e.load_cycles += rows * vectors * (s.vector_loads / 2 + (s.stored && !v[kRowKeep] ? 1 : 0));
    if (s.reduction) {
      e.latency_cycles += rows * vectors * s.chain / (sums * at_once);
      const double tree = std::log2(static_cast<double>(c.lanes)) * 7;
      tail += tree + (sums - 1) * s.chain;
      e.fma_cycles += rows * (std::log2(static_cast<double>(c.lanes)) * 1.5 + (sums - 1) / 2);
      e.overhead_cycles += rows / at_once * vectors / (v[kRowKeep] ? 1e9 : sums);
    } else {
      e.overhead_cycles += rows / at_once * vectors / unroll;
    }
  }
  // The next rows' work overlaps part of a group's waiting, as far as it is in sight.
  const double work = std::max(e.fma_cycles, e.load_cycles) / rows * at_once;
  e.overhead_cycles += rows / at_once * tail * (work > 200 ? 0.6 : 0.3);
  e.bytes = c.bytes;
  e.l2_bytes = c.bytes;
  e.accumulators = at_once * sums;
  e.vector_bits = static_cast<double>(c.lanes) * 32;
  e.parallel = rows / at_once;
  e.body_instructions = unroll * at_once * 8;
  e.useful_fraction = static_cast<double>(c.length) / static_cast<double>(VectorsOf(c) * c.lanes);
  return e;
}

Status ApplyRows(Schedule& s, const RuleContext& c, const std::vector<int64_t>& v) {
  if (v.size() != kRowKnobs)
    return InvalidArgument("{} knob values, expected {}", v.size(), static_cast<int>(kRowKnobs));
  return RowsWriter(s, Rows(c), v).Run();
}

std::unique_ptr<RuleContext> MatchRows(const loop::Program& p, const Target& t) {
  const std::vector<BlockSite> initial = loop::AllBlocks(p);
  const bool reduces = std::any_of(initial.begin(), initial.end(),
                                   [](const BlockSite& s) { return IsReduction(*s.block); });
  if (!reduces || initial.size() > 24) return nullptr;
  auto c = std::make_unique<RowsContext>(p, t);
  Schedule s(p);
  if (!InlineStages(s).ok()) return nullptr;
  const auto shape = ShapeOf(s.program(), c.get());
  if (!shape.ok()) return nullptr;
  c->lanes = t.Lanes(4);
  while (c->lanes / 2 >= c->length) c->lanes /= 2;
  const int64_t whole = c->rows * c->length * c->repeat;
  for (const BlockSite& site : loop::AllBlocks(s.program())) {
    const loop::BlockNode& b = *site.block;
    RowStage stage;
    CountOps(b.value, stage);
    stage.reduction = IsReduction(b);
    if (stage.reduction) {
      const bool top = b.reducer == loop::Reducer::kMax || b.reducer == loop::Reducer::kMin;
      stage.vector_ops += top ? 3 : 1;
      stage.chain = top ? 7 : 4;
    } else if (b.out->num_elements() != whole) {
      stage.vector_ops = stage.vector_loads = 0;
    } else if (b.name != shape->last) {
      ++c->kept;
      stage.stored = true;
    }
    c->stages.push_back(stage);
  }
  for (const loop::Param& param : p.params)
    c->bytes += static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
  // Programs that the analysis takes and a primitive refuses are left to the rule for anything.
  Schedule trial(p);
  if (!ApplyRows(trial, *c, DefaultRows(*c)).ok()) return nullptr;
  return c;
}

const Rule kRows = {"rows",      1,         MatchRows,    RowsKnobs,
                    DefaultRows, CheckRows, EstimateRows, ApplyRows};

}  // namespace

const Rule& RuleRows() { return kRows; }

}  // namespace whet::schedule
