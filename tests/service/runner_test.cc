// whet-runner against candidates that misbehave: each one's measurement says what it did, the
// runner's process stays the same, the next candidate is measured, and nothing of the bad one is
// left. All of it as well with layers of the sandbox left out, as on hosts that do not offer them.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "compiler/support/sandbox.h"
#include "tests/service/zoo_task.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

// A folder with a secret, and what it costs to leave a descriptor of it open.
class Secrets {
 public:
  Secrets() {
    EXPECT_TRUE(WriteFile(dir_ / "secret.txt", "not for you").ok());
    fd_ = open((dir_ / "secret.txt").c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_GE(fd_, 0);
  }
  ~Secrets() { close(fd_); }
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;
  const TempDir& dir() const { return dir_; }
  int fd() const { return fd_; }

 private:
  TempDir dir_;
  int fd_ = -1;
};

class RunnerTest : public ::testing::Test {
 protected:
  explicit RunnerTest(const std::vector<std::string>& args = {}) : runner_(args, secrets_.fd()) {}
  void SetUp() override { ASSERT_TRUE(WriteFile(dir_ / "expected", ZooExpected()).ok()); }

  // Of a copy that lies beside a secret.
  v1::RunRequest Request(const std::string& animal) {
    const std::string copy = dir_ / (animal + ".so");
    if (const auto object = ReadFile(ZooPath(animal), 1 << 20); object.ok()) {
      EXPECT_TRUE(WriteFile(copy, *object).ok());
    }
    v1::RunRequest request;
    request.set_id(++id_);
    request.set_object_path(copy);
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
  // Processes anywhere that have a candidate of this test in their memory, whoever their parent is.
  std::vector<std::string> Leftovers() {
    std::vector<std::string> found;
    DIR* proc = opendir("/proc");
    EXPECT_NE(proc, nullptr);
    while (proc != nullptr) {
      const dirent* entry = readdir(proc);
      if (entry == nullptr) break;
      if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
      const auto maps = ReadFile(fmt::format("/proc/{}/maps", entry->d_name), 8 << 20);
      // In a root of its own a path may be another; the folder's name is not.
      if (maps.ok() && maps->find(dir_.path().substr(5)) != std::string::npos)
        found.push_back(entry->d_name);
    }
    if (proc != nullptr) closedir(proc);
    return found;
  }

  // Kills the runner while a candidate runs that would never end.
  void KillTheRunnerMidway() {
    runner_.Send(Request("hang"));
    const int64_t give_up = MonotonicNs() + 20 * kSecond;
    while (Leftovers().empty() && MonotonicNs() < give_up) poll(nullptr, 0, 1);
    ASSERT_THAT(Leftovers(), ::testing::Not(::testing::IsEmpty())) << "it does not begin";
    runner_.process().Kill();
    while (!Leftovers().empty() && MonotonicNs() < give_up) poll(nullptr, 0, 1);
    EXPECT_THAT(Leftovers(), ::testing::IsEmpty());
    const RunnerProcess next;  // takes away the control group that was left
  }

  Secrets secrets_;
  const TempDir& dir_ = secrets_.dir();
  uint64_t id_ = 0;
  RunnerProcess runner_;
};

class Runner : public RunnerTest {};

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

TEST_F(Runner, SaysWhichLayersWereThere) {
  const v1::Measurement m = Run("good");
  EXPECT_EQ(m.sandbox_bits(), runner_.hello().sandbox_bits());
  EXPECT_EQ(m.sandbox_bits() & kSandboxNoNewPrivileges, kSandboxNoNewPrivileges);
}

TEST_F(Runner, TakesItsCandidateAlongWhenItIsKilled) { KillTheRunnerMidway(); }

struct Case {
  const char* animal;
  v1::FailureKind kind;
  const char* words;
  uint32_t any_of = 0;  // layers, one of which it takes
};

class Zoo : public RunnerTest, public ::testing::WithParamInterface<Case> {};

TEST_P(Zoo, IsNamedAndSurvived) {
  const Case& c = GetParam();
  if (c.any_of != 0 && !(runner_.hello().sandbox_bits() & c.any_of))
    GTEST_SKIP() << "this host has none of " << SandboxBitsText(c.any_of);
  const pid_t before = runner_.process().pid();
  v1::RunRequest request = Request(c.animal);
  request.mutable_spec()->set_time_limit_ns(kSecond);
  const int64_t start = MonotonicNs();
  const v1::Measurement m = runner_.Run(request);
  EXPECT_EQ(m.failure(), c.kind) << v1::FailureKind_Name(m.failure()) << ": " << m.message();
  EXPECT_THAT(m.message(), HasSubstr(c.words));
  EXPECT_EQ(m.samples_ns_size() > 0, m.failure() == v1::FAILURE_OK);
  EXPECT_LT(MonotonicNs() - start, 20 * kSecond);
  EXPECT_THAT(Descendants(), ::testing::IsEmpty());
  EXPECT_THAT(Leftovers(), ::testing::IsEmpty());
  const v1::Measurement next = Run("good");
  EXPECT_EQ(next.failure(), v1::FAILURE_OK) << next.message();
  EXPECT_EQ(runner_.process().pid(), before);
  EXPECT_FALSE(runner_.process().Wait(MonotonicNs()).has_value());
}

INSTANTIATE_TEST_SUITE_P(
    All, Zoo,
    ::testing::Values(
        Case{"segfault", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
        Case{"abort", v1::FAILURE_RUN_CRASH, "SIGABRT"},
        Case{"exit0", v1::FAILURE_RUN_CRASH, "exited with 0"},
        Case{"stack", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
        Case{"wrong_isa", v1::FAILURE_RUN_CRASH, "SIGILL"},
        Case{"wrong_features", v1::FAILURE_BUILD_ERROR, "avx9000"},
        Case{"hang", v1::FAILURE_RUN_TIMEOUT, "longer than 1000 ms"},
        Case{"hang_in_constructor", v1::FAILURE_RUN_TIMEOUT, "longer than 1000 ms"},
        Case{"wrong", v1::FAILURE_WRONG_OUTPUT, "first element 999"},
        Case{"zeros", v1::FAILURE_WRONG_OUTPUT, "1000 of 1000"},
        Case{"nan", v1::FAILURE_WRONG_OUTPUT, "nan"},
        Case{"nothing", v1::FAILURE_WRONG_OUTPUT, "1000 of 1000"},
        Case{"one_seed", v1::FAILURE_WRONG_OUTPUT, "seed 202"},
        Case{"cached", v1::FAILURE_WRONG_OUTPUT, "after timing"},
        Case{"lazy", v1::FAILURE_WRONG_OUTPUT, "after timing"},
        Case{"dependent", v1::FAILURE_WRONG_OUTPUT, "seed 202"},
        Case{"write_one_past", v1::FAILURE_WRONG_OUTPUT, "outside"},
        Case{"write_one_before", v1::FAILURE_WRONG_OUTPUT, "outside"},
        Case{"write_page_past", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
        Case{"write_input", v1::FAILURE_RUN_CRASH, "SIGSEGV"},
        Case{"wrong_abi", v1::FAILURE_BUILD_ERROR, "99"},
        Case{"wrong_shape", v1::FAILURE_BUILD_ERROR, "999"},
        Case{"absent", v1::FAILURE_BUILD_ERROR, "absent"},
        Case{"close_all", v1::FAILURE_RUN_CRASH, "exited with"},
        Case{"chatter", v1::FAILURE_RUN_CRASH, "protocol"},
        Case{"timer", v1::FAILURE_INVALID_TIMING, "were seen"},
        Case{"memory", v1::FAILURE_RUN_CRASH, ""},
        // Those that are refused what they ask for, and are right all the same.
        Case{"output", v1::FAILURE_OK, ""}, Case{"forks", v1::FAILURE_OK, ""},
        Case{"spinner", v1::FAILURE_OK, ""}, Case{"sleeper", v1::FAILURE_OK, ""},
        Case{"kill_parent", v1::FAILURE_OK, "", kSandboxSyscalls | kSandboxPidNamespace},
        Case{"fork_bomb", v1::FAILURE_OK, "", kSandboxSyscalls | kSandboxCgroupPids},
        Case{"exec", v1::FAILURE_OK, "", kSandboxSyscalls},
        Case{"ptrace", v1::FAILURE_OK, "", kSandboxSyscalls},
        Case{"socket", v1::FAILURE_OK, "", kSandboxSyscalls},
        Case{"inherited_fd", v1::FAILURE_OK, "", kSandboxDescriptors},
        Case{"file_bomb", v1::FAILURE_OK, "",
             kSandboxSyscalls | kSandboxLandlock | kSandboxMountNamespace},
        Case{"secret", v1::FAILURE_OK, "", kSandboxLandlock | kSandboxMountNamespace}),
    [](const auto& info) { return info.param.animal; });

constexpr const char* kAllNamespaces = "user-ns,pid-ns,net-ns,ipc-ns,mnt-ns";
constexpr const char* kAllCgroups = "cgroup-memory,cgroup-pids,cgroup-kill";

// A host that offers less.
class Weaker : public RunnerTest, public ::testing::WithParamInterface<std::string> {
 protected:
  Weaker() : RunnerTest({"--without", GetParam()}) {}
};

TEST_P(Weaker, NothingOutlivesItsTrialAndNothingIsClaimedThatIsNotThere) {
  const auto without = ParseSandboxBits(GetParam());
  ASSERT_TRUE(without.ok()) << without.status();
  const uint32_t bits = runner_.hello().sandbox_bits();
  EXPECT_EQ(bits & *without, 0u) << SandboxBitsText(bits);
  const pid_t before = runner_.process().pid();
  for (const char* animal : {"good", "forks", "spinner", "sleeper", "segfault"}) {
    v1::RunRequest request = Request(animal);
    request.mutable_spec()->set_time_limit_ns(kSecond);
    const v1::Measurement m = runner_.Run(request);
    EXPECT_EQ(m.sandbox_bits(), bits) << animal;
    // A spinner may take so much of the processor that nothing else is timed in time.
    if (std::string(animal) == "good") {
      EXPECT_EQ(m.failure(), v1::FAILURE_OK) << m.message();
    }
    EXPECT_NE(m.failure(), v1::FAILURE_INFRASTRUCTURE) << animal << ": " << m.message();
    EXPECT_THAT(Descendants(), ::testing::IsEmpty()) << animal;
    EXPECT_THAT(Leftovers(), ::testing::IsEmpty()) << animal;
  }
  EXPECT_EQ(Run("secret").failure(), bits & (kSandboxLandlock | kSandboxMountNamespace)
                                         ? v1::FAILURE_OK
                                         : v1::FAILURE_WRONG_OUTPUT);
  EXPECT_EQ(Run("good").failure(), v1::FAILURE_OK);
  EXPECT_EQ(runner_.process().pid(), before);
}

TEST_P(Weaker, TheRunnerTakesItsCandidateAlongWhenItIsKilled) { KillTheRunnerMidway(); }

INSTANTIATE_TEST_SUITE_P(Hosts, Weaker,
                         ::testing::Values("seccomp", "landlock", "mnt-ns", "other-user",
                                           "pid-ns,seccomp",
                                           std::string(kAllNamespaces) + ",seccomp",
                                           std::string(kAllCgroups) + ",seccomp",
                                           std::string(kAllNamespaces) + ",landlock",
                                           std::string(kAllNamespaces) + "," + kAllCgroups +
                                               ",seccomp,landlock"));

}  // namespace
}  // namespace whet::testing
