#include "compiler/graph/pattern.h"

#include "compiler/graph/passes.h"

namespace whet::graph {

PatternRewriter::PatternRewriter(Graph& g) : g_(g) {
  Grow();
  for (const Node& n : g.nodes) {
    for (ValueId v : n.inputs) {
      if (v != kNoValue) ++uses_[v];
    }
  }
  for (const GraphOutput& o : g.outputs) uses_[o.value] += 2;
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

StatusOr<ValueId> PatternRewriter::Emit(std::string_view op, std::vector<ValueId> inputs,
                                        Attrs attrs, std::string label, std::string_view name) {
  Node n;
  n.label = std::move(label);
  n.op = Find(op);
  WHET_CHECK(n.op != nullptr, "no operator {}", op);
  WHET_ASSIGN_OR_RETURN(n.attrs, FillAttrs(*n.op, std::move(attrs)));
  std::vector<const TensorType*> types;
  for (ValueId v : inputs) types.push_back(v == kNoValue ? nullptr : &type(v));
  WHET_ASSIGN_OR_RETURN(std::vector<TensorType> out, InferTypes(*n.op, n.attrs, types));
  WHET_CHECK(out.size() == 1, "{} has {} outputs", op, out.size());
  n.inputs = std::move(inputs);
  for (ValueId v : n.inputs) {
    if (v != kNoValue) ++uses_[v];
  }
  const ValueId y = g_.AddValue(name.empty() ? n.label : name, std::move(out[0]));
  n.outputs = {y};
  Append(std::move(n));
  return y;
}

ValueId PatternRewriter::Constant(std::string_view name, DType t, std::vector<int64_t> shape,
                                  const std::vector<double>& values) {
  const ValueId v = g_.AddConstant(name, Constant::OfDoubles(t, std::move(shape), values));
  Grow();
  return v;
}

Status PatternRewriter::Become(Node& n, std::string_view op, std::vector<ValueId> inputs,
                               Attrs attrs) {
  n.op = Find(op);
  WHET_CHECK(n.op != nullptr, "no operator {}", op);
  WHET_ASSIGN_OR_RETURN(n.attrs, FillAttrs(*n.op, std::move(attrs)));
  for (ValueId v : inputs) {
    if (v != kNoValue) ++uses_[v];
  }
  n.inputs = std::move(inputs);
  return OkStatus();
}

void PatternRewriter::ReplaceBy(Node& n, ValueId v) {
  const ValueId old = n.outputs[0];
  uses_[v] += uses_[old];
  same_[old] = v;
  n.op = nullptr;
}

StatusOr<bool> PatternRewriter::Run(const Pattern& f) {
  bool changed = false;
  std::vector<Node> nodes = std::move(g_.nodes);
  g_.nodes.clear();
  for (Node& n : nodes) {
    for (ValueId& v : n.inputs) v = v == kNoValue ? v : same_[v];
    auto r = f(*this, n);
    if (!r.ok()) return Annotate(r.status(), n.label);
    changed |= *r;
    if (n.op != nullptr) Append(std::move(n));
  }
  for (GraphOutput& o : g_.outputs) o.value = same_[o.value];
  g_.nodes = std::move(done_);
  if (changed) WHET_RETURN_IF_ERROR(RemoveDeadNodes(g_).status());
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
