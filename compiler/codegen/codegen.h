// Code generation for CPUs, without LLVM in the interface. Single-threaded users only (the builder
// child).
//   GenerateObject   one workload: its main kernel and, when weights are packed, its prepack kernel
//                    -> ELF object
//   GenerateModel    the descriptor of whet_artifact.h, referring to kernels in other objects
//                    -> ELF object
//   DataObject       a read-only section with bytes (weights never pass through LLVM) -> ELF object
//   LinkShared       objects -> shared library, in process by lld
#pragma once
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/loop/lower.h"
#include "compiler/target/target.h"

namespace whet::codegen {

struct PhaseSymbol {
  std::string symbol;
  int64_t extent = 1;
};

struct KernelCode {
  std::vector<PhaseSymbol> phases;
  int64_t scratch_bytes = 0;
  std::vector<loop::Param> params;  // the order of the buffers argument
};

struct ObjectStats {
  int64_t code_bytes = 0;
  // Of the instructions of a main innermost loop (one at least half as long as the longest), the
  // share that moves a vector register to or from the stack; the worst loop's. What
  // the register allocator counts says little: pointers that wait in memory during an outer loop
  // cost nothing.
  double hot_spill_share = 0;
};

struct ObjectCode {
  std::string object;  // ELF relocatable
  KernelCode main;
  KernelCode prepack;  // no phases when nothing is packed
  ObjectStats stats;
};

// LLVM IR after optimisation, for inspection and golden tests.
StatusOr<std::string> GenerateIr(const loop::Lowered& program, const std::string& prefix,
                                 const Target& target);

// Mirrors whet_artifact.h with values; see there.
struct TensorDesc {
  int storage = 0;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string name;
};
struct KernelDesc {
  std::vector<PhaseSymbol> phases;
  int64_t scratch_bytes = 0;
  int n_buffers = 0;
  std::string workload;
};
struct StepDesc {
  int kernel = 0;
  std::vector<uint32_t> tensors;
  std::string label;
};
struct ModelDesc {
  std::string name;  // letters, digits, '_'
  std::string target;
  std::string features;
  std::string metadata;
  std::vector<TensorDesc> tensors;
  std::vector<KernelDesc> kernels;
  int n_inputs = 0;
  int n_outputs = 0;
  std::vector<StepDesc> prepack_steps;
  std::vector<StepDesc> steps;
  int64_t arena_bytes = 0;
  int64_t packed_bytes = 0;
  std::string constants_symbol;  // "" when there are none
  int64_t constants_bytes = 0;
  std::vector<ModelDesc> variants;  // the same network for other input shapes; one level
  std::string build;                // short name of the target
  std::vector<ModelDesc> builds;    // the same model for further processors, the best first
};
// `prefix` starts every symbol and must be unique in a library. Errors: FailedPrecondition when a
// register buffer is not indexed by constants or is accessed in different vector shapes (the
// candidate is rejected, the reason says which). With `describe`, which may look at everything but
// the object itself, the descriptor goes into the same object: starting the code generator a second
// time costs more than a millisecond.
StatusOr<ObjectCode> GenerateObject(
    const loop::Lowered& program, const std::string& prefix, const Target& target,
    const std::function<ModelDesc(const ObjectCode&)>& describe = nullptr);
StatusOr<std::string> GenerateModel(const ModelDesc& model, const Target& target);

// Writes a relocatable with one 64-byte aligned read-only section and a hidden symbol at its start,
// piece by piece, so that weights are not held in memory a second time.
class DataObject {
 public:
  DataObject(std::string path, std::string symbol, const Target& target);
  // Where the piece begins in the section, a multiple of 64. A failed write shows in Finish.
  int64_t Append(std::string_view bytes);
  Status Finish();  // once, at the end
  int64_t size() const { return size_; }

 private:
  const std::string path_, symbol_;
  const uint16_t machine_;
  std::ofstream out_;
  int64_t size_ = 0;
};

// Files on disk in, shared library out. `exported` stays visible, nothing else does.
Status LinkShared(const std::vector<std::string>& object_paths, const std::string& exported,
                  const std::string& out_path);

// Which LLVM it is: version, and the file, its size and its time, where that is a shared library.
std::string CodeGeneratorVersion();

// Loads LLVM's targets and compiles something small, so that a forked child starts warm.
Status WarmUp(const Target& target);

}  // namespace whet::codegen
