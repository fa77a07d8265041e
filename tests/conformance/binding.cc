#include "tests/conformance/binding.h"

#include "compiler/onnx/import.h"
#include "compiler/onnx/tensor.h"

namespace whet::conformance {
namespace {

// The model with the inputs that `bound` marks turned into initializers.
StatusOr<graph::Graph> ImportBound(const Vectors& v, const std::vector<Tensor>& inputs,
                                   const std::vector<bool>& bound) {
  onnx_schema::ModelProto model = v.model;
  onnx::ImportOptions options;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (bound[i]) {
      onnx_schema::TensorProto* t = model.mutable_graph()->add_initializer();
      *t = inputs[i].proto;
      t->set_name(inputs[i].name);
    } else if (!inputs[i].sized) {
      options.shapes[inputs[i].name] = inputs[i].value->shape();
    }
  }
  return onnx::ImportBytes(model.SerializeAsString(), options);
}

// Shapes, axes, sizes, flags and scales are small; data is not.
bool ShapeLike(const graph::ConstantPtr& c) {
  const bool whole = c->dtype() == DType::kI64 || c->dtype() == DType::kI32;
  return c->num_elements() <= 1 || (c->shape().size() == 1 && (whole || c->num_elements() <= 8));
}

}  // namespace

StatusOr<Tensor> ParseTensor(const std::string& bytes,
                             const onnx_schema::ValueInfoProto& declared) {
  Tensor t;
  t.name = declared.name();
  t.sized = declared.type().tensor_type().has_shape();
  for (const auto& d : declared.type().tensor_type().shape().dim()) t.sized &= d.has_dim_value();
  if (!t.proto.ParseFromString(bytes)) return InvalidArgument("a tensor that does not parse");
  // NumPy has no bf16, so the vectors hold its bits as u16.
  if (t.proto.data_type() == onnx_schema::TensorProto::UINT16 &&
      declared.type().tensor_type().elem_type() == onnx_schema::TensorProto::BFLOAT16)
    t.proto.set_data_type(onnx_schema::TensorProto::BFLOAT16);
  onnx_schema::TensorProto copy = t.proto;
  WHET_ASSIGN_OR_RETURN(t.value, onnx::TakeTensor(copy));
  return t;
}

bool WantsConstant(const Status& s) {
  return Message(s).find("must be a constant") != std::string::npos;
}

StatusOr<graph::Graph> ImportWithFewestBound(const Vectors& v, const std::vector<Tensor>& inputs,
                                             std::vector<bool>* bound) {
  bound->assign(inputs.size(), false);
  auto g = ImportBound(v, inputs, *bound);
  if (g.ok() || !WantsConstant(g.status())) return g;
  for (size_t i = 0; i < inputs.size(); ++i) (*bound)[i] = ShapeLike(inputs[i].value);
  g = ImportBound(v, inputs, *bound);
  if (!g.ok() && WantsConstant(g.status())) {
    bound->assign(inputs.size(), true);
    g = ImportBound(v, inputs, *bound);
  }
  if (!g.ok()) return g;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!(*bound)[i]) continue;
    (*bound)[i] = false;
    auto fewer = ImportBound(v, inputs, *bound);
    if (fewer.ok()) {
      g = std::move(fewer);
    } else {
      (*bound)[i] = true;
    }
  }
  return g;
}

}  // namespace whet::conformance
