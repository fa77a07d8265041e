#include "compiler/onnx/import.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "compiler/graph/import.h"
#include "compiler/onnx/inputs.h"
#include "compiler/onnx/tensor.h"
#include "compiler/ops/catalog.h"

namespace whet::onnx {
namespace {

using graph::Attrs;
using graph::AttrValue;
using graph::Graph;
using graph::ValueId;
using onnx_schema::AttributeProto;
using onnx_schema::GraphProto;
using onnx_schema::ModelProto;
using onnx_schema::NodeProto;

// Of a node that has a problem: what reads it is not reported again.
constexpr ValueId kPoisoned = -2;
constexpr int kMaxOutputs = 4096;  // of one node

// Attributes that hold an element type, which records take by our name.
bool HoldsElementType(std::string_view op, std::string_view attr) {
  return (op == "Cast" && attr == "to") || (op == "EyeLike" && attr == "dtype") ||
         attr == "output_datatype";
}

std::string LabelOf(const NodeProto& n) {
  if (!n.name().empty()) return n.name();
  return n.output_size() > 0 && !n.output(0).empty() ? n.output(0) : n.op_type();
}

Status ReadAttribute(const NodeProto& n, AttributeProto& a, Attrs* attrs,
                     std::vector<std::pair<std::string, graph::ConstantPtr>>* tensors) {
  if (attrs->Find(a.name()) != nullptr) return InvalidArgument("attribute '{}' twice", a.name());
  switch (a.type()) {
    case AttributeProto::INT:
      if (HoldsElementType(n.op_type(), a.name())) {
        WHET_ASSIGN_OR_RETURN(DType t, DTypeOf(static_cast<int32_t>(a.i())));
        attrs->Set(a.name(), std::string(ToString(t)));
      } else {
        attrs->Set(a.name(), a.i());
      }
      return OkStatus();
    case AttributeProto::FLOAT: attrs->Set(a.name(), static_cast<double>(a.f())); return OkStatus();
    case AttributeProto::STRING: attrs->Set(a.name(), a.s()); return OkStatus();
    case AttributeProto::INTS:
      attrs->Set(a.name(), std::vector<int64_t>(a.ints().begin(), a.ints().end()));
      return OkStatus();
    case AttributeProto::FLOATS:
      attrs->Set(a.name(), std::vector<double>(a.floats().begin(), a.floats().end()));
      return OkStatus();
    case AttributeProto::STRINGS: {
      // Names, by all operators that have such a list; as one string, separated by commas.
      std::string joined;
      for (const std::string& name : a.strings()) {
        if (name.find(',') != std::string::npos)
          return InvalidArgument("attribute '{}' holds '{}', which has a comma", a.name(), name);
        joined += (joined.empty() ? "" : ",") + name;
      }
      attrs->Set(a.name(), joined);
      return OkStatus();
    }
    case AttributeProto::TENSOR: {
      auto c = TakeTensor(*a.mutable_t());
      if (!c.ok()) return Annotate(c.status(), fmt::format("attribute '{}'", a.name()));
      tensors->emplace_back(a.name(), std::move(*c));
      return OkStatus();
    }
    default:
      return Unimplemented("attribute '{}' has type {}, which is not supported", a.name(),
                           AttributeProto::AttributeType_Name(a.type()));
  }
}

class Importer {
 public:
  Importer(ModelProto& model, const ImportOptions& options)
      : model_(model), options_(options), builder_(graph_) {}

  StatusOr<Graph> Run() {
    graph_.catalog = &ops::Catalog();
    graph_.name = model_.graph().name();
    WHET_RETURN_IF_ERROR(Header());
    Constants();
    Inputs();
    std::vector<int> order;
    if (Status s = Order(&order); !s.ok()) {
      Problem(s);
      return Report();
    }
    for (int i : order) {
      if (full_) break;
      OneNode(*model_.mutable_graph()->mutable_node(i));
    }
    Outputs();
    if (!problems_.empty()) return Report();
    graph_.Compact();
    WHET_RETURN_IF_ERROR(graph::Verify(graph_));
    return std::move(graph_);
  }

