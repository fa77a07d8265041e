#include "compiler/codegen/model_builder.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "compiler/codegen/built_task.h"
#include "compiler/codegen/codegen.h"
#include "compiler/loop/interpret.h"
#include "deploy/runtime/whet_artifact.h"

namespace whet::codegen {
namespace {

int64_t Bytes(const expr::Buffer& b) { return b->num_elements() * SizeOf(b->dtype); }
int64_t Aligned(int64_t n) { return (n + WHET_ALIGNMENT - 1) / WHET_ALIGNMENT * WHET_ALIGNMENT; }

Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  return out ? OkStatus() : Unavailable("cannot write '{}': {}", path, std::strerror(errno));
}

std::string Join(const std::vector<std::string>& v) {
  std::string s;
  for (const std::string& x : v) s += (s.empty() ? "" : ",") + x;
  return s;
}

struct TempDir {
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "whet-build-XXXXXX").string();
    if (mkdtemp(pattern.data())) path = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

// Runs prepack kernels: natively through a library made of the same objects, or interpreted.
class Prepacker {
 public:
  Prepacker(const std::vector<BuiltTask>& tasks, const std::vector<std::string>& objects,
            const Target& target, const std::string& path)
      : tasks_(tasks) {
    if (RunsHere(target)) load_status_ = Load(objects, target, path);
  }
  ~Prepacker() {
    if (library_) dlclose(library_);
  }

  // `constants` by buffer name; the packed buffers' bytes come back by name.
  StatusOr<std::map<std::string, std::string>> Run(
      int task, const std::map<std::string, const std::string*>& constants) {
    WHET_RETURN_IF_ERROR(load_status_);
    const loop::Program& p = tasks_[task].prepack;
    std::map<std::string, std::string> out;
    for (const expr::Buffer& b : tasks_[task].packed) out[b->name].resize(Bytes(b));
    if (library_) {
      std::map<std::string, std::vector<char>> workspace;
      std::vector<void*> buffers;
      for (const loop::Param& param : tasks_[task].code.prepack.params) {
        auto in = constants.find(param.buffer->name);
        auto packed = out.find(param.buffer->name);
        if (in != constants.end()) {
          buffers.push_back(const_cast<char*>(in->second->data()));
        } else if (packed != out.end()) {
          buffers.push_back(packed->second.data());
        } else {
          auto& w = workspace[param.buffer->name];
          w.resize(Bytes(param.buffer));
          buffers.push_back(w.data());
        }
      }
      std::vector<char> scratch(tasks_[task].code.prepack.scratch_bytes + WHET_ALIGNMENT);
      auto* aligned = reinterpret_cast<char*>(Aligned(reinterpret_cast<intptr_t>(scratch.data())));
      const whet_kernel& k = model_->kernels[kernel_of_[task]];
      for (uint32_t i = 0; i < k.n_phases; ++i)
        k.phases[i].fn(buffers.data(), aligned, nullptr, 0, k.phases[i].extent);
      return out;
    }
    loop::Memory memory;
    for (const loop::Param& param : p.params) {
      if (param.role != loop::Role::kInput) continue;
      if (param.buffer->dtype != DType::kF32)
        return Unimplemented("packing {} weights for another machine",
                             ToString(param.buffer->dtype));
      const std::string& bytes = *constants.at(param.buffer->name);
      const auto* f = reinterpret_cast<const float*>(bytes.data());
      memory[param.buffer->name].assign(f, f + bytes.size() / 4);
    }
    WHET_RETURN_IF_ERROR(loop::Interpret(p, memory));
    for (auto& [name, bytes] : out) {
      auto* f = reinterpret_cast<float*>(bytes.data());
      std::transform(memory[name].begin(), memory[name].end(), f,
                     [](double v) { return static_cast<float>(v); });
    }
    return out;
  }

