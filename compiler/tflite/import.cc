#include "compiler/tflite/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "compiler/frontend/bound_value.h"
#include "compiler/frontend/model_file.h"
#include "compiler/ops/catalog.h"
#include "compiler/support/names.h"
#include "compiler/tflite/context.h"

namespace whet::tflite {
namespace {

using frontend::ImportOptions;
using graph::Graph;

// One subgraph while it is being built: the main one, or a branch.
struct Scope {
  const fb::SubGraph* from = nullptr;
  std::vector<TensorState> tensors;
  bool check_shapes = true;  // computed shapes are those that the file declares
};

template <typename T>
uint32_t SizeOfVector(const T* v) {
  return v == nullptr ? 0 : v->size();
}

std::string TensorName(const fb::Tensor& t, size_t index) {
  return t.name() == nullptr || t.name()->size() == 0 ? fmt::format("tensor_{}", index)
                                                      : t.name()->str();
}

class Importer {
 public:
  Importer(const fb::Model& model, const ImportOptions& options)
      : model_(model), options_(options), builder_(graph_) {}

  StatusOr<Graph> Run() {
    graph_.catalog = &ops::Catalog();
    WHET_RETURN_IF_ERROR(Header());
    Scope scope;
    scope.from = model_.subgraphs()->Get(0);
    if (scope.from->name() != nullptr) graph_.name = scope.from->name()->str();
    WHET_RETURN_IF_ERROR(Describe(&scope));
    if (Status s = Inputs(&scope); !s.ok()) Problem(s);
    WHET_RETURN_IF_ERROR(Operators(&scope, 0));
    Outputs(&scope);
    if (!problems_.empty()) return Report();
    graph_.Compact();
    WHET_RETURN_IF_ERROR(graph::Verify(graph_));
    return std::move(graph_);
  }

 private:
  void Problem(Status s) { problems_.Add(std::move(s)); }

  Status Report() const {
    return problems_.Report(unsupported_ ? fmt::format("{}", fmt::join(OperatorNames(), " ")) : "");
  }

  Status Header() {
    if (model_.version() != 3)
      return Unimplemented("format version {} is not supported; 3 is", model_.version());
    if (SizeOfVector(model_.subgraphs()) == 0) return InvalidArgument("it has no subgraph");
    return OkStatus();
  }

  // What the file says about the tensors of a subgraph. Those that are described badly are reported
  // by the operators that use them.
  Status Describe(Scope* scope) {
    const auto* tensors = scope->from->tensors();
    if ((tensor_count_ += SizeOfVector(tensors)) > kMaxTensors)
      return ResourceExhausted("more than {} tensors, those of each branch taken counted",
                               kMaxTensors);
    scope->tensors.resize(SizeOfVector(tensors));
    for (size_t i = 0; i < scope->tensors.size(); ++i) {
      const fb::Tensor& t = *tensors->Get(static_cast<uint32_t>(i));
      WHET_RETURN_IF_ERROR(CheckSize(t, i));
      TensorState& state = scope->tensors[i];
      state.name = TensorName(t, i);
      state.problem = DescribeTensor(t, &state);
      const auto* signature = t.shape_signature();
      for (uint32_t d = 0; d < std::min<size_t>(SizeOfVector(signature), graph::kMaxRank); ++d) {
        if (signature->Get(d) >= 0) continue;
        scope->check_shapes = false;
        state.open.push_back(d);
      }
    }
    scope->check_shapes &= options_.shapes.empty();
    return OkStatus();
  }

  // Of the description in memory, before it is made. It is less than eight times what a file has
  // where each tensor has its own.
  Status CheckSize(const fb::Tensor& t, size_t index) {
    const uint32_t name = t.name() == nullptr ? 0 : t.name()->size();
    if (name > kMaxName)
      return ResourceExhausted("the name of tensor {} has {} bytes; the limit is {}", index, name,
                               kMaxName);
    const uint32_t scales =
        t.quantization() == nullptr ? 0 : SizeOfVector(t.quantization()->scale());
    described_bytes_ += static_cast<int64_t>(sizeof(TensorState)) + name + int64_t{16} * scales;
    if (described_bytes_ > kMaxDescribedBytes + 8 * file_bytes_)
      return ResourceExhausted(
          "its tensors, those of each branch taken counted, have names and scales of more than {} "
          "bytes, the limit for a file of {} bytes",
          kMaxDescribedBytes + 8 * file_bytes_, file_bytes_);
    return OkStatus();
  }

