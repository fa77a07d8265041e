// Compares an artifact with the reference evaluation of its model. Outputs are compared with the
// graph as imported, before any pass has touched it; layers with the optimised graph, whose values
// the artifact's steps compute one by one.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/prepare.h"
#include "compiler/graph/evaluate.h"

namespace whet::driver {
namespace {

graph::RefTensor ToReference(const whet_tensor& t, const void* data) {
  graph::RefTensor r;
  r.dtype = static_cast<DType>(t.dtype);
  r.shape.assign(t.shape, t.shape + t.rank);
  r.value = graph::ReadDoubles(r.dtype, {static_cast<const char*>(data), t.bytes});
  return r;
}

Difference Compare(const std::string& name, const graph::RefTensor& want,
                   const std::vector<double>& got, const VerifyOptions& o) {
  Difference d;
  d.name = name;
  d.elements = want.size();
  double magnitude = 0, worst_excess = -1;
  for (double v : want.value) magnitude = std::max(magnitude, std::isfinite(v) ? std::fabs(v) : 0);
  for (int64_t i = 0; i < want.size(); ++i) {
    const double e = want.value[i], g = got[i];
    const bool same = e == g || (std::isnan(e) && std::isnan(g));
    const double diff = same ? 0 : std::isfinite(e - g) ? std::fabs(e - g) : INFINITY;
    const double bound =
        o.rtol > 0 || o.atol > 0 ? o.atol + o.rtol * std::fabs(e) : graph::ToleranceAt(want, i);
    // A number and NaN are never equal, but where rounding decides what the result is at all.
    const bool outside = diff > bound || (std::isfinite(bound) && std::isnan(e) != std::isnan(g));
    const double excess = std::isfinite(bound) ? diff - bound : outside ? INFINITY : -INFINITY;
    d.outside += outside;
    d.max_abs = std::max(d.max_abs, diff);
    if (excess > worst_excess || i == 0) {
      worst_excess = excess;
      d.worst = i;
      d.expected = e;
      d.got = g;
    }
  }
  d.max_rel = magnitude > 0 ? d.max_abs / magnitude : d.max_abs;
  return d;
}

// Runs an artifact step by step on one thread, so that each step's results can be looked at before
// they are overwritten.
class StepRunner {
 public:
  StepRunner(const Model& model, const Buffers& io)
      : m_(model.desc()), arena_(m_.arena_bytes + 1), packed_(m_.packed_bytes + 1) {
    for (uint32_t i = 0; i < m_.n_tensors; ++i) {
      const whet_tensor& t = m_.tensors[i];
      char* p = nullptr;
      if (i < m_.n_inputs) p = static_cast<char*>(const_cast<void*>(io.inputs()[i]));
      if (i >= m_.n_inputs && i < m_.n_inputs + m_.n_outputs)
        p = static_cast<char*>(io.outputs()[i - m_.n_inputs]);
      if (t.storage == WHET_ARENA) p = static_cast<char*>(arena_.data()) + t.offset;
      if (t.storage == WHET_PACKED) p = static_cast<char*>(packed_.data()) + t.offset;
      if (t.storage == WHET_CONSTANT)
        p = const_cast<char*>(static_cast<const char*>(m_.constants)) + t.offset;
      base_.push_back(p);
    }
    uint64_t scratch = 1;
    for (uint32_t i = 0; i < m_.n_kernels; ++i)
      scratch = std::max(scratch, m_.kernels[i].scratch_bytes);
    scratch_.emplace(scratch);
    for (uint32_t i = 0; i < m_.n_prepack_steps; ++i) Run(m_.prepack_steps[i]);
  }
  void Run(const whet_step& step) {
    const whet_kernel& k = m_.kernels[step.kernel];
    std::vector<void*> args;
    for (uint32_t i = 0; i < k.n_buffers; ++i) args.push_back(base_[step.tensors[i]]);
    for (uint32_t p = 0; p < k.n_phases; ++p)
      k.phases[p].fn(args.data(), scratch_->data(), nullptr, 0, k.phases[p].extent);
  }
  const void* data(uint32_t tensor) const { return base_[tensor]; }

