#include "compiler/schedule/analysis.h"

#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/schedule/prim_util.h"

namespace whet::schedule {

std::string AxisName(const expr::Var& v) {
  return v->name.rfind("v_", 0) == 0 ? v->name.substr(2) : v->name;
}

std::string LoopName(const loop::BlockNode& b, int iter) {
  return b.name + "." + AxisName(b.iters[iter].var);
}

namespace {

bool DependsOn(const loop::Program& p, const loop::BlockNode& b, const loop::BlockNode& on) {
  if (&b == &on) return true;
  for (const auto* load : loop::Loads(b.value)) {
    for (const BlockSite& w : Writers(p, load->buffer)) {
      if (DependsOn(p, *w.block, on)) return true;
    }
  }
  return false;
}

int IterOf(const loop::BlockNode& b, const expr::Expr& e) {
  for (size_t i = 0; i < b.iters.size(); ++i) {
    if (b.iters[i].var == e) return static_cast<int>(i);
  }
  return -1;
}

// n of `v // n`; else 0.
int64_t GroupOf(const expr::Expr& e, const expr::Var& v) {
  const bool divides = e->kind == expr::Kind::kBinary && e->binary == expr::BinaryOp::kFloorDiv &&
                       e->args[0] == v && e->args[1]->kind == expr::Kind::kInt;
  return divides ? e->args[1]->int_value : 0;
}

// The anchor's iterations in the physical order of the final output: follows plain copies through
// the epilogue.
StatusOr<std::vector<int>> PhysicalOrder(const loop::Program& p, const AnchorAnalysis& a) {
  const loop::BlockNode& anchor = *a.anchor;
  if (a.after.empty()) {
    std::vector<int> order;
    for (const auto& e : anchor.out_indices) order.push_back(IterOf(anchor, e));
    if (std::count(order.begin(), order.end(), -1))
      return NotFound("the output is not indexed by plain axes");
    return order;
  }
  // Dimension of the anchor's buffer -> dimension of the output, block by block.
  expr::Buffer buffer = anchor.out;
  std::vector<int> iter_of_dim;
  for (const auto& e : anchor.out_indices) iter_of_dim.push_back(IterOf(anchor, e));
  for (const std::string& name : a.after) {
    WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(p, name));
    const loop::BlockNode& b = *site.block;
    const expr::ExprNode* read = nullptr;
    for (const auto* load : loop::Loads(b.value)) {
      if (load->buffer == buffer) read = load;
    }
    if (!read) continue;  // a side branch of the epilogue
    std::vector<int> next;
    for (const auto& out : b.out_indices) {
      int iter = -2;
      for (size_t d = 0; d < read->args.size(); ++d) {
        if (read->args[d] == out) iter = iter_of_dim[d];
      }
      if (iter < 0) {
        // An axis of extent 1 may be written with its variable and read as 0.
        const int own = IterOf(b, out);
        if (own < 0 || b.iters[own].extent != 1)
          return NotFound("'{}' does not read '{}' element by element", name, buffer->name);
      }
      next.push_back(iter);
    }
    iter_of_dim = next;
    buffer = b.out;
  }
  return iter_of_dim;
}

// The innermost of `order` along which an operand stays the same, so that rows share what they
// read; else the innermost. Extents of 1 do not count.
int RowIter(const loop::BlockNode& anchor, const std::vector<int>& order) {
  const auto loads = loop::Loads(anchor.value);
  int innermost = -1;
  for (size_t i = order.size(); i-- > 0;) {
    if (anchor.iters[order[i]].extent <= 1) continue;
    if (innermost < 0) innermost = order[i];
    for (const auto* load : loads) {
      if (!expr::Uses(expr::Expr(load), anchor.iters[order[i]].var)) return order[i];
    }
  }
  return innermost;
}

// Vectors along `v` read what lies together, or a constant that can be packed so: in `b`, or in the
// blocks that what it reads comes from.
bool ReadsVectors(const loop::Program& p, const loop::BlockNode& b, const expr::Expr& v) {
  for (const auto* load : loop::Loads(b.value)) {
    if (load->args.empty()) continue;
    if (load->args.back() == v) return true;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (!(load->args[d] == v)) continue;
      if (load->buffer->constant) return true;
      for (const BlockSite& w : Writers(p, load->buffer)) {
        if (w.block != &b && ReadsVectors(p, *w.block, w.block->out_indices[d])) return true;
      }
    }
  }
  return false;
}

