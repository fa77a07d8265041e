#include "deploy/runtime/model.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "deploy/runtime/elf_symbol.h"

namespace whet {
namespace {

constexpr int64_t kTypeBytes[] = {1, 1, 1, 4, 8, 2, 2, 4, 8, 2, 2, 4, 8};
constexpr const char* kTypeNames[] = {"bool", "i8",  "u8",  "i32", "i64", "f16", "bf16",
                                      "f32",  "f64", "i16", "u16", "u32", "u64"};
constexpr uint32_t kMaxTableEntries =
    1 << 20;  // a descriptor is trusted to be ours, but may be damaged
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;
constexpr uint32_t kMaxVariants = 256;
constexpr uint32_t kMaxBuilds = 64;
static_assert(WHET_MODEL_SIZE_MIN == offsetof(whet_model, variants));
static_assert(WHET_MODEL_SIZE_VARIANTS == offsetof(whet_model, build));

std::string Number(uint64_t v) { return std::to_string(v); }

// Copies a table whose entries may be larger than ours. The reason when it cannot be read.
template <typename T>
std::string CopyTable(const T* table, uint32_t count, const char* what, std::vector<T>* out) {
  out->clear();
  if (count == 0) return "";
  if (!table) return std::string("its ") + what + " table is missing";
  if (count > kMaxTableEntries)
    return std::string("its ") + what + " table has " + Number(count) + " entries, the limit is " +
           Number(kMaxTableEntries);
  const uint32_t stride = table->size;
  if (stride < sizeof(T) || stride > 4096 || stride % alignof(T) != 0) {
    return std::string("its ") + what + " struct has " + Number(stride) +
           " bytes, this runtime needs " + Number(sizeof(T));
  }
  out->resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    std::memcpy(&(*out)[i], reinterpret_cast<const char*>(table) + uint64_t{i} * stride, sizeof(T));
    if ((*out)[i].size != stride)
      return std::string("its ") + what + " table has entries of different sizes";
    (*out)[i].size = sizeof(T);
  }
  return "";
}

// Bytes of a dense tensor; 0 and a false return when a dimension is negative or the product
// overflows.
bool DenseBytes(const whet_tensor& t, uint64_t* bytes) {
  *bytes = static_cast<uint64_t>(DTypeBytes(t.dtype));
  for (uint32_t d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0 || __builtin_mul_overflow(*bytes, static_cast<uint64_t>(t.shape[d]), bytes))
      return false;
  }
  return *bytes <= kMaxBytes;
}

const char* OrEmpty(const char* s) { return s ? s : ""; }

std::string Quoted(const std::string& s) { return "'" + s + "'"; }

// "x86-64-v4 (lacks avx512f), x86-64-v3"
std::string ListOf(std::span<const Model::Build> builds) {
  std::string list;
  for (const Model::Build& b : builds) {
    list += (list.empty() ? "" : ", ") + b.name;
    if (!b.missing.empty()) list += " (this machine lacks " + b.missing + ")";
  }
  return list;
}

// Index of the build to use, or -1 and why none can be.
int Choose(std::span<const Model::Build> builds, const std::string& wanted, std::string* error) {
  if (builds.size() == 1 && wanted.empty() && !builds[0].missing.empty()) {
    *error = " needs processor features this machine lacks: " + builds[0].missing +
             "; compile the model for this machine's own target";
    return -1;
  }
  std::vector<int> found;
  for (int pass = 0; pass < 2 && found.empty(); ++pass) {
    for (size_t i = 0; i < builds.size(); ++i) {
      const Model::Build& b = builds[i];
      const bool named =
          pass == 0 ? b.name == wanted || b.target == wanted : b.name.rfind(wanted + "+", 0) == 0;
      if (wanted.empty() ? b.missing.empty() : named) found.push_back(static_cast<int>(i));
    }
  }
  if (wanted.empty() && found.empty()) {
    *error = " has no code for this machine; it has " + ListOf(builds) +
             "; compile the model for this machine's own target, too";
  } else if (found.empty()) {
    *error = " has no code for " + Quoted(wanted) + "; it has " + ListOf(builds);
  } else if (!wanted.empty() && found.size() > 1) {
    *error = " has several builds for " + Quoted(wanted) + ": " + ListOf(builds);
  } else if (const std::string& missing = builds[static_cast<size_t>(found[0])].missing;
             !missing.empty()) {
    *error = ": its code for " + Quoted(wanted) +
             " needs processor features this machine lacks: " + missing + "; it has " +
             ListOf(builds);
  } else {
    return found[0];
  }
  return -1;
}

}  // namespace