  Status DescribeTensor(const fb::Tensor& t, TensorState* state) const {
    WHET_ASSIGN_OR_RETURN(state->dtype, DTypeOf(t.type()));
    WHET_ASSIGN_OR_RETURN(state->shape, ShapeOf(t));
    WHET_ASSIGN_OR_RETURN(state->quantization, QuantizationOf(t));
    if (t.is_variable()) return Unimplemented("variables are not supported");
    if (t.sparsity() != nullptr) return Unimplemented("sparse tensors are not supported");
    // Buffer 0 is the empty one, which tensors without a value refer to.
    if (t.buffer() == 0) return OkStatus();
    if (t.buffer() >= SizeOfVector(model_.buffers()))
      return InvalidArgument("buffer {} of {}", t.buffer(), SizeOfVector(model_.buffers()));
    const auto* data = model_.buffers()->Get(t.buffer())->data();
    if (SizeOfVector(data) > 0) state->data = data;
    return OkStatus();
  }

  StatusOr<TensorState*> At(Scope* scope, int32_t index) const {
    if (index < 0 || static_cast<size_t>(index) >= scope->tensors.size())
      return InvalidArgument("tensor {} of {}", index, scope->tensors.size());
    return &scope->tensors[static_cast<size_t>(index)];
  }

  Status Inputs(Scope* scope) {
    const auto* inputs = scope->from->inputs();
    std::set<std::string> known;
    for (uint32_t i = 0; i < SizeOfVector(inputs); ++i) {
      WHET_ASSIGN_OR_RETURN(TensorState * t, At(scope, inputs->Get(i)));
      if (!known.insert(t->name).second || t->computed()) {
        Problem(InvalidArgument("two inputs are called '{}'", t->name));
        continue;
      }
      t->data = nullptr;
      if (Status s = Input(t); !s.ok()) {
        Problem(Annotate(s, fmt::format("input '{}'", t->name)));
        t->poisoned = true;
      }
    }
    const std::vector<std::string> all(known.begin(), known.end());
    for (const auto& [name, shape] : options_.shapes) {
      if (!known.count(name))
        Problem(frontend::UnknownName(options_, "--shape", name, frontend::Named::kInput, all));
    }
    for (const auto& [name, value] : options_.bind) {
      if (!known.count(name))
        Problem(frontend::UnknownName(options_, "--bind", name, frontend::Named::kInput, all));
    }
    return OkStatus();
  }

  Status Input(TensorState* t) {
    WHET_RETURN_IF_ERROR(t->problem);
    if (auto it = options_.shapes.find(t->name); it != options_.shapes.end()) {
      if (!t->shape.empty() && it->second.size() != t->shape.size())
        return InvalidArgument("--shape {}={}: the input has {} dimensions", t->name,
                               fmt::join(it->second, ","), t->shape.size());
      t->shape = it->second;
    } else if (!t->open.empty() && t->open.back() > 0) {
      // An open batch is 1, as the file says; other extents that it leaves open are not in it.
      return InvalidArgument(
          "dimension {} is not fixed; give its shape, for instance --shape {}={}", t->open.back(),
          t->name, fmt::join(t->shape, ","));
    }
    WHET_RETURN_IF_ERROR(graph::CheckShape(t->dtype, t->shape));
    if (auto bound = options_.bind.find(t->name); bound != options_.bind.end()) {
      auto value = frontend::BoundValue(t->dtype, bound->second, t->shape);
      if (!value.ok())
        return Annotate(value.status(),
                        fmt::format("--bind {}={}", t->name, bound->second.substr(0, 100)));
      t->file = builder_.Constant(t->name, *std::move(value));
      return OkStatus();
    }
    t->file = builder_.Input(t->name, graph::TensorType::Of(t->dtype, t->shape));
    return OkStatus();
  }