 private:
  const whet_model& m_;
  AlignedBytes arena_, packed_;
  std::optional<AlignedBytes> scratch_;
  std::vector<void*> base_;
};

Status CompareLayers(const PreparedModel& m, const Model& model, const Buffers& io,
                     std::vector<graph::RefTensor> inputs, const VerifyOptions& options,
                     VerifyReport& report) {
  const whet_model& desc = model.desc();
  if (desc.n_steps != m.partition.groups.size()) {
    return FailedPrecondition(
        "the artifact has {} steps, this compiler cuts the model into {}; compile it again to "
        "compare layers",
        desc.n_steps, m.partition.groups.size());
  }
  WHET_ASSIGN_OR_RETURN(
      graph::Evaluation ref,
      graph::EvaluateModel(m.graph, std::move(inputs), {.want_err = true, .keep_all = true}));
  StepRunner runner(model, io);
  for (uint32_t s = 0; s < desc.n_steps; ++s) {
    runner.Run(desc.steps[s]);
    const fusion::Group& group = m.partition.groups[s];
    // A group writes its outputs; which of the step's tensors that is follows from their size and
    // place in the table.
    const graph::ValueId value = group.outputs[0];
    const graph::TensorType& type = m.graph.type(value);
    const whet_kernel& kernel = desc.kernels[desc.steps[s].kernel];
    const void* data = nullptr;
    for (uint32_t i = 0; i < kernel.n_buffers && !data; ++i) {
      const uint32_t t = desc.steps[s].tensors[i];
      const uint32_t storage = desc.tensors[t].storage;
      const bool written = storage == WHET_OUTPUT || storage == WHET_ARENA;
      bool is_input = false;
      for (uint32_t p = 0; p < s; ++p) {
        const whet_kernel& before = desc.kernels[desc.steps[p].kernel];
        for (uint32_t k = 0; k < before.n_buffers; ++k) is_input |= desc.steps[p].tensors[k] == t;
      }
      if (written && !is_input && desc.tensors[t].bytes == static_cast<uint64_t>(type.bytes()))
        data = runner.data(t);
    }
    if (!data) return Internal("step '{}' writes nothing of {} bytes", group.label, type.bytes());
    const auto physical = graph::ReadDoubles(
        type.dtype, {static_cast<const char*>(data), static_cast<size_t>(type.bytes())});
    report.layers.push_back(Compare(group.label, ref.values[value],
                                    fusion::PhysicalToLogical(type, physical), options));
    if (report.layers.back().outside && report.first_divergent_layer.empty())
      report.first_divergent_layer = group.label;
  }
  return OkStatus();
}

// What the artifact was compiled with, besides shapes.
Status TakeMetadata(const Model& model, VerifyOptions* options) {
  const auto j = nlohmann::json::parse(model.desc().metadata, nullptr, false);
  if (!j.is_object()) return OkStatus();
  if (j.contains("bind") && j["bind"].is_object()) {
    for (const auto& [name, value] : j["bind"].items()) {
      if (value.is_string()) options->bind.try_emplace(name, value.get<std::string>());
    }
  }
  if (j.contains("extra_outputs") && j["extra_outputs"].is_array() &&
      options->extra_outputs.empty()) {
    for (const auto& name : j["extra_outputs"]) {
      if (name.is_string()) options->extra_outputs.push_back(name.get<std::string>());
    }
  }
  return OkStatus();
}

// [value, order, order of its copy], the last one where there is one.
StatusOr<graph::StoredLayout> ParseStored(const nlohmann::json& j) {
  auto layout = [&](size_t at) -> std::optional<expr::IndexMap> {
    std::vector<int> order;
    for (const auto& d : j[at]) {
      if (!d.is_number_integer()) return std::nullopt;
      order.push_back(d.get<int>());
    }
    for (size_t d = 0; d < order.size(); ++d) {
      if (std::count(order.begin(), order.end(), static_cast<int>(d)) != 1) return std::nullopt;
    }
    return expr::IndexMap::Permutation(order);
  };
  graph::StoredLayout s;
  bool good = j.is_array() && (j.size() == 2 || j.size() == 3) && j[0].is_number_integer();
  for (size_t i = 1; good && i < j.size(); ++i) {
    const std::optional<expr::IndexMap> order = layout(i);
    good = order.has_value();
    if (!good) break;
    if (i == 1) s.stored = *order;
    if (i == 2) s.copy = order;
  }
  if (!good)
    return InvalidArgument("the artifact's metadata has a layout that is none: {}", j.dump());
  s.value = j[0].get<graph::ValueId>();
  return s;
}

// How set number `set` of the artifact was cut; nothing for one that does not say so.
Status TakePlan(const Model& model, size_t set, VerifyOptions* options) {
  const auto j = nlohmann::json::parse(model.desc().metadata, nullptr, false);
  if (!j.is_object() || !j.contains("plans") || !j["plans"].is_array() ||
      j["plans"].size() <= set || !j["plans"][set].is_object())
    return OkStatus();
  const auto& plan = j["plans"][set];
  if (plan.contains("layouts") && plan["layouts"].is_string())
    options->layouts = plan["layouts"].get<std::string>();
  options->as_compiled = true;
  if (plan.contains("stored") && plan["stored"].is_array()) {
    for (const auto& v : plan["stored"]) {
      WHET_ASSIGN_OR_RETURN(graph::StoredLayout s, ParseStored(v));
      options->stored.push_back(std::move(s));
    }
  }
  if (!plan.contains("split") || !plan["split"].is_array()) return OkStatus();
  for (const auto& f : plan["split"]) {
    if (!f.is_string()) continue;
    WHET_ASSIGN_OR_RETURN(const Fingerprint print, ParseFingerprint(f.get<std::string>()));
    options->split.insert(print);
  }
  return OkStatus();
}

// One set of shapes; `io` is filled. Differences are appended to the report, with `prefix` before
// their names.
Status VerifySet(const std::shared_ptr<const Model>& model, const Buffers& io,
                 VerifyOptions options, const std::string& prefix, VerifyReport& report) {
  // The artifact knows the shapes it was compiled for.
  for (const whet_tensor& t : model->inputs())
    options.shapes.try_emplace(t.name, t.shape, t.shape + t.rank);
  WHET_ASSIGN_OR_RETURN(const graph::Graph g, ImportModel(options));
  if (g.inputs.size() != model->inputs().size() || g.outputs.size() != model->outputs().size()) {
    return InvalidArgument("'{}' has {} inputs and {} outputs, '{}' {} and {}: not the same model",
                           options.artifact, model->inputs().size(), model->outputs().size(),
                           options.model, g.inputs.size(), g.outputs.size());
  }
  std::vector<graph::RefTensor> inputs;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    inputs.push_back(ToReference(model->inputs()[i], io.inputs()[i]));
    if (inputs.back().shape != g.type(g.inputs[i]).shape) {
      return InvalidArgument(
          "input '{}' of '{}' has another shape than in '{}'; give the --shape it was compiled "
          "with",
          model->inputs()[i].name, options.artifact, options.model);
    }
  }
  WHET_ASSIGN_OR_RETURN(std::unique_ptr<Instance> instance, MakeInstance(model, options.threads));
  instance->Run(io.inputs(), io.outputs());
  WHET_ASSIGN_OR_RETURN(graph::Evaluation ref, graph::EvaluateModel(g, inputs, {.want_err = true}));
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const graph::RefTensor got = ToReference(model->outputs()[i], io.outputs()[i]);
    const graph::RefTensor& want = ref.values[g.outputs[i].value];
    if (got.size() != want.size())
      return InvalidArgument("output '{}' has another shape than in the model", g.outputs[i].name);
    report.outputs.push_back(Compare(prefix + g.outputs[i].name, want, got.value, options));
    report.passed &= report.outputs.back().outside == 0;
  }
  if (options.layers) {
    WHET_ASSIGN_OR_RETURN(PreparedModel m, PrepareModel(options, nullptr));
    WHET_RETURN_IF_ERROR(CompareLayers(m, *model, io, std::move(inputs), options, report));
    report.passed &= report.first_divergent_layer.empty();
  }
  return OkStatus();
}

}  // namespace

