#include "tests/bench/own.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "compiler/codegen/candidate.h"
#include "compiler/codegen/untuned.h"
#include "compiler/support/version.h"
#include "compiler/task/workload_program.h"
#include "db/store/tuning_log.h"
#include "tests/bench/interleave.h"
#include "tests/bench/stats.h"

namespace whet::bench {
namespace {

std::string Words(const schedule::Trace& trace) {
  std::string s = trace.rule.empty() ? "no rule" : trace.rule;
  for (const auto& [name, value] : trace.knobs) s += fmt::format(" {}={}", name, value);
  return s;
}

struct Built {
  OwnKernel kernel;
  codegen::ObjectStats stats;
};

StatusOr<Built> Build(const schedule::Schedule& s, const Target& target,
                      const std::string& source) {
  WHET_ASSIGN_OR_RETURN(const codegen::Candidate c,
                        codegen::BuildCandidate(s.program(), "", target));
  std::string dir = (std::filesystem::temp_directory_path() / "whet-bench-XXXXXX").string();
  if (mkdtemp(dir.data()) == nullptr) return Internal("no folder could be made in '{}'", dir);
  const std::string so = dir + "/candidate.so";
  const Status linked = codegen::LinkCandidate(c, dir, so);
  std::string error;
  auto model = linked.ok() ? Model::Load(so, &error) : nullptr;
  std::error_code ignored;
  std::filesystem::remove_all(dir, ignored);
  WHET_RETURN_IF_ERROR(linked);
  if (!model) return Internal("the candidate cannot be loaded: {}", error);
  return Built{{std::move(model), Words(s.trace()), source}, c.stats};
}

// The physical bytes of a tensor, in memory of its own.
std::shared_ptr<float[]> Physical(const graph::TensorType& type,
                                  const std::vector<float>& logical) {
  const std::vector<double> wide(logical.begin(), logical.end());
  const std::string bytes = fusion::PhysicalBytes(type, wide);
  auto p = Allocate(bytes.size());
  std::memcpy(p.get(), bytes.data(), bytes.size());
  return p;
}

class Kernels : public OwnKernels {
 public:
  Kernels(const OwnOptions& o, std::unique_ptr<db::LogReader> log) : o_(o), log_(std::move(log)) {}

  StatusOr<OwnKernel> Find(const Problem& problem) override {
    const std::string text = problem.workload.ToString();
    const auto it = known_.find(text);
    if (it != known_.end()) return it->second;
    WHET_ASSIGN_OR_RETURN(const task::WorkloadProgram w, task::OpenWorkload(text));
    const schedule::Space space(w.program, o_.target);
    WHET_ASSIGN_OR_RETURN(const OwnKernel kernel, log_            ? FromLog(space, text)
                                                  : o_.search > 0 ? Searched(space, problem)
                                                                  : Default(space, "untuned"));
    return known_[text] = kernel;
  }

 private:
  StatusOr<OwnKernel> Default(const schedule::Space& space, const std::string& why) const {
    WHET_ASSIGN_OR_RETURN(const Built b,
                          codegen::BuildUntuned(space, [&](const schedule::Schedule& s) {
                            return Build(s, o_.target, why);
                          }));
    return b.kernel;
  }

  // As a compilation looks it up.
  StatusOr<OwnKernel> FromLog(const schedule::Space& space, const std::string& text) const {
    db::BestQuery query;
    query.key = {FingerprintOf(text), o_.target.FeatureSet(), o_.threads, db::CacheMode::kTurns};
    query.codegen_version = kCodegenVersion;
    query.initial_program = space.digest();
    WHET_ASSIGN_OR_RETURN(const db::Best best, log_->FindBest(query));
    if (!best.record) return Default(space, "untuned: " + best.why);
    WHET_ASSIGN_OR_RETURN(const schedule::Trace trace,
                          schedule::Trace::Parse(best.record->row.trace));
    WHET_ASSIGN_OR_RETURN(const schedule::Schedule s,
                          schedule::Schedule::Replay(space.initial(), trace));
    WHET_ASSIGN_OR_RETURN(const Built b, Build(s, o_.target, "tuned"));
    return b.kernel;
  }

