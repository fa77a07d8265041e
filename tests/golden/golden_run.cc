#include "tests/golden/golden_run.h"

#include <algorithm>
#include <cmath>

#include "compiler/loop/lower.h"
#include "compiler/loop/parse.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/space.h"
#include "tests/fuzz/run_program.h"

namespace whet::golden {
namespace {

using loop::Program;

// Relative; the expansions of exp and the like are a few ulp off the C library.
constexpr double kMathTolerance = 1e-6;

class Runner {
 public:
  StatusOr<Outcome> Run(const Source& source, size_t& steps_done) {
    WHET_ASSIGN_OR_RETURN(Program p, loop::Parse(source.program));
    WHET_RETURN_IF_ERROR(loop::Verify(p));
    input_ = p;
    out_.programs = {p};
    expected_ = fuzz::Inputs(p);
    WHET_RETURN_IF_ERROR(loop::Interpret(p, expected_));
    WHET_RETURN_IF_ERROR(Check());
    for (const std::string& step : source.steps) {
      WHET_RETURN_IF_ERROR(Annotate(Step(step), step));
      if (Status st = Check(); !st.ok()) return Annotate(st, fmt::format("after '{}'", step));
      ++steps_done;
    }
    return out_;
  }

 private:
  // A rounding more.
  static bool IsApproximate(const schedule::Instr& i) { return i.primitive == "reciprocal"; }

  Status Step(const std::string& step) {
    if (step == "lower") return Lower();
    if (step.rfind("pass ", 0) == 0) return Pass(step.substr(5));
    if (step.rfind("rule ", 0) == 0) return Rule(step.substr(5));
    WHET_ASSIGN_OR_RETURN(schedule::Trace line,
                          schedule::Trace::Parse("whet-trace 1\n" + step + "\n"));
    if (out_.programs.size() != 1 || line.instrs.size() != 1) return InvalidArgument("not a step");
    schedule::Schedule s(out_.programs[0]);
    WHET_RETURN_IF_ERROR(s.Apply(line.instrs[0]));
    approximate_ |= IsApproximate(line.instrs[0]);
    out_.programs[0] = s.program();
    out_.trace.instrs.push_back(line.instrs[0]);
    return OkStatus();
  }

  Status Split() {
    WHET_ASSIGN_OR_RETURN(loop::PrepackSplit split, loop::SplitPrepack(out_.programs[0]));
    out_.programs.clear();
    if (split.prepack.body) out_.programs.push_back(split.prepack);
    out_.programs.push_back(split.main);
    return OkStatus();
  }

  Status Pass(const std::string& name) {
    if (name == "split_prepack") return Split();
    for (const loop::Pass& pass : loop::LowerPasses()) {
      if (name != pass.name) continue;
      approximate_ |= name == "expand_math";
      for (Program& p : out_.programs) {
        WHET_ASSIGN_OR_RETURN(p, pass.run(p));
      }
      return OkStatus();
    }
    return InvalidArgument("no pass '{}'", name);
  }

  Status Lower() {
    WHET_ASSIGN_OR_RETURN(loop::Lowered lowered, loop::Lower(out_.programs[0]));
    approximate_ = true;
    out_.programs.clear();
    if (lowered.prepack.body) out_.programs.push_back(lowered.prepack);
    out_.programs.push_back(lowered.main);
    return OkStatus();
  }

  Status Rule(const std::string& text) {
    const size_t blank = std::min(text.find(' '), text.size());
    WHET_ASSIGN_OR_RETURN(Target target,
                          Target::Parse(text.substr(std::min(blank + 1, text.size()))));
    const schedule::Space space(out_.programs[0], target);
    const auto& variants = space.variants();
    const auto named = std::find_if(variants.begin(), variants.end(), [&](const auto& v) {
      return text.substr(0, blank) == v.rule->name;
    });
    if (named == variants.end())
      return FailedPrecondition("the program's first rule is {}", variants[0].rule->name);
    const schedule::Point at = {static_cast<int>(named - variants.begin()),
                                named->rule->default_values(*named->context)};
    WHET_ASSIGN_OR_RETURN(schedule::Schedule s, space.Apply(at));
    if (space.Locate(s.trace()) != at) return Internal("the trace does not lead back to its point");
    out_.programs[0] = s.program();
    out_.trace = s.trace();
    for (const schedule::Instr& i : s.trace().instrs) approximate_ |= IsApproximate(i);
    return OkStatus();
  }

  Status Check() const {
    loop::Memory m = fuzz::Inputs(input_);
    for (const Program& p : out_.programs) {
      const std::string text = loop::ToString(p);
      WHET_ASSIGN_OR_RETURN(Program again, loop::Parse(text));
      if (loop::ToString(again) != text)
        return Internal("parse(print(x)) differs from x:\n{}", text);
      WHET_RETURN_IF_ERROR(loop::Verify(p));
      WHET_RETURN_IF_ERROR(loop::Interpret(p, m));
    }
    for (const loop::Param& param : input_.params) {
      if (param.role != loop::Role::kOutput) continue;
      const auto& want = expected_.at(param.buffer->name);
      const auto& got = m.at(param.buffer->name);
      for (size_t i = 0; i < want.size(); ++i) {
        if (!Equal(want[i], got[i]))
          return Internal("element {} of '{}' is {}, in the input {}", i, param.buffer->name,
                          got[i], want[i]);
      }
    }
    return OkStatus();
  }

  bool Equal(double want, double got) const {
    if (want == got || (std::isnan(want) && std::isnan(got))) return true;
    return approximate_ && std::fabs(want - got) <= kMathTolerance * std::fabs(want);
  }

  Program input_;
  loop::Memory expected_;
  bool approximate_ = false;
  Outcome out_;
};

}  // namespace

std::string Outcome::Text() const {
  std::string text;
  for (const Program& p : programs) text += loop::ToString(p);
  return text;
}

StatusOr<Outcome> Run(const Source& source, size_t& steps_done) {
  return Runner().Run(source, steps_done);
}

}  // namespace whet::golden
