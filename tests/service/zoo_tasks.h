// A compiler of animals: the schedule space of the zoo's task has one knob, which animal; its trace
// names it, and zoo-builder "builds" it by reading the library. For tests of the service with real
// processes and no compiler.
#pragma once
#include <string>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "tests/service/zoo_task.h"
#include "tuner/task/task.h"

namespace whet::testing {

// The default first. `slow` is right and slow; the rest misbehave, but for the copies of good.
inline const std::vector<std::string>& Animals() {
  static const std::vector<std::string> animals = {"slow",
                                                   "good",
                                                   "segfault",
                                                   "abort",
                                                   "exit0",
                                                   "hang",
                                                   "wrong",
                                                   "zeros",
                                                   "nan",
                                                   "one_seed",
                                                   "lazy",
                                                   "dependent",
                                                   "write_one_past",
                                                   "write_page_past",
                                                   "forks",
                                                   "output",
                                                   "memory",
                                                   "kill_parent",
                                                   "wrong_abi",
                                                   "wrong_shape",
                                                   "no_such_animal",
                                                   "hang_in_builder",
                                                   "crash_in_builder"};
  return animals;
}

inline std::string AnimalTrace(const std::string& animal) {
  return "whet-trace 1\nanimal " + animal + "\n";
}
// Empty if the text is no such trace.
inline std::string AnimalOf(std::string_view trace) {
  const std::string_view prefix = "whet-trace 1\nanimal ";
  if (trace.substr(0, prefix.size()) != prefix || trace.back() != '\n') return "";
  return std::string(trace.substr(prefix.size(), trace.size() - prefix.size() - 1));
}

class ZooSpace : public search::SpaceView {
 public:
  // quick: without those that only a time limit ends.
  explicit ZooSpace(bool quick) : quick_(quick) {
    variants_ = {{"animal", {{"animal", {}}}}};
    for (size_t i = 0; i < Animals().size(); ++i)
      variants_[0].knobs[0].values.push_back(static_cast<int64_t>(i));
  }
  const std::vector<search::Variant>& Variants() const override { return variants_; }
  std::optional<search::Point> DefaultPoint() const override { return search::Point{0, {0}}; }
  bool Valid(const search::Point& p) const override {
    return !quick_ || (Key(p).find("hang") == std::string::npos && Key(p) != "memory");
  }
  double PriorNs(const search::Point&) const override { return 1000; }
  int FeatureCount() const override { return 1; }
  StatusOr<std::vector<float>> Features(const search::Point& p) const override {
    return std::vector<float>{static_cast<float>(p.index[0])};
  }
  std::string Key(const search::Point& p) const override {
    return Animals()[static_cast<size_t>(p.index[0])];
  }
  StatusOr<Fingerprint> TraceFingerprint(const search::Point& p) const override {
    return FingerprintOf(AnimalTrace(Key(p)));
  }

 private:
  const bool quick_;
  std::vector<search::Variant> variants_;
};

class ZooTask : public tuner::Task {
 public:
  explicit ZooTask(bool quick) : space_(quick) {}
  const search::SpaceView& space() const override { return space_; }
  StatusOr<std::string> TraceOf(const search::Point& p) const override {
    return AnimalTrace(space_.Key(p));
  }
  StatusOr<std::string> DefaultTrace() const override { return AnimalTrace(Animals()[0]); }
  std::optional<search::Point> PointOf(std::string_view trace) const override {
    const std::string animal = AnimalOf(trace);
    for (size_t i = 0; i < Animals().size(); ++i) {
      if (Animals()[i] == animal) return search::Point{0, {static_cast<int>(i)}};
    }
    return std::nullopt;
  }
  Fingerprint initial_program() const override { return FingerprintOf("zoo"); }
  std::string op_summary() const override { return "y = x * w"; }
  std::string tag() const override { return "zoo"; }
  double flops() const override { return kZooElements; }
  double floor_ns() const override { return 1; }
  std::vector<v1::BufferSpec> buffers() const override { return ZooBuffers(); }

 private:
  ZooSpace space_;
};

class ZooTasks : public tuner::SpaceProvider, public tuner::ReferenceProvider {
 public:
  StatusOr<std::unique_ptr<tuner::Task>> OpenTask(std::string_view workload, std::string_view, int,
                                                  std::string_view) const override {
    if (workload.substr(0, 3) != "zoo") return InvalidArgument("'{}' is not of the zoo", workload);
    return std::unique_ptr<tuner::Task>(
        std::make_unique<ZooTask>(workload.find("quick") != std::string_view::npos));
  }
  // "cpu -arch=A -mattr=F -l1d=..." of the worker: the part that the device reports as its
  // features.
  StatusOr<std::string> FeatureSetOf(std::string_view target) const override;
  int feature_count() const override { return 1; }
  int64_t codegen_version() const override { return 1; }
  std::string compiler_version() const override { return "zoo"; }
  StatusOr<std::string> Expected(std::string_view,
                                 const std::vector<uint64_t>& seeds) const override {
    return ZooExpectedFor(seeds);
  }
};

}  // namespace whet::testing