  // All operators of a subgraph, in the file's order, which is the order of execution. The result
  // is an error only where nothing more can be found out.
  Status Operators(Scope* scope, int depth) {
    const auto* operators = scope->from->operators();
    for (uint32_t i = 0; i < SizeOfVector(operators); ++i) {
      if (++operator_count_ > kMaxOperators)
        return ResourceExhausted("more than {} operators, those of each branch taken counted",
                                 kMaxOperators);
      const fb::Operator& op = *operators->Get(i);
      operand_count_ += int64_t{SizeOfVector(op.inputs())} + SizeOfVector(op.outputs());
      if (operand_count_ > kMaxAllOperands)
        return ResourceExhausted("more than {} inputs and outputs of all operators together",
                                 kMaxAllOperands);
      const size_t before = graph_.values.size();
      Status s = OneOperator(scope, op, i, depth);
      for (size_t v = before; v < graph_.values.size(); ++v) {
        if (graph_.values[v].constant)
          created_bytes_ += static_cast<int64_t>(graph_.values[v].constant->bytes().size());
      }
      // The file's own constants, in another order or type, are four times its size at most.
      if (created_bytes_ > kMaxCreatedBytes + 4 * file_bytes_)
        return ResourceExhausted(
            "constants computed at import take more than {} bytes, the limit for a file of {} "
            "bytes",
            kMaxCreatedBytes + 4 * file_bytes_, file_bytes_);
      if (!s.ok() && s.code() != absl::StatusCode::kCancelled) Problem(std::move(s));
    }
    return OkStatus();
  }

  // Cancelled stands for "an input already has a problem".
  Status OneOperator(Scope* scope, const fb::Operator& op, uint32_t index, int depth) {
    std::vector<TensorState*> in, out;
    std::string name = "no name";
    const OpEntry* entry = nullptr;
    Status s = Code(op, &name, &entry);
    if (s.ok()) s = Tensors(scope, op, &in, &out);
    if (s.ok()) s = Ready(in);
    if (s.ok()) {
      builder_.SetLabel(out.empty() ? name : out[0]->name);
      OpContext c(builder_, op, in, out, scope->check_shapes,
                  [this, depth](int subgraph, std::vector<ValueId> args) {
                    return Call(subgraph, std::move(args), depth + 1);
                  });
      const auto first_new = static_cast<ValueId>(graph_.values.size());
      s = entry->lower(c, entry->onnx);
      for (TensorState* t : out) {
        if (s.ok() && !t->computed()) s = Internal("output '{}' was left out", t->name);
        // New values take the file's name; some lowerings hand through what has one already.
        const ValueId v = t->file != kNoValue ? t->file : t->channels_first;
        if (s.ok() && v >= first_new) graph_.Rename(v, t->name);
      }
    }
    if (s.ok()) return s;
    for (int32_t i = 0; i < static_cast<int32_t>(SizeOfVector(op.outputs())); ++i) {
      if (auto t = At(scope, op.outputs()->Get(static_cast<uint32_t>(i))); t.ok())
        (*t)->poisoned = true;
    }
    if (s.code() == absl::StatusCode::kCancelled) return s;
    const std::string label = out.empty() ? "" : fmt::format(" '{}'", out[0]->name);
    return Annotate(s, fmt::format("operator {}{} ({})", index, label, name));
  }

  Status Code(const fb::Operator& op, std::string* name, const OpEntry** entry) {
    const auto* codes = model_.operator_codes();
    if (op.opcode_index() >= SizeOfVector(codes))
      return InvalidArgument("operator code {} of {}", op.opcode_index(), SizeOfVector(codes));
    const fb::OperatorCode& code = *codes->Get(op.opcode_index());
    // Newer files have the code in a wider field; the older one is then a placeholder.
    const auto builtin = static_cast<fb::BuiltinOperator>(
        std::max<int32_t>(code.old_code(), static_cast<int32_t>(code.code())));
    *name = EnumNameBuiltinOperator(builtin);
    if (name->empty()) *name = fmt::format("operator code {}", static_cast<int32_t>(builtin));
    if (builtin == fb::BuiltinOperator::CUSTOM && code.custom_code() != nullptr)
      *name += " " + code.custom_code()->str();
    *entry = FindOperator(builtin);
    if (*entry != nullptr) return OkStatus();
    unsupported_ = true;
    return Unimplemented("the operator is not supported");
  }

