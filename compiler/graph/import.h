// What an operator record sees of a node of a model while it turns it into canonical nodes: raw
// attributes, inputs, the version of the operator set, and the builder. A record takes every
// attribute it understands; what is left over is an error, so that an unknown attribute is never
// ignored in silence. Lives on the importer's stack.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/graph/builder.h"

namespace whet::graph {

// What a model has besides tensors: sequences and optionals. They exist while it is being imported
// only, as lists of values whose lengths are known; an id at or below kFirstList names one.
inline constexpr ValueId kFirstList = -16;
struct ImportList {
  bool optional = false;       // of one item, or of none
  std::vector<ValueId> items;  // tensors; an optional may hold a sequence
};
class ImportLists {
 public:
  // An error once all lists together hold too many items: they are kept until the end, and each
  // step of a loop may make a long one.
  StatusOr<ValueId> Add(ImportList list);
  const ImportList* Find(ValueId v) const;  // null: a tensor

 private:
  std::vector<ImportList> lists_;
  int64_t items_ = 0;  // of all lists, which count themselves
};

// A graph that is an attribute of a node: a branch of If, the body of Loop. Borrowed from the
// importer's stack, as the context is.
class ImportBody {
 public:
  virtual ~ImportBody() = default;
  virtual int num_inputs() const = 0;
  virtual int num_outputs() const = 0;
  // Appends the body's nodes once more, reading `inputs`; the values of its outputs. Problems
  // inside are the importer's to report: the error is then Cancelled, to be handed on.
  virtual StatusOr<std::vector<ValueId>> Inline(std::vector<ValueId> inputs) = 0;
};

class ImportContext {
 public:
  ImportContext(GraphBuilder& b, std::string op_type, int opset, Attrs attrs,
                std::vector<ValueId> inputs, std::vector<bool> wanted)
      : builder(b),
        op_type(std::move(op_type)),
        opset(opset),
        inputs(std::move(inputs)),
        attrs_(std::move(attrs)),
        wanted_(std::move(wanted)) {}

  GraphBuilder& builder;
  const std::string op_type;
  const int opset;
  std::vector<ValueId> inputs;   // kNoValue where an optional one is left out in the middle
  std::vector<ValueId> outputs;  // filled in by the record, one per output it supports
  // Constant tensors given as attributes (Constant, ConstantOfShape), by attribute name.
  std::vector<std::pair<std::string, ConstantPtr>> tensors;
  // Graphs given as attributes, by attribute name.
  std::vector<std::pair<std::string, std::unique_ptr<ImportBody>>> bodies;
  ImportLists* lists = nullptr;  // of the whole import; null: the frontend knows tensors only

  int num_inputs() const { return static_cast<int>(inputs.size()); }
  bool Has(int i) const { return i < num_inputs() && inputs[i] != kNoValue; }
  const TensorType& type(int i) const { return builder.type(inputs[i]); }
  bool Wanted(int output) const {
    return output < static_cast<int>(wanted_.size()) && wanted_[output];
  }
  Status NeedInputs(int at_least, int at_most = -1) const;

  // Attributes, each taken once. An integer is accepted where a float is wanted.
  bool HasAttr(std::string_view name) const { return attrs_.Find(name) != nullptr; }
  StatusOr<int64_t> TakeInt(std::string_view name, int64_t missing);
  StatusOr<double> TakeFloat(std::string_view name, double missing);
  StatusOr<std::string> TakeString(std::string_view name, std::string missing);
  StatusOr<std::vector<int64_t>> TakeInts(std::string_view name, std::vector<int64_t> missing);
  StatusOr<std::vector<double>> TakeFloats(std::string_view name, std::vector<double> missing);
  ConstantPtr TakeTensor(std::string_view name);  // null when missing
  StatusOr<std::unique_ptr<ImportBody>> TakeBody(std::string_view name);
  void Ignore(std::string_view name) { attrs_.Erase(name); }
  Attrs TakeAll() { return std::exchange(attrs_, {}); }
  Status CheckAllTaken() const;

  // The value of an input that has to be known at compile time: `what` names it in the error.
  StatusOr<std::vector<int64_t>> ConstInts(int i, std::string_view what) const;
  StatusOr<std::vector<double>> ConstFloats(int i, std::string_view what) const;
  bool IsConst(int i) const { return Has(i) && builder.TryFold(inputs[i]); }
  StatusOr<int64_t> ConstInt(int i, std::string_view what) const;  // of exactly one element

  // Sequences and optionals; null where the input is a tensor or missing.
  const ImportList* List(int i) const {
    return Has(i) && lists != nullptr ? lists->Find(inputs[i]) : nullptr;
  }
  StatusOr<std::vector<ValueId>> Sequence(int i) const;  // the items of an input that must be one

  // Emits one node and makes it the only output.
  Status Finish(std::string_view op, std::vector<ValueId> in, Attrs attrs = {});

 private:
  template <typename T>
  StatusOr<T> Take(std::string_view name, T missing);
  Attrs attrs_;
  std::vector<bool> wanted_;
};

}  // namespace whet::graph
