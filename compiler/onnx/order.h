// The order in which the nodes of a graph or function can be computed. Internal to compiler/onnx.
#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "compiler/onnx/onnx_schema.pb.h"
#include "compiler/support/status.h"

namespace whet::onnx {

using NodeList = google::protobuf::RepeatedPtrField<onnx_schema::NodeProto>;

std::string LabelOf(const onnx_schema::NodeProto& n);

// Files are meant to be sorted; those that are not are sorted here. A name that is given twice, or
// that `given` (inputs and initializers) has already, and a cycle are errors.
StatusOr<std::vector<int>> ExecutionOrder(const NodeList& nodes,
                                          const std::unordered_set<std::string>& given);

}  // namespace whet::onnx
