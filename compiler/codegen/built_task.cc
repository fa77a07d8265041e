#include "compiler/codegen/built_task.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "compiler/codegen/untuned.h"
#include "compiler/schedule/invariants.h"
#include "compiler/schedule/space.h"
#include "compiler/support/version.h"

namespace whet::codegen {
namespace {

class Writer {
 public:
  void Int(int64_t v) { out_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void Text(std::string_view s) {
    Int(static_cast<int64_t>(s.size()));
    out_ += s;
  }
  void Buffer(const expr::Buffer& b) {
    Text(b->name);
    Text(ToString(b->dtype));
    Int(static_cast<int64_t>(b->shape.size()));
    for (int64_t d : b->shape) Int(d);
  }
  void Kernel(const KernelCode& k) {
    Int(static_cast<int64_t>(k.phases.size()));
    for (const PhaseSymbol& p : k.phases) {
      Text(p.symbol);
      Int(p.extent);
    }
    Int(k.scratch_bytes);
    Int(static_cast<int64_t>(k.params.size()));
    for (const loop::Param& p : k.params) {
      Buffer(p.buffer);
      Int(static_cast<int64_t>(p.role));
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads zeros and empty texts once something was wrong.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  int64_t Int() {
    int64_t v = 0;
    if (in_.size() < sizeof v) return Fail();
    std::memcpy(&v, in_.data(), sizeof v);
    in_.remove_prefix(sizeof v);
    return v;
  }
  // Of things of which each takes some bytes.
  int64_t Count() {
    const int64_t n = Int();
    return n < 0 || n > static_cast<int64_t>(in_.size()) ? Fail() : n;
  }
  std::string Text() {
    const auto n = static_cast<size_t>(Count());
    std::string s(in_.substr(0, n));
    in_.remove_prefix(n);
    return s;
  }
  expr::Buffer Buffer() {
    const std::string name = Text();
    const StatusOr<DType> dtype = ParseDType(Text());
    if (!dtype.ok()) Fail();
    std::vector<int64_t> shape(static_cast<size_t>(Count()));
    for (int64_t& d : shape) d = Int();
    return expr::MakeBuffer(name, dtype.ok() ? *dtype : DType::kF32, std::move(shape));
  }
  KernelCode Kernel() {
    KernelCode k;
    k.phases.resize(static_cast<size_t>(Count()));
    for (PhaseSymbol& p : k.phases) {
      p.symbol = Text();
      p.extent = Int();
    }
    k.scratch_bytes = Int();
    k.params.resize(static_cast<size_t>(Count()));
    for (loop::Param& p : k.params) {
      p.buffer = Buffer();
      p.role = static_cast<loop::Role>(Int());
    }
    return k;
  }
  bool Done() const { return ok_ && in_.empty(); }

 private:
  int64_t Fail() {
    ok_ = false;
    in_ = {};
    return 0;
  }

  std::string_view in_;
  bool ok_ = true;
};

// This program: a release that generates other code may have the same version while it is written.
const std::string& Compiler() {
  static const std::string identity = [] {
    std::ifstream in("/proc/self/exe", std::ios::binary);
    const std::string program((std::istreambuf_iterator<char>(in)), {});
    return fmt::format("whet {} codegen {} program {} {}", kCompilerVersion, kCodegenVersion,
                       FingerprintOf(program).Hex(), CodeGeneratorVersion());
  }();
  return identity;
}

// Everything that BuildTask's result depends on but the symbols' names, which follow from it, and
// what the estimates of a task that was not tuned are for.
std::string TaskText(const ModelTask& task, const Target& target) {
  return fmt::format("{}\n{}\n{}\n{}", target.ToString(), task.workload,
                     schedule::DigestOf(task.initial).Hex(),
                     task.trace.instrs.empty() ? "untuned" : task.trace.ToString());
}

std::string PackingOf(const loop::Lowered& lowered) {
  return lowered.prepack.body ? FingerprintOf(loop::ToString(lowered.prepack)).Hex() : "";
}

StatusOr<BuiltTask> BuildScheduled(const schedule::Schedule& s, const std::string& prefix,
                                   const Target& target) {
  BuiltTask b;
  b.writes_output_once = schedule::WritesOutputOnce(s.program());
  WHET_ASSIGN_OR_RETURN(loop::Lowered lowered, loop::Lower(s.program()));
  WHET_ASSIGN_OR_RETURN(b.code, GenerateObject(lowered, prefix, target));
  b.packing = PackingOf(lowered);
  b.packed = std::move(lowered.packed);
  b.prepack = std::move(lowered.prepack);
  b.stats = b.code.stats;
  return b;
}

StatusOr<BuiltTask> BuildWithPacking(const schedule::Space& space, const std::string& prefix,
                                     const Target& target, const std::set<std::string>& packings) {
  constexpr double kWorth = 1.1;     // of the best estimate, for weights that are there once
  constexpr size_t kLookedAt = 300;  // some tenths of a millisecond each
  std::vector<schedule::Point> points;
  if (!packings.empty()) points = space.Ranked(kLookedAt);
  for (const schedule::Point& p : points) {
    if (space.PriorNs(p) > kWorth * space.PriorNs(points[0])) break;
    const StatusOr<schedule::Schedule> s = space.Apply(p);
    if (!s.ok()) continue;
    const StatusOr<loop::Lowered> lowered = loop::Lower(s->program());
    if (!lowered.ok()) continue;
    const std::string packing = PackingOf(*lowered);
    if (packing.empty()) break;
    if (packings.count(packing) == 0) continue;
    StatusOr<BuiltTask> built = BuildScheduled(*s, prefix, target);
    if (built.ok() && !SpillsInHotLoop(built->stats)) return built;
  }
  return BuildUntuned(
      space, [&](const schedule::Schedule& s) { return BuildScheduled(s, prefix, target); });
}

}  // namespace

bool RunsHere(const Target& target) {
  const Target host = Target::Host();
  return target.arch == host.arch && std::all_of(target.features.begin(), target.features.end(),
                                                 [&](const std::string& f) { return host.Has(f); });
}

std::string SymbolPrefix(const ModelTask& task, const Target& target) {
  return "whet_" + FingerprintOf(TaskText(task, target)).Hex();
}

std::string SerializeTask(const BuiltTask& t) {
  Writer w;
  w.Int(t.writes_output_once);
  w.Int(static_cast<int64_t>(t.packed.size()));
  for (const expr::Buffer& b : t.packed) w.Buffer(b);
  w.Kernel(t.code.main);
  w.Kernel(t.code.prepack);
  w.Text(t.code.object);
  w.Text(t.packing);
  return w.Take();
}

std::optional<BuiltTask> ParseTask(std::string_view bytes) {
  Reader r(bytes);
  BuiltTask t;
  t.writes_output_once = r.Int() != 0;
  t.packed.resize(static_cast<size_t>(r.Count()));
  for (expr::Buffer& b : t.packed) b = r.Buffer();
  t.code.main = r.Kernel();
  t.code.prepack = r.Kernel();
  t.code.object = r.Text();
  t.packing = r.Text();
  if (!r.Done()) return std::nullopt;
  return t;
}

StatusOr<BuiltTask> BuildTask(const ModelTask& task, const std::string& prefix,
                              const Target& target, const schedule::Conditions& conditions,
                              const std::set<std::string>& packings, ContentCache* cache) {
  std::string key;
  if (cache != nullptr) {
    key = fmt::format("object 2\n{}\n{}\n{}", Compiler(), prefix, TaskText(task, target));
    if (task.trace.instrs.empty()) {
      key += fmt::format("\n{} threads={}", conditions.machine.ToString(), conditions.threads);
      for (const std::string& p : packings) key += "\n" + p;
    }
    if (const std::optional<std::string> bytes = cache->Get(key)) {
      std::optional<BuiltTask> known = ParseTask(*bytes);
      if (known && (known->code.prepack.phases.empty() || RunsHere(target))) {
        known->cached = true;
        return *std::move(known);
      }
    }
  }
  StatusOr<BuiltTask> built = [&]() -> StatusOr<BuiltTask> {
    if (task.trace.instrs.empty())
      return BuildWithPacking(schedule::Space(task.initial, target, conditions), prefix, target,
                              packings);
    WHET_ASSIGN_OR_RETURN(const schedule::Schedule s,
                          schedule::Schedule::Replay(task.initial, task.trace));
    return BuildScheduled(s, prefix, target);
  }();
  if (built.ok() && cache != nullptr) cache->Put(key, SerializeTask(*built));
  return built;
}

}  // namespace whet::codegen