int64_t DTypeBytes(uint32_t t) { return t <= WHET_U64 ? kTypeBytes[t] : 0; }
const char* DTypeName(uint32_t t) { return t <= WHET_U64 ? kTypeNames[t] : "?"; }

std::string ShapeText(std::span<const int64_t> shape) {
  std::string s;
  for (int64_t d : shape) s += (s.empty() ? "" : "x") + std::to_string(d);
  return s.empty() ? "scalar" : s;
}

std::shared_ptr<const Model> Model::Load(const std::string& path, const LoadOptions& options,
                                         std::string* error) {
  error->clear();
  const std::string symbol = FindDescriptorSymbol(path, error);
  if (symbol.empty()) return nullptr;
  // dlopen looks a bare name up in the library path; a path it takes as it is.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  std::shared_ptr<Model> model(new Model);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *error = "cannot load '" + path + "': " + dlerror();
    return nullptr;
  }
  model->library_ = std::shared_ptr<void>(library, [](void* l) { dlclose(l); });
  const auto function = reinterpret_cast<whet_model_fn>(dlsym(library, symbol.c_str()));
  const whet_model* given = function ? function() : nullptr;
  std::vector<std::shared_ptr<Model>> all;
  std::string wrong = model->Adopt(given);
  if (wrong.empty()) wrong = model->AdoptBuilds(*given, &all);
  if (!wrong.empty()) {
    *error = Quoted(path) + " cannot be used: " + wrong;
    return nullptr;
  }
  all.push_back(model);  // it asks for the least
  std::vector<Build> builds;
  for (const auto& m : all) {
    Build& b = builds.emplace_back(m->builds_[0]);
    options.processor.empty() ? CpuHasFeatures(b.features, &b.missing)
                              : FeaturesAmong(b.features, options.processor, &b.missing);
  }
  const int chosen = Choose(builds, options.build, error);
  if (chosen < 0) {
    *error = Quoted(path) + *error;
    return nullptr;
  }
  model = all[static_cast<size_t>(chosen)];
  model->builds_ = std::move(builds);
  model->build_ = static_cast<size_t>(chosen);
  if (options.huge_pages) model->CopyToHugePages();
  return model;
}

std::string Model::Adopt(const whet_model* given) {
  if (!given) return "its descriptor is missing";
  // size and abi_version are the first two fields in every version.
  if (given->abi_version != WHET_ABI_VERSION) {
    return "its interface version is " + Number(given->abi_version) + ", this runtime knows " +
           Number(WHET_ABI_VERSION);
  }
  if (given->size < WHET_MODEL_SIZE_MIN)
    return "its model struct has " + Number(given->size) + " bytes, this runtime needs " +
           Number(WHET_MODEL_SIZE_MIN);
  std::memcpy(&desc_, given, std::min<size_t>(given->size, sizeof desc_));
  // What an older library does not have stays zero.
  if (given->size < WHET_MODEL_SIZE_VARIANTS) {
    desc_.n_variants = 0;
    desc_.variants = nullptr;
  }
  if (given->size < sizeof desc_) {
    desc_.n_builds = 0;
    desc_.builds = nullptr;
    desc_.build = nullptr;
  }
  desc_.size = sizeof desc_;
  for (const char** text :
       {&desc_.name, &desc_.target, &desc_.features, &desc_.metadata, &desc_.build})
    *text = OrEmpty(*text);
  // Older libraries name no build.
  if (*desc_.build == '\0') desc_.build = desc_.target;
  builds_ = {{desc_.build, desc_.target, desc_.features, ""}};
  if (desc_.n_dims != 0)
    return "it has " + Number(desc_.n_dims) +
           " symbolic dimensions; this runtime runs fixed shapes only";
  std::string wrong = CopyTable(desc_.tensors, desc_.n_tensors, "tensor", &tensors_);
  if (wrong.empty()) wrong = CopyTable(desc_.kernels, desc_.n_kernels, "kernel", &kernels_);
  if (wrong.empty())
    wrong = CopyTable(desc_.prepack_steps, desc_.n_prepack_steps, "prepack step", &prepack_steps_);
  if (wrong.empty()) wrong = CopyTable(desc_.steps, desc_.n_steps, "step", &steps_);
  if (!wrong.empty()) return wrong;
  phases_.resize(kernels_.size());
  for (size_t k = 0; k < kernels_.size(); ++k) {
    wrong = CopyTable(kernels_[k].phases, kernels_[k].n_phases, "phase", &phases_[k]);
    if (!wrong.empty()) return "kernel " + Number(k) + ": " + wrong;
    kernels_[k].phases = phases_[k].data();
    kernels_[k].workload = OrEmpty(kernels_[k].workload);
  }
  for (auto& t : tensors_) t.name = OrEmpty(t.name);
  for (auto* list : {&prepack_steps_, &steps_}) {
    for (auto& s : *list) s.label = OrEmpty(s.label);
  }
  desc_.tensors = tensors_.data();
  desc_.kernels = kernels_.data();
  desc_.prepack_steps = prepack_steps_.data();
  desc_.steps = steps_.data();
  wrong = CheckTensors();
  if (wrong.empty()) wrong = CheckKernels();
  if (wrong.empty()) wrong = CheckSteps(prepack_steps_, "prepack step");
  if (wrong.empty()) wrong = CheckSteps(steps_, "step");
  if (wrong.empty()) wrong = AdoptVariants(*given);
  return wrong;
}

