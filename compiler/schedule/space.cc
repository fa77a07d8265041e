#include "compiler/schedule/space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "compiler/support/rng.h"

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

double Nanoseconds(const Estimate& e, const Machine& m, const Target& t, int threads) {
  // What of the smaller of arithmetic and traffic does not hide behind the other: out-of-order
  // cores overlap most of it, but not around the ends of tiles.
  constexpr double kExposed = 0.3;
  const int widest = t.VectorBits();
  const int bits = e.vector_bits > 0 ? static_cast<int>(e.vector_bits) : widest;
  const double fma = e.fma_cycles * (2 * 2 * bits / 32.0) / m.FmaGflops(bits);
  // As many of narrower vectors in the same time.
  const double loads = e.load_cycles * (2 * m.VectorBits() / 8.0) / m.l1_gbps;
  const double core = std::max({fma, loads, e.latency_cycles / m.clock_ghz});
  const auto l2 = static_cast<double>(t.l2_bytes), l3 = static_cast<double>(t.l3_bytes);
  // A third cache of unknown size holds what the second does not.
  const double beyond_l2 = e.bytes <= l3 || l3 <= 0 ? m.l3_gbps : m.dram_gbps;
  const double streaming = e.bytes <= l2 ? m.l2_gbps : beyond_l2;
  const double traffic =
      std::max(e.bytes / streaming, e.l2_bytes / m.l2_gbps + e.l3_bytes / beyond_l2);
  const double one = std::max(core, traffic) + kExposed * std::min(core, traffic) +
                     e.overhead_cycles / m.clock_ghz;
  if (threads <= 1) return one;
  const double parts = e.parallel > 0 ? e.parallel : 1e9;
  // Lines that another core wrote came at the rate of the third level, 20 to 25 GB/s, where those
  // of the own second level came at 130.
  const double foreign = e.foreign_bytes * (1 - 1.0 / threads) / m.l3_gbps;
  return one * std::ceil(parts / threads) / parts + foreign + m.fork_join_ns;
}

// All that was estimated, best first.
struct RankedPoints {
  struct Entry {
    double cost = 0;
    int variant = 0;
    int64_t code = 0;  // of the values: their positions as one number
    auto operator<=>(const Entry&) const = default;
  };
  std::once_flag once;
  std::vector<Entry> entries;
};

namespace {

// Points of one rule that are gone through one by one; where there are more, the search begins at
// several points and changes two knobs at a time as long as that helps.
constexpr int64_t kAllOf = 40'000;
constexpr int kStarts = 6;
// Of the time, per instruction of the body: between estimates that hardly differ the smaller code
// is better, since it compiles faster and is kinder to the instruction cache, which rules do not
// count.
constexpr double kCodeCost = 1.0 / 15'000;

class VariantWalk {
 public:
  VariantWalk(const Variant& v, int index, const Conditions& c, const Target& t)
      : v_(v), index_(index), conditions_(c), target_(t) {
    values_.resize(v.knobs.size());
    for (const Knob& k : v.knobs) {
      total_ = total_ > kAllOf ? total_ : total_ * static_cast<int64_t>(k.values.size());
      strides_.push_back(stride_);
      stride_ *= static_cast<int64_t>(k.values.size());
    }
  }

  void Run(std::vector<RankedPoints::Entry>& out) {
    if (total_ <= kAllOf) {
      for (int64_t code = 0; code < total_; ++code) (void)Visit(code, out);
      return;
    }
    Rng rng(1);
    Climb(CodeOf(v_.rule->default_values(*v_.context)), out);
    for (int i = 1; i < kStarts; ++i) {
      int64_t code = 0;
      for (int tries = 0; tries < 200; ++tries) {
        code = 0;
        for (size_t k = 0; k < v_.knobs.size(); ++k)
          code += strides_[k] * rng.Below(static_cast<int64_t>(v_.knobs[k].values.size()));
        if (std::isfinite(Visit(code, out))) break;
      }
      Climb(code, out);
    }
  }

 private:
  int64_t CodeOf(const std::vector<int64_t>& values) const {
    int64_t code = 0;
    for (size_t k = 0; k < values.size(); ++k) {
      const auto& domain = v_.knobs[k].values;
      const auto at = std::find(domain.begin(), domain.end(), values[k]);
      if (at != domain.end()) code += strides_[k] * (at - domain.begin());
    }
    return code;
  }

  double Visit(int64_t code, std::vector<RankedPoints::Entry>& out) {
    if (total_ > kAllOf) {
      const auto known = seen_.find(code);
      if (known != seen_.end()) return known->second;
    }
    for (size_t k = 0; k < v_.knobs.size(); ++k) {
      const auto& domain = v_.knobs[k].values;
      values_[k] = domain[static_cast<size_t>(code / strides_[k]) % domain.size()];
    }
    double ns = std::numeric_limits<double>::infinity();
    if (v_.rule->check(*v_.context, values_) == Rejection::kNone) {
      const Estimate e = v_.rule->estimate(*v_.context, values_);
      ns = Nanoseconds(e, conditions_.machine, target_, conditions_.threads) *
           (1 + kCodeCost * e.body_instructions);
      out.push_back({ns, index_, code});
    }
    if (total_ > kAllOf) seen_.emplace(code, ns);
    return ns;
  }

