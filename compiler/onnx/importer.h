// One import: the state between the parts of compiler/onnx. importer.cc has what concerns the model
// (header, inputs, outputs, the report), nodes.cc what concerns one node: its attributes, the
// graphs among them, and functions of the model. Internal to compiler/onnx; one thread, used once.
#pragma once
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/frontend/model_file.h"
#include "compiler/graph/import.h"
#include "compiler/onnx/external_data.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/onnx_schema.pb.h"
#include "compiler/onnx/order.h"

namespace whet::onnx {

class Importer {
 public:
  Importer(onnx_schema::ModelProto& model, const ImportOptions& options, ExternalData external)
      : model_(model), options_(options), external_(std::move(external)), builder_(graph_) {}

  StatusOr<graph::Graph> Run();

 private:
  friend class InlinedBody;
  using Attributes = std::unordered_map<std::string, onnx_schema::AttributeProto*>;

  // Names that the nodes of one graph see, and what of the nodes' surroundings matters to them.
  struct Scope {
    const Scope* outer = nullptr;
    int opset = 1;
    int depth = 0;
    std::string place;  // " in then_branch of 'If_3'"; empty for the model's own graph
    const Attributes* attributes = nullptr;  // of a function: what it was called with
    // Of the branches around: where an input decides on one, --bind may leave a problem out.
    std::vector<graph::ValueId> conditions = {};
    std::unordered_map<std::string, graph::ValueId> values = {};
  };

  // importer.cc
  void Problem(Status s);
  Status Report() const;
  Status Header();
  Status Functions();
  void Inputs();
  void Outputs();
  void ExtraOutputs();
  void Initializers(onnx_schema::GraphProto& g, Scope& scope);
  // Constants are taken out of the message once, however often a loop comes by.
  StatusOr<graph::ConstantPtr> Take(onnx_schema::TensorProto& t);

  // nodes.cc
  void Nodes(NodeList& nodes, Scope& scope);
  void OneNode(onnx_schema::NodeProto& n, Scope& scope);
  Status ImportNode(onnx_schema::NodeProto& n, Scope& scope);
  std::string HintOnBranches(const Scope& scope, const Status& problem) const;
  Status CountConstants();
  Status CountWork();
  Status ReadAttribute(const onnx_schema::NodeProto& n, onnx_schema::AttributeProto& a,
                       const Scope& scope, graph::Attrs* attrs, graph::ImportContext* c);
  StatusOr<std::vector<graph::ValueId>> ReadInputs(const onnx_schema::NodeProto& n,
                                                   const Scope& scope, bool lists);
  Status Call(onnx_schema::FunctionProto& f, onnx_schema::NodeProto& n, Scope& scope);
  StatusOr<std::vector<graph::ValueId>> Inline(onnx_schema::GraphProto& g, const Scope& outer,
                                               const std::string& place, graph::ValueId condition,
                                               const std::vector<graph::ValueId>& inputs);
  // Adds the nodes of a scope that is filled in, and finds the values of `names` in it.
  StatusOr<std::vector<graph::ValueId>> InlineNodes(NodeList& nodes, Scope& scope,
                                                    const std::vector<std::string>& names);

  onnx_schema::ModelProto& model_;
  const ImportOptions& options_;
  ExternalData external_;
  graph::Graph graph_;
  graph::GraphBuilder builder_;
  graph::ImportLists lists_;
  Scope top_;
  std::unordered_map<std::string, onnx_schema::FunctionProto*> functions_;  // by domain and name
  std::unordered_map<const onnx_schema::TensorProto*, graph::ConstantPtr> taken_;
  std::unordered_map<const NodeList*, std::vector<int>> orders_;
  std::unordered_set<const graph::Constant*> counted_;
  // Inputs that --bind gave a value, and the nodes' results behind them: the inputs' names.
  std::unordered_map<graph::ValueId, std::set<std::string>> bound_;
  size_t counted_values_ = 0;
  int64_t folded_bytes_ = 0;
  int64_t work_ = 0;
  frontend::Problems problems_;
  bool unsupported_ = false;
  bool full_ = false;  // a limit is reached: no more nodes
};

// Of a node that has a problem: what reads it is not reported again.
inline constexpr graph::ValueId kPoisoned = -2;
// The key of a function.
inline std::string FunctionKey(const std::string& domain, const std::string& name) {
  return (domain == "ai.onnx" ? "" : domain) + ":" + name;
}
// The version of the default operator set; 0 where none is named.
StatusOr<int> DefaultOpset(
    const google::protobuf::RepeatedPtrField<onnx_schema::OperatorSetIdProto>& sets);

}  // namespace whet::onnx
