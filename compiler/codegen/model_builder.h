// Builds a whole model's shared library: schedules, generates and links the kernels of all tasks,
// runs their prepack kernels on the weights (compiled code when this machine can run it, the
// interpreter when it can not), lays out constants and activations, writes the descriptor.
// Single-threaded; one build per process, because lld is in it.
#pragma once
#include <string>
#include <vector>

#include "compiler/loop/loop.h"
#include "compiler/schedule/trace.h"
#include "compiler/support/content_cache.h"
#include "compiler/target/target.h"

namespace whet::codegen {

struct ModelTask {
  std::string workload;  // fingerprint, 32 hex digits
  loop::Program initial;
  schedule::Trace trace;  // no instructions: the default schedule
};

enum class TensorKind { kInput, kOutput, kConstant, kInternal };

struct ModelTensor {
  TensorKind kind = TensorKind::kInternal;
  DType dtype = DType::kF32;
  // Of inputs and outputs: as the model says; of others for information.
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  std::string name;  // inputs and outputs
  std::string data;  // constants: `bytes` bytes in the order the kernels read
  // Of a constant of a variant or a further build: the spec's own tensor that has the same bytes,
  // instead of data.
  int same_as = -1;
};

struct ModelStep {
  int task = 0;
  std::vector<int> tensors;  // the workload's inputs, then its outputs
  std::string label;
  // Positions in `tensors` of inputs that the kernel reads element by element, each before it
  // writes the same element of its only output: where one is not read later, the two share their
  // bytes.
  std::vector<int> overwritable;
};

// The model for one set of input shapes.
struct ModelGraph {
  std::vector<ModelTensor> tensors;  // inputs first, then outputs, in the model's order
  std::vector<ModelStep> steps;      // in execution order
};

// The model for one processor.
struct ModelBuild : ModelGraph {
  std::string metadata;
  Target target;
  std::string machine;  // figures that untuned schedules are chosen by; empty: typical ones
  std::vector<ModelTask> tasks;      // of all graphs
  std::vector<ModelGraph> variants;  // the same network for other input shapes
};

struct ModelSpec : ModelBuild {    // its own target is the one that asks for the least
  std::string name;                // letters, digits, '_'
  std::vector<ModelBuild> builds;  // for further processors, the best first
  int threads = 1;                 // that untuned tasks get their schedules for
};

struct ModelStats {
  int64_t cached_objects = 0;  // those that came out of the cache
  int64_t code_bytes = 0;
  int64_t constant_bytes = 0;
  int64_t arena_bytes = 0;  // the largest of the graphs'
};

// Writes `out_path` (via a temporary beside it), the same bytes with a cache of objects as without.
// Errors: a trace that does not replay (names the task), an unwritable path.
StatusOr<ModelStats> BuildModel(ModelSpec spec, const std::string& out_path,
                                ContentCache* cache = nullptr);

// Offsets for buffers that live during [first, last] steps so that no two that are alive together
// overlap; returns the total. Greedy by size, largest first (Pisarchyk and Lee 2020), ties by
// index.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};
int64_t PlanMemory(const std::vector<Lifetime>& buffers, std::vector<int64_t>* offsets);

}  // namespace whet::codegen
