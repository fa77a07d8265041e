#include "compiler/onnx/importer.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/onnx/inputs.h"
#include "compiler/onnx/tensor.h"
#include "compiler/ops/catalog.h"
#include "compiler/support/names.h"

namespace whet::onnx {

using graph::Graph;
using graph::ValueId;

StatusOr<Graph> Importer::Run() {
  graph_.catalog = &ops::Catalog();
  graph_.name = model_.graph().name();
  WHET_RETURN_IF_ERROR(Header());
  WHET_RETURN_IF_ERROR(Functions());
  Initializers(*model_.mutable_graph(), top_);
  Inputs();
  Nodes(*model_.mutable_graph()->mutable_node(), top_);
  Outputs();
  ExtraOutputs();
  if (!problems_.empty()) return Report();
  graph_.Compact();
  WHET_RETURN_IF_ERROR(graph::Verify(graph_));
  return std::move(graph_);
}

void Importer::Problem(Status s) { problems_.Add(std::move(s)); }

Status Importer::Report() const {
  std::string supported;
  if (unsupported_) {
    for (const graph::OpRecord* op : graph_.catalog->All()) {
      if (op->importable) supported += (supported.empty() ? "" : " ") + op->name;
    }
  }
  return problems_.Report(supported);
}

StatusOr<int> DefaultOpset(
    const google::protobuf::RepeatedPtrField<onnx_schema::OperatorSetIdProto>& sets) {
  int opset = 0;
  for (const auto& set : sets) {
    if (!set.domain().empty() && set.domain() != "ai.onnx") continue;
    if (set.version() < 1 || set.version() > kMaxOpset) {
      return Unimplemented("operator set version {} is not supported; 1 to {} are", set.version(),
                           kMaxOpset);
    }
    opset = static_cast<int>(set.version());
  }
  return opset;
}

Status Importer::Header() {
  if (!model_.has_graph()) return InvalidArgument("it is no ONNX model: it has no graph");
  WHET_ASSIGN_OR_RETURN(const int opset, DefaultOpset(model_.opset_import()));
  top_.opset = std::max(opset, 1);
  if (model_.graph().node_size() > kMaxNodes)
    return ResourceExhausted("{} nodes exceed the limit of {}", model_.graph().node_size(),
                             kMaxNodes);
  if (model_.graph().sparse_initializer_size() > 0)
    return Unimplemented("sparse initializers are not supported");
  return OkStatus();
}

Status Importer::Functions() {
  for (auto& f : *model_.mutable_functions()) {
    if (!functions_.emplace(FunctionKey(f.domain(), f.name()), &f).second)
      return InvalidArgument("two functions of domain '{}' are called '{}'", f.domain(), f.name());
  }
  return OkStatus();
}

StatusOr<graph::ConstantPtr> Importer::Take(onnx_schema::TensorProto& t) {
  graph::ConstantPtr& known = taken_[&t];
  if (known == nullptr) {
    auto c = TakeTensor(t, &external_);
    if (!c.ok()) return c.status();
    known = *std::move(c);
    counted_.insert(known.get());  // it is of the file, not computed
  }
  return known;
}

void Importer::Initializers(onnx_schema::GraphProto& g, Scope& scope) {
  for (auto& t : *g.mutable_initializer()) {
    auto c = Take(t);
    ValueId v = kPoisoned;
    if (!c.ok()) {
      Problem(Annotate(c.status(), fmt::format("initializer '{}'{}", t.name(), scope.place)));
    } else {
      v = builder_.Constant(t.name(), std::move(*c));
    }
    if (!scope.values.emplace(t.name(), v).second)
      Problem(InvalidArgument("two initializers{} are called '{}'", scope.place, t.name()));
  }
}

void Importer::Inputs() {
  std::vector<const onnx_schema::ValueInfoProto*> inputs;
  std::unordered_set<std::string> seen;
  for (const auto& v : model_.graph().input()) {
    if (!seen.insert(v.name()).second)
      Problem(InvalidArgument("two inputs are called '{}'", v.name()));
    // An input that an initializer gives a value is a constant (files of IR versions before 4
    // list all of them).
    else if (!top_.values.count(v.name()))
      inputs.push_back(&v);
  }
  std::vector<Status> problems;
  for (InputType& t : ResolveInputs(inputs, options_, &problems)) {
    top_.values[t.name] =
        t.value ? builder_.Constant(t.name, t.value) : builder_.Input(t.name, std::move(t.type));
  }
  for (const auto& [name, v] : top_.values) {
    if (options_.bind.count(name) > 0) bound_[v] = {name};
  }
  for (Status& s : problems) Problem(std::move(s));
  for (const auto* v : inputs) top_.values.try_emplace(v->name(), kPoisoned);
}

void Importer::Outputs() {
  std::unordered_set<std::string> seen;
  for (const auto& o : model_.graph().output()) {
    auto it = top_.values.find(o.name());
    if (!seen.insert(o.name()).second)
      Problem(InvalidArgument("two outputs are called '{}'", o.name()));
    if (it == top_.values.end()) {
      // After a limit not all nodes have been looked at.
      if (!full_) Problem(InvalidArgument("output '{}' is computed by nothing", o.name()));
    } else if (const graph::ImportList* list = lists_.Find(it->second)) {
      Problem(Unimplemented("output '{}' is {}; only tensors are supported", o.name(),
                            list->optional ? "an optional" : "a sequence"));
    } else if (it->second != kPoisoned) {
      builder_.Output(o.name(), it->second);
    }
  }
  if (model_.graph().output_size() == 0) Problem(InvalidArgument("the model has no outputs"));
}

void Importer::ExtraOutputs() {
  for (const std::string& name : options_.outputs) {
    auto it = top_.values.find(name);
    if (frontend::HasOutput(graph_, name) || (it != top_.values.end() && it->second == kPoisoned))
      continue;
    if (it != top_.values.end() && it->second >= 0) {
      builder_.Output(name, it->second);
      continue;
    }
    std::vector<std::string> tensors;
    for (const auto& [known, v] : top_.values) {
      if (v >= 0) tensors.push_back(known);
    }
    std::sort(tensors.begin(), tensors.end());
    Problem(InvalidArgument(
        "--output names '{}', which is no value of the model{}; whet inspect MODEL --graph lists "
        "them",
        name, Suggestion(name, tensors)));
  }
}

}  // namespace whet::onnx
