#include "tuner/task/compiler_tasks.h"

#include <algorithm>
#include <cmath>

#include "compiler/schedule/space.h"
#include "compiler/support/expected.h"
#include "compiler/support/version.h"
#include "compiler/task/workload_program.h"

namespace whet::tuner {
namespace {

// schedule::Space behind the search's interface: points carry indices there and values here.
class SpaceAdapter : public search::SpaceView {
 public:
  explicit SpaceAdapter(schedule::Space space) : space_(std::move(space)) {
    for (const schedule::Variant& v : space_.variants()) {
      search::Variant out{v.rule->name, {}};
      for (const schedule::Knob& k : v.knobs) out.knobs.push_back({k.name, k.values});
      variants_.push_back(std::move(out));
    }
  }

  const std::vector<search::Variant>& Variants() const override { return variants_; }
  std::optional<search::Point> DefaultPoint() const override {
    return FromValues(space_.Default());
  }
  bool Valid(const search::Point& p) const override {
    return space_.Check(ToValues(p)) == schedule::Rejection::kNone;
  }
  double PriorNs(const search::Point& p) const override { return space_.PriorNs(ToValues(p)); }
  int FeatureCount() const override { return schedule::kFeatureCount; }
  StatusOr<std::vector<float>> Features(const search::Point& p) const override {
    const auto f = space_.Features(ToValues(p));
    return std::vector<float>(f.begin(), f.end());
  }
  std::string Key(const search::Point& p) const override {
    std::string key = variants_[p.variant].name;
    for (int64_t v : ToValues(p).values) key += fmt::format(",{}", v);
    return key;
  }
  StatusOr<Fingerprint> TraceFingerprint(const search::Point& p) const override {
    WHET_ASSIGN_OR_RETURN(schedule::Schedule s, space_.Apply(ToValues(p)));
    return s.trace().Hash();
  }

  schedule::Point ToValues(const search::Point& p) const {
    schedule::Point r{p.variant, {}};
    for (size_t k = 0; k < p.index.size(); ++k)
      r.values.push_back(variants_[p.variant].knobs[k].values[p.index[k]]);
    return r;
  }
  std::optional<search::Point> FromValues(const schedule::Point& p) const {
    search::Point r{p.variant, {}};
    for (size_t k = 0; k < p.values.size(); ++k) {
      const auto& domain = variants_[p.variant].knobs[k].values;
      auto it = std::find(domain.begin(), domain.end(), p.values[k]);
      if (it == domain.end()) return std::nullopt;
      r.index.push_back(static_cast<int>(it - domain.begin()));
    }
    return r;
  }
  const schedule::Space& space() const { return space_; }

 private:
  const schedule::Space space_;
  std::vector<search::Variant> variants_;
};

// For each physical axis, the step of the logical row-major index.
std::vector<int64_t> LogicalStrides(const graph::TensorType& t) {
  std::vector<int64_t> strides(t.shape.size(), 1);
  for (size_t d = t.shape.size(); d-- > 1;) strides[d - 1] = strides[d] * t.shape[d];
  std::vector<int64_t> r;
  for (int d : t.Order()) r.push_back(strides[d]);
  return r;
}

class CompilerTask : public Task {
 public:
  CompilerTask(task::WorkloadProgram w, const Target& target, const schedule::Conditions& c)
      : workload_(std::move(w.workload)), view_(schedule::Space(std::move(w.program), target, c)) {}

