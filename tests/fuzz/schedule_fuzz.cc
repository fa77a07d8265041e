// Random schedules from bytes: each byte is a decision (which primitive, which loop, block, buffer,
// number, name). The first chooses a program, the rest a sequence of primitives; those that are
// refused change nothing, those that are not must keep the result.
#include <array>
#include <cstdint>

#include "tests/fuzz/check_schedule.h"
#include "tests/unit/programs.h"

namespace whet::fuzz {
namespace {

using loop::Program;
using schedule::Schedule;

struct Task {
  Program program;
  loop::Memory expected;
};

std::vector<Task> MakeTasks() {
  using namespace testing_support;
  std::vector<Task> tasks;
  for (const Program& p :
       {ConvProgram({2, 5, 4, 5, 3, 1, 1}), ConvProgram({3, 4, 5, 5, 3, 2, 1}),
        ConvProgram({4, 6, 3, 3, 1, 1, 0}), DepthwiseProgram({0, 5, 4, 4, 3, 1, 1}, true),
        MaxPoolProgram({0, 6, 4, 6, 2, 2, 0}), MatmulProgram(3, 7, 4, true),
        AddPaddedProgram(7, 5, 2, 3), RowNormProgram(3, 5)}) {
    auto m = RunBlocks(p);
    if (!m.ok()) Fail("a task that does not run", loop::ToString(p));
    tasks.push_back({p, *m});
  }
  return tasks;
}

class Decisions {
 public:
  Decisions(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool done() const { return left_ == 0; }
  size_t Below(size_t n) {
    if (left_ == 0 || n == 0) return 0;
    --left_;
    return *data_++ % n;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

struct Names {
  std::vector<std::string> loops, blocks, buffers;
};
Names NamesOf(const Program& p) {
  Names n;
  loop::Walk(p.body, [&](const loop::Stmt& s) {
    if (const auto* f = loop::As<loop::ForNode>(s)) n.loops.push_back(f->var->name);
    if (const auto* b = loop::As<loop::BlockNode>(s)) n.blocks.push_back(b->name);
  });
  for (const loop::Param& param : p.params) n.buffers.push_back(param.buffer->name);
  for (const expr::Buffer& b : p.intermediates) n.buffers.push_back(b->name);
  return n;
}

class Generator {
 public:
  Generator(Decisions& d, const Program& p) : d_(d), p_(p), names_(NamesOf(p)) {}

  schedule::Instr Next(int step) {
    const auto& all = schedule::Primitives();
    const schedule::Primitive& primitive = *all[d_.Below(all.size())];
    schedule::Instr i{primitive.name, primitive.version, {}};
    // The usage line says what each argument is.
    std::string_view usage = primitive.usage;
    usage.remove_prefix(std::min(usage.find(' '), usage.size()));
    while (!usage.empty()) {
      usage.remove_prefix(1);
      const std::string_view word = usage.substr(0, usage.find(' '));
      usage.remove_prefix(word.size());
      Add(i.args, word, step);
    }
    return i;
  }

 private:
  const std::string& One(const std::vector<std::string>& of) {
    static const std::string none = "none";
    return of.empty() ? none : of[d_.Below(of.size())];
  }
  // New names: mostly fresh, sometimes ones that a primitive makes itself later on.
  std::string New(int step, size_t nth) {
    switch (d_.Below(8)) {
      case 0: return One(names_.blocks) + ".init";
      case 1: return One(names_.loops) + ".init";
      case 2: return One(names_.blocks) + "." + std::array{"n", "h", "oh", "d0", "c"}[d_.Below(5)];
      case 3: return One(names_.buffers);
      default: return fmt::format("t{}.{}", step, nth);
    }
  }
  void Add(std::vector<std::string>& args, std::string_view word, int step) {
    if (word == "LOOP...") {
      for (size_t n = d_.Below(4); n > 0; --n) args.push_back(One(names_.loops));
    } else if (args.empty() && (word == "LOOP" || word == "OUTER")) {
      args.push_back(One(names_.loops));
    } else if (word == "LOOP") {
      args.push_back(One(names_.loops));
    } else if (word == "INNER" && args.size() == 1) {
      args.push_back(Child(args[0]));
    } else if (word == "BLOCK") {
      args.push_back(One(names_.blocks));
    } else if (word == "BUFFER") {
      args.push_back(One(names_.buffers));
    } else if (word == "SCOPE") {
      args.push_back(std::array{"global", "register", "local", "global"}[d_.Below(4)]);
    } else if (word == "FACTOR" || word == "MULTIPLE") {
      args.push_back(std::to_string(std::array{1, 2, 3, 4, 5, 8}[d_.Below(6)]));
    } else if (word == "KEY") {
      args.push_back(d_.Below(2) ? "partition" : "prefetch");
    } else if (word == "VALUE") {
      args.push_back(std::to_string(d_.Below(2)));
    } else if (word == "AXIS") {
      args.push_back(
          std::array{"n", "oc", "oh", "ow", "c", "d0", "d1", "d2", "m", "h"}[d_.Below(10)]);
    } else if (word == "MAP") {
      args.push_back(Map(args[0]));
    } else {
      args.push_back(New(step, args.size()));
    }
  }
  // The loop directly inside `name`, most of the time.
  std::string Child(const std::string& name) {
    const loop::ForNode* f = loop::FindLoop(p_, name);
    const auto* child = f ? loop::As<loop::ForNode>(f->body) : nullptr;
    return child && d_.Below(8) ? child->var->name : One(names_.loops);
  }
  std::string Map(const std::string& buffer) {
    const expr::Buffer b = loop::FindBuffer(p_, buffer);
    const size_t rank = b ? b->shape.size() : 1;
    std::string from, to;
    std::vector<std::string> dims;
    for (size_t i = 0; i < rank; ++i) dims.push_back("d" + std::to_string(i));
    for (const std::string& d : dims) from += (from.empty() ? "" : ", ") + d;
    while (!dims.empty()) {
      const size_t at = d_.Below(dims.size());
      const std::string d = dims[at];
      dims.erase(dims.begin() + static_cast<int64_t>(at));
      if (!to.empty()) to += ", ";
      switch (d_.Below(8)) {
        case 0: to += fmt::format("{} // 4, {} % 4", d, d); break;
        case 1: to += fmt::format("{} % 3, {} // 3", d, d); break;
        case 2: to += fmt::format("{} * 2 + d0", d); break;
        case 3: to += fmt::format("{} // 2", d); break;
        case 4: to += fmt::format("{} % 2, {} // 4", d, d); break;
        default: to += d;
      }
    }
    return fmt::format("({}) -> ({})", from, to);
  }

  Decisions& d_;
  const Program& p_;
  Names names_;
};

}  // namespace
}  // namespace whet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace whet::fuzz;
  static const std::vector<Task> tasks = MakeTasks();
  Decisions d(data, size);
  const Task& task = tasks[d.Below(tasks.size())];
  Schedule s(task.program);
  for (int step = 0; !d.done() && step < 256 && s.trace().instrs.size() < 24; ++step) {
    const whet::schedule::Instr i = Generator(d, s.program()).Next(step);
    const std::string before = whet::loop::ToString(s.program());
    if (!s.Apply(i).ok() && whet::loop::ToString(s.program()) != before)
      Fail("a refusal changed the program", before);
  }
  if (!s.trace().instrs.empty()) CheckSchedule(task.program, s, task.expected);
  auto parsed = whet::schedule::Trace::Parse(s.trace().ToString());
  if (!parsed.ok()) Fail("a trace that does not parse", s.trace().ToString());
  auto replayed = Schedule::Replay(task.program, *parsed);
  if (!replayed.ok() ||
      whet::loop::ToString(replayed->program()) != whet::loop::ToString(s.program())) {
    Fail("replay gives another program", s.trace().ToString());
  }
  return 0;
}
