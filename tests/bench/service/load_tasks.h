// A compiler for load: a task of 16 million schedules, every one of which is built in no time. What
// is left is the service itself. For whet-bench service.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/support/expected.h"
#include "compiler/support/fingerprint.h"
#include "tuner/task/task.h"

namespace whet::bench {

class LoadSpace : public search::SpaceView {
 public:
  LoadSpace() {
    search::KnobDomain knob;
    for (int64_t v = 0; v < 256; ++v) knob.values.push_back(v);
    variants_ = {{"load", {knob, knob, knob}}};
    for (size_t i = 0; i < 3; ++i) variants_[0].knobs[i].name = std::string(1, "abc"[i]);
  }
  const std::vector<search::Variant>& Variants() const override { return variants_; }
  std::optional<search::Point> DefaultPoint() const override { return search::Point{0, {0, 0, 0}}; }
  bool Valid(const search::Point&) const override { return true; }
  double PriorNs(const search::Point&) const override { return 1e6; }
  int FeatureCount() const override { return 3; }
  StatusOr<std::vector<float>> Features(const search::Point& p) const override {
    return std::vector<float>(p.index.begin(), p.index.end());
  }
  std::string Key(const search::Point& p) const override {
    return fmt::format("{} {} {}", p.index[0], p.index[1], p.index[2]);
  }
  StatusOr<Fingerprint> TraceFingerprint(const search::Point& p) const override {
    return FingerprintOf(TraceOf(p));
  }
  std::string TraceOf(const search::Point& p) const {
    return "whet-trace 1\nload " + Key(p) + "\n";
  }

 private:
  std::vector<search::Variant> variants_;
};

class LoadTask : public tuner::Task {
 public:
  const search::SpaceView& space() const override { return space_; }
  StatusOr<std::string> TraceOf(const search::Point& p) const override { return space_.TraceOf(p); }
  StatusOr<std::string> DefaultTrace() const override {
    return space_.TraceOf(*space_.DefaultPoint());
  }
  std::optional<search::Point> PointOf(std::string_view trace) const override {
    std::array<int, 3> k{};
    if (std::sscanf(std::string(trace).c_str(), "whet-trace 1\nload %d %d %d", &k[0], &k[1],
                    &k[2]) != 3)
      return std::nullopt;
    for (const int v : k) {
      if (v < 0 || v > 255) return std::nullopt;
    }
    return search::Point{0, {k.begin(), k.end()}};
  }
  Fingerprint initial_program() const override { return FingerprintOf("load"); }
  std::string op_summary() const override { return "load"; }
  std::string tag() const override { return "load"; }
  double flops() const override { return 1e6; }
  double floor_ns() const override { return 1; }
  std::vector<v1::BufferSpec> buffers() const override { return {}; }

 private:
  LoadSpace space_;
};

class LoadTasks : public tuner::SpaceProvider, public tuner::ReferenceProvider {
 public:
  StatusOr<std::unique_ptr<tuner::Task>> OpenTask(std::string_view, std::string_view, int,
                                                  std::string_view) const override {
    return std::unique_ptr<tuner::Task>(std::make_unique<LoadTask>());
  }
  StatusOr<std::string> FeatureSetOf(std::string_view) const override {
    return std::string("load");
  }
  int feature_count() const override { return 3; }
  int64_t codegen_version() const override { return 1; }
  std::string compiler_version() const override { return "load"; }
  StatusOr<std::string> Expected(std::string_view,
                                 const std::vector<uint64_t>& seeds) const override {
    std::vector<ExpectedForSeed> expected;
    for (const uint64_t seed : seeds) expected.push_back({seed, {}});
    return EncodeExpected(expected);
  }
};

}  // namespace whet::bench
