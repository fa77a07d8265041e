// How good is a schedule space? Times points of it on one core, each beside the rate of fused
// multiply-adds measured just before:
//   space_bench [OPTION...] 'CASE'...      cases as in cases.h, or a file with a workload's text
//   --top N       the prior's best N of each rule (default 8)
//   --random N    N more drawn from all rules (default 8)
//   --rule NAME   of this rule only
//   --point 'NAME=V NAME=V...'   only this point (with --rule, unless the first rule is meant)
//   --target TEXT as `whet doctor` prints it (default: the host)
//   --cold        as in the middle of a network: before every run the caches are filled with other
//                 data, then the inputs, but not the weights, are read
//   --trace       print the schedule of the default; of a point also what it is lowered to
//   --verdict     is the estimate good enough? Of each case (default: one of each class of
//                 operators) the best of the prior's best 16 against the best of --random N valid
//                 points of all rules (500 is what it is meant for): 0.92 is asked. Ends with 1
//                 where less is reached
//   --keep DIR    libraries of --verdict stay there, and those that are there already are not built
//                 again, so that what has to be timed undisturbed is short
//   --build-only  of --verdict, for --keep: time nothing
// Prints a line per point, then one JSON object per case: default and best microseconds, the best
// point, where the prior ranked it, build times, failures.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "compiler/codegen/candidate.h"
#include "compiler/schedule/space.h"
#include "compiler/support/rng.h"
#include "compiler/support/sha256.h"
#include "compiler/task/workload_program.h"
#include "deploy/runtime/model.h"
#include "tests/bench/cases.h"
#include "tests/bench/probe.h"

