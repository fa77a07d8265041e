// whet-runner against candidates that misbehave: each one's measurement says what it did, the
// runner's process stays the same, the next candidate is measured, and nothing of the bad one is
// left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>

#include "compiler/support/sandbox.h"
#include "tests/service/zoo_task.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

class Runner : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(WriteFile(dir_ / "expected", ZooExpected()).ok()); }

  v1::RunRequest Request(const std::string& animal) {
    v1::RunRequest request;
    request.set_id(++id_);
    request.set_object_path(ZooPath(animal));
    request.set_expected_path(dir_ / "expected");
    *request.mutable_spec() = ZooSpec();
    return request;
  }
  v1::Measurement Run(const std::string& animal) { return runner_.Run(Request(animal)); }

  // What whet-runner and its descendants are now, by /proc.
  std::vector<std::string> Descendants() {
    std::vector<std::string> found;
    std::vector<pid_t> todo = {runner_.process().pid()};
    while (!todo.empty()) {
      const pid_t pid = todo.back();
      todo.pop_back();
      const auto children = ReadFile(fmt::format("/proc/{}/task/{}/children", pid, pid), 1 << 20);
      if (!children.ok()) continue;
      const char* p = children->c_str();
      char* end = nullptr;
      for (long c = strtol(p, &end, 10); end != p; p = end, c = strtol(p, &end, 10)) {
        todo.push_back(static_cast<pid_t>(c));
        found.push_back(std::to_string(c));
      }
    }
    return found;
  }

  TempDir dir_;
  uint64_t id_ = 0;
  RunnerProcess runner_;
};

TEST_F(Runner, MeasuresAGoodCandidate) {
  const v1::Measurement m = Run("good");
  EXPECT_EQ(m.failure(), v1::FAILURE_OK) << m.message();
  EXPECT_EQ(m.rung(), 3);
  double total = 0;
  for (const double s : m.samples_ns()) {
    EXPECT_GT(s, 10);
    total += s * m.runs_per_sample();
  }
  EXPECT_GE(total, 10 * kMillisecond);
  EXPECT_EQ(m.sandbox_bits() & kSandboxLimits, kSandboxLimits);
}

TEST_F(Runner, EachTaskGetsItsOwnInputsWhateverWasMeasuredBefore) {
  const std::vector<uint64_t> others = {7, 8};
  ASSERT_TRUE(WriteFile(dir_ / "others", ZooExpectedFor(others)).ok());
  v1::RunRequest other = Request("good");
  other.set_expected_path(dir_ / "others");
  other.mutable_spec()->clear_seeds();
  for (const uint64_t seed : others) other.mutable_spec()->add_seeds(seed);
  EXPECT_EQ(Run("good").failure(), v1::FAILURE_OK);
  EXPECT_EQ(Run("good").failure(), v1::FAILURE_OK);  // the inputs of the first
  EXPECT_EQ(runner_.Run(other).failure(), v1::FAILURE_OK);
  EXPECT_EQ(Run("good").failure(), v1::FAILURE_OK);
}

TEST_F(Runner, DropsASlowCandidateEarlyButMeasuresEnough) {
  v1::RunRequest request = Request("slow");
  request.mutable_spec()->mutable_plan()->set_incumbent_ns(200);
  request.mutable_spec()->mutable_plan()->set_rung3_ns(kSecond);
  const v1::Measurement m = runner_.Run(request);
  EXPECT_EQ(m.failure(), v1::FAILURE_OK) << m.message();
  EXPECT_EQ(m.rung(), 0);
  double total = 0;
  for (const double s : m.samples_ns()) total += s * m.runs_per_sample();
  EXPECT_GE(total, 3 * kMillisecond);
  EXPECT_LT(total, 300 * kMillisecond);
}

TEST_F(Runner, PairsGiveTheRatioToTheBaseline) {
  v1::RunRequest request = Request("good");
  request.set_baseline_path(ZooPath("slow"));
  request.mutable_spec()->mutable_plan()->set_final(true);
  const v1::Measurement m = runner_.Run(request);
  EXPECT_EQ(m.failure(), v1::FAILURE_OK) << m.message();
  EXPECT_EQ(m.rung(), 4);
  EXPECT_GE(m.pair_ratios_size(), 10);
  EXPECT_LT(m.baseline_ratio(), 0.5);
  EXPECT_GT(m.baseline_ns(), 0);

  request.set_object_path(ZooPath("slow"));
  request.set_baseline_path(ZooPath("good"));
  EXPECT_GT(runner_.Run(request).baseline_ratio(), 2);
}

TEST_F(Runner, UsesThreadsWhenAsked) {
  v1::RunRequest request = Request("good");
  request.mutable_spec()->set_threads(2);
  const v1::Measurement m = runner_.Run(request);
  EXPECT_EQ(m.failure(), v1::FAILURE_OK) << m.message();
}

