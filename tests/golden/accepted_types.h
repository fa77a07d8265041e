// Which element types ONNX's operators take as their data, which is the first
// input of most: each is tried in every test of
// the conformance data that is one node of the operator, or in a model of our own where there is
// none.
#pragma once
#include <map>
#include <string>

#include "compiler/support/status.h"

namespace whet {

// By operator; an operator without a sample is an error.
StatusOr<std::map<std::string, std::string>> AcceptedTypes();

}  // namespace whet
