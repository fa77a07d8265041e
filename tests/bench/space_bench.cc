// How good is a schedule space? Times the default and N points drawn from it (half of them the
// prior's best) on one core:
//   space_bench conv|depthwise|pool IC OC H W K STRIDE PAD N
// Prints one JSON object: default and best microseconds, the best point, where the prior ranked it,
// build times, failures.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "compiler/codegen/candidate.h"
#include "compiler/schedule/space.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/model.h"
#include "tests/unit/programs.h"

namespace whet {
namespace {

using Clock = std::chrono::steady_clock;
double Us(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::micro>(b - a).count();
}

// Median of batches of at least 200 us; negative when the candidate could not be built.
double Time(const schedule::Schedule& s, const Target& t, double* build_ms) {
  const auto t0 = Clock::now();
  auto c = codegen::BuildCandidate(s.program(), "", t);
  if (!c.ok()) return -1;
  char dir[] = "/tmp/whet-bench-XXXXXX";
  if (!mkdtemp(dir)) return -1;
  const std::string so = std::string(dir) + "/c.so";
  const bool linked = codegen::LinkCandidate(*c, dir, so).ok();
  *build_ms = Us(t0, Clock::now()) / 1e3;
  std::string error;
  auto model = linked ? Model::Load(so, &error) : nullptr;
  std::filesystem::remove_all(dir);
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
  for (int batch = 0; batch < 15; ++batch) {
    a = Clock::now();
    for (int i = 0; i < n; ++i) instance.Execute();
    us.push_back(Us(a, Clock::now()) / n);
  }
  for (void* p : owned) std::free(p);
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

int Main(int argc, char** argv) {
  if (argc != 10)
    return std::fprintf(stderr, "usage: %s conv|depthwise|pool IC OC H W K STRIDE PAD N\n",
                        argv[0]),
           2;
  auto arg = [&](int i) { return std::atoll(argv[i]); };
  const testing_support::ConvShape c{arg(2), arg(3), arg(4), arg(5), arg(6), arg(7), arg(8)};
  const std::string kind = argv[1];
  const Target target = Target::Host();
  if (!codegen::WarmUp(target).ok()) return 1;
  schedule::Space space(kind == "conv"   ? testing_support::ConvProgram(c)
                        : kind == "pool" ? testing_support::MaxPoolProgram(c)
                                         : testing_support::DepthwiseProgram(c, false),
                        target);
  std::vector<std::pair<double, schedule::Point>> ranked;
  const auto& knobs = space.variants()[0].knobs;
  std::vector<size_t> at(knobs.size(), 0);
  for (bool more = true; more;) {
    schedule::Point p{0, {}};
    for (size_t k = 0; k < knobs.size(); ++k) p.values.push_back(knobs[k].values[at[k]]);
    if (space.Check(p) == schedule::Rejection::kNone) ranked.emplace_back(space.PriorNs(p), p);
    more = false;
    for (size_t k = 0; k < knobs.size() && !more; ++k) {
      if (++at[k] < knobs[k].values.size())
        more = true;
      else
        at[k] = 0;
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Rng rng(1);
  std::vector<size_t> tries;
  const auto n = static_cast<size_t>(arg(9));
  for (size_t i = 0; i < n && i < ranked.size(); ++i)
    tries.push_back(
        i < n / 2 ? i : static_cast<size_t>(rng.Below(static_cast<int64_t>(ranked.size()))));
  double build = 0, best = 1e30, best16 = 1e30;
  auto d = space.Apply(space.Default());
  const double default_us = d.ok() ? Time(*d, target, &build) : -1;
  size_t best_at = 0, failed = 0;
  std::vector<double> builds;
  for (size_t i : tries) {
    auto s = space.Apply(ranked[i].second);
    const double us = s.ok() ? Time(*s, target, &build) : -1;
    if (us < 0) {
      ++failed;
      continue;
    }
    builds.push_back(build);
    if (i < 16) best16 = std::min(best16, us);
    if (us < best) best = us, best_at = i;
  }
  std::sort(builds.begin(), builds.end());
  std::string values;
  for (size_t k = 0; k < knobs.size(); ++k)
    values += fmt::format("{}{}={}", k ? " " : "", knobs[k].name, ranked[best_at].second.values[k]);
  std::printf(
      "{\"points\": %zu, \"default_us\": %.1f, \"best_us\": %.1f, \"best_of_prior16_us\": %.1f, "
      "\"best\": \"%s\", \"prior_rank\": %zu, \"build_ms_median\": %.1f, \"failed\": %zu}\n",
      ranked.size(), default_us, best, best16, values.c_str(), best_at,
      builds.empty() ? 0 : builds[builds.size() / 2], failed);
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
