// ONNX tensors and element types. Internal to compiler/onnx.
#pragma once
#include "compiler/graph/constant.h"
#include "compiler/onnx/external_data.h"
#include "compiler/onnx/onnx_schema.pb.h"

namespace whet::onnx {

StatusOr<DType> DTypeOf(int32_t onnx_type);
std::string OnnxTypeName(int32_t onnx_type);  // "uint16"
// Takes the bytes out of `t` where they are raw, so that weights exist once. Without `external`
// they must be in the message.
StatusOr<graph::ConstantPtr> TakeTensor(onnx_schema::TensorProto& t,
                                        ExternalData* external = nullptr);

}  // namespace whet::onnx