// The innermost of `order`. Where that runs once, as the columns of an image of one pixel do, the
// next that does not, if vectors along it are to be had.
int VectorIter(const loop::Program& p, const loop::BlockNode& anchor,
               const std::vector<int>& order) {
  for (size_t i = order.size(); i-- > 0;) {
    const loop::Iter& it = anchor.iters[order[i]];
    if (it.extent <= 1) continue;
    return i + 1 == order.size() || ReadsVectors(p, anchor, it.var) ? order[i] : order.back();
  }
  return order.back();
}

}  // namespace

StatusOr<AnchorAnalysis> AnalyzeAnchor(const loop::Program& p) {
  AnchorAnalysis a;
  std::vector<BlockSite> sites = loop::AllBlocks(p);
  int outputs = 0;
  for (const loop::Param& param : p.params) outputs += param.role == loop::Role::kOutput;
  if (outputs != 1) return NotFound("{} outputs", outputs);
  for (const BlockSite& s : sites) {
    if (s.block->reducer == loop::Reducer::kNone) continue;
    if (a.anchor) return NotFound("more than one reduction");
    a.anchor = s.block;
  }
  if (!a.anchor) return NotFound("no reduction");
  const loop::BlockNode& anchor = *a.anchor;
  for (const BlockSite& s : sites) {
    if (s.block == a.anchor) continue;
    (DependsOn(p, *s.block, anchor) ? a.after : a.before).push_back(s.block->name);
  }
  a.anchor_is_output = a.after.empty();
  WHET_ASSIGN_OR_RETURN(std::vector<int> order, PhysicalOrder(p, a));
  a.output_iters = order;
  std::erase_if(order, [](int i) { return i < 0; });
  int64_t covered = 1;
  for (int i : order) covered *= anchor.iters[i].extent;
  int64_t all = 1;
  for (const auto& it : anchor.iters) all *= it.reduce ? 1 : it.extent;
  if (covered != all || order.empty())
    return NotFound("the output does not have every axis of the reduction");
  a.vector_iter = VectorIter(p, anchor, order);
  a.vector_dim =
      static_cast<int>(std::find(a.output_iters.begin(), a.output_iters.end(), a.vector_iter) -
                       a.output_iters.begin());
  std::erase(order, a.vector_iter);
  a.row_iter = RowIter(anchor, order);
  std::erase(order, a.row_iter);
  a.other_iters = order;
  for (size_t i = 0; i < anchor.iters.size(); ++i) {
    const bool listed = std::count(order.begin(), order.end(), static_cast<int>(i)) ||
                        static_cast<int>(i) == a.vector_iter || static_cast<int>(i) == a.row_iter;
    if (!anchor.iters[i].reduce && !listed)
      a.other_iters.push_back(static_cast<int>(i));  // extent 1
  }
  // Operands. The weight is the constant one; reduce axes that move in the data together with a
  // spatial axis are the window's, the others channels.
  const expr::Var vector_var = anchor.iters[a.vector_iter].var;
  std::vector<bool> window(anchor.iters.size(), false);
  for (const auto* load : loop::Loads(anchor.value)) {
    bool uses_vector = false, uses_reduce = false;
    for (const auto& index : load->args) {
      const expr::Linear l = expr::ToLinear(index);
      bool spatial = false;
      for (const auto& [atom, c] : l.terms) {
        const int i = IterOf(anchor, atom);
        if (i < 0 && !load->buffer->constant)
          a.vector_group = std::max(a.vector_group, GroupOf(atom, vector_var));
        if (i < 0) continue;
        spatial |= !anchor.iters[i].reduce;
        uses_reduce |= anchor.iters[i].reduce;
        uses_vector |= i == a.vector_iter;
        if (i == a.row_iter && !load->buffer->constant) a.row_stride = std::max<int64_t>(c, 1);
      }
      for (const auto& [atom, c] : l.terms) {
        const int i = IterOf(anchor, atom);
        if (i >= 0 && anchor.iters[i].reduce && spatial) window[i] = true;
      }
    }
    if (load->buffer->constant && uses_vector) {
      a.weight = load->buffer;
      a.weight_uses_reduce = uses_reduce;
    } else if (!load->buffer->constant) {
      a.input_uses_vector |= uses_vector;
    }
  }
  for (bool want_window : {true, false}) {
    for (size_t i = 0; i < anchor.iters.size(); ++i) {
      if (anchor.iters[i].reduce && window[i] == want_window)
        a.reduce_iters.push_back(static_cast<int>(i));
    }
  }
  return a;
}

}  // namespace whet::schedule
