#include "compiler/codegen/llvm_common.h"

#include <dlfcn.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/MachineDominators.h>
#include <llvm/CodeGen/MachineFrameInfo.h>
#include <llvm/CodeGen/MachineFunctionPass.h>
#include <llvm/CodeGen/MachineLoopInfo.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/PseudoSourceValue.h>
#include <llvm/CodeGen/TargetInstrInfo.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/CodeGen/TargetSubtargetInfo.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>
#include <sys/stat.h>

#include <algorithm>

namespace whet::codegen {
namespace {

// Runs last, on finished machine code: what the innermost loops move to and from the stack.
class HotSpillPass : public llvm::MachineFunctionPass {
 public:
  explicit HotSpillPass(ObjectStats& stats) : MachineFunctionPass(id_), stats_(stats) {}
  void getAnalysisUsage(llvm::AnalysisUsage& usage) const override {
    usage.setPreservesAll();
    MachineFunctionPass::getAnalysisUsage(usage);
  }
  bool runOnMachineFunction(llvm::MachineFunction& f) override {
    if (f.getFunction().hasOptNone()) return false;  // prepacking
    llvm::MachineDominatorTree dominators(f);
    const llvm::MachineLoopInfo loops(dominators);
    struct Count {
      int64_t instructions = 0, moves = 0;
    };
    std::vector<Count> counts;
    int64_t longest = 0;
    for (llvm::MachineLoop* loop : loops.getLoopsInPreorder()) {
      if (!loop->isInnermost()) continue;
      Count c;
      for (const llvm::MachineBasicBlock* block : loop->blocks()) {
        for (const llvm::MachineInstr& i : *block) {
          c.instructions += !i.isMetaInstruction();
          c.moves += MovesVector(f, i);
        }
      }
      longest = std::max(longest, c.instructions);
      counts.push_back(c);
    }
    for (const Count& c : counts) {
      if (2 * c.instructions < longest) continue;
      stats_.hot_spill_share =
          std::max(stats_.hot_spill_share,
                   static_cast<double>(c.moves) / static_cast<double>(c.instructions));
    }
    return false;
  }

 private:
  static bool MovesVector(const llvm::MachineFunction& f, const llvm::MachineInstr& i) {
    constexpr int64_t kVectorBytes = 16;
    const llvm::MachineFrameInfo& frame = f.getFrameInfo();
    return std::any_of(i.memoperands_begin(), i.memoperands_end(), [&](const auto* access) {
      const auto* slot =
          llvm::dyn_cast_or_null<llvm::FixedStackPseudoSourceValue>(access->getPseudoValue());
      return slot && frame.isSpillSlotObjectIndex(slot->getFrameIndex()) &&
             frame.getObjectSize(slot->getFrameIndex()) >= kVectorBytes;
    });
  }

