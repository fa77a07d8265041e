// A schedule space with a known latency, for tests of the search: two variants of a tiled kernel,
// about 10^4 valid points, interactions between tile sizes, a prior that sees half of the truth,
// deterministic noise.
#pragma once
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tuner/search/space_view.h"

namespace whet::search {

class SyntheticSpace : public SpaceView {
 public:
  // `bend` shifts the optimum, so that several tasks differ; `scale` is the latency's unit in ns.
  explicit SyntheticSpace(int bend = 0, double scale = 1e5) : bend_(bend), scale_(scale) {
    const KnobDomain mr{"mr", {1, 2, 4, 6, 8, 12, 14}}, nr{"nr", {16, 32, 48, 64}};
    const KnobDomain kc{"kc", {32, 64, 128, 192, 256, 384, 512, 1024}},
        mc{"mc", {24, 48, 96, 192, 384, 768}};
    const KnobDomain unroll{"unroll", {1, 2, 4, 8}}, pack{"pack", {0, 1}};
    variants_ = {{"blis", {mr, nr, kc, mc, unroll, pack}}, {"direct", {mr, nr, kc, unroll}}};
  }

  const std::vector<Variant>& Variants() const override { return variants_; }
  std::optional<Point> DefaultPoint() const override { return Point{0, {2, 1, 2, 2, 1, 0}}; }
  bool Valid(const Point& p) const override {
    return V(p, 0) * V(p, 1) / 16 + V(p, 1) / 16 < 32;  // registers
  }
  // Knows the register tile and the cache of the panel, nothing of packing, unrolling and their
  // interactions.
  double PriorNs(const Point& p) const override {
    return scale_ * std::exp(0.8 * TileCost(p) + 0.3 * std::abs(std::log2(V(p, 2) / 512.0)));
  }
  int FeatureCount() const override { return 11; }
  StatusOr<std::vector<float>> Features(const Point& p) const override {
    ++feature_calls;
    if (bad_features.contains(Key(p))) return Internal("no features");
    const bool blis = p.variant == 0;
    const double mc = blis ? V(p, 3) : 0, unroll = V(p, blis ? 4 : 3), pack = blis ? V(p, 5) : 0;
    const double values[] = {static_cast<double>(p.variant),
                             std::log2(V(p, 0)),
                             std::log2(V(p, 1)),
                             std::log2(V(p, 2)),
                             std::log2(mc + 1),
                             std::log2(unroll),
                             pack,
                             V(p, 0) * V(p, 1),
                             std::log2(V(p, 2) * V(p, 1)),
                             std::log2(V(p, 0) * unroll),
                             static_cast<double>(bend_)};
    return std::vector<float>(std::begin(values), std::end(values));
  }
  std::string Key(const Point& p) const override {
    std::string key = std::to_string(p.variant);
    for (int i : p.index) key += "/" + std::to_string(i);
    return key;
  }
  StatusOr<Fingerprint> TraceFingerprint(const Point& p) const override {
    if (bad_traces.contains(Key(p))) return FailedPrecondition("no trace");
    Point canonical = p;
    if (same_trace_for_unroll) canonical.index[p.index.size() == 6 ? 4 : 3] = 0;
    return FingerprintOf(Key(canonical));
  }

  // What a measurement gives; 1 % noise that depends on the point alone.
  double LatencyNs(const Point& p) const {
    const uint64_t bits = FingerprintOf(Key(p)).lo;
    return TrueNs(p) * (1 + 0.02 * (static_cast<double>(bits >> 40) * 0x1p-24 - 0.5));
  }
  double TrueNs(const Point& p) const {
    const double kc = std::log2(V(p, 2)), nr = V(p, 1) / 16.0;
    double cost = TileCost(p);
    if (p.variant == 0) {
      const double panel = std::log2(V(p, 3)) + kc;  // fits the cache at 2^15 elements
      cost += 0.12 * std::pow(panel - 15 - 0.5 * bend_, 2) / 2 + 0.05 * std::abs(kc - 8 + bend_);
      cost += V(p, 5) == 1 ? (nr >= 2 ? -0.15 : 0.25) : (kc > 8 ? 0.3 : 0.0);
      cost += 0.1 * std::abs(std::log2(V(p, 4)) - (V(p, 0) >= 8 ? 0 : 2));
    } else {
      cost += 0.25 + 0.1 * std::abs(kc - 7) + 0.1 * std::abs(std::log2(V(p, 3)) - 1) +
              (nr == 3 ? -0.2 : 0.0);
    }
    return scale_ * std::exp(cost);
  }

  mutable int feature_calls = 0;
  std::set<std::string> bad_features, bad_traces;
  bool same_trace_for_unroll = false;

 protected:
  double V(const Point& p, size_t knob) const {
    return static_cast<double>(variants_[p.variant].knobs[knob].values[p.index[knob]]);
  }
  // Loads per multiply of a register tile, and too few accumulators to hide latency.
  double TileCost(const Point& p) const {
    const double mr = V(p, 0), nv = V(p, 1) / 16;
    return 1.2 * (mr + nv) / (mr * nv) + (mr * nv < 8 ? 0.2 : 0.0) +
           (mr * nv + nv > 28 ? 0.4 : 0.0);
  }

  std::vector<Variant> variants_;
  int bend_;
  double scale_;
};

// A few dozen points, for exhaustion.
class TinySpace : public SyntheticSpace {
 public:
  TinySpace() {
    variants_ = {
        {"direct", {{"mr", {1, 2, 4}}, {"nr", {16, 32}}, {"kc", {32, 64}}, {"unroll", {1, 2}}}}};
  }
  std::optional<Point> DefaultPoint() const override { return Point{0, {1, 1, 0, 0}}; }
  double PriorNs(const Point& p) const override { return 1e5 * std::exp(TileCost(p)); }
  StatusOr<std::vector<float>> Features(const Point& p) const override {
    return std::vector<float>(p.index.begin(), p.index.end());
  }
  int FeatureCount() const override { return 4; }
  double Ns(const Point& p) const { return PriorNs(p) * (1 + 0.1 * p.index[2] + 0.2 * p.index[3]); }
};

}  // namespace whet::search
