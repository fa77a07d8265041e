// Loads and runs artifacts (see whet_artifact.h). Standard library only, so that an application links this and nothing
// else. Errors come back as text; an empty text is success.
//
//   std::string error;
//   auto model = whet::Model::Load("face.so", &error);
//   whet::Instance instance(*model, 2);
//   instance.Run({input.data()}, {scores.data(), boxes.data()});
//
// A Model is immutable and may be shared between threads. An Instance has its own memory and threads: one Run at a time
// per instance; run several instances of one model side by side.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deploy/runtime/pool.h"
#include "deploy/runtime/whet_artifact.h"

namespace whet {

class Model {
 public:
  // Checks the file, the interface version, every struct size and that this processor has the features the code needs,
  // before anything in the library but the descriptor function runs.
  static std::shared_ptr<const Model> Load(const std::string& path, std::string* error);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const whet_model& desc() const { return *desc_; }
  std::span<const whet_tensor> inputs() const { return {desc_->tensors, desc_->n_inputs}; }
  std::span<const whet_tensor> outputs() const { return {desc_->tensors + desc_->n_inputs, desc_->n_outputs}; }
  // Tensors with storage WHET_PARAMETER, in table order: weights a candidate is given from outside.
  std::vector<uint32_t> parameters() const;

 private:
  Model() = default;
  void* library_ = nullptr;
  const whet_model* desc_ = nullptr;
};

class Instance {
 public:
  Instance(std::shared_ptr<const Model> model, int threads, bool pin = false);
  // Bytes of memory this instance holds (arena, packed weights, scratch).
  int64_t memory_bytes() const { return memory_bytes_; }
  // Runs the prepack steps. Must come before Run when the model has parameters; without, construction has done it.
  void Prepack(const std::vector<const void*>& parameters);
  // One pointer per input and output, 64-byte aligned, each of the size its descriptor says.
  void Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  // The same, timing each step: step_ns[i] is increased by the time of step i.
  void RunProfiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, std::vector<double>& step_ns);

 private:
  void Bind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  void RunStep(const whet_step& step);

  std::shared_ptr<const Model> model_;
  ThreadPool pool_;
  int64_t memory_bytes_ = 0;
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<char, Free> arena_, packed_, scratch_;
  int64_t scratch_stride_ = 0;
  std::vector<void*> base_;              // per tensor
  std::vector<std::vector<void*>> args_;  // per step (prepack steps first), filled by Bind
  std::vector<std::vector<std::pair<size_t, uint32_t>>> io_uses_;  // per input/output tensor: (step, argument)
};

// Whether the processor this runs on has all of the features ("avx2,fma"); names the missing ones.
bool CpuHasFeatures(const std::string& features, std::string* missing);

int64_t DTypeBytes(uint32_t dtype);
const char* DTypeName(uint32_t dtype);

}  // namespace whet