TEST_F(Runner, RefusesToTimeWithoutExpectedOutputs) {
  v1::RunRequest request = Request("good");
  request.set_expected_path(dir_ / "missing");
  EXPECT_EQ(runner_.Run(request).failure(), v1::FAILURE_INFRASTRUCTURE);
  ASSERT_TRUE(WriteFile(dir_ / "junk", "WHEX with nothing behind it").ok());
  request.set_expected_path(dir_ / "junk");
  const v1::Measurement m = runner_.Run(request);
  EXPECT_EQ(m.failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_EQ(m.samples_ns_size(), 0);
}

TEST_F(Runner, RefusesSpecsBeyondItsLimits) {
  v1::RunRequest request = Request("good");
  request.mutable_spec()->mutable_buffers(0)->set_shape(0, int64_t{1} << 61);
  EXPECT_EQ(runner_.Run(request).failure(), v1::FAILURE_INFRASTRUCTURE);
  request = Request("good");
  request.mutable_spec()->set_threads(0);
  EXPECT_EQ(runner_.Run(request).failure(), v1::FAILURE_INFRASTRUCTURE);
  request = Request("good");
  request.mutable_spec()->mutable_buffers(0)->set_dtype(77);
  EXPECT_EQ(runner_.Run(request).failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_EQ(Run("good").failure(), v1::FAILURE_OK);
}

// Whether its thread runs at the moment that counts is up to the scheduler; that nothing of it gets
// through is not.
TEST_F(Runner, BelievesNothingThatIsScribbledOver) {
  for (int i = 0; i < 5; ++i) {
    const v1::Measurement m = Run("scribble");
    EXPECT_THAT(m.failure(), ::testing::AnyOf(v1::FAILURE_OK, v1::FAILURE_INVALID_TIMING))
        << m.message();
    for (const double s : m.samples_ns()) EXPECT_TRUE(std::isfinite(s) && s > 1 && s < 1e9) << s;
  }
  EXPECT_EQ(Run("good").failure(), v1::FAILURE_OK);
}

struct Case {
  const char* animal;
  v1::FailureKind kind;
  const char* words;
};

class Zoo : public Runner, public ::testing::WithParamInterface<Case> {};

TEST_P(Zoo, IsNamedAndSurvived) {
  const pid_t before = runner_.process().pid();
  v1::RunRequest request = Request(GetParam().animal);
  request.mutable_spec()->set_time_limit_ns(kSecond);
  const int64_t start = MonotonicNs();
  const v1::Measurement m = runner_.Run(request);
  EXPECT_EQ(m.failure(), GetParam().kind)
      << v1::FailureKind_Name(m.failure()) << ": " << m.message();
  EXPECT_THAT(m.message(), HasSubstr(GetParam().words));
  EXPECT_EQ(m.samples_ns_size() > 0, m.failure() == v1::FAILURE_OK);
  EXPECT_LT(MonotonicNs() - start, 20 * kSecond);
  EXPECT_THAT(Descendants(), ::testing::IsEmpty());
  const v1::Measurement next = Run("good");
  EXPECT_EQ(next.failure(), v1::FAILURE_OK) << next.message();
  EXPECT_EQ(runner_.process().pid(), before);
  EXPECT_FALSE(runner_.process().Wait(MonotonicNs()).has_value());
}

INSTANTIATE_TEST_SUITE_P(
    All, Zoo,
    ::testing::Values(Case{"segfault", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
                      Case{"abort", v1::FAILURE_RUN_CRASH, "SIGABRT"},
                      Case{"exit0", v1::FAILURE_RUN_CRASH, "exited with 0"},
                      Case{"hang", v1::FAILURE_RUN_TIMEOUT, "longer than 1000 ms"},
                      Case{"hang_in_constructor", v1::FAILURE_RUN_TIMEOUT, "longer than 1000 ms"},
                      Case{"wrong", v1::FAILURE_WRONG_OUTPUT, "first element 999"},
                      Case{"zeros", v1::FAILURE_WRONG_OUTPUT, "1000 of 1000"},
                      Case{"nan", v1::FAILURE_WRONG_OUTPUT, "nan"},
                      Case{"nothing", v1::FAILURE_WRONG_OUTPUT, "1000 of 1000"},
                      Case{"one_seed", v1::FAILURE_WRONG_OUTPUT, "seed 202"},
                      Case{"lazy", v1::FAILURE_WRONG_OUTPUT, "after timing"},
                      Case{"dependent", v1::FAILURE_WRONG_OUTPUT, "seed 202"},
                      Case{"write_one_past", v1::FAILURE_WRONG_OUTPUT, "outside"},
                      Case{"write_one_before", v1::FAILURE_WRONG_OUTPUT, "outside"},
                      Case{"write_page_past", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
                      Case{"write_input", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
                      Case{"wrong_abi", v1::FAILURE_BUILD_ERROR, "99"},
                      Case{"wrong_shape", v1::FAILURE_BUILD_ERROR, "999"},
                      Case{"absent", v1::FAILURE_BUILD_ERROR, "absent"},
                      Case{"output", v1::FAILURE_OK, ""}, Case{"forks", v1::FAILURE_OK, ""},
                      Case{"memory", v1::FAILURE_RUN_CRASH, ""},
                      Case{"kill_parent", v1::FAILURE_OK, ""}),
    [](const auto& info) { return info.param.animal; });

}  // namespace
}  // namespace whet::testing
