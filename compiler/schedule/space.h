// The schedule space of one workload on one target: the rules that match, their knobs, and what
// search asks of a point. Immutable after construction; const methods may be called from several
// threads. The figures of the machine decide how points rank, never which there are.
#pragma once
#include <memory>
#include <optional>

#include "compiler/schedule/rule.h"

namespace whet::schedule {

struct Point {
  int variant = 0;              // index into variants()
  std::vector<int64_t> values;  // one per knob, each from its domain
  friend bool operator==(const Point&, const Point&) = default;
};

struct Variant {
  const Rule* rule = nullptr;
  std::shared_ptr<const RuleContext> context;
  std::vector<Knob> knobs;
};

inline constexpr int kFeatureCount = 48;

struct RankedPoints;

// What estimates are for.
struct Conditions {
  Machine machine;
  int threads = 1;
  static Conditions Typical(const Target& target) { return {Machine::Typical(target), 1}; }
  // Of the figures in `machine`; what cannot be read as such, and empty, stands for typical ones.
  static Conditions Of(std::string_view machine, const Target& target, int threads);
};

class Space {
 public:
  Space(loop::Program initial, Target target);  // under typical conditions
  Space(loop::Program initial, Target target, const Conditions& conditions);

  const loop::Program& initial() const { return initial_; }
  const Target& target() const { return target_; }
  const std::vector<Variant>& variants() const { return variants_; }
  Fingerprint digest() const { return digest_; }  // of the initial program

  // What is used where nothing was measured: the best estimate of all rules, and between estimates
  // that hardly differ the smaller code. Found once, in milliseconds; every call gives the same.
  Point Default() const { return Ranked(1).at(0); }
  // The `most` best in that order; at least one.
  std::vector<Point> Ranked(size_t most) const;
  // The first of these that its rule can write: a check may let one pass that a primitive refuses.
  StatusOr<Schedule> Untuned() const;
  Rejection Check(const Point& p) const;  // kBadValue when a value is not in its domain
  double PriorNs(const Point& p) const;   // analytical estimate
  Estimate EstimateOf(const Point& p) const;
  std::array<float, kFeatureCount> Features(const Point& p) const;
  StatusOr<Schedule> Apply(const Point& p) const;
  // The point a trace's rule line names; nullopt when the rule or a value is not in this space.
  std::optional<Point> Locate(const Trace& trace) const;

 private:
  loop::Program initial_;
  Target target_;
  Conditions conditions_;
  std::vector<Variant> variants_;
  Fingerprint digest_;
  std::shared_ptr<RankedPoints> ranked_;  // made when first asked for
};

}  // namespace whet::schedule