 private:
  Status Load(const std::vector<std::string>& objects, const Target& target,
              const std::string& path) {
    ModelDesc d;
    d.name = "prepack";
    d.target = target.ToString();
    for (size_t t = 0; t < tasks_.size(); ++t) {
      if (tasks_[t].code.prepack.phases.empty()) continue;
      kernel_of_[static_cast<int>(t)] = d.kernels.size();
      d.kernels.push_back({tasks_[t].code.prepack.phases, 0, 0, ""});
    }
    if (d.kernels.empty()) return OkStatus();
    WHET_ASSIGN_OR_RETURN(std::string object, GenerateModel(d, target));
    WHET_RETURN_IF_ERROR(WriteFile(path + ".o", object));
    std::vector<std::string> paths = objects;
    paths.push_back(path + ".o");
    WHET_RETURN_IF_ERROR(LinkShared(paths, "whet_model_prepack_v1", path + ".so"));
    library_ = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    auto fn = library_ ? reinterpret_cast<whet_model_fn>(dlsym(library_, "whet_model_prepack_v1"))
                       : nullptr;
    if (!fn) return Internal("cannot load the prepack kernels: {}", dlerror());
    model_ = fn();
    return OkStatus();
  }

  const std::vector<BuiltTask>& tasks_;
  std::map<int, size_t> kernel_of_;
  void* library_ = nullptr;
  const whet_model* model_ = nullptr;
  Status load_status_ = OkStatus();
};

constexpr char kConstants[] = "whet_constants";  // symbol of the section

// Bytes of all constants, each content once.
class ConstantSection {
 public:
  explicit ConstantSection(DataObject& object) : object_(object) {}
  int64_t Add(const std::string& bytes) {
    auto [it, fresh] = offsets_.try_emplace({FingerprintOf(bytes), bytes.size()}, object_.size());
    if (fresh) object_.Append(bytes);
    return it->second;
  }
  int64_t size() const { return object_.size(); }

 private:
  DataObject& object_;
  std::map<std::pair<Fingerprint, size_t>, int64_t> offsets_;
};

// The descriptor of one graph. Constants go into a section that all graphs share.
class Assembler {
 public:
  Assembler(const ModelSpec& spec, const ModelBuild& build, const ModelGraph& graph,
            const std::vector<BuiltTask>& tasks, ConstantSection& constants)
      : spec_(spec), build_(build), graph_(graph), tasks_(tasks), constants_(constants) {}

  Status Run(Prepacker& prepacker) {
    d_.name = spec_.name;
    d_.target = build_.target.ToString();
    d_.features = Join(build_.target.features);
    d_.metadata = build_.metadata;
    d_.build = build_.target.Name();
    for (const ModelTensor& t : graph_.tensors) {
      const int storage = t.kind == TensorKind::kInput      ? WHET_INPUT
                          : t.kind == TensorKind::kOutput   ? WHET_OUTPUT
                          : t.kind == TensorKind::kConstant ? WHET_CONSTANT
                                                            : WHET_ARENA;
      d_.n_inputs += t.kind == TensorKind::kInput;
      d_.n_outputs += t.kind == TensorKind::kOutput;
      d_.tensors.push_back({storage, t.dtype, t.shape, 0, t.bytes, t.name});
      lifetimes_.push_back({t.bytes, -1, -1});
    }
    for (const BuiltTask& t : tasks_) {
      d_.kernels.push_back({t.code.main.phases, t.code.main.scratch_bytes,
                            static_cast<int>(t.code.main.params.size()), ""});
    }
    for (size_t t = 0; t < tasks_.size(); ++t) d_.kernels[t].workload = build_.tasks[t].workload;
    for (size_t s = 0; s < graph_.steps.size(); ++s)
      WHET_RETURN_IF_ERROR(AddStep(static_cast<int>(s), prepacker));
    PlaceArena();
    return OkStatus();
  }

  ModelDesc TakeDesc() { return std::move(d_); }

