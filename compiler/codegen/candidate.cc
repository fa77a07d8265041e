#include "compiler/codegen/candidate.h"

#include <fstream>

#include "deploy/runtime/whet_artifact.h"

namespace whet::codegen {
namespace {

int64_t Bytes(const expr::Buffer& b) { return b->num_elements() * SizeOf(b->dtype); }

// Places buffers one after the other, each on a cache line.
int64_t Place(int64_t& top, int64_t bytes) {
  const int64_t at = top;
  top += (bytes + WHET_ALIGNMENT - 1) / WHET_ALIGNMENT * WHET_ALIGNMENT;
  return at;
}

std::vector<uint32_t> Indices(const std::vector<loop::Param>& params, const ModelDesc& d) {
  std::vector<uint32_t> r;
  for (const loop::Param& p : params) {
    for (size_t i = 0; i < d.tensors.size(); ++i) {
      if (d.tensors[i].name == p.buffer->name) r.push_back(static_cast<uint32_t>(i));
    }
  }
  return r;
}

Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  return out ? OkStatus() : Unavailable("cannot write '{}'", path);
}

// A model of one step, with a prepack step when weights are packed.
ModelDesc Describe(const loop::Program& scheduled, const loop::Lowered& lowered,
                   const ObjectCode& code, const std::string& workload, const Target& target) {
  ModelDesc d;
  d.name = "candidate";
  d.target = target.ToString();
  for (const std::string& f : target.features) d.features += (d.features.empty() ? "" : ",") + f;
  d.metadata = "{}";
  auto add = [&](const expr::Buffer& b, int storage, int64_t offset) {
    d.tensors.push_back({storage, b->dtype, b->shape, offset, Bytes(b), b->name});
  };
  // Inputs, outputs, then everything else: the table's order.
  for (const loop::Param& p : scheduled.params) {
    if (p.role == loop::Role::kInput && !p.buffer->constant)
      add(p.buffer, WHET_INPUT, 0), ++d.n_inputs;
  }
  for (const loop::Param& p : scheduled.params) {
    if (p.role == loop::Role::kOutput) add(p.buffer, WHET_OUTPUT, 0), ++d.n_outputs;
  }
  for (const loop::Param& p : scheduled.params) {
    if (p.role == loop::Role::kInput && p.buffer->constant) add(p.buffer, WHET_PARAMETER, 0);
  }
  for (const expr::Buffer& b : lowered.packed) add(b, WHET_PACKED, Place(d.packed_bytes, Bytes(b)));
  for (const auto* program : {&lowered.main, &lowered.prepack}) {
    for (const loop::Param& p : program->params) {
      if (p.role == loop::Role::kWorkspace)
        add(p.buffer, WHET_ARENA, Place(d.arena_bytes, Bytes(p.buffer)));
    }
  }
  auto kernel = [&](const KernelCode& k) {
    d.kernels.push_back({k.phases, k.scratch_bytes, static_cast<int>(k.params.size()), workload});
    return StepDesc{static_cast<int>(d.kernels.size()) - 1, Indices(k.params, d), "candidate"};
  };
  if (!code.prepack.phases.empty()) d.prepack_steps.push_back(kernel(code.prepack));
  d.steps.push_back(kernel(code.main));
  return d;
}

}  // namespace

StatusOr<Candidate> BuildCandidate(const loop::Program& scheduled, const std::string& workload,
                                   const Target& target) {
  WHET_ASSIGN_OR_RETURN(loop::Lowered lowered, loop::Lower(scheduled));
  WHET_ASSIGN_OR_RETURN(ObjectCode code,
                        GenerateObject(lowered, "whet_k", target, [&](const ObjectCode& made) {
                          return Describe(scheduled, lowered, made, workload, target);
                        }));
  return Candidate{std::move(code.object), "whet_model_candidate_v1", code.stats, {}};
}

Status LinkCandidate(const Candidate& c, const std::string& dir, const std::string& out_path) {
  WHET_RETURN_IF_ERROR(WriteFile(dir + "/kernels.o", c.object));
  return LinkShared({dir + "/kernels.o"}, c.symbol, out_path);
}

}  // namespace whet::codegen