 private:
  void Problem(Status s) {
    if (static_cast<int>(problems_.size()) < kMaxProblems) problems_.push_back(std::move(s));
    ++problem_count_;
  }

  Status Report() const {
    if (problems_.size() == 1 && problem_count_ == 1 && !unsupported_) return problems_[0];
    std::string text = problem_count_ == 1 ? "" : fmt::format("{} problems:", problem_count_);
    for (const Status& s : problems_) text += (text.empty() ? "" : "\n  ") + Message(s);
    if (problem_count_ > static_cast<int64_t>(problems_.size()))
      text += fmt::format("\n  and {} more", problem_count_ - problems_.size());
    if (unsupported_) {
      text += "\nsupported operators:";
      for (const graph::OpRecord* op : graph_.catalog->All()) {
        if (op->importable) text += " " + op->name;
      }
    }
    return Status(problems_[0].code(), text);
  }

  Status Header() {
    if (!model_.has_graph()) return InvalidArgument("it is no ONNX model: it has no graph");
    opset_ = 1;
    for (const auto& set : model_.opset_import()) {
      if (!set.domain().empty() && set.domain() != "ai.onnx") continue;
      if (set.version() < 1 || set.version() > kMaxOpset) {
        return Unimplemented("operator set version {} is not supported; 1 to {} are", set.version(),
                             kMaxOpset);
      }
      opset_ = static_cast<int>(set.version());
    }
    if (model_.graph().node_size() > kMaxNodes)
      return ResourceExhausted("{} nodes exceed the limit of {}", model_.graph().node_size(),
                               kMaxNodes);
    if (model_.graph().sparse_initializer_size() > 0)
      return Unimplemented("sparse initializers are not supported");
    return OkStatus();
  }

  void Constants() {
    for (auto& t : *model_.mutable_graph()->mutable_initializer()) {
      auto c = TakeTensor(t);
      ValueId v = kPoisoned;
      if (!c.ok()) {
        Problem(Annotate(c.status(), fmt::format("initializer '{}'", t.name())));
      } else {
        v = builder_.Constant(t.name(), std::move(*c));
      }
      if (!values_.emplace(t.name(), v).second)
        Problem(InvalidArgument("two initializers are called '{}'", t.name()));
    }
  }

  void Inputs() {
    std::vector<const onnx_schema::ValueInfoProto*> inputs;
    std::unordered_set<std::string> seen;
    for (const auto& v : model_.graph().input()) {
      if (!seen.insert(v.name()).second)
        Problem(InvalidArgument("two inputs are called '{}'", v.name()));
      // An input that an initializer gives a value is a constant (files of IR versions before 4
      // list all of them).
      else if (!values_.count(v.name()))
        inputs.push_back(&v);
    }
    std::vector<Status> problems;
    for (InputType& t : ResolveInputs(inputs, options_, &problems))
      values_[t.name] = builder_.Input(t.name, std::move(t.type));
    for (Status& s : problems) Problem(std::move(s));
    for (const auto* v : inputs) values_.try_emplace(v->name(), kPoisoned);
  }

