// What a worker measures of its machine, and that it does so once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "worker/device/cpu.h"
#include "worker/device/probe.h"

namespace whet::worker {
namespace {

TEST(ProbeTest, FiguresAreBelievableAndInOrder) {
  const Machine m = ProbeMachine(2);
  EXPECT_TRUE(Machine::Parse(m.ToString()).ok()) << m.ToString();
  const Target host = Target::Host();
  EXPECT_EQ(m.VectorBits(), host.Has("avx512f")                   ? 512
                            : host.Has("avx2") && host.Has("fma") ? 256
                                                                  : 128)
      << m.ToString();
  EXPECT_GE(m.l1_gbps, m.l2_gbps);
  EXPECT_GE(m.l2_gbps, m.l3_gbps);
  EXPECT_GE(m.l3_gbps, m.dram_gbps);
  EXPECT_GT(m.FmaGflops(512), m.clock_ghz);  // a multiply-add in two cycles would still be more
}

TEST(DeviceState, ThrottlingOfAnyProcessorIsSeenAndWhatIsNotCountedIsUnknown) {
  char dir[] = "/tmp/whet-test-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string sys = dir;
  const auto count = [&](const char* cpu, const char* what, int n) {
    const std::filesystem::path folder = sys + "/devices/system/cpu/" + cpu + "/thermal_throttle";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / what) << n << "\n";
  };
  EXPECT_FALSE(CpuThrottleCount(sys).has_value());
  EXPECT_FALSE(CpuState(CpuThrottleCount(sys), sys).has_throttled());  // unknown, not steady

  count("cpu0", "core_throttle_count", 3);
  count("cpu1", "core_throttle_count", 0);
  count("cpu1", "package_throttle_count", 4);
  const auto before = CpuThrottleCount(sys);
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(*before, 7);
  EXPECT_TRUE(CpuState(before, sys).has_throttled());
  EXPECT_FALSE(CpuState(before, sys).throttled());
  count("cpu1", "core_throttle_count", 1);  // while something ran
  EXPECT_TRUE(CpuState(before, sys).throttled());
  // It cannot be told any more.
  std::filesystem::remove_all(sys + "/devices");
  EXPECT_FALSE(CpuState(before, sys).has_throttled());
  std::filesystem::remove_all(sys);
}

TEST(ProbeTest, MeasuresOncePerMachineAndFolder) {
  char dir[] = "/tmp/whet-test-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string path = std::string(dir) + "/machine";
  Machine known = Machine::Typical(Target::Host());
  known.fork_join_ns = 12345;
  std::ofstream(path) << "this one\n" << known.ToString();
  const auto same = ProbedOnce(path, "this one", 1);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->fork_join_ns, 12345);
  const auto other = ProbedOnce(path, "another one", 1);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->fork_join_ns, 12345);
  EXPECT_EQ(ProbedOnce(path, "another one", 1)->ToString(), other->ToString());
  std::ofstream(path) << "another one\nclock=fast";
  EXPECT_TRUE(ProbedOnce(path, "another one", 1).ok());
  EXPECT_EQ(ProbedOnce(std::string(dir) + "/no/machine", "x", 1).ok(), false);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace whet::worker