 private:
  Status AddStep(int index, Prepacker& prepacker) {
    const ModelStep& step = graph_.steps[index];
    const BuiltTask& task = tasks_[step.task];
    const loop::Program& initial = build_.tasks[step.task].initial;
    if (initial.params.size() != step.tensors.size()) {
      return Internal("step '{}' has {} tensors, its workload {}", step.label, step.tensors.size(),
                      initial.params.size());
    }
    std::map<std::string, int> tensor_of;
    std::map<std::string, const std::string*> constants;
    for (size_t i = 0; i < initial.params.size(); ++i) {
      const expr::Buffer& b = initial.params[i].buffer;
      const ModelTensor& t = graph_.tensors[step.tensors[i]];
      if (Bytes(b) != t.bytes)
        return Internal("step '{}': tensor {} has {} bytes, its workload {}", step.label, i,
                        t.bytes, Bytes(b));
      tensor_of[b->name] = step.tensors[i];
      if (t.kind == TensorKind::kConstant) constants[b->name] = &DataOf(t);
    }
    std::map<std::string, std::string> packed;
    if (!task.code.prepack.phases.empty()) {
      WHET_ASSIGN_OR_RETURN(packed, prepacker.Run(step.task, constants));
    }
    StepDesc out{step.task, {}, step.label};
    for (const loop::Param& p : task.code.main.params) {
      const std::string& name = p.buffer->name;
      if (auto it = tensor_of.find(name); it != tensor_of.end()) {
        const int t = it->second;
        if (graph_.tensors[t].kind == TensorKind::kConstant && !placed_[t]) {
          d_.tensors[t].offset = constants_.Add(DataOf(graph_.tensors[t]));
          placed_[t] = true;
        }
        Touch(t, index);
        out.tensors.push_back(static_cast<uint32_t>(t));
        continue;
      }
      const bool is_packed = packed.count(name) > 0;
      TensorDesc t{is_packed ? WHET_CONSTANT : WHET_ARENA,
                   p.buffer->dtype,
                   p.buffer->shape,
                   0,
                   Bytes(p.buffer),
                   ""};
      if (is_packed) t.offset = constants_.Add(packed[name]);
      out.tensors.push_back(static_cast<uint32_t>(d_.tensors.size()));
      d_.tensors.push_back(t);
      lifetimes_.push_back({t.bytes, index, index});
    }
    d_.steps.push_back(std::move(out));
    return OkStatus();
  }

  const std::string& DataOf(const ModelTensor& t) const {
    return t.same_as < 0 ? t.data : spec_.tensors[t.same_as].data;
  }

  void Touch(int tensor, int step) {
    Lifetime& l = lifetimes_[tensor];
    if (l.first < 0) l.first = step;
    l.last = step;
  }

  bool InArena(size_t t) const {
    return d_.tensors[t].storage == WHET_ARENA && lifetimes_[t].first >= 0;
  }

  // Per tensor: the one whose bytes it takes, itself for most. A kernel's pointers do not alias for
  // LLVM, which is right here in effect: every load of an element that is overwritten feeds the
  // only store to it, so that no order of the two is possible but load before store. That there is
  // only one is up to the schedule: a kernel that writes an element again keeps to its own bytes.
  std::vector<size_t> ShareBytes() {
    std::vector<size_t> owner(d_.tensors.size());
    std::iota(owner.begin(), owner.end(), size_t{0});
    const std::vector<Lifetime> own = lifetimes_;
    for (size_t s = 0; s < graph_.steps.size(); ++s) {
      const ModelStep& step = graph_.steps[s];
      if (step.overwritable.empty() || !tasks_[step.task].writes_output_once) continue;
      const auto out = static_cast<size_t>(step.tensors.back());
      const int now = static_cast<int>(s);
      if (!InArena(out) || own[out].first != now) continue;
      for (int i : step.overwritable) {
        const auto in = static_cast<size_t>(step.tensors[static_cast<size_t>(i)]);
        if (!InArena(in) || own[in].last != now || own[in].first == now ||
            own[in].bytes != own[out].bytes)
          continue;
        owner[out] = owner[in];
        lifetimes_[owner[in]].last = own[out].last;
        break;
      }
    }
    return owner;
  }

  void PlaceArena() {
    const std::vector<size_t> owner = ShareBytes();
    std::vector<Lifetime> live;
    std::vector<size_t> ids;
    for (size_t t = 0; t < d_.tensors.size(); ++t) {
      if (!InArena(t) || owner[t] != t) continue;
      live.push_back(lifetimes_[t]);
      ids.push_back(t);
    }
    std::vector<int64_t> offsets;
    d_.arena_bytes = PlanMemory(live, &offsets);
    for (size_t i = 0; i < ids.size(); ++i) d_.tensors[ids[i]].offset = offsets[i];
    for (size_t t = 0; t < d_.tensors.size(); ++t) {
      if (owner[t] != t) d_.tensors[t].offset = d_.tensors[owner[t]].offset;
    }
  }

