// The schedule of a workload that nothing was measured of: the best estimate whose code keeps its
// vectors in registers. Estimates count registers, but only the register allocator knows.
#pragma once
#include <map>
#include <optional>

#include "compiler/codegen/codegen.h"
#include "compiler/schedule/space.h"

namespace whet::codegen {

// Kernels of which this share of the hot loop's instructions moved vectors to and from the stack
// ran at 0.3 to 0.75 of the speed of their neighbours; up to 0.06 nothing was to be seen.
inline constexpr double kMostHotSpills = 0.1;
inline bool SpillsInHotLoop(const ObjectStats& s) { return s.hot_spill_share > kMostHotSpills; }
inline std::string SpillMessage(const ObjectStats& s) {
  return fmt::format(
      "its hot loop spills: {:.0f} % of the instructions move vectors to and from "
      "the stack",
      100 * s.hot_spill_share);
}

// `build` makes something of a schedule, with its ObjectStats in `stats`. Of several that spill,
// the one that spills least. A point whose schedule or code cannot be made is passed over: that is
// a rule's fault, which tests find, and nobody's model should fail for it.
template <typename Build>
auto BuildUntuned(const schedule::Space& space, const Build& build)
    -> decltype(build(std::declval<const schedule::Schedule&>())) {
  using Result = decltype(build(std::declval<const schedule::Schedule&>()));
  constexpr size_t kLookedAt = 2000;
  constexpr int kBuilt = 4;  // a compilation's time
  constexpr int kFaults = 64;
  // After one that spills, of the same rule only what needs clearly fewer registers.
  constexpr double kSmaller = 0.75;
  std::map<int, double> limits;
  std::optional<typename Result::value_type> least;
  Status fault = OkStatus();
  int built = 0, faults = 0;
  for (const schedule::Point& p : space.Ranked(kLookedAt)) {
    const schedule::Estimate e = space.EstimateOf(p);
    const double size = e.accumulators > 0 ? e.accumulators : e.body_instructions;
    const auto limit = limits.find(p.variant);
    if (limit != limits.end() && size > limit->second) continue;
    const StatusOr<schedule::Schedule> s = space.Apply(p);
    Result made = s.ok() ? build(*s) : Result(s.status());
    if (!made.ok()) {
      if (fault.ok()) fault = made.status();
      if (++faults == kFaults) break;
      continue;
    }
    if (!SpillsInHotLoop(made->stats)) return made;
    if (!least || made->stats.hot_spill_share < least->stats.hot_spill_share)
      least = std::move(*made);
    if (++built == kBuilt) break;
    limits[p.variant] = kSmaller * size;
  }
  if (!least) return fault;
  return std::move(*least);
}

}  // namespace whet::codegen
