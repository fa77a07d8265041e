#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/graph/bind_hint.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/tensor.h"

namespace whet::onnx {

using graph::Attrs;
using graph::ValueId;
using onnx_schema::AttributeProto;
using onnx_schema::NodeProto;

namespace {

constexpr int kMaxOutputs = 4096;  // of one node
constexpr size_t kValuesPerNode = 4;

// Attributes that hold an element type, which records take by our name.
bool HoldsElementType(std::string_view op, std::string_view attr) {
  return op == "Cast" ? attr == "to"
                      : attr == "dtype" || attr == "output_dtype" || attr == "output_datatype";
}

std::string TypeName(AttributeProto::AttributeType t) {
  return AttributeProto::AttributeType_IsValid(t) ? AttributeProto::AttributeType_Name(t)
                                                  : std::to_string(static_cast<int>(t));
}

}  // namespace

// A graph among the attributes of the node that is being imported.
class InlinedBody : public graph::ImportBody {
 public:
  InlinedBody(Importer& importer, onnx_schema::GraphProto& g, const Importer::Scope& scope,
              std::string place, ValueId condition)
      : importer_(importer),
        g_(g),
        scope_(scope),
        place_(std::move(place)),
        condition_(condition) {}
  int num_inputs() const override { return g_.input_size(); }
  int num_outputs() const override { return g_.output_size(); }
  StatusOr<std::vector<ValueId>> Inline(std::vector<ValueId> inputs) override {
    const std::string label = importer_.builder_.label();
    auto outputs = importer_.Inline(g_, scope_, place_, condition_, inputs);
    importer_.builder_.SetLabel(label);
    return outputs;
  }

