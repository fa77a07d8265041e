// A trace's text may come from a peer or an old log: parsing any bytes gives a trace or an error,
// and whatever parses prints to a text that parses to the same text again. Replayed on a small
// convolution it is refused, or keeps the result through lowering.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compiler/schedule/trace.h"
#include "tests/fuzz/check_schedule.h"
#include "tests/unit/conv_program.h"

namespace {

constexpr size_t kMaxReplayed = 200;  // primitives cost more the longer the trace: keep a run short

struct Task {
  whet::loop::Program program = whet::testing_support::ConvProgram({2, 5, 4, 5, 3, 1, 1});
  whet::loop::Memory expected;
  Task() {
    auto m = whet::fuzz::RunBlocks(program);
    if (!m.ok()) std::abort();
    expected = *m;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto trace = whet::schedule::Trace::Parse({reinterpret_cast<const char*>(data), size});
  if (!trace.ok()) return 0;
  const std::string text = trace->ToString();
  auto again = whet::schedule::Trace::Parse(text);
  if (!again.ok() || again->ToString() != text) std::abort();
  if (trace->instrs.empty() || trace->instrs.size() > kMaxReplayed) return 0;
  static const Task task;
  auto s = whet::schedule::Schedule::Replay(task.program, *trace);
  if (s.ok()) whet::fuzz::CheckSchedule(task.program, *s, task.expected);
  return 0;
}
