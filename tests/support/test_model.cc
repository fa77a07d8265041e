#include "tests/support/test_model.h"

#include <cmath>
#include <fstream>

#include "compiler/graph/constant.h"
#include "compiler/support/fingerprint.h"
#include "compiler/support/rng.h"

namespace whet::testing_support {

using onnx_schema::AttributeProto;
using onnx_schema::TensorProto;

int32_t OnnxType(DType t) {
  switch (t) {
    case DType::kBool: return TensorProto::BOOL;
    case DType::kI8: return TensorProto::INT8;
    case DType::kU8: return TensorProto::UINT8;
    case DType::kI16: return TensorProto::INT16;
    case DType::kU16: return TensorProto::UINT16;
    case DType::kU32: return TensorProto::UINT32;
    case DType::kU64: return TensorProto::UINT64;
    case DType::kI32: return TensorProto::INT32;
    case DType::kI64: return TensorProto::INT64;
    case DType::kF16: return TensorProto::FLOAT16;
    case DType::kBF16: return TensorProto::BFLOAT16;
    case DType::kF32: return TensorProto::FLOAT;
    case DType::kF64: return TensorProto::DOUBLE;
  }
  return 0;
}

namespace {

void FillTensor(TensorProto* t, DType type, const std::vector<int64_t>& shape,
                std::span<const double> values) {
  t->set_data_type(OnnxType(type));
  for (int64_t d : shape) t->add_dims(d);
  t->set_raw_data(graph::WriteDoubles(type, values));
}

}  // namespace

AttributeProto* TestModel::NodeWriter::Add(std::string_view name) {
  AttributeProto* a = n_->add_attribute();
  a->set_name(std::string(name));
  return a;
}

TestModel::NodeWriter& TestModel::NodeWriter::Int(std::string_view name, int64_t v) {
  AttributeProto* a = Add(name);
  a->set_type(AttributeProto::INT);
  a->set_i(v);
  return *this;
}

TestModel::NodeWriter& TestModel::NodeWriter::Float(std::string_view name, float v) {
  AttributeProto* a = Add(name);
  a->set_type(AttributeProto::FLOAT);
  a->set_f(v);
  return *this;
}

TestModel::NodeWriter& TestModel::NodeWriter::Str(std::string_view name, std::string_view v) {
  AttributeProto* a = Add(name);
  a->set_type(AttributeProto::STRING);
  a->set_s(std::string(v));
  return *this;
}

TestModel::NodeWriter& TestModel::NodeWriter::Ints(std::string_view name,
                                                   const std::vector<int64_t>& v) {
  AttributeProto* a = Add(name);
  a->set_type(AttributeProto::INTS);
  for (int64_t i : v) a->add_ints(i);
  return *this;
}

TestModel::NodeWriter& TestModel::NodeWriter::Tensor(std::string_view name, DType t,
                                                     const std::vector<int64_t>& shape,
                                                     std::span<const double> values) {
  AttributeProto* a = Add(name);
  a->set_type(AttributeProto::TENSOR);
  FillTensor(a->mutable_t(), t, shape, values);
  return *this;
}

TestModel::NodeWriter& TestModel::NodeWriter::Graph(std::string_view name, const TestModel& body) {
  AttributeProto* a = Add(name);
  a->set_type(AttributeProto::GRAPH);
  *a->mutable_g() = body.model_.graph();
  return *this;
}

TestModel::NodeWriter& TestModel::NodeWriter::Domain(std::string_view domain) {
  n_->set_domain(std::string(domain));
  return *this;
}

TestModel::TestModel(int opset, std::string_view name) {
  model_.set_ir_version(7);
  auto* set = model_.add_opset_import();
  set->set_domain("");
  set->set_version(opset);
  model_.mutable_graph()->set_name(std::string(name));
}

TestModel& TestModel::Input(std::string_view name, const std::vector<int64_t>& shape, DType t) {
  std::vector<std::string> dims;
  for (int64_t d : shape) dims.push_back(std::to_string(d));
  return SymbolicInput(name, dims, t);
}

TestModel& TestModel::SymbolicInput(std::string_view name, const std::vector<std::string>& dims,
                                    DType t) {
  auto* v = model_.mutable_graph()->add_input();
  v->set_name(std::string(name));
  auto* tensor = v->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(OnnxType(t));
  auto* shape = tensor->mutable_shape();
  for (const std::string& d : dims) {
    auto* dim = shape->add_dim();
    const bool number = !d.empty() && d.find_first_not_of("-0123456789") == std::string::npos;
    if (number) {
      dim->set_dim_value(std::stoll(d));
    } else if (!d.empty()) {
      dim->set_dim_param(d);
    }
  }
  return *this;
}

TestModel& TestModel::Output(std::string_view name) {
  model_.mutable_graph()->add_output()->set_name(std::string(name));
  return *this;
}

TestModel& TestModel::Constant(std::string_view name, DType t, const std::vector<int64_t>& shape,
                               std::span<const double> values) {
  TensorProto* tensor = model_.mutable_graph()->add_initializer();
  tensor->set_name(std::string(name));
  FillTensor(tensor, t, shape, values);
  return *this;
}

TestModel& TestModel::Ints(std::string_view name, const std::vector<int64_t>& values) {
  const std::vector<double> doubles(values.begin(), values.end());
  return Constant(name, DType::kI64, {static_cast<int64_t>(values.size())}, doubles);
}

TestModel& TestModel::Weights(std::string_view name, const std::vector<int64_t>& shape, DType t) {
  int64_t terms = 1;
  for (size_t i = 1; i < shape.size(); ++i) terms *= shape[i];
  const double scale = shape.size() >= 2 ? std::sqrt(3.0 / static_cast<double>(terms)) : 0.5;
  const uint64_t seed = FingerprintOf(name).lo;
  std::vector<double> values(static_cast<size_t>(shape.empty() ? 1 : shape[0] * terms));
  for (size_t i = 0; i < values.size(); ++i) values[i] = CounterUniform(seed, 0, i) * scale;
  return Constant(name, t, shape, values);
}

TestModel::NodeWriter TestModel::Node(std::string_view op, const std::vector<std::string>& inputs,
                                      const std::vector<std::string>& outputs) {
  auto* n = model_.mutable_graph()->add_node();
  n->set_op_type(std::string(op));
  n->set_name(std::string(op) + "_" + std::to_string(model_.graph().node_size() - 1));
  for (const std::string& i : inputs) n->add_input(i);
  for (const std::string& o : outputs) n->add_output(o);
  return NodeWriter(n);
}

void TestModel::WriteTo(const std::string& path) const {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << Serialize();
}

}  // namespace whet::testing_support