  static char id_;
  ObjectStats& stats_;
};
char HotSpillPass::id_ = 0;

std::string TripleOf(const Target& t) { return t.arch + "-unknown-linux-gnu"; }

std::string FeatureString(const Target& t) {
  std::string s;
  for (const std::string& f : t.features) s += (s.empty() ? "+" : ",+") + f;
  return s;
}

// Scheduling model by feature set; LLVM's host detection is wrong on virtual machines.
std::string TuneCpu(const Target& t) {
  if (t.arch != "x86_64") return "generic";
  if (t.Has("avx512f")) return "icelake-server";
  return t.Has("avx2") ? "haswell" : "x86-64";
}

std::string BaseCpu(const Target& t) { return t.arch == "x86_64" ? "x86-64" : "generic"; }

void SetSwitch(const char* name, bool value) {
  auto& all = llvm::cl::getRegisteredOptions();
  const auto it = all.find(name);
  WHET_CHECK(it != all.end(), "LLVM has no switch '{}'", name);
  static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(value);
}

// What there is no other switch for. Before every code generation: the linker, which is LLVM's too,
// sets all of them to their defaults.
void SetSwitches(const Target& t) {
  // Loop strength reduction is a quarter of the compile time and gains nothing here: addresses
  // already come as one pointer per loop level plus constants (measured: equal speed on three
  // convolutions).
  SetSwitch("disable-lsr", true);
  // Takes multiply-adds of integers apart for their latency, which our tiles hide: a 3x3
  // convolution of 8-bit integers took 3.5 ms with it and 2.4 without.
  if (t.arch == "x86_64") SetSwitch("x86-machine-combiner", false);
}

// Creating a target machine costs a millisecond; one per target text lives as long as the process.
StatusOr<llvm::TargetMachine*> MachineFor(const Target& t) {
  static std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
  auto& slot = machines[t.FeatureSet()];
  if (slot) return slot.get();
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(TripleOf(t), error);
  if (!target) return InvalidArgument("no code generator for '{}': {}", TripleOf(t), error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  slot.reset(target->createTargetMachine(TripleOf(t), BaseCpu(t), FeatureString(t), options,
                                         llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                         llvm::CodeGenOptLevel::Default));
  return slot.get();
}

}  // namespace

void SetFunctionTarget(llvm::Function& f, const Target& t) {
  f.addFnAttr("target-cpu", BaseCpu(t));
  f.addFnAttr("target-features", FeatureString(t));
  f.addFnAttr("tune-cpu", TuneCpu(t));
  // Several Intel models tune to 256 bits; our schedules choose the width themselves.
  f.addFnAttr("prefer-vector-width", std::to_string(t.VectorBits()));
  f.addFnAttr("min-legal-vector-width", std::to_string(t.VectorBits()));
  f.addFnAttr(llvm::Attribute::NoUnwind);
}

StatusOr<ModuleHolder> NewModule(const std::string& name, const Target& target) {
  WHET_ASSIGN_OR_RETURN(llvm::TargetMachine * machine, MachineFor(target));
  ModuleHolder h;
  h.context = std::make_unique<llvm::LLVMContext>();
  h.context->setDiscardValueNames(true);
  h.module = std::make_unique<llvm::Module>(name, *h.context);
  h.module->setTargetTriple(machine->getTargetTriple().str());
  h.module->setDataLayout(machine->createDataLayout());
  h.module->setPICLevel(llvm::PICLevel::BigPIC);
  return h;
}

Status OptimizeModule(llvm::Module& m, const Target& target) {
  WHET_ASSIGN_OR_RETURN(llvm::TargetMachine * machine, MachineFor(target));
  std::string error;
  llvm::raw_string_ostream os(error);
  if (llvm::verifyModule(m, &os))
    return Internal("generated code is malformed: {}", error.substr(0, 2000));
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cam;
  llvm::ModuleAnalysisManager mam;
  llvm::PassBuilder pb(machine);
  pb.registerModuleAnalyses(mam);
  pb.registerCGSCCAnalyses(cam);
  pb.registerFunctionAnalyses(fam);
  pb.registerLoopAnalyses(lam);
  pb.crossRegisterProxies(lam, fam, cam, mam);
  // Kernels arrive as explicit vector code, unrolled where the schedule says so, addresses at their
  // loop level. They need values in registers and common subexpressions merged; the rest of -O3
  // (hoisting too) costs time and gains nothing.
  llvm::FunctionPassManager fpm;
  fpm.addPass(llvm::PromotePass());
  fpm.addPass(llvm::SimplifyCFGPass());
  fpm.addPass(llvm::EarlyCSEPass());
  for (llvm::Function& f : m) {
    if (!f.isDeclaration()) fpm.run(f, fam);
  }
  return OkStatus();
}

StatusOr<std::string> EmitObject(llvm::Module& m, const Target& target, ObjectStats* stats) {
  WHET_ASSIGN_OR_RETURN(llvm::TargetMachine * base, MachineFor(target));
  auto& machine = static_cast<llvm::LLVMTargetMachine&>(*base);
  SetSwitches(target);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager pm;
  // What addPassesToEmitFile does, and a pass before the printer.
  auto* info = new llvm::MachineModuleInfoWrapperPass(&machine);
  llvm::TargetPassConfig* config = machine.createPassConfig(pm);
  config->setDisableVerify(true);
  pm.add(config);
  pm.add(info);
  if (config->addISelPasses()) return Internal("the target can not select instructions");
  config->addMachinePasses();
  config->setInitialized();
  ObjectStats ignored;
  pm.add(new HotSpillPass(stats != nullptr ? *stats : ignored));
  if (machine.addAsmPrinter(pm, os, nullptr, llvm::CodeGenFileType::ObjectFile,
                            info->getMMI().getContext()))
    return Internal("the target can not emit objects");
  pm.add(llvm::createFreeMachineFunctionPass());
  pm.run(m);
  return std::string(bytes.data(), bytes.size());
}

namespace {

// Builds the constant structs of whet_artifact.h. The field order here is the header's.
class ModelEmitter {
 public:
  ModelEmitter(llvm::Module& m, const ModelDesc& d)
      : m_(m),
        d_(d),
        i32_(llvm::Type::getInt32Ty(m.getContext())),
        i64_(llvm::Type::getInt64Ty(m.getContext())),
        ptr_(llvm::PointerType::get(m.getContext(), 0)) {}

