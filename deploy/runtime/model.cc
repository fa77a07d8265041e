#include "deploy/runtime/model.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace whet {
namespace {

constexpr int64_t kTypeBytes[] = {1, 1, 1, 4, 8, 2, 2, 4, 8};
constexpr const char* kTypeNames[] = {"bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};

// The exported descriptor function's name, from the dynamic symbol table of the loaded library.
std::string FindSymbol(const ElfW(Sym) * syms, const char* strings, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const char* name = strings + syms[i].st_name;
    const size_t n = std::strlen(name);
    if (syms[i].st_shndx != SHN_UNDEF && std::strncmp(name, WHET_SYMBOL_PREFIX, 11) == 0 && n > 14 &&
        std::strcmp(name + n - 3, WHET_SYMBOL_SUFFIX) == 0) {
      return name;
    }
  }
  return "";
}

// Reads the file itself, not the mapped image: nothing of the library has run yet.
std::string ReadSymbolName(const std::string& path, std::string* error) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    *error = "cannot open '" + path + "': " + std::strerror(errno);
    return "";
  }
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  ElfW(Ehdr) h;
  const std::string not_artifact = "'" + path + "' is not a whet artifact: ";
  if (bytes.size() < sizeof h || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) {
    *error = not_artifact + "not an ELF shared library";
    return "";
  }
  std::memcpy(&h, bytes.data(), sizeof h);
#if defined(__x86_64__)
  const int machine = EM_X86_64;
#else
  const int machine = EM_AARCH64;
#endif
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_machine != machine) {
    *error = not_artifact + "it is for another architecture (ELF machine " + std::to_string(h.e_machine) + ", this one is " + std::to_string(machine) + ")";
    return "";
  }
  auto in_file = [&](uint64_t at, uint64_t n) { return at <= bytes.size() && n <= bytes.size() - at; };
  if (h.e_shentsize != sizeof(ElfW(Shdr)) || !in_file(h.e_shoff, uint64_t{h.e_shnum} * sizeof(ElfW(Shdr)))) {
    *error = not_artifact + "its section table is damaged or cut off";
    return "";
  }
  std::vector<ElfW(Shdr)> sections(h.e_shnum);
  std::memcpy(sections.data(), bytes.data() + h.e_shoff, sections.size() * sizeof(ElfW(Shdr)));
  for (const auto& s : sections) {
    if (s.sh_type != SHT_DYNSYM || s.sh_link >= sections.size()) continue;
    const auto& str = sections[s.sh_link];
    if (!in_file(s.sh_offset, s.sh_size) || !in_file(str.sh_offset, str.sh_size) || str.sh_size == 0 ||
        bytes[str.sh_offset + str.sh_size - 1] != '\0') break;
    std::vector<ElfW(Sym)> syms(s.sh_size / sizeof(ElfW(Sym)));
    std::memcpy(syms.data(), bytes.data() + s.sh_offset, syms.size() * sizeof(ElfW(Sym)));
    std::erase_if(syms, [&](const auto& x) { return x.st_name >= str.sh_size; });
    std::string name = FindSymbol(syms.data(), bytes.data() + str.sh_offset, syms.size());
    if (!name.empty()) return name;
  }
  *error = not_artifact + "it exports no whet_model_*_v1 symbol";
  return "";
}

std::string CheckDescriptor(const whet_model* m) {
  if (!m) return "its descriptor is missing";
  if (m->abi_version != WHET_ABI_VERSION) return "its interface version is " + std::to_string(m->abi_version) + ", this runtime knows " + std::to_string(WHET_ABI_VERSION);
  auto small = [](const char* what, uint32_t got, size_t want) {
    return std::string("its ") + what + " has " + std::to_string(got) + " bytes, this runtime needs " + std::to_string(want);
  };
  if (m->size < sizeof(whet_model)) return small("model struct", m->size, sizeof(whet_model));
  for (uint32_t i = 0; i < m->n_tensors; ++i) {
    if (m->tensors[i].size != sizeof(whet_tensor)) return small("tensor struct", m->tensors[i].size, sizeof(whet_tensor));
    if (m->tensors[i].dtype > WHET_F64) return "a tensor has the unknown type " + std::to_string(m->tensors[i].dtype);
  }
  for (uint32_t i = 0; i < m->n_kernels; ++i) {
    if (m->kernels[i].size != sizeof(whet_kernel)) return small("kernel struct", m->kernels[i].size, sizeof(whet_kernel));
  }
  if (m->n_inputs + m->n_outputs > m->n_tensors) return "its tensor table is too short";
  auto steps_ok = [&](const whet_step* steps, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      if (steps[i].size != sizeof(whet_step) || steps[i].kernel >= m->n_kernels) return false;
      for (uint32_t k = 0; k < m->kernels[steps[i].kernel].n_buffers; ++k) {
        if (steps[i].tensors[k] >= m->n_tensors) return false;
      }
    }
    return true;
  };
  if (!steps_ok(m->steps, m->n_steps) || !steps_ok(m->prepack_steps, m->n_prepack_steps)) return "its step table is inconsistent";
  return "";
}

