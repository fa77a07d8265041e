#include "compiler/graph/pattern.h"

#include <algorithm>

#include "compiler/graph/builder.h"
#include "compiler/graph/passes.h"

namespace whet::graph {

PatternRewriter::PatternRewriter(Graph& g) : g_(g) {
  Grow();
  for (const GraphOutput& o : g.outputs) uses_[o.value] += 2;
  // Backwards: readers come after producers.
  for (size_t i = g.nodes.size(); i-- > 0;) {
    if (!IsRead(g.nodes[i])) continue;
    for (ValueId v : g.nodes[i].inputs) {
      if (v != kNoValue) ++uses_[v];
    }
  }
}

void PatternRewriter::Grow() {
  const size_t n = g_.values.size();
  for (size_t v = same_.size(); v < n; ++v) same_.push_back(static_cast<ValueId>(v));
  producer_.resize(n, -1);
  uses_.resize(n, 0);
}

const Node* PatternRewriter::Producer(ValueId v) const {
  return v == kNoValue || producer_[v] < 0 ? nullptr : &done_[static_cast<size_t>(producer_[v])];
}

const Node* PatternRewriter::Producer(ValueId v, std::string_view op) const {
  const Node* n = Producer(v);
  return n != nullptr && n->op->name == op ? n : nullptr;
}

std::optional<double> PatternRewriter::Scalar(ValueId v) const {
  constexpr int64_t kFew = 4096;
  if (v == kNoValue || !constant(v) || type(v).num_elements() == 0 || type(v).num_elements() > kFew)
    return std::nullopt;
  const std::vector<double> values = constant(v)->Doubles();
  for (double d : values) {
    if (!(d == values[0])) return std::nullopt;
  }
  return values[0];
}

void PatternRewriter::Append(Node n) {
  Grow();
  for (ValueId v : n.outputs) producer_[v] = static_cast<int>(done_.size());
  done_.push_back(std::move(n));
}

bool PatternRewriter::IsRead(const Node& n) const {
  return std::any_of(n.outputs.begin(), n.outputs.end(),
                     [this](ValueId v) { return uses_[v] > 0; });
}

void PatternRewriter::Count(std::vector<ValueId> values, int by) {
  while (!values.empty()) {
    const ValueId v = values.back();
    values.pop_back();
    if (v == kNoValue) continue;
    const Node* n = Producer(v);
    const bool read = n != nullptr && IsRead(*n);
    uses_[v] += by;
    if (n != nullptr && IsRead(*n) != read)
      values.insert(values.end(), n->inputs.begin(), n->inputs.end());
  }
}

std::optional<ValueId> PatternRewriter::Emit(std::string_view op, std::vector<ValueId> inputs,
                                             Attrs attrs, std::string_view name) {
  auto made = MakeNode(g_, op, std::move(inputs), std::move(attrs), label_);
  Grow();
  if (!made.ok()) return std::nullopt;
  WHET_CHECK(made->types.size() == 1, "{} has {} outputs", op, made->types.size());
  const std::string_view wanted = name.empty() ? std::string_view(label_) : name;
  if (!made->results.empty()) return Constant(wanted, std::move(made->results[0]));
  const ValueId y = g_.AddValue(wanted, std::move(made->types[0]));
  made->node.outputs = {y};
  Append(std::move(made->node));
  emitted_ = true;
  return y;
}

ValueId PatternRewriter::Constant(std::string_view name, DType t, std::vector<int64_t> shape,
                                  const std::vector<double>& values) {
  return Constant(name, graph::Constant::OfDoubles(t, std::move(shape), values));
}

ValueId PatternRewriter::Constant(std::string_view name, ConstantPtr c) {
  const ValueId v = g_.AddConstant(name, std::move(c));
  Grow();
  return v;
}

bool PatternRewriter::Become(Node& n, std::string_view op, std::vector<ValueId> inputs,
                             Attrs attrs) {
  const OpRecord* record = g_.catalog->Find(op);
  if (record == nullptr) return false;
  auto filled = FillAttrs(*record, std::move(attrs));
  if (!filled.ok()) return false;
  std::vector<const TensorType*> types;
  for (ValueId v : inputs) types.push_back(v == kNoValue ? nullptr : &type(v));
  const auto out = InferTypes(*record, *filled, types);
  if (!out.ok() || out->size() != n.outputs.size()) return false;
  for (size_t i = 0; i < out->size(); ++i) {
    const TensorType& t = type(n.outputs[i]);
    if ((*out)[i].dtype != t.dtype || (*out)[i].shape != t.shape) return false;
  }
  // The new ones first, so that nothing that is read all the time is taken for unread.
  if (IsRead(n)) {
    Count(inputs, 1);
    Count(n.inputs, -1);
  }
  n.op = record;
  n.attrs = *std::move(filled);
  n.inputs = std::move(inputs);
  return true;
}

bool PatternRewriter::ReplaceBy(Node& n, ValueId v) {
  const ValueId old = n.outputs[0];
  if (n.outputs.size() != 1 || type(old).dtype != type(v).dtype || type(old).shape != type(v).shape)
    return false;
  if (const int uses = uses_[old]; uses > 0) {
    Count({v}, 1);
    uses_[v] += uses - 1;
    uses_[old] = 0;
    Count(n.inputs, -1);
  }
  same_[old] = v;
  n.op = nullptr;
  return true;
}

StatusOr<bool> PatternRewriter::Run(const Pattern& f) {
  bool changed = false;
  std::vector<Node> nodes = std::move(g_.nodes);
  g_.nodes.clear();
  for (Node& n : nodes) {
    for (ValueId& v : n.inputs) v = v == kNoValue ? v : same_[v];
    label_ = n.label;
    if (IsRead(n)) changed |= f(*this, n);
    if (n.op != nullptr) Append(std::move(n));
  }
  for (GraphOutput& o : g_.outputs) o.value = same_[o.value];
  g_.nodes = std::move(done_);
  if (changed || emitted_) WHET_RETURN_IF_ERROR(RemoveDeadNodes(g_).status());
  return changed;
}

std::optional<WithConstant> SplitConstant(const PatternRewriter& r, const Node& n) {
  if (n.inputs.size() != 2 || n.inputs[0] == kNoValue || n.inputs[1] == kNoValue)
    return std::nullopt;
  const bool first = r.constant(n.inputs[0]) != nullptr,
             second = r.constant(n.inputs[1]) != nullptr;
  if (first == second) return std::nullopt;
  return first ? WithConstant{n.inputs[1], n.inputs[0], true}
               : WithConstant{n.inputs[0], n.inputs[1], false};
}

std::string JoinLabels(const std::string& a, const std::string& b) {
  if (a.empty() || a == b) return b;
  return b.empty() ? a : a + "+" + b;
}

}  // namespace whet::graph
