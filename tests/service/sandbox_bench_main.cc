// What the sandbox costs, and whether a bad candidate spoils the time of the next one:
//   sandbox-bench [--pairs 200] [--only cost|effect|zoo] [--animals a,b]
// One JSON object a line. Three parts:
//   cost    wall time of a measurement with all layers, less that of one without any: milliseconds
//           per candidate; the limit is 10
//   effect  five kernels, timed with all layers and without any, in turn: the 95 % interval of the
//           median ratio; within 1 %
//   zoo     one of the five kernels after an animal of the zoo, and after itself, in turn: likewise
//           within 2 %, for each animal over the kernels, which take turns, and ("after") for each
//           kernel over the animals. The runner's process stays the same
// Exits with 1 when a limit is passed. An interval says something on a machine that does nothing
// else; 200 pairs take half an hour, most of it animals that only a time limit ends.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "compiler/support/sandbox.h"
#include "tests/bench/stats.h"
#include "tests/service/zoo_task.h"
#include "worker/measure/ladder.h"

namespace whet::testing {
namespace {

constexpr int64_t kKernelElements = 262144;
const char* const kKernels[] = {"stream", "compute", "gather", "product", "stride"};
// All of the zoo but those whose time is not the next one's concern: they are good.
const char* const kBadOnes[] = {"abort",
                                "cached",
                                "chatter",
                                "close_all",
                                "dependent",
                                "exec",
                                "exit0",
                                "file_bomb",
                                "fork_bomb",
                                "forks",
                                "hang",
                                "hang_in_constructor",
                                "inherited_fd",
                                "kill_parent",
                                "lazy",
                                "memory",
                                "nan",
                                "nothing",
                                "one_seed",
                                "output",
                                "ptrace",
                                "scribble",
                                "secret",
                                "segfault",
                                "sleeper",
                                "socket",
                                "spinner",
                                "stack",
                                "timer",
                                "write_input",
                                "write_one_before",
                                "write_one_past",
                                "write_page_past",
                                "wrong",
                                "wrong_abi",
                                "wrong_features",
                                "wrong_isa",
                                "wrong_shape",
                                "zeros"};

class Bench {
 public:
  explicit Bench(size_t pairs)
      : pairs_(pairs),
        walled_(),
        bare_({"--without", SandboxBitsText(walled_.hello().sandbox_bits())}) {
    ok_ &= WriteFile(dir_ / "small", ZooExpected()).ok();
    ok_ &= WriteFile(dir_ / "large", ZooExpectedFor(ZooSeeds(), kKernelElements)).ok();
    fmt::print("{{\"layers\": \"{}\", \"bare\": \"{}\"}}\n",
               SandboxBitsText(walled_.hello().sandbox_bits()),
               SandboxBitsText(bare_.hello().sandbox_bits()));
  }
  bool ok() const { return ok_; }

  void Cost() {
    std::vector<double> walled, bare, spawn;
    for (size_t i = 0; i < pairs_; ++i) {
      const v1::RunRequest request = Animal("good");
      for (const bool first : {true, false}) {
        const bool with = (i % 2 == 0) == first;
        const int64_t start = MonotonicNs();
        const v1::Measurement m = (with ? walled_ : bare_).Run(request);
        const double ms = static_cast<double>(MonotonicNs() - start) * 1e-6 -
                          static_cast<double>(m.phases().timing_ns()) * 1e-6;
        Expect(m);
        (with ? walled : bare).push_back(ms);
        if (with) spawn.push_back(static_cast<double>(m.phases().spawn_ns()) * 1e-6);
      }
    }
    std::vector<double> more;
    for (size_t i = 0; i < walled.size(); ++i) more.push_back(walled[i] - bare[i]);
    const bench::Interval r = bench::MedianInterval(more);
    const bool good = r.high <= 10;
    ok_ &= good;
    fmt::print(
        "{{\"part\": \"cost\", \"pairs\": {}, \"sandbox_ms\": {:.2f}, \"low\": {:.2f}, \"high\": "
        "{:.2f}, \"untimed_ms_with\": {:.2f}, \"untimed_ms_without\": {:.2f}, \"spawn_ms\": "
        "{:.2f}, \"ok\": {}}}\n",
        more.size(), r.median, r.low, r.high, bench::MedianOf(walled), bench::MedianOf(bare),
        bench::MedianOf(spawn), good);
  }

  void Effect() {
    for (const char* kernel : kKernels) {
      std::vector<double> walled, bare;
      const v1::RunRequest request = Kernel(kernel);
      Time(walled_, request);
      Time(bare_, request);
      for (size_t i = 0; i < pairs_; ++i) {
        for (const bool first : {true, false}) {
          const bool with = (i % 2 == 0) == first;
          (with ? walled : bare).push_back(Time(with ? walled_ : bare_, request));
        }
      }
      Judge("effect", kernel, walled, bare, 0.01);
    }
  }