char* Allocate(uint64_t bytes) {
  const uint64_t rounded = (bytes + 4095) / 4096 * 4096;
  return static_cast<char*>(rounded ? std::aligned_alloc(WHET_ALIGNMENT * 64, rounded) : nullptr);
}

}  // namespace

int64_t DTypeBytes(uint32_t t) { return t <= WHET_F64 ? kTypeBytes[t] : 0; }
const char* DTypeName(uint32_t t) { return t <= WHET_F64 ? kTypeNames[t] : "?"; }

bool CpuHasFeatures(const std::string& features, std::string* missing) {
  missing->clear();
  size_t at = 0;
  while (at < features.size()) {
    const size_t end = std::min(features.find(',', at), features.size());
    const std::string f = features.substr(at, end - at);
    at = end + 1;
    bool has = false;
#if defined(__x86_64__)
    __builtin_cpu_init();
#define X(name) \
  if (f == name) has = __builtin_cpu_supports(name);
    X("sse3") X("ssse3") X("sse4.1") X("sse4.2") X("popcnt") X("avx") X("avx2") X("fma") X("f16c") X("bmi") X("bmi2")
    X("avx512f") X("avx512cd") X("avx512bw") X("avx512dq") X("avx512vl") X("avx512vbmi") X("avx512vnni") X("avx512bf16")
    X("avx512fp16") X("avxvnni") X("amx-tile") X("amx-int8") X("amx-bf16")
#undef X
#else
    has = f == "neon";
#endif
    if (!has) *missing += (missing->empty() ? "" : ",") + f;
  }
  return missing->empty();
}

std::shared_ptr<const Model> Model::Load(const std::string& path, std::string* error) {
  error->clear();
  const std::string symbol = ReadSymbolName(path, error);
  if (symbol.empty()) return nullptr;
  // dlopen looks a bare name up in the library path; a path it takes as it is.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  std::shared_ptr<Model> model(new Model);
  model->library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!model->library_) {
    *error = std::string("cannot load '") + path + "': " + dlerror();
    return nullptr;
  }
  auto fn = reinterpret_cast<whet_model_fn>(dlsym(model->library_, symbol.c_str()));
  model->desc_ = fn ? fn() : nullptr;
  const std::string wrong = CheckDescriptor(model->desc_);
  if (!wrong.empty()) {
    *error = "'" + path + "' can not be used: " + wrong;
    return nullptr;
  }
  std::string missing;
  if (!CpuHasFeatures(model->desc_->features, &missing)) {
    *error = "'" + path + "' needs processor features this machine lacks: " + missing + "; compile it with --target host here";
    return nullptr;
  }
  return model;
}

Model::~Model() {
  if (library_) dlclose(library_);
}

std::vector<uint32_t> Model::parameters() const {
  std::vector<uint32_t> r;
  for (uint32_t i = 0; i < desc_->n_tensors; ++i) {
    if (desc_->tensors[i].storage == WHET_PARAMETER) r.push_back(i);
  }
  return r;
}

void Instance::Free::operator()(void* p) const { std::free(p); }

