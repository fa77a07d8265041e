// Loads and runs artifacts (see whet_artifact.h). Standard library only, so that an application
// links this and nothing else. Errors come back as text; an empty text is success. A C interface is
// in whet_runtime.h.
//
//   std::string error;
//   auto model = whet::Model::Load("face.so", &error);
//   whet::Instance instance(model, 2);
//   instance.Run({input.data()}, {scores.data(), boxes.data()});
//
// A Model is immutable and may be shared between threads; it holds the weights, packed or not, for
// all of its instances. An Instance has memory of its own, and threads of its own or a pool that it
// shares: one Run at a time per instance; run several instances of one model side by side.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deploy/runtime/cpu_features.h"
#include "deploy/runtime/pool.h"
#include "deploy/runtime/whet_artifact.h"

namespace whet {

// How an artifact is loaded; as it stands: what is best here.
struct LoadOptions {
  // Which code to use of a library that has it for several processors: a build's name, all of it or
  // up to a '+', or its target text. Empty: the best that this processor can run.
  std::string build;
  // Comma-separated features to go by instead of what the processor says (all that it has, or
  // fewer): what would be taken on another machine. Empty: ask the processor.
  std::string processor;
  // Copy the constants to memory in huge pages, once for all instances: fewer misses of the address
  // translation where weights are many, for as much memory again (the library's own copy is a
  // mapped file, which the system can drop).
  bool huge_pages = false;
};

// Frees what it was given with.
struct FreeMemory {
  void operator()(void* p) const;
  size_t mapped_bytes = 0;  // 0: malloc's
};
using Memory = std::unique_ptr<char, FreeMemory>;

class Model {
 public:
  // Checks the file, the interface version, every struct, index and offset, and that this processor
  // has the features the code needs, before anything in the library but the descriptor function
  // runs. Null and a reason otherwise.
  static std::shared_ptr<const Model> Load(const std::string& path, const LoadOptions& options,
                                           std::string* error);
  static std::shared_ptr<const Model> Load(const std::string& path, std::string* error) {
    return Load(path, {}, error);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // In this runtime's own struct sizes, also when the library was written with larger (newer) ones.
  const whet_model& desc() const { return desc_; }
  std::span<const whet_tensor> inputs() const { return {desc_.tensors, desc_.n_inputs}; }
  std::span<const whet_tensor> outputs() const {
    return {desc_.tensors + desc_.n_inputs, desc_.n_outputs};
  }
  // The code that the library has, the best first, and which of it this is.
  struct Build {
    std::string name, target, features;
    std::string missing;  // features that the processor lacks
  };
  std::span<const Build> builds() const { return builds_; }
  const Build& build() const { return builds_[build_]; }

  // Why constants do not lie in huge pages though it was asked for, or not all; else "".
  const std::string& huge_pages_note() const { return huge_pages_note_; }
  // Bytes of memory beside the library's own that its instances share: the copy in huge pages, and
  // weights that prepack steps wrote (once there is an instance), for all sets of shapes.
  int64_t shared_bytes() const;

  // The same network for other input shapes; they share this one's library and constants, and may
  // outlive it. Empty in a variant.
  std::span<const std::shared_ptr<const Model>> variants() const { return variants_; }
  // `model` or that variant of it whose inputs have these shapes, in the order of the inputs. Null
  // when there is none; the reason lists what there is.
  static std::shared_ptr<const Model> ForShapes(const std::shared_ptr<const Model>& model,
                                                std::span<const std::vector<int64_t>> shapes,
                                                std::string* error);
  // Tensors with storage WHET_PARAMETER, in table order: weights a candidate is given from outside.
  std::vector<uint32_t> parameters() const;

 private:
  friend class Instance;
  Model() = default;
  std::string Adopt(
      const whet_model* given);  // copies and checks the tables; the reason when it refuses
  std::string AdoptVariants(const whet_model& given);
  // The library's models for other processors than the one its function returns, best first.
  std::string AdoptBuilds(const whet_model& given, std::vector<std::shared_ptr<Model>>* builds);
  // Whether the caller sees the same model: inputs, outputs and sets of shapes.
  std::string Differs(const Model& other) const;
  std::string CheckTensors() const;
  std::string CheckKernels() const;
  std::string CheckSteps(std::span<const whet_step> steps, const char* what) const;

  void CopyToHugePages();

  std::shared_ptr<void> library_;  // closed when the last of model and variants goes
  std::vector<std::shared_ptr<const Model>> variants_;
  std::vector<Build> builds_;  // in a variant: its own only
  size_t build_ = 0;
  whet_model desc_ = {};
  std::vector<whet_tensor> tensors_;
  std::vector<whet_kernel> kernels_;
  std::vector<std::vector<whet_phase>> phases_;
  std::vector<whet_step> prepack_steps_, steps_;
  std::shared_ptr<Memory> huge_;  // shared with the variants
  std::string huge_pages_note_;
  // Packed weights of a model without parameters, which its first instance writes.
  mutable std::mutex packed_mutex_;
  mutable Memory packed_;
};

class Instance {
 public:
  // Allocates the memory and, for the first instance, runs the prepack steps, unless the model has
  // parameters: then Prepack must be called first. `threads` >= 1. When memory or threads are
  // refused, error() says so and nothing may be run.
  Instance(std::shared_ptr<const Model> model, int threads, bool pin = false);
  // On threads that it shares; runs of the pool's instances take turns.
  Instance(std::shared_ptr<const Model> model, std::shared_ptr<ThreadPool> pool);
  ~Instance();
  const std::string& error() const { return error_; }

