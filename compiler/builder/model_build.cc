#include "compiler/builder/model_build.h"

#include <algorithm>
#include <cstdio>

#include "compiler/task/workload_program.h"

namespace whet::builder {
namespace {

// Constants may be those of `first`, where it is given. Every message of a graph has tensors and
// steps.
template <typename Graph>
Status ReadGraph(Graph& g, size_t tasks, const codegen::ModelGraph* first,
                 codegen::ModelGraph& graph) {
  for (v1::ModelTensor& t : *g.mutable_tensors()) {
    codegen::ModelTensor out;
    out.kind = static_cast<codegen::TensorKind>(t.kind());
    out.dtype = static_cast<DType>(t.dtype());
    out.shape.assign(t.shape().begin(), t.shape().end());
    out.bytes = t.bytes_size();
    out.name = t.name();
    out.data = std::move(*t.mutable_data());
    if (t.same_as() > 0) {
      if (first == nullptr || t.same_as() > first->tensors.size())
        return InvalidArgument("a constant is that of tensor {}", t.same_as());
      out.same_as = static_cast<int>(t.same_as()) - 1;
    }
    graph.tensors.push_back(std::move(out));
  }
  for (const v1::ModelStep& s : g.steps()) {
    if (s.task() >= tasks)
      return InvalidArgument("step '{}' names task {} of {}", s.label(), s.task(), tasks);
    codegen::ModelStep out{static_cast<int>(s.task()), {}, s.label(), {}};
    for (uint32_t t : s.tensors()) {
      if (t >= graph.tensors.size())
        return InvalidArgument("step '{}' names tensor {} of {}", s.label(), t,
                               graph.tensors.size());
      out.tensors.push_back(static_cast<int>(t));
    }
    for (uint32_t i : s.overwritable()) {
      if (i >= out.tensors.size())
        return InvalidArgument("step '{}' may overwrite tensor {} of {}", s.label(), i,
                               out.tensors.size());
      out.overwritable.push_back(static_cast<int>(i));
    }
    graph.steps.push_back(std::move(out));
  }
  return OkStatus();
}

// Of the request itself or, with `first`, of a further build in it.
template <typename Message>
Status ReadBuild(Message& m, const codegen::ModelGraph* first, codegen::ModelBuild& build) {
  build.metadata = m.metadata();
  WHET_ASSIGN_OR_RETURN(build.target, Target::Parse(m.target()));
  for (const v1::ModelTask& t : m.tasks()) {
    WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(t.workload()));
    codegen::ModelTask out{w.workload.fingerprint().Hex(), std::move(w.program), {}};
    if (!t.trace().empty()) {
      WHET_ASSIGN_OR_RETURN(out.trace, schedule::Trace::Parse(t.trace()));
    }
    build.tasks.push_back(std::move(out));
  }
  build.machine = m.machine();
  WHET_RETURN_IF_ERROR(ReadGraph(m, build.tasks.size(), first, build));
  for (v1::ModelGraph& g : *m.mutable_variants())
    WHET_RETURN_IF_ERROR(
        ReadGraph(g, build.tasks.size(), first ? first : &build, build.variants.emplace_back()));
  return OkStatus();
}

}  // namespace

StatusOr<codegen::ModelStats> BuildModelOf(v1::ModelBuildRequest request) {
  codegen::ModelSpec spec;
  spec.name = request.name();
  spec.threads = static_cast<int>(std::max<uint32_t>(request.threads(), 1));
  WHET_RETURN_IF_ERROR(ReadBuild(request, nullptr, spec));
  for (v1::ModelBuild& b : *request.mutable_builds())
    WHET_RETURN_IF_ERROR(ReadBuild(b, &spec, spec.builds.emplace_back()));
  if (request.cache_dir().empty()) return codegen::BuildModel(std::move(spec), request.out_path());
  StatusOr<ContentCache> cache = ContentCache::Open(request.cache_dir(), request.cache_bytes());
  if (!cache.ok())
    fmt::print(stderr, "whet: compiled without a cache: {}\n", Message(cache.status()));
  return codegen::BuildModel(std::move(spec), request.out_path(), cache.ok() ? &*cache : nullptr);
}

}  // namespace whet::builder