Instance::Instance(std::shared_ptr<const Model> model, int threads, bool pin) : model_(std::move(model)), pool_(std::max(threads, 1), pin) {
  const whet_model& m = model_->desc();
  arena_.reset(Allocate(m.arena_bytes));
  packed_.reset(Allocate(m.packed_bytes));
  uint64_t scratch = 0;
  for (uint32_t i = 0; i < m.n_kernels; ++i) scratch = std::max(scratch, m.kernels[i].scratch_bytes);
  scratch_stride_ = static_cast<int64_t>((scratch + 4095) / 4096 * 4096);
  scratch_.reset(Allocate(static_cast<uint64_t>(scratch_stride_ * pool_.threads())));
  memory_bytes_ = static_cast<int64_t>(m.arena_bytes + m.packed_bytes) + scratch_stride_ * pool_.threads();
  base_.resize(m.n_tensors);
  for (uint32_t i = 0; i < m.n_tensors; ++i) {
    const whet_tensor& t = m.tensors[i];
    if (t.storage == WHET_ARENA) base_[i] = arena_.get() + t.offset;
    if (t.storage == WHET_PACKED) base_[i] = packed_.get() + t.offset;
    if (t.storage == WHET_CONSTANT) base_[i] = const_cast<char*>(static_cast<const char*>(m.constants)) + t.offset;
  }
  io_uses_.resize(m.n_inputs + m.n_outputs);
  for (uint32_t s = 0; s < m.n_prepack_steps + m.n_steps; ++s) {
    const whet_step& step = s < m.n_prepack_steps ? m.prepack_steps[s] : m.steps[s - m.n_prepack_steps];
    std::vector<void*> args;
    for (uint32_t k = 0; k < m.kernels[step.kernel].n_buffers; ++k) {
      const uint32_t t = step.tensors[k];
      if (t < io_uses_.size()) io_uses_[t].emplace_back(s, k);
      args.push_back(base_[t]);
    }
    args_.push_back(std::move(args));
  }
  if (model_->parameters().empty()) Prepack({});
}

void Instance::Prepack(const std::vector<const void*>& parameters) {
  const whet_model& m = model_->desc();
  const std::vector<uint32_t> ids = model_->parameters();
  for (size_t i = 0; i < ids.size() && i < parameters.size(); ++i) base_[ids[i]] = const_cast<void*>(parameters[i]);
  for (uint32_t s = 0; s < m.n_prepack_steps + m.n_steps; ++s) {
    const whet_step& step = s < m.n_prepack_steps ? m.prepack_steps[s] : m.steps[s - m.n_prepack_steps];
    for (size_t k = 0; k < args_[s].size(); ++k) args_[s][k] = base_[step.tensors[k]];
  }
  for (uint32_t s = 0; s < m.n_prepack_steps; ++s) RunStep(m.prepack_steps[s]);
}

void Instance::RunStep(const whet_step& step) {
  const whet_model& m = model_->desc();
  const bool prepack = &step >= m.prepack_steps && &step < m.prepack_steps + m.n_prepack_steps;
  const size_t index = prepack ? static_cast<size_t>(&step - m.prepack_steps) : m.n_prepack_steps + static_cast<size_t>(&step - m.steps);
  void* const* args = args_[index].data();
  const whet_kernel& kernel = m.kernels[step.kernel];
  for (uint32_t p = 0; p < kernel.n_phases; ++p) {
    const whet_phase& phase = kernel.phases[p];
    pool_.Run(phase.extent, [&](int thread, int64_t begin, int64_t end) {
      phase.fn(args, scratch_.get() + thread * scratch_stride_, nullptr, begin, end);
    });
  }
}

void Instance::Bind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  for (size_t t = 0; t < io_uses_.size(); ++t) {
    void* p = t < inputs.size() ? const_cast<void*>(inputs[t]) : outputs[t - inputs.size()];
    for (const auto& [step, arg] : io_uses_[t]) args_[step][arg] = p;
  }
}

void Instance::Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  Bind(inputs, outputs);
  const whet_model& m = model_->desc();
  for (uint32_t s = 0; s < m.n_steps; ++s) RunStep(m.steps[s]);
}

void Instance::RunProfiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, std::vector<double>& step_ns) {
  Bind(inputs, outputs);
  const whet_model& m = model_->desc();
  step_ns.resize(m.n_steps);
  auto last = std::chrono::steady_clock::now();
  for (uint32_t s = 0; s < m.n_steps; ++s) {
    RunStep(m.steps[s]);
    const auto now = std::chrono::steady_clock::now();
    step_ns[s] += std::chrono::duration<double, std::nano>(now - last).count();
    last = now;
  }
}

}  // namespace whet