std::string Model::AdoptVariants(const whet_model& given) {
  const whet_model* const* list = desc_.variants;
  const uint32_t count = desc_.n_variants;
  desc_.variants = nullptr;
  desc_.n_variants = 0;
  if (count == 0) return "";
  if (!list || count > kMaxVariants)
    return "its table of " + Number(count) + " variants is missing or too long";
  for (uint32_t i = 0; i < count; ++i) {
    const std::string where = "variant " + Number(i + 1) + ": ";
    if (list[i] == &given) return where + "it is the model itself";
    // One level: a variant of a variant would never be asked for.
    if (list[i] && list[i]->size >= WHET_MODEL_SIZE_VARIANTS && list[i]->n_variants > 0)
      return where + "it has variants of its own";
    std::shared_ptr<Model> v(new Model);
    v->library_ = library_;
    if (std::string wrong = v->Adopt(list[i]); !wrong.empty()) return where + wrong;
    bool same = v->inputs().size() == inputs().size() && v->outputs().size() == outputs().size();
    for (size_t k = 0; same && k < inputs().size() + outputs().size(); ++k) {
      same = v->tensors_[k].dtype == tensors_[k].dtype &&
             std::strcmp(v->tensors_[k].name, tensors_[k].name) == 0;
    }
    if (!same) return where + "its inputs and outputs are not those of the model";
    v->desc_.builds = nullptr;
    v->desc_.n_builds = 0;
    variants_.push_back(std::move(v));
  }
  return "";
}

std::string Model::AdoptBuilds(const whet_model& given,
                               std::vector<std::shared_ptr<Model>>* builds) {
  const whet_model* const* list = desc_.builds;
  const uint32_t count = desc_.n_builds;
  desc_.builds = nullptr;
  desc_.n_builds = 0;
  if (count == 0) return "";
  if (!list || count > kMaxBuilds)
    return "its table of " + Number(count) + " builds is missing or too long";
  for (uint32_t i = 0; i < count; ++i) {
    const std::string where = "build " + Number(i + 1) + ": ";
    if (list[i] == &given) return where + "it is the model itself";
    std::shared_ptr<Model> b(new Model);
    b->library_ = library_;
    if (std::string wrong = b->Adopt(list[i]); !wrong.empty()) return where + wrong;
    if (b->desc_.n_builds > 0) return where + "it has builds of its own";
    if (std::string wrong = Differs(*b); !wrong.empty()) return where + wrong;
    const std::string name = b->desc_.build;
    if (name == desc_.build || std::any_of(builds->begin(), builds->end(), [&](const auto& other) {
          return name == other->desc_.build;
        }))
      return where + "its name '" + name + "' is another's too";
    builds->push_back(std::move(b));
  }
  return "";
}

std::string Model::Differs(const Model& other) const {
  auto same = [](const Model& a, const Model& b) {
    const size_t n = a.inputs().size() + a.outputs().size();
    if (a.inputs().size() != b.inputs().size() || n != b.inputs().size() + b.outputs().size())
      return false;
    for (size_t k = 0; k < n; ++k) {
      const whet_tensor &x = a.tensors_[k], &y = b.tensors_[k];
      if (x.dtype != y.dtype || std::strcmp(x.name, y.name) != 0 ||
          !std::equal(x.shape, x.shape + x.rank, y.shape, y.shape + y.rank))
        return false;
    }
    return true;
  };
  bool all = same(*this, other) && variants_.size() == other.variants_.size();
  for (size_t i = 0; all && i < variants_.size(); ++i)
    all = same(*variants_[i], *other.variants_[i]);
  return all ? "" : "its inputs, outputs and sets of shapes are not those of the model";
}