 private:
  Importer& importer_;
  onnx_schema::GraphProto& g_;
  const Importer::Scope& scope_;
  const std::string place_;
  const ValueId condition_;  // that decides whether it runs; kNoValue: none
};

void Importer::Nodes(NodeList& nodes, Scope& scope) {
  auto known = orders_.find(&nodes);
  if (known == orders_.end()) {
    std::unordered_set<std::string> given;
    for (const auto& [name, value] : scope.values) given.insert(name);
    auto order = ExecutionOrder(nodes, given);
    if (!order.ok()) {
      Problem(scope.place.empty() ? order.status()
                                  : Annotate(order.status(), scope.place.substr(1)));
      full_ = true;
      return;
    }
    known = orders_.emplace(&nodes, *std::move(order)).first;
  }
  // By index: a nested body may add to the map.
  const std::vector<int> order = known->second;
  for (int i : order) {
    if (full_) return;
    OneNode(nodes[i], scope);
  }
}

// What folding has created since the last call; the file's own constants do not count.
Status Importer::CountConstants() {
  for (; counted_values_ < graph_.values.size(); ++counted_values_) {
    const graph::ConstantPtr& c = graph_.values[counted_values_].constant;
    if (c != nullptr && counted_.insert(c.get()).second)
      folded_bytes_ += static_cast<int64_t>(c->bytes().size());
  }
  if (folded_bytes_ <= kMaxFoldedBytes) return OkStatus();
  full_ = true;
  return ResourceExhausted("constants computed at import exceed the limit of {} bytes",
                           kMaxFoldedBytes);
}

// Nodes and graphs that are inlined: an empty body costs time as well. A node may become many, or
// as many constants.
Status Importer::CountWork() {
  const auto emitted =
      static_cast<int64_t>(std::max(graph_.nodes.size(), graph_.values.size() / kValuesPerNode));
  if (++work_ <= options_.max_nodes && emitted <= options_.max_nodes) return OkStatus();
  full_ = true;
  return ResourceExhausted("with loops unrolled and functions inlined, more than {} nodes",
                           options_.max_nodes);
}

void Importer::OneNode(NodeProto& n, Scope& scope) {
  Status s = CountWork();
  if (s.ok()) s = ImportNode(n, scope);
  if (s.ok()) s = CountConstants();
  if (s.ok()) return;
  for (const std::string& out : n.output()) scope.values[out] = kPoisoned;
  // Cancelled stands for "an input already has a problem".
  if (s.code() != absl::StatusCode::kCancelled) {
    s = Status(s.code(), Message(s) + HintOnBranches(scope, s));
    Problem(Annotate(s, fmt::format("node '{}' ({}, operator set {}){}", LabelOf(n), n.op_type(),
                                    scope.opset, scope.place)));
  }
}

std::string Importer::HintOnBranches(const Scope& scope, const Status& problem) const {
  if (problems_.count() >= static_cast<int64_t>(frontend::Problems::kMost)) return "";  // not shown
  if (problem.message().find("; --bind ") != std::string_view::npos) return "";
  for (auto c = scope.conditions.rbegin(); c != scope.conditions.rend(); ++c) {
    if (std::string hint = graph::BindHint(graph_, *c); !hint.empty()) return hint;
    if (auto bound = bound_.find(*c); bound != bound_.end())
      return fmt::format("; --bind {} decided on this branch", fmt::join(bound->second, ", "));
  }
  return "";
}

Status Importer::ReadAttribute(const NodeProto& n, AttributeProto& given, const Scope& scope,
                               Attrs* attrs, graph::ImportContext* c) {
  const std::string& name = given.name();
  AttributeProto* found = &given;
  if (!given.ref_attr_name().empty()) {
    if (scope.attributes == nullptr)
      return InvalidArgument("attribute '{}' refers to one of a function, and this is none", name);
    auto it = scope.attributes->find(given.ref_attr_name());
    if (it == scope.attributes->end()) return OkStatus();  // the caller left it out
    found = it->second;
  }
  AttributeProto& a = *found;
  if (attrs->Find(name) != nullptr) return InvalidArgument("attribute '{}' twice", name);
  switch (a.type()) {
    case AttributeProto::INT:
      if (HoldsElementType(n.op_type(), name)) {
        WHET_ASSIGN_OR_RETURN(DType t, DTypeOf(static_cast<int32_t>(a.i())));
        attrs->Set(name, std::string(ToString(t)));
      } else {
        attrs->Set(name, a.i());
      }
      return OkStatus();
    case AttributeProto::FLOAT: attrs->Set(name, static_cast<double>(a.f())); return OkStatus();
    case AttributeProto::STRING: attrs->Set(name, a.s()); return OkStatus();
    case AttributeProto::INTS:
      attrs->Set(name, std::vector<int64_t>(a.ints().begin(), a.ints().end()));
      return OkStatus();
    case AttributeProto::FLOATS:
      attrs->Set(name, std::vector<double>(a.floats().begin(), a.floats().end()));
      return OkStatus();
    case AttributeProto::STRINGS: {
      // Names, by all operators that have such a list; as one string, separated by commas.
      std::string joined;
      for (const std::string& s : a.strings()) {
        if (s.find(',') != std::string::npos)
          return InvalidArgument("attribute '{}' holds '{}', which has a comma", name, s);
        joined += (joined.empty() ? "" : ",") + s;
      }
      attrs->Set(name, joined);
      return OkStatus();
    }
    case AttributeProto::TENSOR: {
      auto t = Take(*a.mutable_t());
      if (!t.ok()) return Annotate(t.status(), fmt::format("attribute '{}'", name));
      c->tensors.emplace_back(name, std::move(*t));
      return OkStatus();
    }
    case AttributeProto::GRAPH:
      if (found != &given)
        return Unimplemented("attribute '{}', a graph handed to a function, is not supported",
                             name);
      c->bodies.emplace_back(name,
                             std::make_unique<InlinedBody>(
                                 *this, *a.mutable_g(), scope,
                                 fmt::format(" in {} of '{}'{}", name, LabelOf(n), scope.place),
                                 c->op_type == "If" && c->Has(0) ? c->inputs[0] : graph::kNoValue));
      return OkStatus();
    // What an Optional without an element would hold: no value, since nothing can be done with it.
    case AttributeProto::TYPE_PROTO: attrs->Set(name, int64_t{0}); return OkStatus();
    default:
      return Unimplemented("attribute '{}' has type {}, which is not supported", name,
                           TypeName(a.type()));
  }
}

StatusOr<std::vector<ValueId>> Importer::ReadInputs(const NodeProto& n, const Scope& scope,
                                                    bool lists) {
  std::vector<ValueId> inputs;
  for (const std::string& name : n.input()) {
    ValueId v = graph::kNoValue;
    if (!name.empty()) {
      const Scope* s = &scope;
      auto it = s->values.find(name);
      while (it == s->values.end() && s->outer != nullptr) {
        s = s->outer;
        it = s->values.find(name);
      }
      if (it == s->values.end()) return InvalidArgument("input '{}' is computed by nothing", name);
      v = it->second;
    }
    if (v == kPoisoned) return absl::CancelledError();
    if (const graph::ImportList* list = lists_.Find(v); list != nullptr && !lists) {
      // An optional that holds a tensor stands for it.
      if (!list->optional || list->items.size() != 1 || lists_.Find(list->items[0]) != nullptr)
        return Unimplemented("input '{}' is {}; the operator takes tensors", name,
                             list->optional ? "an optional" : "a sequence");
      v = list->items[0];
    }
    inputs.push_back(v);
  }
  while (!inputs.empty() && inputs.back() == graph::kNoValue) inputs.pop_back();
  return inputs;
}

Status Importer::ImportNode(NodeProto& n, Scope& scope) {
  if (n.output_size() > kMaxOutputs) return ResourceExhausted("{} outputs", n.output_size());
  if (auto f = functions_.find(FunctionKey(n.domain(), n.op_type())); f != functions_.end())
    return Call(*f->second, n, scope);
  // Operators of another domain have its name in front.
  const bool standard = n.domain().empty() || n.domain() == "ai.onnx";
  const graph::OpRecord* op =
      graph_.catalog->Find(standard ? n.op_type() : n.domain() + "." + n.op_type());
  if (op == nullptr || !op->importable) {
    unsupported_ = true;
    return standard ? Unimplemented("the operator is not supported")
                    : Unimplemented("the operator of domain '{}' is not supported", n.domain());
  }
  WHET_ASSIGN_OR_RETURN(std::vector<ValueId> inputs, ReadInputs(n, scope, op->takes_lists));
  std::vector<bool> wanted;
  for (const std::string& out : n.output()) wanted.push_back(!out.empty());
  builder_.SetLabel(LabelOf(n));
  graph::ImportContext pending(builder_, n.op_type(), scope.opset, {}, inputs, {});
  Attrs attrs;
  for (AttributeProto& a : *n.mutable_attribute())
    WHET_RETURN_IF_ERROR(ReadAttribute(n, a, scope, &attrs, &pending));
  graph::ImportContext c(builder_, n.op_type(), scope.opset, std::move(attrs), std::move(inputs),
                         std::move(wanted));
  c.tensors = std::move(pending.tensors);
  c.bodies = std::move(pending.bodies);
  c.lists = &lists_;
  const auto first_new = static_cast<ValueId>(graph_.values.size());
  if (op->import) {
    WHET_RETURN_IF_ERROR(op->import(c));
  } else {
    c.Ignore("consumed_inputs");
    WHET_RETURN_IF_ERROR(c.Finish(c.op_type, c.inputs, c.TakeAll()));
  }
  WHET_RETURN_IF_ERROR(c.CheckAllTaken());
  std::set<std::string> bound;
  for (ValueId in : c.inputs) {
    if (auto it = bound_.find(in); it != bound_.end())
      bound.insert(it->second.begin(), it->second.end());
  }
  for (ValueId out : c.outputs) {
    if (!bound.empty() && out >= first_new) bound_[out] = bound;
  }
  for (int i = 0; i < n.output_size(); ++i) {
    if (n.output(i).empty()) continue;
    if (i >= static_cast<int>(c.outputs.size()))
      return Unimplemented("output {} is not supported", i);
    scope.values[n.output(i)] = c.outputs[i];
    // New values take the model's name; an identity may hand through one that has a name already.
    if (c.outputs[i] >= first_new) graph_.Rename(c.outputs[i], n.output(i));
  }
  return OkStatus();
}

Status Importer::Call(onnx_schema::FunctionProto& f, NodeProto& n, Scope& scope) {
  if (scope.depth >= kMaxNesting)
    return ResourceExhausted(
        "functions and graphs within each other exceed the nesting limit of "
        "{}",
        kMaxNesting);
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> inputs, ReadInputs(n, scope, true));
  if (static_cast<int>(inputs.size()) > f.input_size())
    return InvalidArgument("function '{}' takes {} inputs, not {}", f.name(), f.input_size(),
                           inputs.size());
  WHET_ASSIGN_OR_RETURN(const int opset, DefaultOpset(f.opset_import()));
  Attributes attributes;
  for (AttributeProto& a : *n.mutable_attribute()) {
    AttributeProto* value = &a;
    if (!a.ref_attr_name().empty()) {
      if (scope.attributes == nullptr || !scope.attributes->count(a.ref_attr_name())) continue;
      value = scope.attributes->at(a.ref_attr_name());
    }
    attributes[a.name()] = value;
  }
  for (AttributeProto& a : *f.mutable_attribute_proto()) attributes.try_emplace(a.name(), &a);
  Scope inner;
  inner.opset = opset > 0 ? opset : scope.opset;
  inner.depth = scope.depth + 1;
  inner.place =
      fmt::format(" in function '{}' called by '{}'{}", f.name(), LabelOf(n), scope.place);
  inner.attributes = &attributes;
  inner.conditions = scope.conditions;
  for (int i = 0; i < f.input_size(); ++i) {
    inner.values.emplace(f.input(i),
                         i < static_cast<int>(inputs.size()) ? inputs[i] : graph::kNoValue);
  }
  const std::vector<std::string> names(f.output().begin(), f.output().end());
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                        InlineNodes(*f.mutable_node(), inner, names));
  for (int i = 0; i < n.output_size(); ++i) {
    if (n.output(i).empty()) continue;
    if (i >= static_cast<int>(outputs.size()))
      return InvalidArgument("function '{}' has {} outputs", f.name(), outputs.size());
    scope.values[n.output(i)] = outputs[i];
  }
  return OkStatus();
}

