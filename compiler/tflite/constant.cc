#include "compiler/tflite/constant.h"

#include <cmath>
#include <cstring>

namespace whet::tflite {

StatusOr<DType> DTypeOf(fb::TensorType t) {
  switch (t) {
    case fb::TensorType::FLOAT32: return DType::kF32;
    case fb::TensorType::FLOAT16: return DType::kF16;
    case fb::TensorType::FLOAT64: return DType::kF64;
    case fb::TensorType::INT8: return DType::kI8;
    case fb::TensorType::UINT8: return DType::kU8;
    case fb::TensorType::INT16: return DType::kI16;
    case fb::TensorType::UINT16: return DType::kU16;
    case fb::TensorType::INT32: return DType::kI32;
    case fb::TensorType::UINT32: return DType::kU32;
    case fb::TensorType::INT64: return DType::kI64;
    case fb::TensorType::UINT64: return DType::kU64;
    case fb::TensorType::BOOL: return DType::kBool;
    default: break;
  }
  const std::string name = fb::EnumNameTensorType(t);
  return Unimplemented(
      "element type {} is not supported; f16, f32, f64, bool and integers of 8, 16, 32 and 64 bits "
      "are",
      name.empty() ? std::to_string(static_cast<int>(t)) : name);
}

StatusOr<Quantization> QuantizationOf(const fb::Tensor& t) {
  Quantization q;
  const fb::Quantization* from = t.quantization();
  if (from == nullptr) return q;
  if (from->details_type() != fb::Details::NONE)
    return Unimplemented("custom quantization is not supported");
  if (from->scale() == nullptr || from->scale()->size() == 0) return q;
  // Before anything is copied: many tensors may refer to the same long lists.
  const size_t scales = from->scale()->size();
  const size_t zeros = from->zero_point() == nullptr ? 0 : from->zero_point()->size();
  if (zeros != 0 && zeros != scales)
    return InvalidArgument("{} zero points for {} scales", zeros, scales);
  if (scales > 1) {
    WHET_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(t));
    q.axis = from->quantized_dimension();
    if (q.axis < 0 || q.axis >= static_cast<int64_t>(shape.size()) ||
        shape[q.axis] != static_cast<int64_t>(scales))
      return InvalidArgument("{} scales for dimension {} of rank {}", scales, q.axis, shape.size());
  }
  q.scale.assign(from->scale()->begin(), from->scale()->end());
  for (double s : q.scale) {
    if (!std::isfinite(s) || s <= 0) return InvalidArgument("quantization scale {}", s);
  }
  q.zero_point.assign(scales, 0);
  // By bytes: that elements of 8 bytes are aligned is nothing the verifier looks at.
  if (zeros != 0)
    std::memcpy(q.zero_point.data(), from->zero_point()->Data(), zeros * sizeof(int64_t));
  q.axis = from->quantized_dimension();
  return q;
}

StatusOr<Shape> ShapeOf(const fb::Tensor& t) {
  Shape shape;
  if (t.shape() != nullptr) {
    if (t.shape()->size() > static_cast<size_t>(graph::kMaxRank))
      return ResourceExhausted("rank {} exceeds the limit of {}", t.shape()->size(),
                               graph::kMaxRank);
    shape.assign(t.shape()->begin(), t.shape()->end());
  }
  WHET_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(t.type()));
  WHET_RETURN_IF_ERROR(graph::CheckShape(dtype, shape));
  return shape;
}

StatusOr<graph::ConstantPtr> ReadConstant(DType dtype, const Shape& shape,
                                          const flatbuffers::Vector<uint8_t>& data) {
  std::string bytes(reinterpret_cast<const char*>(data.data()), data.size());
  if (dtype == DType::kBool) {
    for (char& c : bytes) c = c != 0;  // any other byte would not be a bool to compiled code
  }
  return graph::Constant::Make(dtype, shape, std::move(bytes));
}

graph::ConstantPtr TransposeConstant(const graph::Constant& c, const std::vector<int64_t>& perm) {
  const size_t rank = perm.size();
  const auto size = static_cast<size_t>(SizeOf(c.dtype()));
  Shape strides(rank, 1), shape(rank);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * c.shape()[d];
  for (size_t d = 0; d < rank; ++d) shape[d] = c.shape()[perm[d]];
  std::string bytes(c.bytes().size(), '\0');
  Shape index(rank, 0);
  const char* from = c.bytes().data();
  int64_t at = 0;
  for (char *to = bytes.data(), *end = to + bytes.size(); to < end; to += size) {
    std::memcpy(to, from + at * static_cast<int64_t>(size), size);
    for (size_t d = rank; d-- > 0;) {
      at += strides[perm[d]];
      if (++index[d] < shape[d]) break;
      at -= strides[perm[d]] * shape[d];
      index[d] = 0;
    }
  }
  return std::make_shared<const graph::Constant>(c.dtype(), std::move(shape), std::move(bytes));
}

graph::ConstantPtr ReshapeConstant(const graph::Constant& c, Shape shape) {
  return std::make_shared<const graph::Constant>(c.dtype(), std::move(shape), c.bytes());
}

}  // namespace whet::tflite
