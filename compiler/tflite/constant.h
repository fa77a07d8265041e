// Element types, quantization and constant data of the file. Internal to compiler/tflite.
#pragma once
#include <vector>

#include "compiler/graph/constant.h"
#include "compiler/tflite/schema_generated.h"

namespace whet::tflite {

namespace fb = tflite_schema;
using Shape = std::vector<int64_t>;

// real = scale * (stored - zero_point); one of each, or one per extent of `axis`.
struct Quantization {
  std::vector<double> scale;
  std::vector<int64_t> zero_point;
  int64_t axis = 0;
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

StatusOr<DType> DTypeOf(fb::TensorType t);
// Without scales when the tensor is not quantized.
StatusOr<Quantization> QuantizationOf(const fb::Tensor& t);
// The declared shape; empty for scalars and where the file says nothing.
StatusOr<Shape> ShapeOf(const fb::Tensor& t);

// Of exactly the size the shape asks for.
StatusOr<graph::ConstantPtr> ReadConstant(DType dtype, const Shape& shape,
                                          const flatbuffers::Vector<uint8_t>& data);
// Element (i0, i1, ...) of the result is where dimension d of it is dimension perm[d] of `c`.
graph::ConstantPtr TransposeConstant(const graph::Constant& c, const std::vector<int64_t>& perm);
graph::ConstantPtr ReshapeConstant(const graph::Constant& c, Shape shape);

}  // namespace whet::tflite
