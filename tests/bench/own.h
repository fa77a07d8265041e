// Our side of a comparison: the candidate of a workload, built as a compilation would or with the
// best of a short search, with buffers of its own.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/space.h"
#include "compiler/target/target.h"
#include "deploy/runtime/model.h"
#include "tests/bench/contender.h"

namespace whet::bench {

struct OwnOptions {
  Target target = Target::Host();
  int threads = 1;
  std::string db;  // take the schedules that a compilation with this tuning log would
  int search = 0;  // else the best of so many of the prior's first points; 0: the default schedule
};

// A kernel that is loaded; the same one may run in several instances.
struct OwnKernel {
  std::shared_ptr<const Model> model;
  std::string schedule;  // the rule's name and knobs
  std::string source;    // "tuned", "untuned: why", "best of 8"
};

class OwnKernels {
 public:
  static StatusOr<std::unique_ptr<OwnKernels>> Make(const OwnOptions& options);
  virtual ~OwnKernels() = default;
  // Of each workload once. `problem` has the inputs that a search measures with.
  virtual StatusOr<OwnKernel> Find(const Problem& problem) = 0;
};

// With `threads` > 1 an instance has threads of its own.
StatusOr<Contender> OpenOwn(const OwnKernel& kernel, const Problem& problem, int threads);

// The kernels one after the other, each an instance with weights of its own.
struct OwnLayer {
  OwnKernel kernel;
  const Problem* problem = nullptr;
  const std::vector<float>*weights = nullptr, *bias = nullptr;
};
StatusOr<Contender> OpenOwnChain(const std::vector<OwnLayer>& layers, int threads);

}  // namespace whet::bench