  const ModelSpec& spec_;
  const ModelBuild& build_;
  const ModelGraph& graph_;
  const std::vector<BuiltTask>& tasks_;
  ModelDesc d_;
  ConstantSection& constants_;
  std::map<int, bool> placed_;
  std::vector<Lifetime> lifetimes_;
};

// The descriptors of all graphs of a build, the others as variants of the first.
StatusOr<ModelDesc> Assemble(const ModelSpec& spec, const ModelBuild& build,
                             const std::vector<BuiltTask>& tasks, Prepacker& prepacker,
                             ConstantSection& constants) {
  std::vector<ModelDesc> all;
  for (size_t i = 0; i <= build.variants.size(); ++i) {
    Assembler assembler(spec, build, i == 0 ? build : build.variants[i - 1], tasks, constants);
    WHET_RETURN_IF_ERROR(assembler.Run(prepacker));
    all.push_back(assembler.TakeDesc());
  }
  ModelDesc first = std::move(all[0]);
  first.variants.assign(std::make_move_iterator(all.begin() + 1),
                        std::make_move_iterator(all.end()));
  return first;
}

// Calls f on a descriptor, its variants, and its builds and theirs.
template <typename F>
void ForEachGraph(ModelDesc& d, const F& f) {
  f(d);
  for (auto* list : {&d.variants, &d.builds}) {
    for (ModelDesc& v : *list) ForEachGraph(v, f);
  }
}

// What the model calls the task: the nodes of the first step that runs it.
std::string LabelOfTask(const ModelBuild& build, size_t task) {
  std::vector<const ModelGraph*> graphs = {&build};
  for (const ModelGraph& v : build.variants) graphs.push_back(&v);
  for (const ModelGraph* g : graphs) {
    for (const ModelStep& s : g->steps) {
      if (static_cast<size_t>(s.task) == task) return s.label;
    }
  }
  return std::to_string(task);
}

// Everything for one processor: objects go to `dir` and are added to `objects`. `number` tells the
// builds of an artifact apart.
StatusOr<ModelDesc> BuildFor(const ModelSpec& spec, const ModelBuild& build, size_t number,
                             const std::string& dir, ContentCache* cache,
                             ConstantSection& constants, std::vector<std::string>& objects,
                             ModelStats& stats) {
  const auto conditions = schedule::Conditions::Of(build.machine, build.target, spec.threads);
  std::vector<BuiltTask> tasks;
  std::vector<std::string> own;
  std::map<std::string, int> prefixes;
  std::set<std::string> packings;  // so far, where several sets of shapes may share them
  for (size_t i = 0; i < build.tasks.size(); ++i) {
    // A task that occurs twice needs symbols of its own each time.
    std::string prefix = SymbolPrefix(build.tasks[i], build.target);
    if (const int before = prefixes[prefix]++; before > 0) prefix += fmt::format("_{}", before);
    auto built = BuildTask(build.tasks[i], prefix, build.target, conditions, packings, cache);
    if (!built.ok())
      return Annotate(built.status(), fmt::format("task '{}' ({})", LabelOfTask(build, i),
                                                  build.tasks[i].workload));
    own.push_back(fmt::format("{}/b{}t{}.o", dir, number, i));
    WHET_RETURN_IF_ERROR(WriteFile(own.back(), built->code.object));
    stats.code_bytes += static_cast<int64_t>(built->code.object.size());
    stats.cached_objects += built->cached;
    if (!build.variants.empty() && !built->packing.empty()) packings.insert(built->packing);
    built->code.object.clear();
    tasks.push_back(std::move(*built));
  }
  Prepacker prepacker(tasks, own, build.target, fmt::format("{}/prepack{}", dir, number));
  objects.insert(objects.end(), own.begin(), own.end());
  return Assemble(spec, build, tasks, prepacker, constants);
}

// Each is asked for by its name.
Status CheckBuilds(const ModelSpec& spec) {
  std::set<std::string> names = {spec.target.Name()};
  for (const ModelBuild& b : spec.builds) {
    if (!names.insert(b.target.Name()).second)
      return InvalidArgument("two builds for '{}'", b.target.Name());
    if (b.target.arch != spec.target.arch)
      return InvalidArgument("builds for {} and {}: a library is for one architecture",
                             spec.target.arch, b.target.arch);
    if (b.variants.size() != spec.variants.size())
      return InvalidArgument("builds with {} and {} sets of shapes", spec.variants.size() + 1,
                             b.variants.size() + 1);
  }
  return OkStatus();
}

}  // namespace