StatusOr<VerifyReport> VerifyArtifact(const VerifyOptions& given) {
  VerifyOptions options = given;
  WHET_ASSIGN_OR_RETURN(std::shared_ptr<const Model> artifact,
                        LoadArtifact(options.artifact, {.build = options.build}));
  if (given.shapes.empty() && given.bind.empty()) options.shapes_of = given.artifact;
  WHET_RETURN_IF_ERROR(TakeMetadata(*artifact, &options));
  VerifyReport report;
  report.passed = true;
  if (artifact->builds().size() > 1) report.build = artifact->build().name;
  // Inputs or shapes choose the set; with neither, all are verified.
  const bool all = options.inputs.empty() && options.shapes.empty();
  std::vector<std::shared_ptr<const Model>> sets = {artifact};
  if (all) sets.insert(sets.end(), artifact->variants().begin(), artifact->variants().end());
  if (!options.more_shapes.empty())
    return InvalidArgument(
        "--shape: one set of shapes is verified, or, without --shape, all that the artifact holds");
  if (!options.shapes.empty() && !artifact->variants().empty()) {
    auto found = SetOfShapes(artifact, options.shapes);
    if (!found.ok()) return Annotate(found.status(), fmt::format("'{}'", options.artifact));
    sets = {*found};
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(const FilledModel filled,
                          ChooseAndFill(sets[i], options.inputs, options.preprocess,
                                        MissingInputs::kRandom, options.seed));
    const std::string prefix = sets.size() > 1 ? fmt::format("set {}: ", i + 1) : "";
    const auto variant =
        std::find(artifact->variants().begin(), artifact->variants().end(), filled.model);
    const bool first = variant == artifact->variants().end();
    VerifyOptions one = options;
    WHET_RETURN_IF_ERROR(TakePlan(
        *artifact, first ? 0 : 1 + static_cast<size_t>(variant - artifact->variants().begin()),
        &one));
    WHET_RETURN_IF_ERROR(VerifySet(filled.model, filled.buffers, one, prefix, report));
  }
  return report;
}

}  // namespace whet::driver