  void Climb(int64_t code, std::vector<RankedPoints::Entry>& out) {
    double best = Visit(code, out);
    for (bool better = true; better;) {
      better = false;
      for (size_t i = 0; i < v_.knobs.size(); ++i) {
        for (size_t j = i + 1; j < v_.knobs.size(); ++j) {
          const auto ni = static_cast<int64_t>(v_.knobs[i].values.size());
          const auto nj = static_cast<int64_t>(v_.knobs[j].values.size());
          const int64_t base =
              code - code / strides_[i] % ni * strides_[i] - code / strides_[j] % nj * strides_[j];
          for (int64_t n = 0; n < ni * nj; ++n) {
            const int64_t next = base + n % ni * strides_[i] + n / ni * strides_[j];
            const double ns = Visit(next, out);
            if (ns < best) best = ns, code = next, better = true;
          }
        }
      }
    }
  }

  const Variant& v_;
  const int index_;
  const Conditions& conditions_;
  const Target& target_;
  int64_t total_ = 1, stride_ = 1;
  std::vector<int64_t> strides_, values_;
  std::unordered_map<int64_t, double> seen_;
};

}  // namespace

const std::vector<const Rule*>& Rules() {
  static const std::vector<const Rule*> all = {
      &RuleConv(),
      &RuleWinograd(),
      &RuleDepthwise(),
      &RuleDepthwisePointwise(),
      &RuleRows(),
      &RulePool(),
      &RuleMatmul(),
      &RuleSplit(),
      &RuleElementwise(),
      // Matches everything, so it comes last.
      &RuleGeneric(),
  };
  return all;
}

Conditions Conditions::Of(std::string_view machine, const Target& target, int threads) {
  const StatusOr<Machine> figures = Machine::Parse(machine);
  return {figures.ok() ? *figures : Machine::Typical(target), std::max(threads, 1)};
}

Space::Space(loop::Program initial, Target target)
    : Space(std::move(initial), target, Conditions::Typical(target)) {}

Space::Space(loop::Program initial, Target target, const Conditions& conditions)
    : initial_(std::move(initial)),
      target_(std::move(target)),
      conditions_(conditions),
      digest_(DigestOf(initial_)),
      ranked_(std::make_shared<RankedPoints>()) {
  for (const Rule* r : Rules()) {
    if (r == &RuleGeneric() && !variants_.empty()) continue;
    // Where a reduction runs along contiguous elements, vectors across rows gather every operand.
    const bool along_rows = std::any_of(variants_.begin(), variants_.end(),
                                        [](const Variant& v) { return v.rule == &RuleRows(); });
    if (r == &RulePool() && along_rows) continue;
    std::shared_ptr<const RuleContext> context = r->match(initial_, target_);
    if (context) variants_.push_back({r, context, r->knobs(*context)});
  }
}

std::vector<Point> Space::Ranked(size_t most) const {
  using Entry = RankedPoints::Entry;
  std::vector<Entry>& all = ranked_->entries;
  std::call_once(ranked_->once, [&] {
    for (size_t v = 0; v < variants_.size(); ++v)
      VariantWalk(variants_[v], static_cast<int>(v), conditions_, target_).Run(all);
    std::sort(all.begin(), all.end());
  });
  std::vector<Point> points;
  for (const Entry& e : all) {
    if (points.size() == most) break;
    Point p{e.variant, {}};
    int64_t code = e.code;
    for (const Knob& k : variants_[static_cast<size_t>(e.variant)].knobs) {
      const auto n = static_cast<int64_t>(k.values.size());
      p.values.push_back(k.values[static_cast<size_t>(code % n)]);
      code /= n;
    }
    points.push_back(std::move(p));
  }
  // No valid point at all: what the first rule takes for granted.
  if (points.empty())
    points.push_back({0, variants_[0].rule->default_values(*variants_[0].context)});
  return points;
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

StatusOr<Schedule> Space::Untuned() const {
  constexpr size_t kTried = 200;
  Status first;
  for (const Point& p : Ranked(kTried)) {
    StatusOr<Schedule> s = Apply(p);
    if (s.ok()) return s;
    if (first.ok()) first = s.status();
  }
  return first;
}

Estimate Space::EstimateOf(const Point& p) const {
  const Variant& v = variants_[static_cast<size_t>(p.variant)];
  return v.rule->estimate(*v.context, p.values);
}

double Space::PriorNs(const Point& p) const {
  return Nanoseconds(EstimateOf(p), conditions_.machine, target_, conditions_.threads);
}

std::array<float, kFeatureCount> Space::Features(const Point& p) const {
  std::array<float, kFeatureCount> f{};
  const Estimate e = EstimateOf(p);
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
