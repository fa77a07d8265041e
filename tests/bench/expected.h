// What a case's output has to be, in double precision, and how far an implementation may be from
// it: everybody's results are compared with this before anything is timed.
#pragma once
#include <vector>

#include "tests/bench/contender.h"

namespace whet::bench {

// A case's workload and its inputs. InvalidArgument in words for a text that is no case.
StatusOr<Problem> MakeProblem(const std::string& text, uint64_t seed);

struct Expected {
  std::vector<int64_t> at;  // elements of the output, by logical row-major index
  std::vector<double> value, tolerance;
};

// Products and convolutions: elements drawn from `seed`, a third of them on the borders of the
// output, by loops of their own; as many as take a moment. Everything else: all elements, by the
// operators' own reference.
StatusOr<Expected> ExpectedOf(const Problem& problem, uint64_t seed);

// The largest distance as a share of what is allowed there; infinite for a NaN or for another
// number of elements than `elements`.
double WorstShare(const Expected& expected, int64_t elements, const std::vector<float>& got);

}  // namespace whet::bench