  const Model& model() const { return *model_; }
  int threads() const { return pool_->threads(); }
  // Bytes of memory this instance holds: arena, scratch for each thread, copies of buffers that are
  // not aligned, and packed weights where the caller brought them. The rest is the model's.
  int64_t memory_bytes() const { return memory_bytes_; }

  // One pointer per parameter, in the order of Model::parameters(), 64-byte aligned; they must stay
  // while the instance runs. Runs the prepack steps.
  void Prepack(const std::vector<const void*>& parameters);

  // One pointer per input and output, each of the size its descriptor says. Pointers that are
  // 64-byte aligned are used as they are; others go through a copy, whose memory is allocated the
  // first time. But for that a run allocates nothing and takes no lock. Inputs must not change, and
  // nothing may read outputs, during a run.
  void Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  // The same, timing each step: step_ns[i] is increased by the time of step i.
  void RunProfiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   std::vector<double>& step_ns);

  // Run in two halves, for callers that run many times on the same buffers (timing loops).
  void Bind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  void Execute();
  // One step by itself, on what the steps before it left. For timing; inputs and outputs that are
  // not aligned are those of the last run.
  void ExecuteStep(uint32_t step);
  // Where an argument of a step lies. For timing on other copies of weights (weight_turns.h).
  void* argument(uint32_t step, uint32_t arg) const { return ArgsOf(step)[arg]; }
  void set_argument(uint32_t step, uint32_t arg, void* p) { ArgsOf(step)[arg] = p; }

 private:
  struct Call {  // one phase
    whet_phase_fn fn;
    void* const* args;
    int64_t extent;
    uint32_t step;
    bool barrier;  // other threads must see the phase done before the next call
    bool last_of_step;
  };
  // Where the next piece of what a thread shares with others begins; of a call and of the next one.
  struct alignas(64) Tail {
    std::atomic<int64_t> next[2];
  };
  struct Staged {  // a caller's buffer that is not aligned
    void* user;
    char* own;
    uint64_t bytes;
  };

  const std::vector<void*>& ArgsOf(uint32_t step) const {
    return args_[model_->desc().n_prepack_steps + step];
  }
  std::vector<void*>& ArgsOf(uint32_t step) { return args_[model_->desc().n_prepack_steps + step]; }
  char* Allocate(uint64_t bytes, Memory* owner);
  void Prepare();
  void PlaceTensors(char* packed);
  void ListCalls(std::span<const whet_step> steps, size_t first_args, std::vector<Call>* calls);
  void* Aligned(void* p, uint32_t tensor, std::vector<Staged>* staged);
  void RunCalls(std::span<const Call> calls);
  void BeginTails(std::span<const Call> calls);
  void RunPart(std::span<const Call> calls, size_t at, int thread);
  void CopyIn() const;
  void CopyOut() const;

  std::shared_ptr<const Model> model_;
  std::shared_ptr<ThreadPool> pool_;
  std::string error_;
  int64_t memory_bytes_ = 0;
  Memory arena_, packed_, scratch_;  // packed_: of a model with parameters
  int64_t scratch_stride_ = 0;
  std::vector<void*> base_;               // per tensor
  std::vector<std::vector<void*>> args_;  // per step, prepack steps first
  // Per tensor the caller supplies: (step, argument).
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> uses_;
  std::vector<Call> prepack_calls_, calls_;
  std::unique_ptr<Tail[]> tails_;  // per thread
  std::vector<Memory> staging_;    // per input/output, allocated when first needed
  std::vector<Staged> staged_in_, staged_out_;
};

int64_t DTypeBytes(uint32_t dtype);
const char* DTypeName(uint32_t dtype);
// "1x128x128x3"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace whet
