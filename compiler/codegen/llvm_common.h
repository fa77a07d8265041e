// Private to compiler/codegen: what both LLVM files share. The only header that includes LLVM.
#pragma once
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "compiler/codegen/codegen.h"

namespace whet::codegen {

// A module for the target, with its data layout.
struct ModuleHolder {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};
StatusOr<ModuleHolder> NewModule(const std::string& name, const Target& target);
void SetFunctionTarget(llvm::Function& f, const Target& target);
Status OptimizeModule(llvm::Module& m, const Target& target);
// Counts spills of hot loops into `stats`, if given.
StatusOr<std::string> EmitObject(llvm::Module& m, const Target& target,
                                 ObjectStats* stats = nullptr);

// Fills the module with the program's phases (backend_cpu.cc).
StatusOr<KernelCode> EmitProgram(llvm::Module& m, const loop::Program& p, const std::string& prefix,
                                 const Target& target);

}  // namespace whet::codegen