std::shared_ptr<const Model> Model::ForShapes(const std::shared_ptr<const Model>& model,
                                              std::span<const std::vector<int64_t>> shapes,
                                              std::string* error) {
  error->clear();
  auto fits = [&](const Model& m) {
    if (m.inputs().size() != shapes.size()) return false;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const whet_tensor& t = m.inputs()[i];
      if (!std::equal(shapes[i].begin(), shapes[i].end(), t.shape, t.shape + t.rank)) return false;
    }
    return true;
  };
  if (fits(*model)) return model;
  for (const auto& v : model->variants()) {
    if (fits(*v)) return v;
  }
  auto list = [](const Model& m) {
    std::string s;
    for (const whet_tensor& t : m.inputs())
      s += (s.empty() ? "" : ", ") + std::string(t.name) + " " + ShapeText({t.shape, t.rank});
    return s;
  };
  std::string wanted;
  for (const auto& s : shapes) wanted += (wanted.empty() ? "" : ", ") + ShapeText(s);
  *error = "the model is not compiled for inputs of " + wanted + "; it is for " + list(*model);
  for (const auto& v : model->variants()) *error += "; " + list(*v);
  return nullptr;
}

std::string Model::CheckTensors() const {
  if (uint64_t{desc_.n_inputs} + desc_.n_outputs > tensors_.size()) {
    return "it names " + Number(desc_.n_inputs) + " inputs and " + Number(desc_.n_outputs) +
           " outputs but has " + Number(tensors_.size()) + " tensors";
  }
  if (desc_.arena_bytes > kMaxBytes || desc_.packed_bytes > kMaxBytes)
    return "it asks for more than 64 TiB of memory";
  if (desc_.constants_bytes > 0 &&
      reinterpret_cast<uintptr_t>(desc_.constants) % WHET_ALIGNMENT != 0)
    return "its constants are not aligned";
  if (desc_.constants_bytes > 0 && !desc_.constants) return "its constants are missing";
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const whet_tensor& t = tensors_[i];
    const std::string where = "tensor " + Number(i) + " '" + t.name + "' ";
    if (t.dtype > WHET_U64) return where + "has the unknown type " + Number(t.dtype);
    if (t.rank > 16 || (t.rank > 0 && !t.shape))
      return where + "has no shape, or more than 16 dimensions";
    const bool is_input = i < desc_.n_inputs,
               is_output = !is_input && i < desc_.n_inputs + desc_.n_outputs;
    if (is_input != (t.storage == WHET_INPUT) || is_output != (t.storage == WHET_OUTPUT)) {
      return where + "has storage " + Number(t.storage) +
             ", which does not fit its place in the table";
    }
    const bool callers = is_input || is_output || t.storage == WHET_PARAMETER;
    uint64_t limit = 0, dense = 0;
    switch (t.storage) {
      case WHET_ARENA: limit = desc_.arena_bytes; break;
      case WHET_CONSTANT: limit = desc_.constants_bytes; break;
      case WHET_PACKED: limit = desc_.packed_bytes; break;
      default:
        if (!callers) return where + "has the unknown storage " + Number(t.storage);
        if (!DenseBytes(t, &dense) || t.bytes != dense)
          return where + "of shape " + ShapeText({t.shape, t.rank}) + " " + DTypeName(t.dtype) +
                 " states " + Number(t.bytes) + " bytes";
        continue;
    }
    if (t.offset % WHET_ALIGNMENT != 0) return where + "is not aligned";
    if (t.offset > limit || t.bytes > limit - t.offset)
      return where + "reaches beyond its memory of " + Number(limit) + " bytes";
  }
  return "";
}

std::string Model::CheckKernels() const {
  for (size_t k = 0; k < kernels_.size(); ++k) {
    if (kernels_[k].scratch_bytes > kMaxBytes)
      return "kernel " + Number(k) + " asks for more than 64 TiB of scratch memory";
    for (const whet_phase& p : phases_[k]) {
      if (!p.fn || p.extent < 1)
        return "kernel " + Number(k) + " has a phase without a function or without work";
    }
  }
  return "";
}

std::string Model::CheckSteps(std::span<const whet_step> steps, const char* what) const {
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string where = std::string(what) + " " + Number(i) + " '" + steps[i].label + "' ";
    if (steps[i].kernel >= kernels_.size())
      return where + "runs kernel " + Number(steps[i].kernel) + " of " + Number(kernels_.size());
    const uint32_t n = kernels_[steps[i].kernel].n_buffers;
    if (n > 0 && !steps[i].tensors) return where + "has no tensors";
    for (uint32_t k = 0; k < n; ++k) {
      if (steps[i].tensors[k] >= tensors_.size())
        return where + "uses tensor " + Number(steps[i].tensors[k]) + " of " +
               Number(tensors_.size());
    }
  }
  return "";
}

std::vector<uint32_t> Model::parameters() const {
  std::vector<uint32_t> r;
  for (uint32_t i = 0; i < desc_.n_tensors; ++i) {
    if (desc_.tensors[i].storage == WHET_PARAMETER) r.push_back(i);
  }
  return r;
}

}  // namespace whet