namespace whet {
namespace {

using Clock = std::chrono::steady_clock;
double Us(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::micro>(b - a).count();
}

bool g_cold = false;

void ReadAll(const std::vector<const void*>& buffers, const std::vector<uint64_t>& bytes) {
  float sum = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto* p = static_cast<const float*>(buffers[i]);
    for (uint64_t k = 0; k < bytes[i] / 4; k += 16) sum += p[k];
  }
  asm volatile("" : : "x"(sum));
}

// Writes the shared library of a schedule to `so`, by way of a folder of its own.
bool Build(const loop::Program& scheduled, const Target& t, const std::string& so, double* spills) {
  auto c = codegen::BuildCandidate(scheduled, "", t);
  if (!c.ok()) return false;
  *spills = c->stats.hot_spill_share;
  char dir[] = "/tmp/whet-bench-XXXXXX";
  if (!mkdtemp(dir)) return false;
  const bool linked = codegen::LinkCandidate(*c, dir, so).ok();
  std::filesystem::remove_all(dir);
  return linked;
}

// Median of batches of at least 200 us; after three of them where none was below `give_up_us`.
// Negative when the library does not load.
double Measure(const std::string& so, double give_up_us = 1e30) {
  std::string error;
  auto model = Model::Load(so, &error);
  if (!model) return -1;
  Instance instance(model, 1);
  std::vector<void*> owned;
  auto make = [&](const whet_tensor& tensor) {
    auto* p = static_cast<float*>(std::aligned_alloc(64, (tensor.bytes + 63) / 64 * 64));
    for (uint64_t i = 0; i < tensor.bytes / 4; ++i) p[i] = static_cast<float>(i % 13) * 0.1f - 0.5f;
    owned.push_back(p);
    return p;
  };
  std::vector<const void*> in, params;
  std::vector<void*> out;
  for (const auto& x : model->inputs()) in.push_back(make(x));
  for (const auto& x : model->outputs()) out.push_back(make(x));
  for (uint32_t i : model->parameters()) params.push_back(make(model->desc().tensors[i]));
  instance.Prepack(params);
  instance.Bind(in, out);
  instance.Execute();
  auto a = Clock::now();
  instance.Execute();
  const int n = std::max(1, static_cast<int>(300 / std::max(Us(a, Clock::now()), 0.1)));
  std::vector<double> us;
  static std::vector<float> others(g_cold ? (32u << 20) : 0);
  std::vector<uint64_t> bytes;
  for (const auto& x : model->inputs()) bytes.push_back(x.bytes);
  for (int batch = 0; g_cold && batch < 15; ++batch) {
    ReadAll({others.data()}, {others.size() * 4});
    ReadAll(in, bytes);
    a = Clock::now();
    instance.Execute();
    us.push_back(Us(a, Clock::now()));
  }
  for (int batch = 0; !g_cold && batch < 15; ++batch) {
    a = Clock::now();
    for (int i = 0; i < n; ++i) instance.Execute();
    us.push_back(Us(a, Clock::now()) / n);
    if (batch == 2 && *std::min_element(us.begin(), us.end()) > give_up_us) break;
  }
  for (void* p : owned) std::free(p);
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

// Both; negative when the candidate could not be built.
double Time(const schedule::Schedule& s, const Target& t, double* build_ms, double* spills) {
  char so[] = "/tmp/whet-bench-XXXXXX";
  const int fd = mkstemp(so);
  if (fd < 0) return -1;
  close(fd);
  const auto t0 = Clock::now();
  const bool built = Build(s.program(), t, so, spills);
  *build_ms = Us(t0, Clock::now()) / 1e3;
  const double us = built ? Measure(so) : -1;
  std::filesystem::remove(so);
  return us;
}

struct Options {
  size_t top = 8, random = 8;
  std::string rule, point, keep;
  Target target = Target::Host();
  bool trace = false, verdict = false, build_only = false;
};

bool OfRule(const schedule::Space& space, const schedule::Point& p, const std::string& rule) {
  return rule.empty() || rule == space.variants()[static_cast<size_t>(p.variant)].rule->name;
}

// What an untuned compile looks at, the best first.
std::vector<schedule::Point> RankedPoints(const schedule::Space& space, const std::string& rule) {
  std::vector<schedule::Point> ranked = space.Ranked(std::numeric_limits<size_t>::max());
  std::erase_if(ranked, [&](const schedule::Point& p) {
    return !OfRule(space, p, rule) || space.Check(p) != schedule::Rejection::kNone;
  });
  return ranked;
}

// Valid points, any of them as likely as another of its rule; fewer than n where hardly any is
// valid.
std::vector<schedule::Point> RandomPoints(const schedule::Space& space, const std::string& rule,
                                          size_t n) {
  Rng rng(1);
  std::vector<schedule::Point> points;
  for (size_t tries = 0; points.size() < n && tries < 100000; ++tries) {
    const auto v = rng.Below(static_cast<int64_t>(space.variants().size()));
    schedule::Point p{static_cast<int>(v), {}};
    for (const schedule::Knob& k : space.variants()[static_cast<size_t>(v)].knobs)
      p.values.push_back(
          k.values[static_cast<size_t>(rng.Below(static_cast<int64_t>(k.values.size())))]);
    if (OfRule(space, p, rule) && space.Check(p) == schedule::Rejection::kNone)
      points.push_back(std::move(p));
  }
  return points;
}

std::string Text(const schedule::Space& space, const schedule::Point& p) {
  std::string s = space.variants()[p.variant].rule->name;
  for (size_t k = 0; k < p.values.size(); ++k)
    s += fmt::format(" {}={}", space.variants()[p.variant].knobs[k].name, p.values[k]);
  return s;
}

std::optional<schedule::Point> PointOf(const schedule::Space& space, const Options& o) {
  for (size_t v = 0; v < space.variants().size(); ++v) {
    const auto& variant = space.variants()[v];
    if (!o.rule.empty() && o.rule != variant.rule->name) continue;
    schedule::Point p{static_cast<int>(v), variant.rule->default_values(*variant.context)};
    std::istringstream words(o.point);
    for (std::string word; words >> word;) {
      bool known = false;
      for (size_t k = 0; k < variant.knobs.size(); ++k) {
        if (word.rfind(variant.knobs[k].name + "=", 0) != 0) continue;
        p.values[k] = std::atoll(word.c_str() + variant.knobs[k].name.size() + 1);
        known = true;
      }
      if (!known) std::fprintf(stderr, "no knob for '%s'\n", word.c_str());
    }
    return p;
  }
  return std::nullopt;
}

int Bench(const std::string& name, const Options& o) {
  std::string text;
  if (std::ifstream file(name); file) {
    text.assign(std::istreambuf_iterator<char>(file), {});
  } else {
    auto w = bench::CaseWorkload(name);
    if (!w.ok()) return std::fprintf(stderr, "%s\n", Message(w.status()).c_str()), 2;
    text = w->ToString();
  }
  auto opened = task::OpenWorkload(text);
  if (!opened.ok()) return std::fprintf(stderr, "%s\n", Message(opened.status()).c_str()), 2;
  const auto flops = static_cast<double>(opened->workload.flops());
  schedule::Space space(opened->program, o.target);
  auto run = [&](const schedule::Point& p, const char* what, double prior, double* build) {
    const double peak = bench::FmaGflops(o.target.VectorBits());
    auto s = space.Apply(p);
    double spills = 0;
    const double us = s.ok() ? Time(*s, o.target, build, &spills) : -1;
    std::printf(
        "  %-9s %10.1f us  %7.1f GFLOP/s  %5.3f of FMA  prior %10.1f  build %5.0f ms  spills %5.3f "
        " "
        "%s%s\n",
        what, us, us > 0 ? flops / us / 1e3 : 0, us > 0 ? flops / us / 1e3 / peak : 0, prior / 1e3,
        *build, spills, Text(space, p).c_str(), s.ok() ? "" : ("  " + Message(s.status())).c_str());
    std::fflush(stdout);
    return us;
  };
  std::printf("%s\n", name.c_str());
  double build = 0;
  if (!o.point.empty()) {
    const auto p = PointOf(space, o);
    if (!p) return std::fprintf(stderr, "no rule '%s' here\n", o.rule.c_str()), 2;
    if (const auto r = space.Check(*p); r != schedule::Rejection::kNone)
      std::printf("  (%s)\n", std::string(schedule::ToString(r)).c_str());
    if (o.trace) {
      if (auto s = space.Apply(*p); s.ok()) {
        std::printf("%s\n", loop::ToString(s->program()).c_str());
        if (auto lowered = loop::Lower(s->program()); lowered.ok())
          std::printf("%s\n", loop::ToString(lowered->main).c_str());
      }
    }
    return run(*p, "point", space.PriorNs(*p), &build) > 0 ? 0 : 1;
  }
  const std::vector<schedule::Point> ranked = RankedPoints(space, o.rule);
  if (ranked.empty()) return std::fprintf(stderr, "no valid point\n"), 1;
  std::vector<schedule::Point> tries(ranked.begin(),
                                     ranked.begin() + std::min(o.top, ranked.size()));
  const size_t top = tries.size();
  for (schedule::Point& p : RandomPoints(space, o.rule, o.random)) tries.push_back(std::move(p));
  if (tries.empty()) return std::fprintf(stderr, "no point to time: see --top, --random\n"), 2;
  if (o.trace) {
    if (auto s = space.Apply(space.Default()); s.ok())
      std::printf("%s\n%s\n", s->trace().ToString().c_str(), loop::ToString(s->program()).c_str());
  }
  double best = 1e30, best16 = 1e30;
  const double default_us = run(space.Default(), "default", space.PriorNs(space.Default()), &build);
  size_t best_at = 0, failed = 0;
  std::vector<double> builds;
  for (size_t i = 0; i < tries.size(); ++i) {
    const double us = run(tries[i], i < top ? "top" : "random", space.PriorNs(tries[i]), &build);
    if (us < 0) {
      ++failed;
      continue;
    }
    builds.push_back(build);
    if (i < std::min<size_t>(top, 16)) best16 = std::min(best16, us);
    if (us < best) best = us, best_at = i;
  }
  if (builds.empty()) return std::fprintf(stderr, "none of the points ran\n"), 1;
  std::sort(builds.begin(), builds.end());
  std::printf(
      "{\"case\": \"%s\", \"points\": %zu, \"default_us\": %.1f, \"best_us\": %.1f, "
      "\"best_of_prior16_us\": %.1f, \"best\": \"%s\", \"prior_rank\": %zu, "
      "\"build_ms_median\": %.1f, \"failed\": %zu}\n",
      name.c_str(), ranked.size(), default_us, best, best16, Text(space, tries[best_at]).c_str(),
      static_cast<size_t>(std::find(ranked.begin(), ranked.end(), tries[best_at]) - ranked.begin()),
      builds[builds.size() / 2], failed);
  return 0;
}

// One of each class of operators.
const char* const kClasses[] = {"gemm 512 512 512",
                                "gemm 128 3072 768",
                                "gemm_bias 1 1000 2048",
                                "bmm 12 128 128 64",
                                "conv 64 64 56 56 3 1 1",
                                "conv 256 256 14 14 3 1 1",
                                "conv 128 128 56 56 3 2 1",
                                "conv 64 256 56 56 1 1 0",
                                "conv 512 2048 7 7 1 1 0",
                                "conv 3 64 224 224 7 2 3",
                                "depthwise 144 56 56 3 2 1",
                                "depthwise 384 14 14 3 1 1",
                                "maxpool 64 112 112 3 2 1",
                                "avgpool 2048 7 7 7 1 0",
                                "softmax 1536 128",
                                "layernorm 128 768",
                                "gelu 128 3072",
                                "sum 1024 1024",
                                "add 1024 1024",
                                "transpose 768 768"};

// A point of a verdict that has been built.
struct Built {
  schedule::Point point;
  std::string so;
  double us = 0;
};

// The libraries of points, those that can be built, in `o.keep`. A name says what is in it: the
// program, the target, and which build of this one made it.
std::vector<Built> BuildAll(const schedule::Space& space,
                            const std::vector<schedule::Point>& points, const Options& o) {
  const auto made_by = std::filesystem::last_write_time("/proc/self/exe").time_since_epoch();
  std::vector<Built> built;
  for (const schedule::Point& p : points) {
    const auto s = space.Apply(p);
    if (!s.ok()) continue;
    const std::string so = o.keep + "/" +
                           Sha256Hex(fmt::format("{} {} {}", made_by.count(), o.target.ToString(),
                                                 loop::ToString(s->program()))) +
                           ".so";
    double ignored = 0;
    if (std::filesystem::exists(so) || Build(s->program(), o.target, so, &ignored))
      built.push_back({p, so});
  }
  return built;
}

// Those that may be the fastest, at most four: a machine that changes its clock measures some of
// the points slower than others, by less than half.
std::vector<Built> Fastest(std::vector<Built> points) {
  constexpr size_t kFinal = 4;
  double least = 1e30;
  for (Built& b : points) {
    b.us = Measure(b.so, 1.5 * least);
    if (b.us > 0) least = std::min(least, b.us);
  }
  std::erase_if(points, [](const Built& b) { return b.us <= 0; });
  std::stable_sort(points.begin(), points.end(),
                   [](const Built& a, const Built& b) { return a.us < b.us; });
  if (points.size() > kFinal) points.resize(kFinal);
  return points;
}

// The least of each, timed in turn: the median of their ratios.
double RatioInTurn(std::vector<Built>& of, std::vector<Built>& to) {
  constexpr int kRounds = 9;
  std::vector<double> ratios;
  std::map<const Built*, std::vector<double>> all;
  for (int round = 0; round < kRounds; ++round) {
    double least[2] = {1e30, 1e30};
    for (auto* list : {&of, &to}) {
      for (Built& b : *list) {
        const double us = Measure(b.so);
        all[&b].push_back(us);
        double& l = least[list == &to];
        l = std::min(l, us);
      }
    }
    ratios.push_back(least[0] / least[1]);
  }
  for (auto* list : {&of, &to}) {
    for (Built& b : *list) {
      std::vector<double>& us = all[&b];
      std::sort(us.begin(), us.end());
      b.us = us[us.size() / 2];
    }
    std::stable_sort(list->begin(), list->end(),
                     [](const Built& a, const Built& b) { return a.us < b.us; });
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

int Verdict(const std::string& name, const Options& o) {
  constexpr size_t kTop = 16;
  constexpr double kAsked = 0.92;
  const auto workload = bench::CaseWorkload(name);
  if (!workload.ok()) return std::fprintf(stderr, "%s\n", Message(workload.status()).c_str()), 2;
  auto opened = task::OpenWorkload(workload->ToString());
  if (!opened.ok()) return std::fprintf(stderr, "%s\n", Message(opened.status()).c_str()), 2;
  const auto t0 = Clock::now();
  const schedule::Space space(opened->program, o.target);
  std::vector<schedule::Point> ranked = RankedPoints(space, o.rule);
  if (ranked.empty()) return std::fprintf(stderr, "no valid point\n"), 1;
  const std::vector<schedule::Point> random = RandomPoints(space, o.rule, o.random);
  if (random.empty()) return std::fprintf(stderr, "no random point: see --random\n"), 2;
  const std::vector<Built> tops = BuildAll(
      space, {ranked.begin(), ranked.begin() + std::min<ptrdiff_t>(kTop, std::ssize(ranked))}, o);
  const std::vector<Built> randoms = BuildAll(space, random, o);
  const auto t1 = Clock::now();
  if (o.build_only) return 0;
  std::vector<Built> top = Fastest(tops), drawn = Fastest(randoms);
  if (top.empty() || drawn.empty()) return std::fprintf(stderr, "nothing was built\n"), 1;
  const double reached = RatioInTurn(drawn, top);
  const auto rank = [&](const Built& b) {
    return std::find(ranked.begin(), ranked.end(), b.point) - ranked.begin();
  };
  std::printf(
      "%-28s %5zu points  prior's 16 %9.1f us  %zu random %9.1f us  reached %.3f %s  (built in "
      "%.0f s, timed in %.0f s)\n    prior's: %s (rank %td)\n    random:  %s (rank %td)\n",
      name.c_str(), ranked.size(), top[0].us, randoms.size(), drawn[0].us, reached,
      reached >= kAsked ? "ok" : "TOO LITTLE", Us(t0, t1) / 1e6, Us(t1, Clock::now()) / 1e6,
      Text(space, top[0].point).c_str(), rank(top[0]), Text(space, drawn[0].point).c_str(),
      rank(drawn[0]));
  std::fflush(stdout);
  return reached >= kAsked ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options o;
  std::vector<std::string> cases;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (a == "--top") {
      o.top = std::strtoull(value().c_str(), nullptr, 10);
    } else if (a == "--random") {
      o.random = std::strtoull(value().c_str(), nullptr, 10);
    } else if (a == "--rule") {
      o.rule = value();
    } else if (a == "--point") {
      o.point = value();
    } else if (a == "--cold") {
      g_cold = true;
    } else if (a == "--trace") {
      o.trace = true;
    } else if (a == "--verdict") {
      o.verdict = true;
    } else if (a == "--keep") {
      o.keep = value();
    } else if (a == "--build-only") {
      o.build_only = true;
    } else if (a == "--target") {
      auto t = Target::Parse(value());
      if (!t.ok()) return std::fprintf(stderr, "%s\n", Message(t.status()).c_str()), 2;
      o.target = *t;
    } else {
      cases.push_back(a);
    }
  }
  if (o.verdict && cases.empty()) cases.assign(std::begin(kClasses), std::end(kClasses));
  if (cases.empty())
    return std::fprintf(stderr, "usage: %s [OPTION...] 'CASE'...; see space_bench.cc\n", argv[0]),
           2;
  if (!codegen::WarmUp(o.target).ok()) return 1;
  char own[] = "/tmp/whet-bench-XXXXXX";
  const bool kept = !o.keep.empty();
  if (o.verdict && !kept) o.keep = mkdtemp(own) ? own : "";
  if (kept) std::filesystem::create_directories(o.keep);
  int rc = 0;
  for (const std::string& c : cases) rc = std::max(rc, o.verdict ? Verdict(c, o) : Bench(c, o));
  if (o.verdict && !kept) std::filesystem::remove_all(o.keep);
  return rc;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