  // A point that cannot be built, or whose hot loop spills, is passed over, as a tuner does.
  StatusOr<OwnKernel> Searched(const schedule::Space& space, const Problem& problem) const {
    WHET_ASSIGN_OR_RETURN(const OwnKernel untuned, Default(space, "untuned"));
    std::vector<OwnKernel> found = {untuned};
    const std::string source = fmt::format("best of {}", o_.search);
    for (const schedule::Point& p : space.Ranked(static_cast<size_t>(o_.search))) {
      auto s = space.Apply(p);
      if (!s.ok() || Words(s->trace()) == untuned.schedule) continue;
      auto b = Build(*s, o_.target, source);
      if (b.ok() && !codegen::SpillsInHotLoop(b->stats)) found.push_back(b->kernel);
    }
    std::vector<Contender> contenders;
    for (const OwnKernel& k : found) {
      WHET_ASSIGN_OR_RETURN(Contender c, OpenOwn(k, problem, o_.threads));
      contenders.push_back(std::move(c));
    }
    std::vector<std::function<void()>> run;
    for (const Contender& c : contenders) run.push_back(c.run);
    Interleaving quick;
    quick.seconds = 0.02;
    quick.least_rounds = 3;
    Rng rng(1);
    Calm calm(o_.target.VectorBits());
    const Rounds rounds = Interleave(run, quick, rng, o_.target.VectorBits(), calm);
    size_t best = 0;
    for (size_t i = 1; i < found.size(); ++i) {
      if (MedianOf(rounds.timed[i].us) < MedianOf(rounds.timed[best].us)) best = i;
    }
    return found[best];
  }

  const OwnOptions o_;
  const std::unique_ptr<db::LogReader> log_;
  std::map<std::string, OwnKernel> known_;
};

// Everything that a running kernel points to.
struct Running {
  std::unique_ptr<Instance> instance;
  std::vector<std::shared_ptr<float[]>> memory;
  std::vector<const void*> in, parameters;
  std::vector<void*> out;
};

}  // namespace

StatusOr<std::unique_ptr<OwnKernels>> OwnKernels::Make(const OwnOptions& options) {
  WHET_RETURN_IF_ERROR(codegen::WarmUp(options.target));
  std::unique_ptr<db::LogReader> log;
  if (!options.db.empty()) {
    WHET_ASSIGN_OR_RETURN(log, db::LogReader::Open(options.db));
  }
  return std::unique_ptr<OwnKernels>(new Kernels(options, std::move(log)));
}

StatusOr<Contender> OpenOwn(const OwnKernel& kernel, const Problem& problem, int threads) {
  auto r = std::make_shared<Running>();
  r->instance = std::make_unique<Instance>(kernel.model, threads, threads > 1);
  if (!r->instance->error().empty()) return Internal("{}", r->instance->error());
  const fusion::Workload& w = problem.workload;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    r->memory.push_back(Physical(w.inputs[i].type, problem.inputs[i]));
    (w.inputs[i].constant ? r->parameters : r->in).push_back(r->memory.back().get());
  }
  const graph::TensorType type = w.outputs[0].type;
  r->memory.push_back(Allocate(static_cast<size_t>(type.bytes())));
  float* const out = r->memory.back().get();
  r->out = {out};
  if (r->in.size() != kernel.model->inputs().size() ||
      r->parameters.size() != kernel.model->parameters().size() || w.outputs.size() != 1)
    return Internal("the kernel of '{}' takes other operands", problem.parsed.text);
  if (!r->parameters.empty()) r->instance->Prepack(r->parameters);
  r->instance->Bind(r->in, r->out);
  Contender c;
  c.name = "whet";
  c.detail = kernel.source + ": " + kernel.schedule;
  c.run = [r] { r->instance->Execute(); };
  c.result = [r, out, type] {
    std::fill_n(out, type.num_elements(), std::nanf(""));
    r->instance->Execute();
    const std::vector<double> logical =
        fusion::PhysicalToLogical(type, std::vector<double>(out, out + type.num_elements()));
    return std::vector<float>(logical.begin(), logical.end());
  };
  return c;
}

StatusOr<Contender> OpenOwnChain(const std::vector<OwnLayer>& layers, int threads) {
  const auto pool = std::make_shared<ThreadPool>(threads, threads > 1);
  int64_t largest = 0;
  for (const OwnLayer& l : layers) {
    largest = std::max({largest, l.problem->workload.inputs[0].type.bytes(),
                        l.problem->workload.outputs[0].type.bytes()});
  }
  auto all = std::make_shared<std::vector<Running>>();
  std::shared_ptr<float[]> image[2];
  for (auto& i : image) {
    i = Allocate(static_cast<size_t>(largest));
    std::fill_n(i.get(), largest / 4, 0.5F);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const fusion::Workload& w = layers[i].problem->workload;
    Running r;
    r.instance = std::make_unique<Instance>(layers[i].kernel.model, pool);
    if (!r.instance->error().empty()) return Internal("{}", r.instance->error());
    r.memory = {Physical(w.inputs[1].type, *layers[i].weights),
                Physical(w.inputs[2].type, *layers[i].bias), image[0], image[1]};
    r.parameters = {r.memory[0].get(), r.memory[1].get()};
    r.in = {image[i % 2].get()};
    r.out = {image[(i + 1) % 2].get()};
    r.instance->Prepack(r.parameters);
    r.instance->Bind(r.in, r.out);
    all->push_back(std::move(r));
  }
  Contender c;
  c.name = "whet";
  c.detail = layers.empty() ? "" : layers[0].kernel.source;
  c.run = [all] {
    for (Running& r : *all) r.instance->Execute();
  };
  return c;
}

}  // namespace whet::bench