  // Execution order. Files are meant to be sorted; those that are not are sorted here, and cycles
  // found.
  Status Order(std::vector<int>* order) {
    const GraphProto& g = model_.graph();
    std::unordered_map<std::string, int> producer;
    for (int i = 0; i < g.node_size(); ++i) {
      for (const std::string& out : g.node(i).output()) {
        if (out.empty()) continue;
        if (values_.count(out))
          return InvalidArgument("node '{}' computes '{}', which is an input or initializer",
                                 LabelOf(g.node(i)), out);
        auto [it, fresh] = producer.emplace(out, i);
        if (!fresh)
          return InvalidArgument("nodes '{}' and '{}' both compute '{}'",
                                 LabelOf(g.node(it->second)), LabelOf(g.node(i)), out);
      }
    }
    std::vector<int> waiting(static_cast<size_t>(g.node_size()), 0);
    std::vector<std::vector<int>> readers(static_cast<size_t>(g.node_size()));
    for (int i = 0; i < g.node_size(); ++i) {
      for (const std::string& in : g.node(i).input()) {
        auto it = producer.find(in);
        if (it == producer.end()) continue;
        ++waiting[i];
        readers[it->second].push_back(i);
      }
    }
    // Lowest first: a sorted file keeps its order.
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < g.node_size(); ++i) {
      if (waiting[i] == 0) ready.push(i);
    }
    while (!ready.empty()) {
      const int i = ready.top();
      ready.pop();
      order->push_back(i);
      for (int r : readers[i]) {
        if (--waiting[r] == 0) ready.push(r);
      }
    }
    if (static_cast<int>(order->size()) == g.node_size()) return OkStatus();
    const auto stuck =
        std::find_if(waiting.begin(), waiting.end(), [](int n) { return n > 0; }) - waiting.begin();
    return InvalidArgument("the graph has a cycle through or before node '{}'",
                           LabelOf(g.node(static_cast<int>(stuck))));
  }

  void OneNode(NodeProto& n) {
    const size_t before = graph_.values.size();
    Status s = ImportNode(n);
    for (size_t v = before; v < graph_.values.size(); ++v) {
      if (graph_.values[v].constant)
        folded_bytes_ += static_cast<int64_t>(graph_.values[v].constant->bytes().size());
    }
    if (s.ok() && folded_bytes_ > kMaxFoldedBytes) {
      s = ResourceExhausted("constants computed at import exceed the limit of {} bytes",
                            kMaxFoldedBytes);
      full_ = true;
    }
    if (s.ok()) return;
    for (const std::string& out : n.output()) values_[out] = kPoisoned;
    // Cancelled stands for "an input already has a problem".
    if (s.code() != absl::StatusCode::kCancelled) {
      Problem(Annotate(
          s, fmt::format("node '{}' ({}, operator set {})", LabelOf(n), n.op_type(), opset_)));
    }
  }

  Status ImportNode(NodeProto& n) {
    if (!n.domain().empty() && n.domain() != "ai.onnx") {
      unsupported_ = true;
      return Unimplemented("operators of domain '{}' are not supported", n.domain());
    }
    const graph::OpRecord* op = graph_.catalog->Find(n.op_type());
    if (op == nullptr || !op->importable) {
      unsupported_ = true;
      return Unimplemented("the operator is not supported");
    }
    if (n.output_size() > kMaxOutputs) return ResourceExhausted("{} outputs", n.output_size());
    std::vector<ValueId> inputs;
    for (const std::string& name : n.input()) {
      auto it = values_.find(name);
      if (!name.empty() && it == values_.end())
        return InvalidArgument("input '{}' is computed by nothing", name);
      if (!name.empty() && it->second == kPoisoned) return absl::CancelledError();
      inputs.push_back(name.empty() ? graph::kNoValue : it->second);
    }
    while (!inputs.empty() && inputs.back() == graph::kNoValue) inputs.pop_back();
    std::vector<bool> wanted;
    for (const std::string& out : n.output()) wanted.push_back(!out.empty());
    Attrs attrs;
    std::vector<std::pair<std::string, graph::ConstantPtr>> tensors;
    for (AttributeProto& a : *n.mutable_attribute())
      WHET_RETURN_IF_ERROR(ReadAttribute(n, a, &attrs, &tensors));
    builder_.SetLabel(LabelOf(n));
    graph::ImportContext c(builder_, n.op_type(), opset_, std::move(attrs), std::move(inputs),
                           std::move(wanted));
    c.tensors = std::move(tensors);
    const auto first_new = static_cast<ValueId>(graph_.values.size());
    WHET_RETURN_IF_ERROR(op->import ? op->import(c) : DefaultImport(c));
    WHET_RETURN_IF_ERROR(c.CheckAllTaken());
    for (int i = 0; i < n.output_size(); ++i) {
      if (n.output(i).empty()) continue;
      if (i >= static_cast<int>(c.outputs.size()))
        return Unimplemented("output {} is not supported", i);
      values_[n.output(i)] = c.outputs[i];
      // New values take the model's name; an identity may hand through one that has a name already.
      if (c.outputs[i] >= first_new) graph_.Rename(c.outputs[i], n.output(i));
    }
    return OkStatus();
  }