int64_t PlanMemory(const std::vector<Lifetime>& buffers, std::vector<int64_t>* offsets) {
  offsets->assign(buffers.size(), 0);
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<size_t> placed;
  int64_t total = 0;
  for (size_t i : order) {
    // Gaps between the already placed buffers that are alive at the same time; the lowest that
    // fits.
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t j : placed) {
      if (buffers[j].first <= buffers[i].last && buffers[i].first <= buffers[j].last) {
        taken.emplace_back((*offsets)[j], (*offsets)[j] + Aligned(buffers[j].bytes));
      }
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + Aligned(buffers[i].bytes) <= begin) break;
      at = std::max(at, end);
    }
    (*offsets)[i] = at;
    total = std::max(total, at + Aligned(buffers[i].bytes));
    placed.push_back(i);
  }
  return total;
}

StatusOr<ModelStats> BuildModel(ModelSpec spec, const std::string& out_path, ContentCache* cache) {
  TempDir dir;
  if (dir.path.empty())
    return Unavailable("cannot make a temporary directory: {}", std::strerror(errno));
  WHET_RETURN_IF_ERROR(CheckBuilds(spec));
  std::vector<std::string> objects;
  ModelStats stats;
  DataObject data(dir.path + "/constants.o", kConstants, spec.target);
  ConstantSection constants(data);
  WHET_ASSIGN_OR_RETURN(ModelDesc desc,
                        BuildFor(spec, spec, 0, dir.path, cache, constants, objects, stats));
  for (size_t i = 0; i < spec.builds.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(ModelDesc more, BuildFor(spec, spec.builds[i], i + 1, dir.path, cache,
                                                   constants, objects, stats));
    desc.builds.push_back(std::move(more));
  }
  if (cache != nullptr && cache->misses() > 0) cache->Trim();
  stats.constant_bytes = constants.size();
  ForEachGraph(desc, [&](ModelDesc& d) {
    d.constants_bytes = stats.constant_bytes;
    if (stats.constant_bytes) d.constants_symbol = kConstants;
    stats.arena_bytes = std::max(stats.arena_bytes, d.arena_bytes);
  });
  WHET_RETURN_IF_ERROR(data.Finish());
  if (stats.constant_bytes) objects.push_back(dir.path + "/constants.o");
  // The linker maps the same bytes twice, as its input and as its output.
  spec.tensors.clear();
  spec.variants.clear();
  spec.builds.clear();
  WHET_ASSIGN_OR_RETURN(std::string descriptor, GenerateModel(desc, spec.target));
  objects.push_back(dir.path + "/model.o");
  WHET_RETURN_IF_ERROR(WriteFile(objects.back(), descriptor));
  // Beside the target, so that the rename is atomic; a killed build leaves the old artifact.
  const std::string partial = fmt::format("{}.{}.partial", out_path, getpid());
  {
    std::ofstream probe(partial, std::ios::binary);
    if (!probe) return InvalidArgument("cannot write '{}': {}", out_path, std::strerror(errno));
  }
  Status linked = LinkShared(objects, "whet_model_" + spec.name + "_v1", partial);
  if (linked.ok() && std::rename(partial.c_str(), out_path.c_str()) != 0) {
    linked = InvalidArgument("cannot write '{}': {}", out_path, std::strerror(errno));
  }
  if (!linked.ok()) {
    unlink(partial.c_str());
    return linked;
  }
  return stats;
}

}  // namespace whet::codegen
