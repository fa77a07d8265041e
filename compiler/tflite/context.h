// What the lowering of one operator of the file sees: its tensors as graph values in the order of
// axes it wants, its options, and the operators of the catalog to build with. Internal to
// compiler/tflite; lives on the importer's stack.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/tflite/constant.h"

namespace whet::tflite {

using graph::Attrs;
using graph::kNoValue;
using graph::ValueId;

// Which order the axes of a value are in: the file's (n, h, w, c), or (n, c, h, w).
enum class Order : uint8_t { kFile, kChannelsFirst };

// A tensor of the file while its graph is being built.
struct TensorState {
  std::string name;
  Status problem;  // of its description: reported by whoever uses it
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<uint32_t> open;  // dimensions that the file does not fix, ascending
  Quantization quantization;
  const flatbuffers::Vector<uint8_t>* data = nullptr;  // of a constant
  ValueId file = kNoValue, channels_first = kNoValue;  // the value, in either order or both
  bool poisoned = false;   // an operator before it has a problem: what reads it is not reported
  int64_t output_of = -1;  // the operator that names it as an output, by number

  bool computed() const { return file != kNoValue || channels_first != kNoValue; }
};

class OpContext {
 public:
  // Runs another subgraph of the file on values in file order.
  using Call = std::function<StatusOr<std::vector<ValueId>>(int subgraph, std::vector<ValueId>)>;

  OpContext(graph::GraphBuilder& builder, const fb::Operator& op, std::vector<TensorState*> in,
            std::vector<TensorState*> out, bool check_shapes, Call call)
      : builder(builder),
        op(op),
        call(std::move(call)),
        in_(std::move(in)),
        out_(std::move(out)),
        check_shapes_(check_shapes) {}

  graph::GraphBuilder& builder;
  const fb::Operator& op;
  const Call call;

  int num_inputs() const { return static_cast<int>(in_.size()); }
  int num_outputs() const { return static_cast<int>(out_.size()); }
  bool Has(int i) const { return i < num_inputs() && in_[i] != nullptr; }
  Status Need(int at_least, int at_most, int outputs = 1) const;
  // Options of the operator, which it cannot do without.
  template <typename T>
  StatusOr<const T*> Options(const T* given) const {
    if (given == nullptr) return InvalidArgument("its options are missing or another operator's");
    return given;
  }

  DType dtype(int i) const { return in_[i]->dtype; }
  DType out_dtype(int o) const { return out_[o]->dtype; }
  const std::string& out_name(int o) const { return out_[o]->name; }
  const Quantization& quantization(int i) const { return in_[i]->quantization; }
  bool IsConst(int i) const;  // does not read it
  StatusOr<graph::ConstantPtr> ConstOf(int i) const;
  StatusOr<std::vector<int64_t>> ConstInts(int i, std::string_view what) const;
  Shape shape(int i) const;  // in file order; the actual one, whatever the file declares
  int64_t rank(int i) const { return static_cast<int64_t>(shape(i).size()); }
  StatusOr<int64_t> Axis(int64_t axis, int64_t rank) const;  // negative ones count from the end

  // Element-wise operators of rank 4 stay in the order that their inputs come in.
  Order PreferredOrder() const;
  // Input i as stored, or with quantized values turned into f32. In channels-first order a tensor
  // of lower rank gets leading extents of 1, so that it broadcasts as it did.
  StatusOr<ValueId> Stored(int i, Order order);
  StatusOr<ValueId> Real(int i, Order order);
  // Like Real, with dimension d of the result being dimension perm[d] of the file's.
  StatusOr<ValueId> Weights(int i, const std::vector<int64_t>& perm);

  // Outputs.
  Status SetStored(int o, ValueId v, Order order);
  Status SetReal(int o, ValueId v, Order order);  // quantized where the tensor is
  StatusOr<ValueId> Activate(ValueId v, fb::Activation a);
  Status Finish(ValueId v, Order order, fb::Activation a = fb::Activation::NONE);
  // Operators that only move elements need not leave the integers if all tensors agree.
  bool MovesStored() const;
  StatusOr<ValueId> Moved(int i, Order order) {
    return MovesStored() ? Stored(i, order) : Real(i, order);
  }
  Status SetMoved(int o, ValueId v, Order order) {
    return MovesStored() ? SetStored(o, v, order) : SetReal(o, v, order);
  }

  // A node of the catalog, in ONNX's terms of operator set kOpset.
  StatusOr<ValueId> Emit(std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
  StatusOr<std::vector<ValueId>> EmitAll(std::string_view name, std::vector<ValueId> inputs,
                                         int outputs, Attrs attrs = {});
  StatusOr<ValueId> Reshape(ValueId v, const Shape& shape);
  StatusOr<ValueId> Transpose(ValueId v, const std::vector<int64_t>& perm);
  ValueId Scalar(DType t, double v);
  ValueId Ints(const std::vector<int64_t>& values) { return builder.Ints(values); }

 private:
  static constexpr int kOpset = 13;
  StatusOr<ValueId> Dequantize(ValueId v, const Quantization& q, DType stored, int64_t axis);
  Status CheckOutput(int o, ValueId v, Order order) const;

  const std::vector<TensorState*> in_, out_;  // null: an optional input left out
  const bool check_shapes_;
};

// One operator of the format.
struct OpEntry {
  fb::BuiltinOperator code;
  // `onnx`: the operator of the catalog, for those that differ in nothing else.
  Status (*lower)(OpContext& c, const char* onnx);
  const char* onnx = "";
};
const OpEntry* FindOperator(fb::BuiltinOperator code);
std::vector<std::string> OperatorNames();  // sorted

// The parts of the list, one file each.
std::vector<OpEntry> WindowOperators();
std::vector<OpEntry> ArithmeticOperators();
std::vector<OpEntry> MovementOperators();

inline const std::vector<int64_t> kToChannelsFirst = {0, 3, 1, 2};
inline const std::vector<int64_t> kToFile = {0, 2, 3, 1};
// Where each axis of the file stands in channels-first order.
inline constexpr int64_t kChannelsFirstAxis[4] = {0, 2, 3, 1};

}  // namespace whet::tflite