  static Status DefaultImport(graph::ImportContext& c) {
    c.Ignore("consumed_inputs");
    return c.Finish(c.op_type, c.inputs, c.TakeAll());
  }

  void Outputs() {
    std::unordered_set<std::string> seen;
    for (const auto& o : model_.graph().output()) {
      auto it = values_.find(o.name());
      if (!seen.insert(o.name()).second)
        Problem(InvalidArgument("two outputs are called '{}'", o.name()));
      if (it == values_.end()) {
        Problem(InvalidArgument("output '{}' is computed by nothing", o.name()));
      } else if (it->second != kPoisoned) {
        builder_.Output(o.name(), it->second);
      }
    }
    if (model_.graph().output_size() == 0) Problem(InvalidArgument("the model has no outputs"));
  }

  ModelProto& model_;
  const ImportOptions& options_;
  Graph graph_;
  graph::GraphBuilder builder_;
  int opset_ = 1;
  std::unordered_map<std::string, ValueId> values_;
  std::vector<Status> problems_;
  int64_t problem_count_ = 0;
  int64_t folded_bytes_ = 0;
  bool unsupported_ = false;
  bool full_ = false;
};

Status Parse(std::string_view bytes, ModelProto* model) {
  if (bytes.empty()) return InvalidArgument("the file is empty");
  if (static_cast<int64_t>(bytes.size()) > kMaxFileBytes)
    return ResourceExhausted("{} bytes exceed the limit of {}", bytes.size(), kMaxFileBytes);
  // A damaged file is reported once, by us, and not a second time by the library on standard error.
  google::protobuf::LogSilencer quiet;
  if (!model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("it is no ONNX model, or it is truncated or damaged ({} bytes)",
                           bytes.size());
  }
  return OkStatus();
}

StatusOr<Graph> ImportMessage(std::string_view bytes, const ImportOptions& options) {
  ModelProto model;
  WHET_RETURN_IF_ERROR(Parse(bytes, &model));
  return Importer(model, options).Run();
}

StatusOr<Graph> ImportPath(const std::string& path, const ImportOptions& options) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return NotFound("{}", std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return InvalidArgument("it is a folder, not a file");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("it is not a regular file");
  if (info.st_size > kMaxFileBytes)
    return ResourceExhausted("{} bytes exceed the limit of {}", info.st_size, kMaxFileBytes);
  std::ifstream in(path, std::ios::binary);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  if (!in || !in.read(bytes.data(), info.st_size))
    return Unavailable("it cannot be read: {}", std::strerror(errno));
  ModelProto model;
  WHET_RETURN_IF_ERROR(Parse(bytes, &model));
  bytes = {};  // the message has its own copy of the weights, which the graph takes over
  return Importer(model, options).Run();
}

}  // namespace

StatusOr<Graph> ImportBytes(std::string_view model, const ImportOptions& options) {
  auto g = ImportMessage(model, options);
  if (!g.ok()) return Annotate(g.status(), "model");
  return g;
}

StatusOr<Graph> ImportFile(const std::string& path, const ImportOptions& options) {
  auto g = ImportPath(path, options);
  if (!g.ok()) return Annotate(g.status(), fmt::format("model '{}'", path));
  return g;
}

}  // namespace whet::onnx
