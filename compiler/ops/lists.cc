#include "compiler/ops/lists.h"

#include <algorithm>

#include "compiler/graph/bind_hint.h"

namespace whet::ops {
namespace {

constexpr size_t kMaxJoined = 16;

}  // namespace

StatusOr<ValueId> Join(graph::GraphBuilder& b, std::vector<ValueId> items, int64_t axis,
                       Joined how) {
  if (items.empty()) return InvalidArgument("an empty sequence cannot be joined");
  for (ValueId v : items) {
    if (v < 0) return InvalidArgument("a sequence is no item of what is joined");
  }
  const int64_t rank = b.type(items[0]).rank();
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, how == Joined::kStack ? rank + 1 : rank));
  if (how == Joined::kStack) {
    for (ValueId& v : items) {
      Shape shape = b.type(v).shape;
      if (static_cast<int64_t>(shape.size()) != rank)
        return InvalidArgument("items of ranks {} and {} are to be joined", rank, shape.size());
      shape.insert(shape.begin() + axis, 1);
      WHET_ASSIGN_OR_RETURN(v, Reshaped(b, v, shape));
    }
  }
  while (items.size() > 1) {
    std::vector<ValueId> joined;
    for (size_t i = 0; i < items.size(); i += kMaxJoined) {
      const std::vector<ValueId> some(
          items.begin() + static_cast<int64_t>(i),
          items.begin() + static_cast<int64_t>(std::min(i + kMaxJoined, items.size())));
      if (some.size() == 1) {
        joined.push_back(some[0]);
        continue;
      }
      WHET_ASSIGN_OR_RETURN(ValueId v, b.Emit("Concat", some, {{"axis", axis}}));
      joined.push_back(v);
    }
    items = std::move(joined);
  }
  return items[0];
}

StatusOr<ValueId> Part(graph::GraphBuilder& b, ValueId v, int64_t axis, int64_t begin,
                       int64_t count, Axis keep) {
  Shape sizes = b.type(v).shape;
  Shape starts(sizes.size(), 0), steps(sizes.size(), 1);
  if (begin < 0 || count < 0 || begin > sizes[axis] - count)
    return InvalidArgument("[{}, {}) is outside of axis {} of {}", begin, begin + count, axis,
                           b.type(v).ToString());
  if (count == sizes[axis] && keep == Axis::kKeep) return v;
  starts[axis] = begin;
  sizes[axis] = count;
  WHET_ASSIGN_OR_RETURN(
      v, b.Emit("Slice", {v}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}}));
  if (keep == Axis::kKeep) return v;
  sizes.erase(sizes.begin() + axis);
  return Reshaped(b, v, sizes);
}

StatusOr<ValueId> Choose(ImportContext& c, ValueId condition, ValueId a, ValueId b) {
  if (a == b) return a;
  const graph::ImportList* x = c.lists != nullptr ? c.lists->Find(a) : nullptr;
  const graph::ImportList* y = c.lists != nullptr ? c.lists->Find(b) : nullptr;
  if ((x == nullptr) != (y == nullptr))
    return InvalidArgument("one result is a tensor, the other is a sequence or an optional");
  if (x == nullptr) {
    const TensorType &left = c.builder.type(a), &right = c.builder.type(b);
    if (left.dtype != right.dtype || left.shape != right.shape) {
      return Unimplemented(
          "the condition must be a constant, since the result's type would depend on data: {} or "
          "{}{}",
          left.ToString(), right.ToString(), graph::BindHint(c.builder.graph(), condition));
    }
    return c.builder.Emit("Where", {condition, a, b});
  }
  if (x->optional != y->optional || x->items.size() != y->items.size()) {
    return Unimplemented(
        "the condition must be a constant, since the length of a sequence would depend on data: {} "
        "or {} items{}",
        x->items.size(), y->items.size(), graph::BindHint(c.builder.graph(), condition));
  }
  // Copied: choosing may add lists.
  graph::ImportList chosen = *x;
  const std::vector<ValueId> others = y->items;
  for (size_t i = 0; i < others.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(chosen.items[i], Choose(c, condition, chosen.items[i], others[i]));
  }
  return c.lists->Add(std::move(chosen));
}

StatusOr<ValueId> Scalar(graph::GraphBuilder& b, ValueId v) {
  if (b.type(v).num_elements() != 1)
    return InvalidArgument("{} is not of one element", b.type(v).ToString());
  if (b.type(v).rank() == 0) return v;
  return Reshaped(b, v, {});
}

}  // namespace whet::ops
