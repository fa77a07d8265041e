// Workload text -> initial loop program: the one path that tuner, builder and compiler share, so
// that a trace means the same program everywhere.
#pragma once
#include <string_view>

#include "compiler/fusion/workload.h"
#include "compiler/loop/loop.h"

namespace whet::task {

struct WorkloadProgram {
  fusion::Workload workload;
  loop::Program program;
};
// InvalidArgument in words: the text may come from a peer.
StatusOr<WorkloadProgram> OpenWorkload(std::string_view text);

}  // namespace whet::task
