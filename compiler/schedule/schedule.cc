#include "compiler/schedule/schedule.h"

#include "compiler/schedule/invariants.h"

namespace whet::schedule {

Status Schedule::Apply(const std::string& primitive, std::vector<std::string> args) {
  int version = 1;
  for (const Primitive* p : Primitives()) {
    if (primitive == p->name) version = std::max(version, p->version);
  }
  return Apply(Instr{primitive, version, std::move(args)});
}

Status Schedule::Apply(const Instr& instr) {
  std::string known;
  for (const Primitive* p : Primitives()) {
    known += (known.empty() ? "" : ", ") + fmt::format("{}@{}", p->name, p->version);
    if (instr.primitive != p->name || instr.version != p->version) continue;
    const int n = static_cast<int>(instr.args.size());
    if (n < p->min_args || n > p->max_args) {
      return InvalidArgument("{}: {} arguments; usage: {}", p->name, n, p->usage);
    }
    loop::Program next = program_;
    Status st = p->apply(next, instr.args);
    if (st.ok()) st = CheckInvariants(next);
    WHET_RETURN_IF_ERROR(Annotate(st, fmt::format("{} {}", p->name, instr.args[0])));
    program_ = std::move(next);
    trace_.instrs.push_back(instr);
    return OkStatus();
  }
  return InvalidArgument("unknown primitive {}@{}; known are {}", instr.primitive, instr.version,
                         known);
}

StatusOr<Schedule> Schedule::Replay(loop::Program initial, const Trace& trace) {
  Schedule s(std::move(initial));
  for (size_t i = 0; i < trace.instrs.size(); ++i) {
    WHET_RETURN_IF_ERROR(Annotate(s.Apply(trace.instrs[i]), fmt::format("instruction {}", i + 1)));
  }
  s.trace_ = trace;
  return s;
}

Fingerprint DigestOf(const loop::Program& initial) {
  return FingerprintOf(loop::ToString(initial));
}

}  // namespace whet::schedule