  Status Tensors(Scope* scope, const fb::Operator& op, std::vector<TensorState*>* in,
                 std::vector<TensorState*>* out) const {
    for (const auto& [what, n] : {std::pair("inputs", SizeOfVector(op.inputs())),
                                  std::pair("outputs", SizeOfVector(op.outputs()))}) {
      if (n > kMaxOperands)
        return ResourceExhausted("{} {}; the limit is {}", n, what, kMaxOperands);
    }
    for (uint32_t i = 0; i < SizeOfVector(op.outputs()); ++i) {
      WHET_ASSIGN_OR_RETURN(TensorState * t, At(scope, op.outputs()->Get(i)));
      if (t->computed() || t->data != nullptr || t->output_of == operator_count_)
        return InvalidArgument(
            "it computes '{}', which is an input, a constant, or computed already", t->name);
      if (!t->problem.ok()) return Annotate(t->problem, fmt::format("tensor '{}'", t->name));
      t->output_of = operator_count_;
      out->push_back(t);
    }
    for (uint32_t i = 0; i < SizeOfVector(op.inputs()); ++i) {
      if (op.inputs()->Get(i) == -1) {  // an optional input left out
        in->push_back(nullptr);
        continue;
      }
      WHET_ASSIGN_OR_RETURN(TensorState * t, At(scope, op.inputs()->Get(i)));
      in->push_back(t);
    }
    while (!in->empty() && in->back() == nullptr) in->pop_back();
    return OkStatus();
  }

  static Status Ready(const std::vector<TensorState*>& in) {
    for (const TensorState* t : in) {
      if (t == nullptr) continue;
      if (t->poisoned) return absl::CancelledError();
      if (!t->problem.ok()) return Annotate(t->problem, fmt::format("tensor '{}'", t->name));
      if (!t->computed() && t->data == nullptr && t->shape != Shape{0})
        return InvalidArgument("input '{}' is not computed by an operator before it", t->name);
    }
    return OkStatus();
  }

  StatusOr<std::vector<ValueId>> Call(int subgraph, std::vector<ValueId> args, int depth) {
    if (subgraph < 1 || static_cast<uint32_t>(subgraph) >= model_.subgraphs()->size())
      return InvalidArgument("subgraph {} of {}", subgraph, model_.subgraphs()->size());
    if (depth > kMaxSubgraphDepth)
      return ResourceExhausted("subgraphs nest deeper than {}", kMaxSubgraphDepth);
    Scope scope;
    scope.from = model_.subgraphs()->Get(static_cast<uint32_t>(subgraph));
    WHET_RETURN_IF_ERROR(Describe(&scope));
    if (SizeOfVector(scope.from->inputs()) != args.size())
      return InvalidArgument("subgraph {} has {} inputs, {} are given", subgraph,
                             SizeOfVector(scope.from->inputs()), args.size());
    for (size_t i = 0; i < args.size(); ++i) {
      WHET_ASSIGN_OR_RETURN(TensorState * t,
                            At(&scope, scope.from->inputs()->Get(static_cast<uint32_t>(i))));
      WHET_RETURN_IF_ERROR(t->problem);
      if (t->dtype != graph_.type(args[i]).dtype)
        return InvalidArgument("subgraph {} takes {} for input {}, given is {}", subgraph,
                               ToString(t->dtype), i, ToString(graph_.type(args[i]).dtype));
      t->file = args[i];
      t->data = nullptr;
    }
    const int64_t before = problems_.count();
    WHET_RETURN_IF_ERROR(Operators(&scope, depth));
    if (problems_.count() != before) return absl::CancelledError();  // reported
    std::vector<ValueId> out;
    for (uint32_t i = 0; i < SizeOfVector(scope.from->outputs()); ++i) {
      WHET_ASSIGN_OR_RETURN(const ValueId v, Result(&scope, scope.from->outputs()->Get(i)));
      out.push_back(v);
    }
    return out;
  }

  // The value of a tensor in file order.
  StatusOr<ValueId> Result(Scope* scope, int32_t index) {
    WHET_ASSIGN_OR_RETURN(TensorState * t, At(scope, index));
    WHET_RETURN_IF_ERROR(Ready({t}));
    builder_.SetLabel(t->name);
    OpContext c(builder_, *EmptyOperator(), {t}, {}, false, nullptr);
    return c.Stored(0, Order::kFile);
  }

  // An operator without anything, for a context that only hands values out.
  const fb::Operator* EmptyOperator() {
    if (empty_.GetSize() == 0) empty_.Finish(fb::CreateOperator(empty_));
    return flatbuffers::GetRoot<fb::Operator>(empty_.GetBufferPointer());
  }

