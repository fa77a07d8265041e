// Static types for the inputs of a model: symbolic dimensions take the values of --shape and
// --bind, and bound inputs become constants. Internal to compiler/onnx.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "compiler/graph/constant.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/onnx_schema.pb.h"

namespace whet::onnx {

struct InputType {
  std::string name;
  graph::TensorType type;
  graph::ConstantPtr value;  // of a bound one
};

// `inputs` are those that no initializer gives a value. A dimension parameter that one shape option
// or --bind binds is bound for all inputs. Problems are appended to `problems`; the result then
// leaves out the inputs that have one.
std::vector<InputType> ResolveInputs(const std::vector<const onnx_schema::ValueInfoProto*>& inputs,
                                     const ImportOptions& options, std::vector<Status>* problems);

}  // namespace whet::onnx
