// Moves transposes behind what does not care, towards the next transpose, reduction or output,
// where they meet and cancel or become views; and out of the way of a contraction's epilogue:
//   f(T(x)) = T(f(x))                 f(T(x), T(y)) = T(f(x, y))         f element by element
//   f(T(x), c) = T(f(x, T^-1(c)))     c a constant
//   Concat(T(x), T(y), ...) = T(Concat(x, y, ...))
//   op(T(x)) = T(op(x))               Softmax, Pad, Slice: the axes are renamed
//   Reduce(T(x)) = T'(Reduce(x)),     or Reduce(x) where nothing is left to permute
// All with one permutation, and only transposes that have no other reader.
#include <algorithm>
#include <numeric>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

using Perm = std::vector<int64_t>;

// perm of the transpose that computes `v` for one reader only; null when it is none.
const Perm* TransposeOf(const PatternRewriter& r, ValueId v, ValueId* x) {
  const Node* n = r.Producer(v);
  if (n == nullptr || n->op->view != ViewRole::kTranspose || !r.Alone(v)) return nullptr;
  *x = n->inputs[0];
  return &n->attrs.Ints("perm");
}

// The shape before a transpose by `perm` made it `shape`.
std::vector<int64_t> Before(const std::vector<int64_t>& shape, const Perm& perm) {
  std::vector<int64_t> out(shape.size());
  for (size_t i = 0; i < perm.size(); ++i) out[static_cast<size_t>(perm[i])] = shape[i];
  return out;
}

// A constant that broadcasts into a transposed value, as it broadcasts into the untransposed one.
std::optional<ValueId> Untransposed(PatternRewriter& r, ValueId c, const Perm& perm) {
  if (r.type(c).num_elements() == 1) return c;
  std::vector<int64_t> shape = r.type(c).shape;
  shape.insert(shape.begin(), perm.size() - shape.size(), 1);
  Perm inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const auto full = r.Emit("Reshape", {c}, {{"shape", shape}});
  return full ? r.Emit("Transpose", {*full}, {{"perm", inverse}}) : std::nullopt;
}

// Element by element, whatever the axes mean: attributes of broadcasting operators may name one.
bool IsAxisFree(const PatternRewriter& r, const Node& n) {
  if (n.outputs.size() != 1) return false;
  if (n.op->kind == FusionKind::kElementwise && n.inputs.size() == 1)
    return r.type(n.inputs[0]).shape == r.type(n.outputs[0]).shape;
  return n.op->kind == FusionKind::kBroadcast && n.op->attrs.empty();
}

// `n` computes on `inputs` instead; its result is transposed after that.
bool SinkBelow(PatternRewriter& r, Node& n, std::vector<ValueId> inputs, Attrs attrs,
               const Perm& perm) {
  const auto y = r.Emit(n.op->name, std::move(inputs), std::move(attrs));
  return y && r.Become(n, "Transpose", {*y}, {{"perm", perm}});
}

bool SinkElementwise(PatternRewriter& r, Node& n) {
  if (!IsAxisFree(r, n)) return false;
  Perm perm;
  std::vector<ValueId> inputs(n.inputs.size(), kNoValue);
  const std::vector<int64_t>& shape = r.type(n.outputs[0]).shape;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const ValueId v = n.inputs[i];
    if (v == kNoValue) return false;
    if (r.constant(v)) continue;
    ValueId x = kNoValue;
    const Perm* p = TransposeOf(r, v, &x);
    if (p == nullptr || r.type(v).rank() != static_cast<int>(shape.size())) return false;
    if (!perm.empty() && *p != perm) return false;
    perm = *p;
    inputs[i] = x;
  }
  if (perm.empty()) return false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    if (inputs[i] != kNoValue) continue;
    const auto c = Untransposed(r, n.inputs[i], perm);
    if (!c) return false;
    inputs[i] = *c;
  }
  return SinkBelow(r, n, std::move(inputs), n.attrs, perm);
}

