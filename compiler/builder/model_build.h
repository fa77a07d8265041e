// Builds the model a request describes: workload texts become programs, traces are parsed, indices
// checked. What `whet-builder model` does between reading the request and writing the reply.
#pragma once
#include "compiler/codegen/model_builder.h"
#include "proto/model.pb.h"

namespace whet::builder {

// Writes request.out_path(); takes the weights out of the request. Errors: those of
// codegen::BuildModel; InvalidArgument for a text that does not parse or an index out of range.
StatusOr<codegen::ModelStats> BuildModelOf(v1::ModelBuildRequest request);

}  // namespace whet::builder
