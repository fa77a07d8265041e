// What `whet-builder model` is asked to build: the tasks, tensors and steps of a partitioned graph.
// Apart from CompileModel, so that a test can build models without the rest of the command. A pure
// function.
#pragma once
#include <string>
#include <vector>

#include "compiler/fusion/partition.h"
#include "compiler/graph/graph.h"
#include "proto/model.pb.h"

namespace whet::driver {

// Adds to `request` all but name, target, metadata and path. `traces`: one per task, empty for the
// default schedule.
Status FillModelRequest(const graph::Graph& graph, const fusion::Partition& partition,
                        const std::vector<std::string>& traces, v1::ModelBuildRequest& request);

// Adds to a further build of the request, which is filled in, all but target and metadata.
// Constants that the request has too are not repeated.
Status FillModelBuild(const graph::Graph& graph, const fusion::Partition& partition,
                      const std::vector<std::string>& traces, const v1::ModelBuildRequest& request,
                      v1::ModelBuild& build);

// Adds the same network for another set of input shapes to a request that is filled in. The groups
// of `partition` refer to the tasks of the request. Constants that the model has too are not
// repeated.
Status AddModelVariant(const graph::Graph& graph, const fusion::Partition& partition,
                       v1::ModelBuildRequest& request);
// The same for a further build.
Status AddModelVariant(const graph::Graph& graph, const fusion::Partition& partition,
                       const v1::ModelBuildRequest& request, v1::ModelBuild& build);

}  // namespace whet::driver