bool SinkConcat(PatternRewriter& r, Node& n) {
  if (n.op->name != "Concat") return false;
  Perm perm;
  std::vector<ValueId> inputs;
  for (ValueId v : n.inputs) {
    ValueId x = kNoValue;
    const Perm* p = TransposeOf(r, v, &x);
    if (p == nullptr || (!perm.empty() && *p != perm)) return false;
    perm = *p;
    inputs.push_back(x);
  }
  const int64_t axis = perm[static_cast<size_t>(n.attrs.Int("axis"))];
  return SinkBelow(r, n, std::move(inputs), {{"axis", axis}}, perm);
}

// Operators whose attributes speak of axes or have an element per axis.
bool SinkRenamed(PatternRewriter& r, Node& n) {
  const bool softmax = n.op->name == "Softmax", pad = n.op->name == "Pad",
             slice = n.op->name == "Slice";
  if ((!softmax && !pad && !slice) || n.inputs.size() != 1) return false;
  ValueId x = kNoValue;
  const Perm* found = TransposeOf(r, n.inputs[0], &x);
  if (found == nullptr) return false;
  const Perm perm = *found;
  Attrs attrs = n.attrs;
  if (softmax) attrs.Set("axis", perm[static_cast<size_t>(n.attrs.Int("axis"))]);
  if (pad) {
    const std::vector<int64_t>& pads = n.attrs.Ints("pads");
    const auto middle = pads.begin() + static_cast<int64_t>(perm.size());
    std::vector<int64_t> begin = Before({pads.begin(), middle}, perm);
    const std::vector<int64_t> end = Before({middle, pads.end()}, perm);
    begin.insert(begin.end(), end.begin(), end.end());
    attrs.Set("pads", begin);
  }
  if (slice) {
    for (const char* name : {"starts", "sizes", "steps"})
      attrs.Set(name, Before(n.attrs.Ints(name), perm));
  }
  return SinkBelow(r, n, {x}, std::move(attrs), perm);
}

bool SinkReduce(PatternRewriter& r, Node& n) {
  if (n.op->kind != FusionKind::kReduction || n.inputs.size() != 1 || n.outputs.size() != 1 ||
      n.op->attrs.size() != 2 || n.attrs.Find("axes") == nullptr ||
      n.attrs.Find("keepdims") == nullptr)
    return false;
  ValueId x = kNoValue;
  const Perm* found = TransposeOf(r, n.inputs[0], &x);
  if (found == nullptr) return false;
  const Perm perm = *found;
  const std::vector<int64_t> axes = n.attrs.Ints("axes");
  std::vector<int64_t> renamed;
  for (int64_t a : axes) renamed.push_back(perm[static_cast<size_t>(a)]);
  std::sort(renamed.begin(), renamed.end());
  Attrs attrs = n.attrs;
  attrs.Set("axes", renamed);
  if (n.attrs.Int("keepdims") != 0) return SinkBelow(r, n, {x}, std::move(attrs), perm);
  // What is left of the permutation, over the dimensions that are left.
  std::vector<int64_t> left(perm.size(), -1);
  for (int64_t d = 0, next = 0; d < static_cast<int64_t>(perm.size()); ++d) {
    if (!std::binary_search(renamed.begin(), renamed.end(), d))
      left[static_cast<size_t>(d)] = next++;
  }
  Perm rest;
  for (int64_t d : perm) {
    if (left[static_cast<size_t>(d)] >= 0) rest.push_back(left[static_cast<size_t>(d)]);
  }
  return SinkBelow(r, n, {x}, std::move(attrs), rest);
}

bool SinkAny(PatternRewriter& r, Node& n) {
  for (auto pattern : {SinkElementwise, SinkConcat, SinkRenamed, SinkReduce}) {
    if (pattern(r, n)) return true;
  }
  return false;
}

}  // namespace

StatusOr<bool> SinkTransposes(Graph& g) { return PatternRewriter(g).Run(SinkAny); }

}  // namespace whet::graph
