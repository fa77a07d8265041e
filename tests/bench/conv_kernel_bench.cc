// Speed of a hand-scheduled direct convolution against this machine's FMA rate, and what building
// it costs.
//   conv_kernel_bench IC OC H W K STRIDE PAD OW_TILE OC_TILE LANES [unroll_kw 0|1]
// Prints one JSON object: GFLOP/s (median of batches), the FMA probe's GFLOP/s in the same run,
// build milliseconds, spills.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "compiler/codegen/candidate.h"
#include "compiler/schedule/schedule.h"
#include "deploy/runtime/model.h"
#include "tests/bench/probe.h"
#include "tests/unit/conv_program.h"

namespace {

using Clock = std::chrono::steady_clock;
double Ms(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace whet;
  if (argc < 11)
    return std::fprintf(stderr,
                        "usage: %s IC OC H W K STRIDE PAD OW_TILE OC_TILE LANES [UNROLL_KW]\n",
                        argv[0]),
           2;
  auto arg = [&](int i) { return std::atoll(argv[i]); };
  const testing_support::ConvShape c{arg(1), arg(2), arg(3), arg(4), arg(5), arg(6), arg(7)};
  const Target target = Target::Host();
  if (Status st = codegen::WarmUp(target); !st.ok())
    return std::fprintf(stderr, "%s\n", Message(st).c_str()), 1;
  auto t0 = Clock::now();
  schedule::Schedule s(testing_support::ConvProgram(c));
  for (const auto& step :
       testing_support::DirectConvSteps(arg(8), arg(9), arg(10), argc > 11 && arg(11))) {
    if (Status st = s.Apply(step[0], {step.begin() + 1, step.end()}); !st.ok())
      return std::fprintf(stderr, "%s\n", Message(st).c_str()), 1;
  }
  auto t1 = Clock::now();
  auto candidate = codegen::BuildCandidate(s.program(), "", target);
  if (!candidate.ok()) return std::fprintf(stderr, "%s\n", Message(candidate.status()).c_str()), 1;
  auto t2 = Clock::now();
  if (const char* n = std::getenv("WHET_REPEAT_BUILD")) {  // for a profiler
    for (int i = 0; i < std::atoi(n); ++i) (void)codegen::BuildCandidate(s.program(), "", target);
  }
  char dir[] = "/tmp/whet-bench-XXXXXX";
  if (!mkdtemp(dir)) return 1;
  const std::string so = std::string(dir) + "/c.so";
  if (Status st = codegen::LinkCandidate(*candidate, dir, so); !st.ok())
    return std::fprintf(stderr, "%s\n", Message(st).c_str()), 1;
  auto t3 = Clock::now();
  if (std::getenv("WHET_KEEP"))
    std::filesystem::copy_file(std::string(dir) + "/kernels.o", std::getenv("WHET_KEEP"),
                               std::filesystem::copy_options::overwrite_existing);
  std::string error;
  auto model = Model::Load(so, &error);
  if (!model) return std::fprintf(stderr, "%s\n", error.c_str()), 1;
  std::filesystem::remove_all(dir);
  Instance instance(model, 1);
  auto make = [](const whet_tensor& t) {
    auto* p = static_cast<float*>(std::aligned_alloc(64, (t.bytes + 63) / 64 * 64));
    for (uint64_t i = 0; i < t.bytes / 4; ++i) p[i] = static_cast<float>(i % 13) * 0.1f - 0.5f;
    return p;
  };
  std::vector<const void*> in, params;
  std::vector<void*> out;
  for (const auto& t : model->inputs()) in.push_back(make(t));
  for (const auto& t : model->outputs()) out.push_back(make(t));
  for (uint32_t i : model->parameters()) params.push_back(make(model->desc().tensors[i]));
  instance.Prepack(params);
  const int64_t oh = (c.h + 2 * c.pad - c.k) / c.stride + 1,
                ow = (c.w + 2 * c.pad - c.k) / c.stride + 1;
  const double flop = 2.0 * static_cast<double>(oh * ow * c.oc * c.ic * c.k * c.k);
  std::vector<double> gflops, probe;
  for (int batch = 0; batch < 21; ++batch) {
    probe.push_back(bench::FmaGflops());
    const int n = std::max(1, static_cast<int>(5e8 / flop));
    instance.Run(in, out);
    auto a = Clock::now();
    for (int i = 0; i < n; ++i) instance.Run(in, out);
    gflops.push_back(flop * n / Ms(a, Clock::now()) / 1e6);
  }
  std::sort(gflops.begin(), gflops.end());
  std::sort(probe.begin(), probe.end());
  std::printf(
      "{\"gflops\": %.1f, \"fma_gflops\": %.1f, \"us\": %.2f, \"schedule_ms\": %.2f, "
      "\"codegen_ms\": %.2f, \"link_ms\": %.2f, \"code_bytes\": %lld, "
      "\"hot_spill_share\": %.3f}\n",
      gflops[10], probe[10], flop / gflops[10] / 1e3, Ms(t0, t1), Ms(t1, t2), Ms(t2, t3),
      static_cast<long long>(candidate->stats.code_bytes), candidate->stats.hot_spill_share);
}
