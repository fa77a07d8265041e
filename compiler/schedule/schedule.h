// A schedule is a loop program plus the trace of primitives that made it from the initial one. Each
// primitive is a checked rewrite: it either keeps what the program computes or refuses with a
// reason and changes nothing. Not thread-safe; cheap to copy (trees are shared).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/loop/loop.h"
#include "compiler/schedule/trace.h"

namespace whet::schedule {

class Schedule {
 public:
  explicit Schedule(loop::Program initial) : program_(std::move(initial)) {}

  // Runs one primitive and records it. Errors: unknown primitive or version, wrong arguments, a
  // rewrite that would not keep the result; the program is then as before.
  Status Apply(const std::string& primitive, std::vector<std::string> args);
  Status Apply(const Instr& instr);
  static StatusOr<Schedule> Replay(loop::Program initial, const Trace& trace);

  const loop::Program& program() const { return program_; }
  const Trace& trace() const { return trace_; }
  Trace& mutable_trace() { return trace_; }  // for a rule to write its name and knobs

 private:
  loop::Program program_;
  Trace trace_;
};

// One record per primitive; each lives in its prim_*.cc and is listed in primitives.cc.
struct Primitive {
  const char* name;
  int version;
  const char* usage;  // "split LOOP FACTOR OUTER INNER"
  int min_args;
  int max_args;
  Status (*apply)(loop::Program& program, const std::vector<std::string>& args);
};
const std::vector<const Primitive*>& Primitives();

// Digest of an initial program: stored beside a trace, so that a trace is never replayed on another
// program.
Fingerprint DigestOf(const loop::Program& initial);

}  // namespace whet::schedule
