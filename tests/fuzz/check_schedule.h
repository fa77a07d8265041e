// What every schedule must keep, checked by the interpreter: the scheduled program, its lowered
// form, and the lowered form with its parallel and vectorized loops run backwards (their iterations
// depend on no order) give the unscheduled program's outputs; or lowering refuses cleanly. Fuzz
// targets only.
#pragma once
#include <cmath>

#include "compiler/loop/parse.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/schedule.h"
#include "tests/fuzz/run_program.h"

namespace whet::fuzz {

inline bool SameOutputs(const loop::Program& p, const loop::Memory& a, const loop::Memory& b) {
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kOutput) continue;
    const auto& x = a.at(param.buffer->name);
    const auto& y = b.at(param.buffer->name);
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i]))) return false;
    }
  }
  return true;
}

// The lowered program with the iterations of parallel and vectorized loops in the opposite order.
inline loop::Stmt Reversed(const loop::Stmt& s) {
  return loop::Map(s, [](const loop::Stmt& x) -> loop::Stmt {
    const auto* f = loop::As<loop::ForNode>(x);
    if (!f || f->for_kind == loop::ForKind::kSerial || f->for_kind == loop::ForKind::kUnrolled)
      return nullptr;
    expr::Substitution sub;
    sub.Add(f->var, expr::Int(2 * f->begin + f->extent - 1) - f->var);
    return loop::WithBody(
        *f, loop::MapExprs(f->body, [&](const expr::Expr& e) { return Substitute(e, sub); }));
  });
}

inline std::string CheckLowered(const loop::Program& initial, const loop::Program& p,
                                const loop::Memory& expected) {
  auto lowered = loop::Lower(p);
  if (!lowered.ok()) {
    return lowered.status().code() == absl::StatusCode::kInternal
               ? fmt::format("lowering: {}", Message(lowered.status()))
               : "";
  }
  for (const loop::Program* part : {&lowered->prepack, &lowered->main}) {
    if (!part->body) continue;
    const std::string text = loop::ToString(*part);
    auto again = loop::Parse(text);
    if (!again.ok())
      return fmt::format("lowered text does not parse: {}\n{}", Message(again.status()), text);
    if (loop::ToString(*again) != text) return fmt::format("parse(print(x)) != x for\n{}", text);
  }
  loop::Program backwards = lowered->main;
  backwards.body = Reversed(backwards.body);
  for (const loop::Program* main : {&lowered->main, &backwards}) {
    loop::Memory m = Inputs(p);
    Status st = loop::Interpret(lowered->prepack, m, kMaxSteps);
    if (st.ok()) st = loop::Interpret(*main, m, kMaxSteps);
    if (st.code() == absl::StatusCode::kResourceExhausted) return "";
    const char* what = main == &backwards ? "lowered, run backwards" : "lowered";
    if (!st.ok()) return fmt::format("{}: {}\n{}", what, Message(st), loop::ToString(*main));
    if (!SameOutputs(initial, m, expected))
      return fmt::format("{}: another result\n{}", what, loop::ToString(*main));
  }
  return "";
}

// "" when the scheduled program keeps the result, else what went wrong.
inline std::string CheckScheduled(const loop::Program& initial, const loop::Program& p,
                                  const loop::Memory& expected) {
  if (Status st = loop::Verify(p); !st.ok()) return fmt::format("verify: {}", Message(st));
  const std::string text = loop::ToString(p);
  auto again = loop::Parse(text);
  if (!again.ok()) return fmt::format("text does not parse: {}", Message(again.status()));
  if (loop::ToString(*again) != text) return "parse(print(x)) != x";
  if (!IsSmall(p)) return "";
  auto m = RunBlocks(p);
  if (m.status().code() == absl::StatusCode::kResourceExhausted) return "";
  if (!m.ok()) return fmt::format("interpreter: {}", Message(m.status()));
  if (!SameOutputs(initial, *m, expected)) return "another result";
  return CheckLowered(initial, p, expected);
}

// Replays the schedule's instructions one by one and aborts at the first that breaks the result.
inline void CheckSchedule(const loop::Program& initial, const schedule::Schedule& s,
                          const loop::Memory& expected) {
  if (CheckScheduled(initial, s.program(), expected).empty()) return;
  schedule::Schedule again(initial);
  for (const schedule::Instr& i : s.trace().instrs) {
    if (!again.Apply(i).ok()) Fail("a trace that does not replay", s.trace().ToString());
    if (std::string why = CheckScheduled(initial, again.program(), expected); !why.empty()) {
      Fail(why, again.trace().ToString() + loop::ToString(again.program()));
    }
  }
  Fail("replay gives another program", s.trace().ToString());
}

}  // namespace whet::fuzz
