#include "compiler/onnx/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace whet::onnx {
namespace {

using onnx_schema::TensorProto;

// Elements stored in a typed field, each narrowed to T.
template <typename T, typename Field>
std::string Narrow(const Field& field) {
  std::string bytes(static_cast<size_t>(field.size()) * sizeof(T), '\0');
  for (int i = 0; i < field.size(); ++i) {
    const T v = static_cast<T>(field.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &v, sizeof(T));
  }
  return bytes;
}

std::string TypedBytes(const TensorProto& t, DType dtype) {
  switch (dtype) {
    case DType::kF32: return Narrow<float>(t.float_data());
    case DType::kF64: return Narrow<double>(t.double_data());
    case DType::kI64: return Narrow<int64_t>(t.int64_data());
    case DType::kI32: return Narrow<int32_t>(t.int32_data());
    case DType::kU64: return Narrow<uint64_t>(t.uint64_data());
    case DType::kU32: return Narrow<uint32_t>(t.uint64_data());
    case DType::kI16:
    case DType::kU16: return Narrow<uint16_t>(t.int32_data());
    case DType::kBool:
    case DType::kI8:
    case DType::kU8: return Narrow<uint8_t>(t.int32_data());
    case DType::kF16:
    case DType::kBF16: return Narrow<uint16_t>(t.int32_data());
  }
  return {};
}

}  // namespace

StatusOr<DType> DTypeOf(int32_t onnx_type) {
  switch (onnx_type) {
    case TensorProto::FLOAT: return DType::kF32;
    case TensorProto::DOUBLE: return DType::kF64;
    case TensorProto::FLOAT16: return DType::kF16;
    case TensorProto::BFLOAT16: return DType::kBF16;
    case TensorProto::INT8: return DType::kI8;
    case TensorProto::UINT8: return DType::kU8;
    case TensorProto::INT16: return DType::kI16;
    case TensorProto::UINT16: return DType::kU16;
    case TensorProto::UINT32: return DType::kU32;
    case TensorProto::UINT64: return DType::kU64;
    case TensorProto::INT32: return DType::kI32;
    case TensorProto::INT64: return DType::kI64;
    case TensorProto::BOOL: return DType::kBool;
    default:
      return Unimplemented(
          "element type {} is not supported; f16, bf16, f32, f64, bool and integers of 8, 16, 32 "
          "and 64 bits are",
          OnnxTypeName(onnx_type));
  }
}

std::string OnnxTypeName(int32_t onnx_type) {
  if (!TensorProto::DataType_IsValid(onnx_type)) return fmt::format("number {}", onnx_type);
  std::string name = TensorProto::DataType_Name(static_cast<TensorProto::DataType>(onnx_type));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return name;
}

StatusOr<graph::ConstantPtr> TakeTensor(TensorProto& t, ExternalData* external) {
  if (t.has_segment()) return Unimplemented("its data is in segments, which is not supported");
  WHET_ASSIGN_OR_RETURN(DType dtype, DTypeOf(t.data_type()));
  std::vector<int64_t> shape(t.dims().begin(), t.dims().end());
  WHET_RETURN_IF_ERROR(graph::CheckShape(dtype, shape));
  std::string bytes;
  if (t.data_location() == TensorProto::EXTERNAL) {
    ExternalData none;
    const int64_t wanted = graph::TensorType::Of(dtype, shape).bytes();
    WHET_ASSIGN_OR_RETURN(bytes, (external != nullptr ? *external : none).Read(t, wanted));
  } else {
    bytes = t.has_raw_data() ? std::move(*t.mutable_raw_data()) : TypedBytes(t, dtype);
  }
  if (dtype == DType::kBool) {
    for (char& c : bytes) c = c != 0;  // any other byte would not be a bool to compiled code
  }
  return graph::Constant::Make(dtype, std::move(shape), std::move(bytes));
}

}  // namespace whet::onnx