  void Outputs(Scope* scope) {
    const auto* outputs = scope->from->outputs();
    std::unordered_set<std::string> seen;
    for (uint32_t i = 0; i < SizeOfVector(outputs); ++i) {
      auto v = Result(scope, outputs->Get(i));
      if (v.ok()) {
        const std::string& name = scope->tensors[static_cast<size_t>(outputs->Get(i))].name;
        if (!seen.insert(name).second)
          Problem(InvalidArgument("two outputs are called '{}'", name));
        else
          builder_.Output(name, *v);
      } else if (v.status().code() != absl::StatusCode::kCancelled) {
        Problem(Annotate(v.status(), fmt::format("output {}", i)));
      }
    }
    if (SizeOfVector(outputs) == 0) Problem(InvalidArgument("the model has no outputs"));
    ExtraOutputs(scope);
  }

  // --output: values by the names of their tensors, the first one of each.
  void ExtraOutputs(Scope* scope) {
    for (const std::string& name : options_.outputs) {
      if (frontend::HasOutput(graph_, name)) continue;
      std::vector<std::string> known;
      const TensorState* found = nullptr;
      for (const TensorState& t : scope->tensors) {
        if (!t.computed() && !t.poisoned) continue;
        known.push_back(t.name);
        if (found == nullptr && t.name == name) found = &t;
      }
      if (found == nullptr) {
        Problem(InvalidArgument(
            "--output names '{}', which is no value of the model{}; whet inspect MODEL --graph "
            "lists them",
            name, Suggestion(name, known)));
        continue;
      }
      auto v = Result(scope, static_cast<int32_t>(found - scope->tensors.data()));
      if (v.ok()) {
        builder_.Output(name, *v);
      } else if (v.status().code() != absl::StatusCode::kCancelled) {
        Problem(Annotate(v.status(), fmt::format("--output {}", name)));
      }
    }
  }

 public:
  int64_t file_bytes_ = 0;

 private:
  const fb::Model& model_;
  const ImportOptions& options_;
  Graph graph_;
  graph::GraphBuilder builder_;
  flatbuffers::FlatBufferBuilder empty_;
  frontend::Problems problems_;
  int64_t operator_count_ = 0, tensor_count_ = 0, operand_count_ = 0;
  int64_t created_bytes_ = 0, described_bytes_ = 0;
  bool unsupported_ = false;
};

StatusOr<Graph> ImportBuffer(std::string_view bytes, const ImportOptions& options) {
  if (bytes.empty()) return InvalidArgument("the file is empty");
  if (static_cast<int64_t>(bytes.size()) > kMaxFileBytes)
    return ResourceExhausted("{} bytes exceed the limit of {}", bytes.size(), kMaxFileBytes);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (bytes.size() < 8 || !fb::ModelBufferHasIdentifier(data))
    return InvalidArgument("it is no TFLite model: 'TFL3' does not stand at byte 4");
  flatbuffers::Verifier verifier(data, bytes.size(), kMaxDepth, kMaxTables);
  if (!fb::VerifyModelBuffer(verifier))
    return InvalidArgument("it is truncated or damaged ({} bytes)", bytes.size());
  Importer importer(*fb::GetModel(data), options);
  importer.file_bytes_ = static_cast<int64_t>(bytes.size());
  return importer.Run();
}

StatusOr<Graph> ImportPath(const std::string& path, const ImportOptions& options) {
  WHET_ASSIGN_OR_RETURN(const std::string bytes, frontend::ReadModelFile(path, kMaxFileBytes));
  return ImportBuffer(bytes, options);
}

}  // namespace

StatusOr<Graph> ImportBytes(std::string_view model, const ImportOptions& options) {
  // Fields are read in place, which wants them aligned as in the file.
  const std::string aligned(model);
  auto g = ImportBuffer(aligned, options);
  if (!g.ok()) return Annotate(g.status(), "model");
  return g;
}

StatusOr<Graph> ImportFile(const std::string& path, const ImportOptions& options) {
  auto g = ImportPath(path, options);
  if (!g.ok()) return Annotate(g.status(), fmt::format("model '{}'", path));
  return g;
}

}  // namespace whet::tflite