  void Run(const Target& target) {
    llvm::Constant* global = Global(Model());
    auto* type = llvm::FunctionType::get(ptr_, {}, false);
    auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage,
                                     "whet_model_" + d_.name + "_v1", m_);
    SetFunctionTarget(*f, target);
    auto* block = llvm::BasicBlock::Create(m_.getContext(), "", f);
    llvm::ReturnInst::Create(m_.getContext(), global, block);
  }

 private:
  llvm::Constant* Model() {
    std::vector<llvm::Constant*> tensors, kernels, variants, builds;
    for (const ModelDesc& v : d_.variants) variants.push_back(Global(ModelEmitter(m_, v).Model()));
    for (const ModelDesc& b : d_.builds) builds.push_back(Global(ModelEmitter(m_, b).Model()));
    for (const TensorDesc& t : d_.tensors) {
      std::vector<llvm::Constant*> dims;
      for (int64_t v : t.shape) dims.push_back(I64(v));
      tensors.push_back(Struct({nullptr, I32(t.storage), I32(static_cast<int>(t.dtype)),
                                I32(static_cast<int64_t>(t.shape.size())), Array(i64_, dims),
                                I64(t.offset), I64(t.bytes), Text(t.name)}));
    }
    for (const KernelDesc& k : d_.kernels) {
      std::vector<llvm::Constant*> phases;
      for (const PhaseSymbol& p : k.phases)
        phases.push_back(Struct({nullptr, I32(0), Phase(p.symbol), I64(p.extent)}));
      kernels.push_back(Struct({nullptr, I32(static_cast<int64_t>(phases.size())), Table(phases),
                                I64(k.scratch_bytes), I32(k.n_buffers), I32(0), Text(k.workload)}));
    }
    llvm::Constant* model = Struct({nullptr,
                                    I32(1),
                                    Text(d_.name),
                                    Text(d_.target),
                                    Text(d_.features),
                                    Text(d_.metadata),
                                    I32(static_cast<int64_t>(tensors.size())),
                                    I32(static_cast<int64_t>(kernels.size())),
                                    Table(tensors),
                                    Table(kernels),
                                    I32(d_.n_inputs),
                                    I32(d_.n_outputs),
                                    I32(static_cast<int64_t>(d_.prepack_steps.size())),
                                    I32(static_cast<int64_t>(d_.steps.size())),
                                    Steps(d_.prepack_steps),
                                    Steps(d_.steps),
                                    I64(d_.arena_bytes),
                                    I64(d_.packed_bytes),
                                    ConstantsPointer(),
                                    I64(d_.constants_bytes),
                                    I32(0),
                                    I32(static_cast<int64_t>(variants.size())),
                                    Table(variants),
                                    Text(d_.build),
                                    Table(builds),
                                    I32(static_cast<int64_t>(builds.size())),
                                    I32(0)});
    return model;
  }

  llvm::Constant* I32(int64_t v) { return llvm::ConstantInt::get(i32_, v); }
  llvm::Constant* I64(int64_t v) { return llvm::ConstantInt::get(i64_, v); }
  llvm::Constant* Null() { return llvm::ConstantPointerNull::get(ptr_); }
  llvm::Constant* Global(llvm::Constant* c) {
    auto* g =
        new llvm::GlobalVariable(m_, c->getType(), true, llvm::GlobalValue::PrivateLinkage, c, "d");
    return g;
  }
  llvm::Constant* Text(const std::string& s) {
    return Global(llvm::ConstantDataArray::getString(m_.getContext(), s));
  }
  // A leading null stands for the struct's own size, known once its type is.
  llvm::Constant* Struct(std::vector<llvm::Constant*> fields) {
    fields[0] = I32(0);
    std::vector<llvm::Type*> types;
    for (auto* f : fields) types.push_back(f->getType());
    auto* type = llvm::StructType::get(m_.getContext(), types);
    fields[0] = I32(static_cast<int64_t>(m_.getDataLayout().getTypeAllocSize(type)));
    return llvm::ConstantStruct::get(type, fields);
  }
  llvm::Constant* Array(llvm::Type* t, const std::vector<llvm::Constant*>& v) {
    return v.empty() ? Null()
                     : Global(llvm::ConstantArray::get(llvm::ArrayType::get(t, v.size()), v));
  }
  llvm::Constant* Table(const std::vector<llvm::Constant*>& v) {
    return v.empty() ? Null() : Array(v[0]->getType(), v);
  }
  llvm::Constant* Phase(const std::string& symbol) {
    if (auto* f = m_.getFunction(symbol)) return f;
    auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(m_.getContext()),
                                         {ptr_, ptr_, ptr_, i64_, i64_}, false);
    auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, m_);
    f->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return f;
  }
  llvm::Constant* Steps(const std::vector<StepDesc>& steps) {
    std::vector<llvm::Constant*> v;
    for (const StepDesc& s : steps) {
      std::vector<llvm::Constant*> tensors;
      for (uint32_t t : s.tensors) tensors.push_back(I32(t));
      v.push_back(Struct({nullptr, I32(s.kernel), Array(i32_, tensors), Text(s.label)}));
    }
    return Table(v);
  }
  llvm::Constant* ConstantsPointer() {
    if (d_.constants_symbol.empty()) return Null();
    if (auto* g = m_.getNamedGlobal(d_.constants_symbol)) return g;  // variants and builds share it
    auto* g =
        new llvm::GlobalVariable(m_, llvm::Type::getInt8Ty(m_.getContext()), true,
                                 llvm::GlobalValue::ExternalLinkage, nullptr, d_.constants_symbol);
    g->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return g;
  }

