#include "compiler/schedule/space.h"

#include <algorithm>
#include <cmath>

namespace whet::schedule {

std::string_view ToString(Rejection r) {
  switch (r) {
    case Rejection::kNone: return "none";
    case Rejection::kRegisters: return "too many registers";
    case Rejection::kCodeSize: return "too much code";
    case Rejection::kTile: return "tile larger than the tensor";
    case Rejection::kBadValue: return "value outside its domain";
  }
  return "?";
}

double Estimate::Cycles() const {
  // Bytes touched once at 16 per cycle: between L2 and L3 of the machines measured.
  return std::max(
             {fma_cycles, load_cycles, latency_cycles, bytes / 16, l2_bytes / 64, l3_bytes / 11}) +
         overhead_cycles;
}

const std::vector<const Rule*>& Rules() {
  static const std::vector<const Rule*> all = {
      &RuleConv(),
      // After the direct one, so that it is never the default of a shape.
      &RuleWinograd(),
      &RuleDepthwise(),
      &RulePool(),
      &RuleMatmul(),
      &RuleElementwise(),
      // Matches everything, so it comes last.
      &RuleGeneric(),
  };
  return all;
}

Space::Space(loop::Program initial, Target target)
    : initial_(std::move(initial)), target_(std::move(target)), digest_(DigestOf(initial_)) {
  for (const Rule* r : Rules()) {
    if (r == &RuleGeneric() && !variants_.empty()) continue;
    std::shared_ptr<const RuleContext> context = r->match(initial_, target_);
    if (context) variants_.push_back({r, context, r->knobs(*context)});
  }
}

Point Space::Default() const {
  return {0, variants_[0].rule->default_values(*variants_[0].context)};
}

Rejection Space::Check(const Point& p) const {
  if (p.variant < 0 || p.variant >= static_cast<int>(variants_.size())) return Rejection::kBadValue;
  const Variant& v = variants_[p.variant];
  if (p.values.size() != v.knobs.size()) return Rejection::kBadValue;
  for (size_t i = 0; i < p.values.size(); ++i) {
    const auto& domain = v.knobs[i].values;
    if (std::find(domain.begin(), domain.end(), p.values[i]) == domain.end())
      return Rejection::kBadValue;
  }
  return v.rule->check(*v.context, p.values);
}

double Space::PriorNs(const Point& p) const {
  constexpr double kGhz = 2.6;  // ranks points of one task: the absolute scale is not used
  return variants_[p.variant].rule->estimate(*variants_[p.variant].context, p.values).Cycles() /
         kGhz;
}

std::array<float, kFeatureCount> Space::Features(const Point& p) const {
  std::array<float, kFeatureCount> f{};
  const Estimate e = variants_[p.variant].rule->estimate(*variants_[p.variant].context, p.values);
  auto lg = [](double x) { return static_cast<float>(std::log2(1 + std::max(x, 0.0))); };
  size_t i = 0;
  for (double x :
       {e.fma_cycles, e.load_cycles, e.latency_cycles, e.overhead_cycles, e.bytes, e.Cycles()})
    f[i++] = lg(x);
  const double total = std::max(e.Cycles(), 1.0);
  for (double x : {e.fma_cycles, e.load_cycles, e.latency_cycles, e.overhead_cycles, e.bytes / 16})
    f[i++] = static_cast<float>(x / total);
  f[i++] = static_cast<float>(e.accumulators);
  f[i++] = lg(e.body_instructions);
  f[i++] = static_cast<float>(e.useful_fraction);
  f[i++] = static_cast<float>(p.variant);
  for (size_t k = 0; k < p.values.size() && i < kFeatureCount; ++k)
    f[i++] = lg(static_cast<double>(p.values[k]));
  return f;
}

StatusOr<Schedule> Space::Apply(const Point& p) const {
  if (Rejection r = Check(p); r == Rejection::kBadValue)
    return InvalidArgument("the point is not in this space");
  const Variant& v = variants_[p.variant];
  Schedule s(initial_);
  WHET_RETURN_IF_ERROR(
      Annotate(v.rule->apply(s, *v.context, p.values), fmt::format("rule {}", v.rule->name)));
  s.mutable_trace().rule = v.rule->name;
  s.mutable_trace().rule_version = v.rule->version;
  for (size_t i = 0; i < v.knobs.size(); ++i)
    s.mutable_trace().knobs.emplace_back(v.knobs[i].name, p.values[i]);
  return s;
}

std::optional<Point> Space::Locate(const Trace& trace) const {
  for (size_t v = 0; v < variants_.size(); ++v) {
    if (trace.rule != variants_[v].rule->name || trace.rule_version != variants_[v].rule->version)
      continue;
    Point p;
    p.variant = static_cast<int>(v);
    for (const Knob& k : variants_[v].knobs) {
      for (const auto& [name, value] : trace.knobs) {
        if (name == k.name) p.values.push_back(value);
      }
    }
    if (Check(p) != Rejection::kBadValue) return p;
  }
  return std::nullopt;
}

}  // namespace whet::schedule
