// Measures how fast this machine is, for estimates (compiler/target/machine.h): half a second on an
// idle machine, which is when a worker starts. Every figure is the best of several rounds over all
// of them, so that a clock that changes between rounds favours none.
#pragma once
#include "compiler/target/machine.h"

namespace whet::worker {

// Uses up to 96 MiB, and never more than an eighth of the memory.
Machine ProbeMachine(int processors);

// Reads the figures from `path`; where the file is not there, or is of another machine (`identity`:
// what would make the figures change), measures and writes it.
StatusOr<Machine> ProbedOnce(const std::string& path, const std::string& identity, int processors);

}  // namespace whet::worker
