#include "compiler/schedule/traffic.h"

#include <algorithm>

namespace whet::schedule {

double DistinctElements(double iterations, double window, double step) {
  return std::min(iterations * window, (iterations - 1) * step + window);
}

double BytesMoved(std::span<const double> trips, std::span<const MovedOperand> operands,
                  double capacity) {
  // What loops from `depth` inwards touch.
  const auto touched = [&](const MovedOperand& o, size_t depth) {
    double bytes = o.body_bytes;
    for (size_t l = depth; l < trips.size(); ++l) bytes *= o.grows[l];
    return bytes;
  };
  const auto fits = [&](size_t depth) {
    double bytes = 0;
    for (const MovedOperand& o : operands) bytes += touched(o, depth);
    return bytes <= capacity;
  };
  size_t depth = trips.size();
  while (depth > 0 && fits(depth - 1)) --depth;
  double moved = 0;
  for (const MovedOperand& o : operands) {
    double bytes = touched(o, depth) * o.passes;
    // In the loops just around what fits, an operand that does not move on stays.
    bool stays = fits(depth);
    for (size_t l = depth; l-- > 0;) {
      bytes *= stays ? o.grows[l] : trips[l];
      stays &= o.grows[l] == 1;
    }
    moved += bytes;
  }
  return moved;
}

}  // namespace whet::schedule
