#include "compiler/tflite/context.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/bind_hint.h"
#include "compiler/graph/import.h"

namespace whet::tflite {
namespace {

constexpr int64_t kMaxListed = 4096;  // of axes, sizes, shapes and the like

Shape WithLeadingOnes(const Shape& s) {
  Shape four(4, 1);
  std::copy(s.begin(), s.end(), four.end() - static_cast<int64_t>(s.size()));
  return four;
}

Shape Permuted(const Shape& s, const std::vector<int64_t>& perm) {
  Shape out;
  for (int64_t d : perm) out.push_back(s[d]);
  return out;
}

}  // namespace

Status OpContext::Need(int at_least, int at_most, int outputs) const {
  for (int i = 0; i < at_least; ++i) {
    if (!Has(i)) return InvalidArgument("input {} is missing", i);
  }
  if (at_most >= 0 && num_inputs() > at_most)
    return InvalidArgument("{} inputs; it takes at most {}", num_inputs(), at_most);
  if (num_outputs() < 1 || (outputs >= 0 && num_outputs() != outputs))
    return InvalidArgument("{} outputs; it has {}", num_outputs(), std::max(outputs, 1));
  return OkStatus();
}

bool OpContext::IsConst(int i) const {
  if (!Has(i)) return false;
  const TensorState& t = *in_[i];
  if (t.computed()) return t.file != kNoValue && builder.graph().constant(t.file) != nullptr;
  return t.data != nullptr || t.shape == Shape{0};
}

StatusOr<graph::ConstantPtr> OpContext::ConstOf(int i) const {
  const TensorState& t = *in_[i];
  if (t.file != kNoValue && builder.graph().constant(t.file))
    return builder.graph().constant(t.file);
  if (t.computed()) return NotFound("no constant");
  // A list of nothing has no bytes: axes of a reduction, the shape of a scalar.
  if (t.data == nullptr && t.shape == Shape{0}) return graph::Constant::Make(t.dtype, t.shape, "");
  if (t.data == nullptr) return NotFound("no constant");
  auto c = ReadConstant(t.dtype, t.shape, *t.data);
  if (!c.ok()) return Annotate(c.status(), fmt::format("tensor '{}'", t.name));
  return c;
}

StatusOr<std::vector<int64_t>> OpContext::ConstInts(int i, std::string_view what) const {
  WHET_CHECK(Has(i));
  if (!IsConst(i)) {
    const ValueId v = in_[i]->file != kNoValue ? in_[i]->file : in_[i]->channels_first;
    return Unimplemented("{} (input {}) must be a constant{}", what, i,
                         graph::BindHint(builder.graph(), v));
  }
  if (IsFloat(dtype(i)))
    return InvalidArgument("{} (input {}) is {}, not an integer", what, i,
                           whet::ToString(dtype(i)));
  // Before it is read: many operators may name the same weights.
  const int64_t n = graph::TensorType::Of(dtype(i), shape(i)).num_elements();
  if (n > kMaxListed)
    return InvalidArgument("{} (input {}) has {} elements; the limit is {}", what, i, n,
                           kMaxListed);
  WHET_ASSIGN_OR_RETURN(const graph::ConstantPtr c, ConstOf(i));
  return c->Ints();
}

Shape OpContext::shape(int i) const {
  const TensorState& t = *in_[i];
  if (t.file != kNoValue) return builder.type(t.file).shape;
  if (t.channels_first != kNoValue) return Permuted(builder.type(t.channels_first).shape, kToFile);
  return t.shape;
}

StatusOr<int64_t> OpContext::Axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank)
    return InvalidArgument("axis {} is outside of rank {}", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

Order OpContext::PreferredOrder() const {
  Order order = Order::kFile;
  for (int i = 0; i < num_inputs(); ++i) {
    if (!Has(i)) continue;
    if (rank(i) > 4) return Order::kFile;
    if (rank(i) == 4 && in_[i]->channels_first != kNoValue && !IsConst(i))
      order = Order::kChannelsFirst;
  }
  return order;
}

StatusOr<ValueId> OpContext::Stored(int i, Order order) {
  TensorState& t = *in_[i];
  if (order == Order::kFile) {
    if (t.file == kNoValue && t.channels_first != kNoValue) {
      WHET_ASSIGN_OR_RETURN(t.file, Transpose(t.channels_first, kToFile));
    } else if (t.file == kNoValue) {
      WHET_ASSIGN_OR_RETURN(graph::ConstantPtr c, ConstOf(i));
      t.file = builder.Constant(t.name, std::move(c));
    }
    return t.file;
  }
  if (t.channels_first != kNoValue) return t.channels_first;
  const Shape from = shape(i);
  if (from.size() > 4) return InvalidArgument("input {} has rank {}, not 4", i, from.size());
  const Shape four = WithLeadingOnes(from);
  ValueId v = kNoValue;
  if (auto c = ConstOf(i); c.ok()) {
    if ((*c)->num_elements() == 1 && from.size() < 4) return Stored(i, Order::kFile);
    v = builder.Constant(t.name, TransposeConstant(*ReshapeConstant(**c, four), kToChannelsFirst));
  } else if (c.status().code() != absl::StatusCode::kNotFound) {
    return c.status();
  } else {
    v = t.file;
    if (from.size() < 4) {
      WHET_ASSIGN_OR_RETURN(v, Reshape(v, four));
    }
    WHET_ASSIGN_OR_RETURN(v, Transpose(v, kToChannelsFirst));
  }
  // Of a lower rank the file's order cannot be had back from it.
  if (from.size() == 4) t.channels_first = v;
  return v;
}

StatusOr<ValueId> OpContext::Dequantize(ValueId v, const Quantization& q, DType stored,
                                        int64_t axis) {
  const auto n = static_cast<int64_t>(q.scale.size());
  std::vector<double> zero(q.zero_point.begin(), q.zero_point.end());
  const Shape s = n == 1 ? Shape{} : Shape{n};
  return Emit("DequantizeLinear",
              {v, builder.Constant("scale", graph::Constant::OfDoubles(DType::kF32, s, q.scale)),
               builder.Constant("zero_point", graph::Constant::OfDoubles(stored, s, zero))},
              {{"axis", axis}});
}

StatusOr<ValueId> OpContext::Real(int i, Order order) {
  WHET_ASSIGN_OR_RETURN(const ValueId v, Stored(i, order));
  const Quantization& q = in_[i]->quantization;
  if (q.scale.empty() || IsFloat(in_[i]->dtype)) return v;
  int64_t axis = q.axis;
  if (q.scale.size() > 1 && order == Order::kChannelsFirst)
    axis = kChannelsFirstAxis[axis + 4 - rank(i)];
  return Dequantize(v, q, in_[i]->dtype, axis);
}

StatusOr<ValueId> OpContext::Weights(int i, const std::vector<int64_t>& perm) {
  if (shape(i).size() != perm.size())
    return InvalidArgument("weights have rank {}, not {}", rank(i), perm.size());
  ValueId v = kNoValue;
  auto c = ConstOf(i);
  if (c.ok()) {
    v = builder.Constant(in_[i]->name, TransposeConstant(**c, perm));
  } else if (c.status().code() != absl::StatusCode::kNotFound) {
    return c.status();
  } else {
    WHET_ASSIGN_OR_RETURN(v, Stored(i, Order::kFile));
    WHET_ASSIGN_OR_RETURN(v, Transpose(v, perm));
  }
  const Quantization& q = in_[i]->quantization;
  if (q.scale.empty() || IsFloat(in_[i]->dtype)) return v;
  const int64_t axis = std::find(perm.begin(), perm.end(), q.axis) - perm.begin();
  return Dequantize(v, q, in_[i]->dtype, axis);
}

Status OpContext::CheckOutput(int o, ValueId v, Order order) const {
  const TensorState& t = *out_[o];
  const graph::TensorType& type = builder.type(v);
  if (type.dtype != t.dtype)
    return InvalidArgument("output {} is {}, the file says {}", o, whet::ToString(type.dtype),
                           whet::ToString(t.dtype));
  if (!check_shapes_ || t.shape.empty()) return OkStatus();
  const Shape shape = order == Order::kFile ? type.shape : Permuted(type.shape, kToFile);
  if (shape != t.shape)
    return InvalidArgument("output {} has shape ({}), the file says ({})", o, fmt::join(shape, ","),
                           fmt::join(t.shape, ","));
  return OkStatus();
}

Status OpContext::SetStored(int o, ValueId v, Order order) {
  if (o >= num_outputs()) return InvalidArgument("output {} is missing", o);
  WHET_RETURN_IF_ERROR(CheckOutput(o, v, order));
  (order == Order::kFile ? out_[o]->file : out_[o]->channels_first) = v;
  return OkStatus();
}

Status OpContext::SetReal(int o, ValueId v, Order order) {
  if (o >= num_outputs()) return InvalidArgument("output {} is missing", o);
  const TensorState& t = *out_[o];
  if (IsFloat(t.dtype) || t.quantization.scale.empty()) return SetStored(o, v, order);
  if (t.quantization.scale.size() != 1)
    return Unimplemented("an output quantized per channel is not supported");
  WHET_ASSIGN_OR_RETURN(
      v,
      Emit("QuantizeLinear", {v, Scalar(DType::kF32, t.quantization.scale[0]),
                              Scalar(t.dtype, static_cast<double>(t.quantization.zero_point[0]))}));
  return SetStored(o, v, order);
}

StatusOr<ValueId> OpContext::Activate(ValueId v, fb::Activation a) {
  const DType t = builder.type(v).dtype;
  switch (a) {
    case fb::Activation::NONE: return v;
    case fb::Activation::RELU: return Emit("Relu", {v});
    case fb::Activation::RELU_N1_TO_1: return Emit("Clip", {v, Scalar(t, -1), Scalar(t, 1)});
    case fb::Activation::RELU6: return Emit("Clip", {v, Scalar(t, 0), Scalar(t, 6)});
    case fb::Activation::TANH: return Emit("Tanh", {v});
    default: return Unimplemented("fused activation {} is not supported", static_cast<int>(a));
  }
}

Status OpContext::Finish(ValueId v, Order order, fb::Activation a) {
  WHET_ASSIGN_OR_RETURN(v, Activate(v, a));
  return SetReal(0, v, order);
}

bool OpContext::MovesStored() const {
  for (const TensorState* t : in_) {
    // Indices, paddings and shapes among the inputs are plain integers.
    if (t == nullptr || (t->quantization.scale.empty() && t->dtype != out_[0]->dtype)) continue;
    if (t->quantization.scale.size() > 1 || !(t->quantization == out_[0]->quantization))
      return false;
  }
  return true;
}

StatusOr<std::vector<ValueId>> OpContext::EmitAll(std::string_view name,
                                                  std::vector<ValueId> inputs, int outputs,
                                                  Attrs attrs) {
  const graph::OpRecord* record = builder.graph().catalog->Find(name);
  if (record == nullptr || !record->importable)
    return Unimplemented("it needs operator {}, which is not supported", name);
  while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
  graph::ImportContext c(builder, std::string(name), kOpset, std::move(attrs), std::move(inputs),
                         std::vector<bool>(static_cast<size_t>(outputs), true));
  Status s = record->import ? record->import(c) : c.Finish(name, c.inputs, c.TakeAll());
  if (s.ok()) s = c.CheckAllTaken();
  if (!s.ok()) return Annotate(s, fmt::format("as {}", name));
  if (static_cast<int>(c.outputs.size()) < outputs)
    return Unimplemented("output {} of {} is not supported", c.outputs.size(), name);
  return c.outputs;
}

StatusOr<ValueId> OpContext::Emit(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  WHET_ASSIGN_OR_RETURN(std::vector<ValueId> out,
                        EmitAll(name, std::move(inputs), 1, std::move(attrs)));
  return out[0];
}

StatusOr<ValueId> OpContext::Reshape(ValueId v, const Shape& shape) {
  if (builder.type(v).shape == shape) return v;
  return builder.Emit("Reshape", {v}, {{"shape", shape}});
}

StatusOr<ValueId> OpContext::Transpose(ValueId v, const std::vector<int64_t>& perm) {
  if (builder.type(v).shape.size() != perm.size())
    return InvalidArgument("permutation of {} axes for rank {}", perm.size(),
                           builder.type(v).shape.size());
  return Emit("Transpose", {v}, {{"perm", perm}});
}

ValueId OpContext::Scalar(DType t, double v) {
  return builder.Constant("scalar", graph::Constant::OfDoubles(t, {}, std::span(&v, 1)));
}

}  // namespace whet::tflite
