// What the search knows of a schedule space. The compiler implements it; the search sees no IR, no
// trace text and no target, so that it can be tested on synthetic spaces.
//
// A task's space is a union of variants (rules), each with knobs over small ordered domains:
// neighbouring values have neighbouring effects, so that a step of one is a small move. By
// convention a variant lists its structural knobs (micro-kernel, outer order) first: the first two,
// with the variant, name the *cell* of which no batch may have too many candidates.
//
// Every method is const, deterministic, and cheap: Valid and PriorNs are called for every point of
// a small space (aim: a microsecond), Features for some hundreds of points per fit (aim: 100 us),
// TraceFingerprint once per proposal.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"

namespace whet::search {

struct KnobDomain {
  std::string name;
  std::vector<int64_t> values;  // ascending, at least one
};

struct Variant {
  std::string name;
  std::vector<KnobDomain> knobs;
};

struct Point {
  int variant = 0;
  std::vector<int> index;  // into the values of each knob
  friend auto operator<=>(const Point&, const Point&) = default;
};

class SpaceView {
 public:
  virtual ~SpaceView() = default;

  virtual const std::vector<Variant>& Variants() const = 0;
  // The schedule used without tuning; nullopt when no knob setting expresses it.
  virtual std::optional<Point> DefaultPoint() const = 0;
  // Hard constraints. An invalid point is never built.
  virtual bool Valid(const Point& point) const = 0;
  // Analytical estimate of the latency; positive and finite for valid points.
  virtual double PriorNs(const Point& point) const = 0;
  // The length of every Features() of this space; the same for all tasks that share a cost model.
  virtual int FeatureCount() const = 0;
  virtual StatusOr<std::vector<float>> Features(const Point& point) const = 0;
  // Canonical text: equal keys mean the same schedule.
  virtual std::string Key(const Point& point) const = 0;
  // Of the trace that the point stands for: how the tuning log knows what has been tried.
  virtual StatusOr<Fingerprint> TraceFingerprint(const Point& point) const = 0;
};

}  // namespace whet::search
