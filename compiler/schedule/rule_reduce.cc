#include "compiler/schedule/rule_reduce.h"

#include <algorithm>

#include "compiler/schedule/prim_util.h"

namespace whet::schedule {

int64_t Extent(const AnchorAnalysis& a, int iter) {
  return iter < 0 ? 1 : a.anchor->iters[iter].extent;
}

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

std::vector<int64_t> UpTo(std::vector<int64_t> values, int64_t limit) {
  std::erase_if(values, [&](int64_t v) { return v > limit && v != values.front(); });
  return values;
}

namespace {

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

}  // namespace

TiledContext::TiledContext(loop::Program p, Target t, AnchorAnalysis found)
    : RuleContext(std::move(p), std::move(t)), a(std::move(found)) {
  r = Reductions(a);
  vec = Extent(a, a.vector_iter);
  rows = Extent(a, a.row_iter);
  for (int i : a.other_iters) others *= static_cast<double>(Extent(a, i));
  for (const loop::Param& param : program.params)
    bytes += static_cast<double>(param.buffer->num_elements() * SizeOf(param.buffer->dtype));
  lanes = target.Lanes(SizeOf(a.anchor->out->dtype));
}

ReduceClass Classify(const AnchorAnalysis& a) {
  bool window = false;
  for (size_t i = 0; i < a.reduce_iters.size(); ++i) window |= IsWindow(a, i);
  const size_t operands = loop::Loads(a.anchor->value).size();
  if (operands == 1 && a.input_uses_vector)
    return ReduceClass::kPool;  // also reductions over outer axes
  if (operands == 2 && window && a.input_uses_vector) return ReduceClass::kDepthwise;
  if (operands == 2 && window) return ReduceClass::kConv;
  if (operands == 2) return ReduceClass::kMatmul;
  return ReduceClass::kNone;
}

Status ReduceWriter::InlineAll() {
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

Status ReduceWriter::PackWeight(int64_t tile) {
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
  // Blocks come before a window; without one they follow each other anyway.
  const bool blocks = reduce_block_ > 0 && dim_of_reduce.size() > 1 && dim_of_reduce.back() >= 0;
  if (blocks) to += fmt::format(", d{} // {}", dim_of_reduce.back(), reduce_block_);
  for (int d : dim_of_reduce) {
    if (d < 0) continue;
    to += fmt::format(", d{}", d);
    if (blocks && d == dim_of_reduce.back()) to += fmt::format(" % {}", reduce_block_);
  }
  return Do("transform_layout",
            {packed, fmt::format("({}) -> ({}, d{} % {})", from, to, vec_dim, tile)});
}

Status ReduceWriter::TurnOperand(int64_t tile) {
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

Status ReduceWriter::PlaceTurned(const std::string& at) {
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
      Do("split", {LoopName(*site.block, turned_dim_), std::to_string(lanes_), vu, vl}));
  order.push_back(vu);
  order.push_back(vl);
  WHET_RETURN_IF_ERROR(Do("reorder", order));
  return Do("vectorize", {vl});
}

Status ReduceWriter::VectorLast() {
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

Status ReduceWriter::PlaceEpilogue(const std::string& at) {
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
  WHET_RETURN_IF_ERROR(Do("split", {vec, std::to_string(lanes_), final_ + ".vu", final_ + ".vl"}));
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

Status ReduceWriter::MakeParallel(std::vector<std::string> loops, const std::string& serial,
                                  const std::string& otherwise) {
  if (loops.empty()) loops.push_back(otherwise);
  std::string outer = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) {
    const std::string fused = anchor_ + ".par" + std::to_string(i);
    WHET_RETURN_IF_ERROR(Do("fuse", {outer, loops[i], fused}));
    outer = fused;
  }
  outermost_ = outer;
  if (outer == serial) return OkStatus();  // partitioned: stays serial
  // Within another kernel's loop, that one's iterations are what is shared out.
  WHET_ASSIGN_OR_RETURN(BlockSite site, loop::FindBlock(s_.program(), anchor_));
  if (site.loops[0]->for_kind == ForKind::kParallel) return OkStatus();
  return Do("parallel", {outer});
}

}  // namespace whet::schedule
