// The inputs of a test, and its model imported with those as constants that the importer wants as
// such. Single-threaded, for tests of ONNX's conformance data only.
#pragma once
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "tests/conformance/suite.h"

namespace whet::conformance {

struct Tensor {
  std::string name;
  bool sized = false;  // the model says its shape
  onnx_schema::TensorProto proto;
  graph::ConstantPtr value;
};

// `declared`: what the model says of it.
StatusOr<Tensor> ParseTensor(const std::string& bytes, const onnx_schema::ValueInfoProto& declared);
bool WantsConstant(const Status& s);
// Binds what the importer insists on, and nothing that it does not.
StatusOr<graph::Graph> ImportWithFewestBound(const Vectors& v, const std::vector<Tensor>& inputs,
                                             std::vector<bool>* bound);

}  // namespace whet::conformance
