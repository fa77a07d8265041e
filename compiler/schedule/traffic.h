// What a nest of loops moves through a cache, for estimates: operands that are read again in a loop
// whose data fits stay there, the others come again. After the reuse distances of Mattson et al.
// 1970, one loop at a time; associativity and prefetching are left out.
#pragma once
#include <span>
#include <vector>

namespace whet::schedule {

// `iterations` positions of a window of `window` elements, `step` apart: how many elements that
// are.
double DistinctElements(double iterations, double window, double step);

struct MovedOperand {
  double body_bytes = 0;      // that one run of the nest's body touches, each once
  std::vector<double> grows;  // per loop, outermost first: how many times more all of it touches
  double passes = 1;          // 2: read and written back
};

// Bytes that come into a cache of `capacity` bytes: what every operand has at least, more where it
// has to come again. `trips` of the loops around the body, outermost first.
double BytesMoved(std::span<const double> trips, std::span<const MovedOperand> operands,
                  double capacity);

}  // namespace whet::schedule