  llvm::Module& m_;
  const ModelDesc& d_;
  llvm::Type* i32_;
  llvm::Type* i64_;
  llvm::PointerType* ptr_;
};

Status CheckName(const ModelDesc& model) {
  for (char c : model.name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_')
      return InvalidArgument("model name '{}' has a character other than letters, digits and '_'",
                             model.name);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ObjectCode> GenerateObject(const loop::Lowered& program, const std::string& prefix,
                                    const Target& target,
                                    const std::function<ModelDesc(const ObjectCode&)>& describe) {
  WHET_ASSIGN_OR_RETURN(ModuleHolder h, NewModule(prefix, target));
  ObjectCode r;
  if (program.prepack.body) {
    WHET_ASSIGN_OR_RETURN(r.prepack,
                          EmitProgram(*h.module, program.prepack, prefix + "_pre", target));
    // It runs once per model, when that is compiled: not worth an optimizer's time per candidate.
    for (llvm::Function& f : *h.module) {
      if (f.isDeclaration()) continue;
      f.addFnAttr(llvm::Attribute::OptimizeNone);
      f.addFnAttr(llvm::Attribute::NoInline);
    }
  }
  WHET_ASSIGN_OR_RETURN(r.main, EmitProgram(*h.module, program.main, prefix, target));
  if (describe) {
    const ModelDesc model = describe(r);
    WHET_RETURN_IF_ERROR(CheckName(model));
    ModelEmitter(*h.module, model).Run(target);
  }
  WHET_RETURN_IF_ERROR(OptimizeModule(*h.module, target));
  WHET_ASSIGN_OR_RETURN(r.object, EmitObject(*h.module, target, &r.stats));
  r.stats.code_bytes = static_cast<int64_t>(r.object.size());
  return r;
}

StatusOr<std::string> GenerateIr(const loop::Lowered& program, const std::string& prefix,
                                 const Target& target) {
  WHET_ASSIGN_OR_RETURN(ModuleHolder h, NewModule(prefix, target));
  WHET_RETURN_IF_ERROR(EmitProgram(*h.module, program.main, prefix, target).status());
  WHET_RETURN_IF_ERROR(OptimizeModule(*h.module, target));
  std::string text;
  llvm::raw_string_ostream os(text);
  h.module->print(os, nullptr);
  return text;
}

StatusOr<std::string> GenerateModel(const ModelDesc& model, const Target& target) {
  WHET_RETURN_IF_ERROR(CheckName(model));
  WHET_ASSIGN_OR_RETURN(ModuleHolder h, NewModule("model", target));
  ModelEmitter(*h.module, model).Run(target);
  return EmitObject(*h.module, target);
}

std::string CodeGeneratorVersion() {
  std::string version = "LLVM " LLVM_VERSION_STRING;
  Dl_info info = {};
  struct stat s = {};
  if (dladdr(reinterpret_cast<const void*>(&llvm::verifyModule), &info) != 0 && info.dli_fname &&
      stat(info.dli_fname, &s) == 0)
    version +=
        fmt::format(" {} {} {}.{}", info.dli_fname, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
  return version;
}

Status WarmUp(const Target& target) {
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {64}, false);
  auto y = b.Compute("y", DType::kF32, {{"i", 64}}, [&](const std::vector<expr::Expr>& i) {
    return expr::Load(x, i) + expr::Float(1);
  });
  const auto id = expr::IndexMap::Identity(1);
  WHET_ASSIGN_OR_RETURN(loop::Program p, loop::FromTe("warm", b.Finish({y}), {id}, {id}));
  WHET_ASSIGN_OR_RETURN(loop::Lowered lowered, loop::Lower(p));
  return GenerateObject(lowered, "warm", target).status();
}

}  // namespace whet::codegen