  void Zoo(const std::vector<std::string>& animals) {
    constexpr size_t kTurns = std::size(kKernels);
    std::vector<v1::RunRequest> kernels;
    for (const char* kernel : kKernels) kernels.push_back(Kernel(kernel));
    std::vector<double> after_bad[kTurns], after_good[kTurns];
    for (const std::string& animal : animals) {
      std::vector<double> after_it, after_another;
      v1::RunRequest bad = Animal(animal);
      bad.mutable_spec()->set_time_limit_ns(100 * kMillisecond);
      for (size_t i = 0; i < pairs_; ++i) {
        const size_t turn = i % kTurns;
        const v1::RunRequest& kernel = kernels[turn];
        double after[2] = {};
        for (const bool first : {true, false}) {
          const bool bad_one = (i / kTurns % 2 == 0) == first;
          walled_.Run(bad_one ? bad : kernel);
          after[bad_one ? 0 : 1] = Time(walled_, kernel);
        }
        after_it.push_back(after[0]);
        after_another.push_back(after[1]);
        after_bad[turn].push_back(after[0]);
        after_good[turn].push_back(after[1]);
      }
      Judge("zoo", animal, after_it, after_another, 0.02);
    }
    for (size_t k = 0; k < kTurns; ++k)
      Judge("after", kKernels[k], after_bad[k], after_good[k], 0.02);
    ok_ &= !walled_.process().Wait(MonotonicNs()).has_value();
  }

 private:
  v1::RunRequest Animal(const std::string& name) {
    v1::RunRequest request;
    request.set_object_path(fmt::format("{}/tests/zoo/{}.so", WHET_BUILD_DIR, name));
    request.set_expected_path(dir_ / "small");
    *request.mutable_spec() = ZooSpec();
    return request;
  }
  v1::RunRequest Kernel(const std::string& name) {
    v1::RunRequest request;
    request.set_object_path(fmt::format("{}/tests/sandbox_kernels/{}.so", WHET_BUILD_DIR, name));
    request.set_expected_path(dir_ / "large");
    *request.mutable_spec() = ZooSpec(kKernelElements);
    v1::MeasurePlan& plan = *request.mutable_spec()->mutable_plan();
    plan.set_min_measured_ns(20 * kMillisecond);
    plan.set_rung2_ns(20 * kMillisecond);
    plan.set_rung3_ns(20 * kMillisecond);
    return request;
  }
  // The median time of a run, in ns.
  double Time(RunnerProcess& runner, const v1::RunRequest& request) {
    const v1::Measurement m = runner.Run(request);
    Expect(m);
    return worker::Median({m.samples_ns().begin(), m.samples_ns().end()});
  }
  void Expect(const v1::Measurement& m) {
    if (m.failure() == v1::FAILURE_OK) return;
    if (ok_) fmt::print(stderr, "sandbox-bench: {}\n", m.message());
    ok_ = false;
  }
  void Judge(const char* part, const std::string& name, const std::vector<double>& a,
             const std::vector<double>& b, double limit) {
    const bench::Interval r = bench::MedianInterval(bench::Ratios(a, b));
    const bool good = r.low >= 1 - limit && r.high <= 1 + limit;
    ok_ &= good;
    fmt::print(
        "{{\"part\": \"{}\", \"kernel\": \"{}\", \"pairs\": {}, \"ratio\": {:.4f}, \"low\": "
        "{:.4f}, \"high\": {:.4f}, \"median_us\": {:.1f}, \"ok\": {}}}\n",
        part, name, a.size(), r.median, r.low, r.high, bench::MedianOf(b) * 1e-3, good);
    std::fflush(stdout);
  }

  const size_t pairs_;
  TempDir dir_;
  RunnerProcess walled_, bare_;
  bool ok_ = true;
};

int Main(int argc, char** argv) {
  CLI::App app("What the sandbox costs, and whether a bad candidate spoils the next one's time.");
  size_t pairs = 200;
  std::string only;
  std::vector<std::string> animals(std::begin(kBadOnes), std::end(kBadOnes));
  app.add_option("--pairs", pairs, "pairs of each comparison")
      ->check(CLI::Range(size_t{3}, size_t{100000}))
      ->capture_default_str();
  app.add_option("--only", only, "one of the parts")
      ->check(CLI::IsMember({"cost", "effect", "zoo"}));
  app.add_option("--animals", animals, "of the part zoo")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  setenv("WHET_BIN_DIR", WHET_BUILD_DIR "/bin", 0);
  Bench bench(pairs);
  if (only.empty() || only == "cost") bench.Cost();
  if (only.empty() || only == "effect") bench.Effect();
  if (only.empty() || only == "zoo") bench.Zoo(animals);
  return bench.ok() ? 0 : 1;
}

}  // namespace
}  // namespace whet::testing

int main(int argc, char** argv) { return whet::testing::Main(argc, argv); }