  const search::SpaceView& space() const override { return view_; }
  StatusOr<std::string> TraceOf(const search::Point& p) const override {
    WHET_ASSIGN_OR_RETURN(schedule::Schedule s, view_.space().Apply(view_.ToValues(p)));
    return s.trace().ToString();
  }
  StatusOr<std::string> DefaultTrace() const override {
    WHET_ASSIGN_OR_RETURN(schedule::Schedule s, view_.space().Untuned());
    return s.trace().ToString();
  }
  std::optional<search::Point> PointOf(std::string_view text) const override {
    auto trace = schedule::Trace::Parse(text);
    if (!trace.ok()) return std::nullopt;
    auto point = view_.space().Locate(*trace);
    return point ? view_.FromValues(*point) : std::nullopt;
  }
  Fingerprint initial_program() const override { return view_.space().digest(); }
  std::string op_summary() const override { return workload_.Title(); }
  std::string tag() const override { return view_.space().variants()[0].rule->name; }
  double flops() const override { return static_cast<double>(workload_.flops()); }
  double floor_ns() const override {
    // Two full-width fused multiply-adds per cycle at 3 GHz: no machine of ours is faster, so
    // nothing below is believable.
    const double per_ns = 2.0 * 2.0 * view_.space().target().VectorBits() / 32 * 3.0;
    return static_cast<double>(workload_.flops()) / per_ns / 2;
  }
  std::vector<v1::BufferSpec> buffers() const override {
    std::vector<v1::BufferSpec> r;
    auto input = [&](size_t i, v1::BufferRole role) {
      v1::BufferSpec spec = Describe(workload_.inputs[i].type, role);
      const graph::InputRange range = fusion::InputRangeOf(workload_, static_cast<int>(i));
      spec.set_tensor_index(i);
      spec.set_lo(range.lo);
      spec.set_hi(range.hi);
      r.push_back(std::move(spec));
    };
    for (size_t i = 0; i < workload_.inputs.size(); ++i) {
      if (!workload_.inputs[i].constant) input(i, v1::BUFFER_INPUT);
    }
    for (const auto& o : workload_.outputs) r.push_back(Describe(o.type, v1::BUFFER_OUTPUT));
    for (size_t i = 0; i < workload_.inputs.size(); ++i) {
      if (workload_.inputs[i].constant) input(i, v1::BUFFER_PARAMETER);
    }
    return r;
  }

 private:
  static v1::BufferSpec Describe(const graph::TensorType& t, v1::BufferRole role) {
    v1::BufferSpec spec;
    spec.set_role(role);
    spec.set_dtype(static_cast<uint32_t>(t.dtype));
    for (int64_t d : t.PhysicalShape()) spec.add_shape(d);
    for (int64_t s : LogicalStrides(t)) spec.add_logical_strides(s);
    return spec;
  }

  const fusion::Workload workload_;
  const SpaceAdapter view_;
};

}  // namespace

StatusOr<std::unique_ptr<Task>> CompilerTasks::OpenTask(std::string_view workload,
                                                        std::string_view target, int threads,
                                                        std::string_view machine) const {
  WHET_ASSIGN_OR_RETURN(Target t, Target::Parse(target));
  WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(workload));
  return std::unique_ptr<Task>(std::make_unique<CompilerTask>(
      std::move(w), t, schedule::Conditions::Of(machine, t, threads)));
}

StatusOr<std::string> CompilerTasks::FeatureSetOf(std::string_view target) const {
  WHET_ASSIGN_OR_RETURN(Target t, Target::Parse(target));
  return t.FeatureSet();
}

int CompilerTasks::feature_count() const { return schedule::kFeatureCount; }
int64_t CompilerTasks::codegen_version() const { return kCodegenVersion; }
std::string CompilerTasks::compiler_version() const { return kCompilerVersion; }

StatusOr<std::string> CompilerTasks::Expected(std::string_view text,
                                              const std::vector<uint64_t>& seeds) const {
  WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(text));
  std::vector<ExpectedForSeed> all;
  for (uint64_t seed : seeds) {
    const auto inputs = fusion::MakeInputs(w.workload, seed);
    WHET_ASSIGN_OR_RETURN(auto outputs, fusion::EvaluateReference(w.workload, inputs));
    ExpectedForSeed e;
    e.seed = seed;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const graph::TensorType& type = w.workload.outputs[o].type;
      ExpectedOutput out;
      out.expected = fusion::LogicalToPhysical(type, outputs[o].expected);
      const auto tolerance = fusion::LogicalToPhysical(type, outputs[o].tolerance);
      for (double bound : tolerance) {  // never less than what is allowed
        const auto near = static_cast<float>(bound);
        out.tolerance.push_back(static_cast<double>(near) < bound ? std::nextafter(near, HUGE_VALF)
                                                                  : near);
      }
      e.outputs.push_back(std::move(out));
    }
    all.push_back(std::move(e));
  }
  return EncodeExpected(all);
}

}  // namespace whet::tuner
