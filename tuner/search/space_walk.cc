#include "tuner/search/space_walk.h"

#include <algorithm>
#include <cstdlib>

namespace whet::search {
namespace {

constexpr int kRandomSteps = 200;
constexpr int kMoveTries = 12;

int DomainSize(const SpaceView& view, const Point& p, size_t knob) {
  return static_cast<int>(view.Variants()[p.variant].knobs[knob].values.size());
}

Point RandomOf(const SpaceView& view, int variant, Rng& rng) {
  Point p{variant, {}};
  for (const KnobDomain& k : view.Variants()[variant].knobs) {
    p.index.push_back(static_cast<int>(rng.Below(static_cast<int64_t>(k.values.size()))));
  }
  return p;
}

// One step up or down, reflected at the ends of the domain.
void StepKnob(const SpaceView& view, Point& p, size_t knob, int direction) {
  const int size = DomainSize(view, p, knob);
  if (size < 2) return;
  int& i = p.index[knob];
  if (i + direction < 0 || i + direction >= size) direction = -direction;
  i += direction;
}

size_t RandomKnob(const Point& p, Rng& rng) {
  return static_cast<size_t>(rng.Below(static_cast<int64_t>(p.index.size())));
}

int RandomDirection(Rng& rng) { return rng.Below(2) == 0 ? -1 : 1; }

// The point of another variant whose equally named knobs are nearest to the parent's values.
Point ChangeVariant(const SpaceView& view, const Point& parent, Rng& rng) {
  const auto& variants = view.Variants();
  auto other = static_cast<int>(rng.Below(static_cast<int64_t>(variants.size()) - 1));
  if (other >= parent.variant) ++other;
  Point p = RandomOf(view, other, rng);
  const auto& from = variants[parent.variant].knobs;
  for (size_t k = 0; k < p.index.size(); ++k) {
    const KnobDomain& to = variants[other].knobs[k];
    const auto same = std::ranges::find(from, to.name, &KnobDomain::name);
    if (same == from.end()) continue;
    const int64_t wanted = same->values[parent.index[same - from.begin()]];
    const auto nearest =
        std::ranges::min_element(to.values, {}, [&](int64_t v) { return std::abs(v - wanted); });
    p.index[k] = static_cast<int>(nearest - to.values.begin());
  }
  return p;
}

Point MutateOnce(const SpaceView& view, const Point& parent, Rng& rng) {
  Point p = parent;
  const double kind = rng.Uniform();
  if (kind < 0.10 && view.Variants().size() > 1) return ChangeVariant(view, parent, rng);
  if (p.index.empty()) return p;
  if (kind < 0.25) {
    const size_t knob = RandomKnob(p, rng);
    p.index[knob] = static_cast<int>(rng.Below(DomainSize(view, p, knob)));
    return p;
  }
  const int direction = RandomDirection(rng);
  StepKnob(view, p, RandomKnob(p, rng), direction);
  if (kind < 0.40) {
    StepKnob(view, p, RandomKnob(p, rng), -direction);
  } else if (rng.Below(3) == 0) {
    StepKnob(view, p, RandomKnob(p, rng), RandomDirection(rng));
  }
  return p;
}

}  // namespace

bool InSpace(const SpaceView& view, const Point& point) {
  const auto& variants = view.Variants();
  if (point.variant < 0 || point.variant >= static_cast<int>(variants.size())) return false;
  const auto& knobs = variants[point.variant].knobs;
  if (point.index.size() != knobs.size()) return false;
  for (size_t k = 0; k < knobs.size(); ++k) {
    if (point.index[k] < 0 || point.index[k] >= static_cast<int>(knobs[k].values.size()))
      return false;
  }
  return true;
}

double RawSize(const SpaceView& view) {
  double total = 0;
  for (const Variant& v : view.Variants()) {
    double size = 1;
    for (const KnobDomain& k : v.knobs) size *= static_cast<double>(k.values.size());
    total += size;
  }
  return total;
}

std::optional<Point> PointCounter::Next() {
  const auto& variants = view_.Variants();
  if (!last_) {
    if (variants.empty()) return std::nullopt;
    last_ = Point{0, std::vector<int>(variants[0].knobs.size(), 0)};
    return last_;
  }
  if (last_->variant >= static_cast<int>(variants.size())) return std::nullopt;
  for (size_t k = last_->index.size(); k-- > 0;) {
    if (++last_->index[k] < DomainSize(view_, *last_, k)) return last_;
    last_->index[k] = 0;
  }
  if (++last_->variant >= static_cast<int>(variants.size())) return std::nullopt;
  last_->index.assign(variants[last_->variant].knobs.size(), 0);
  return last_;
}

std::optional<Point> RandomValid(const SpaceView& view, Rng& rng) {
  const auto variants = static_cast<int64_t>(view.Variants().size());
  for (int i = 0; i < kRandomSteps && variants > 0; ++i) {
    Point p = RandomOf(view, static_cast<int>(rng.Below(variants)), rng);
    if (view.Valid(p)) return p;
  }
  return std::nullopt;
}

std::optional<Point> Mutate(const SpaceView& view, const Point& parent, Rng& rng) {
  for (int i = 0; i < kMoveTries; ++i) {
    Point p = MutateOnce(view, parent, rng);
    if (p != parent && view.Valid(p)) return p;
  }
  return std::nullopt;
}

std::optional<Point> Crossover(const SpaceView& view, const Point& a, const Point& b, Rng& rng) {
  if (a.variant != b.variant) return std::nullopt;
  for (int i = 0; i < kMoveTries; ++i) {
    Point p = a;
    for (size_t k = 0; k < p.index.size(); ++k) {
      if (rng.Below(2) == 0) p.index[k] = b.index[k];
    }
    if (p != a && p != b && view.Valid(p)) return p;
  }
  return std::nullopt;
}

std::vector<Point> Neighbours(const SpaceView& view, const Point& point) {
  std::vector<Point> out;
  for (size_t k = 0; k < point.index.size(); ++k) {
    for (int step : {-1, 1}) {
      Point p = point;
      p.index[k] += step;
      if (p.index[k] >= 0 && p.index[k] < DomainSize(view, p, k) && view.Valid(p))
        out.push_back(std::move(p));
    }
  }
  return out;
}

int KnobsApart(const Point& a, const Point& b) {
  if (a.variant != b.variant) return static_cast<int>(std::max(a.index.size(), b.index.size())) + 1;
  int apart = 0;
  for (size_t k = 0; k < a.index.size(); ++k) apart += a.index[k] != b.index[k];
  return apart;
}

int StepsApart(const Point& a, const Point& b) {
  if (a.variant != b.variant) return kFarApart;
  int apart = 0;
  for (size_t k = 0; k < a.index.size(); ++k)
    apart += std::min(std::abs(a.index[k] - b.index[k]), 3);
  return apart;
}

Cell CellOf(const Point& point) {
  const auto at = [&](size_t k) { return k < point.index.size() ? point.index[k] : -1; };
  return {point.variant, at(0), at(1)};
}

}  // namespace whet::search
