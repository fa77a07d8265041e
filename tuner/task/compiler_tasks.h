// The tuning service's view of the compiler: spaces from compiler/schedule, expected outputs from
// the operators' reference evaluation. Stateless; safe to use from several threads.
#pragma once
#include "tuner/task/task.h"

namespace whet::tuner {

class CompilerTasks : public SpaceProvider, public ReferenceProvider {
 public:
  StatusOr<std::unique_ptr<Task>> OpenTask(std::string_view workload, std::string_view target,
                                           int threads, std::string_view machine) const override;
  StatusOr<std::string> FeatureSetOf(std::string_view target) const override;
  int feature_count() const override;
  int64_t codegen_version() const override;
  std::string compiler_version() const override;
  StatusOr<std::string> Expected(std::string_view workload,
                                 const std::vector<uint64_t>& seeds) const override;
};

}  // namespace whet::tuner
