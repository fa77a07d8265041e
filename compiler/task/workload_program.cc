#include "compiler/task/workload_program.h"

#include "compiler/ops/catalog.h"

namespace whet::task {

StatusOr<WorkloadProgram> OpenWorkload(std::string_view text) {
  WHET_ASSIGN_OR_RETURN(fusion::Workload w, fusion::Workload::Parse(text, ops::Catalog()));
  WHET_ASSIGN_OR_RETURN(fusion::TeWorkload te, fusion::BuildTe(w));
  // The name enters nothing that is stored: programs of equal workloads are equal.
  WHET_ASSIGN_OR_RETURN(loop::Program p,
                        loop::FromTe("workload", te.func, te.input_layouts, te.output_layouts));
  return WorkloadProgram{std::move(w), std::move(p)};
}

}  // namespace whet::task