StatusOr<std::vector<ValueId>> Importer::Inline(onnx_schema::GraphProto& g, const Scope& outer,
                                                const std::string& place, const ValueId condition,
                                                const std::vector<ValueId>& inputs) {
  WHET_RETURN_IF_ERROR(CountWork());
  if (outer.depth >= kMaxNesting)
    return ResourceExhausted("graphs within each other exceed the nesting limit of {}",
                             kMaxNesting);
  if (static_cast<int>(inputs.size()) != g.input_size())
    return InvalidArgument("the graph{} has {} inputs, not {}", place, g.input_size(),
                           inputs.size());
  if (g.sparse_initializer_size() > 0)
    return Unimplemented("sparse initializers are not supported");
  Scope inner;
  inner.outer = &outer;
  inner.opset = outer.opset;
  inner.depth = outer.depth + 1;
  inner.place = place;
  inner.attributes = outer.attributes;
  inner.conditions = outer.conditions;
  if (condition != graph::kNoValue) inner.conditions.push_back(condition);
  for (int i = 0; i < g.input_size(); ++i) {
    if (!inner.values.emplace(g.input(i).name(), inputs[i]).second)
      return InvalidArgument("two inputs{} are called '{}'", place, g.input(i).name());
  }
  Initializers(g, inner);
  std::vector<std::string> names;
  for (const auto& o : g.output()) names.push_back(o.name());
  return InlineNodes(*g.mutable_node(), inner, names);
}

StatusOr<std::vector<ValueId>> Importer::InlineNodes(NodeList& nodes, Scope& scope,
                                                     const std::vector<std::string>& names) {
  const int64_t before = problems_.count();
  Nodes(nodes, scope);
  if (problems_.count() != before || full_) return absl::CancelledError();
  std::vector<ValueId> outputs;
  for (const std::string& name : names) {
    const Scope* s = &scope;
    while (s != nullptr && !s->values.count(name)) s = s->outer;
    if (s == nullptr)
      return InvalidArgument("output '{}'{} is computed by nothing", name, scope.place);
    const ValueId v = s->values.at(name);
    if (v == kPoisoned) return absl::CancelledError();
    if (v == graph::kNoValue)
      return InvalidArgument("output '{}'{} is an input that is left out", name, scope.place);
    outputs.push_back(v);
  }
  return outputs;
}

}  // namespace whet::onnx
