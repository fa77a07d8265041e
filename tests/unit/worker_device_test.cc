// What a worker says of its device, which devices it consists of, and what it refuses to run.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "compiler/support/env.h"
#include "worker/core/device_spec.h"
#include "worker/core/object_check.h"
#include "worker/device/baseline.h"
#include "worker/device/cpu.h"
#include "worker/device/device_lock.h"

namespace whet::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Elf(unsigned char elf_class, unsigned char data, uint16_t machine, uint16_t type) {
  Elf64_Ehdr h = {};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = elf_class;
  h.e_ident[EI_DATA] = data;
  h.e_machine = machine;
  h.e_type = type;
  return {reinterpret_cast<const char*>(&h), sizeof h};
}

TEST(ObjectCheck, NamesWhatIsWrongWithAFile) {
  const std::string good = Elf(ELFCLASS64, ELFDATA2LSB, EM_X86_64, ET_DYN);
  EXPECT_TRUE(CheckObjectHeader(good, "x86_64").ok());
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "no ELF"},
      {"#!/bin/sh\n", "no ELF"},
      {good.substr(0, 20), "cut off"},
      {Elf(ELFCLASS32, ELFDATA2LSB, EM_386, ET_DYN), "32-bit"},
      {Elf(7, ELFDATA2LSB, EM_X86_64, ET_DYN), "class 7"},
      {Elf(ELFCLASS64, ELFDATA2MSB, EM_AARCH64, ET_DYN), "big-endian"},
      {Elf(ELFCLASS64, ELFDATA2LSB, EM_AARCH64, ET_DYN), "for aarch64, this device is x86_64"},
      {Elf(ELFCLASS64, ELFDATA2LSB, EM_S390, ET_DYN), "ELF machine 22"},
      {Elf(ELFCLASS64, ELFDATA2LSB, EM_X86_64, ET_EXEC), "type 2"}};
  for (const auto& [file, words] : bad) {
    const Status s = CheckObjectHeader(file, "x86_64");
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition) << words;
    EXPECT_THAT(Message(s), HasSubstr(words));
  }
  EXPECT_FALSE(CheckObjectHeader(good, "aarch64").ok());
}

TEST(DeviceSpec, SharesOutTheCoresThatAreLeft) {
  const auto d =
      ParseDevices({"cpu1:key=big:cores=4-6", "cpu0", "cpu3"}, "local", {0, 1, 2, 4, 5, 6});
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_EQ(d->size(), 3u);
  EXPECT_EQ((*d)[0].key, "big");
  EXPECT_EQ((*d)[0].index, 1);
  EXPECT_THAT((*d)[0].cores, ElementsAre(4, 5, 6));
  EXPECT_EQ((*d)[1].key, "local");
  EXPECT_THAT((*d)[1].cores, ElementsAre(0));
  EXPECT_THAT((*d)[2].cores, ElementsAre(1, 2));
}

TEST(DeviceSpec, RefusesInWords) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"gpu0"}, "cpu0 to cpu63"},
      {{"cpu"}, "cpu0 to cpu63"},
      {{"cpu01"}, "cpu0 to cpu63"},
      {{"cpu64"}, "cpu0 to cpu63"},
      {{"cpu-1"}, "cpu0 to cpu63"},
      {{"cpu0:colour=red"}, "there is no 'colour'"},
      {{"cpu0:key=a b"}, "is not a key"},
      {{"cpu0:key="}, "is not a key"},
      {{"cpu0:cores="}, "not numbers and ranges"},
      {{"cpu0:cores=2-1"}, "not numbers and ranges"},
      {{"cpu0:cores=0,"}, "not numbers and ranges"},
      {{"cpu0:cores=1,0-2"}, "1 twice"},
      {{"cpu0:cores=0-99999999999"}, "not numbers and ranges"},
      {{"cpu0:cores=9"}, "may not run on core 9"},
      {{"cpu0:cores=0-1", "cpu1:cores=1"}, "'cpu0' and 'cpu1' both have core 1"},
      {{"cpu0", "cpu0"}, "two devices 'cpu0'"},
      {{"cpu0:cores=0-3", "cpu1"}, "0 cores are left"}};
  for (const auto& [texts, words] : bad) {
    const auto d = ParseDevices(texts, "local", {0, 1, 2, 3});
    EXPECT_EQ(d.status().code(), absl::StatusCode::kInvalidArgument) << texts[0];
    EXPECT_THAT(Message(d.status()), HasSubstr(words)) << texts[0];
  }
}

class LockFile : public ::testing::Test {
 protected:
  LockFile() {
    std::string name = "/tmp/whet-lock-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~LockFile() override { std::filesystem::remove_all(dir_); }
  DeviceLock Open(int device) {
    StatusOr<DeviceLock> lock = DeviceLock::Open(path(), device);
    EXPECT_TRUE(lock.ok()) << lock.status();
    return std::move(*lock);
  }
  std::string path() const { return dir_ + "/device.lock"; }
  std::string dir_;
};

TEST_F(LockFile, DevicesAreApartAndTheMachineIsAllOfThem) {
  DeviceLock zero = Open(0), seven = Open(7), again = Open(7),
             machine = Open(DeviceLock::kWholeMachine);
  const auto busy = [](DeviceLock* lock) {
    const Status s = lock->TryLock("somebody else").status();
    EXPECT_TRUE(s.ok() || s.code() == absl::StatusCode::kUnavailable) << s;
    EXPECT_THAT(s.ok() ? "is held by the holder" : Message(s), HasSubstr("is held by the holder"));
    return !s.ok();
  };
  {
    const auto held = seven.TryLock("the holder");
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_TRUE(busy(&again));
    EXPECT_TRUE(busy(&machine));
    EXPECT_EQ(FileLock::TryAcquire(path(), "whet").status().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(busy(&zero));
  }
  EXPECT_FALSE(busy(&again));
  const auto held = machine.TryLock("the holder");
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(busy(&zero));
  EXPECT_TRUE(busy(&seven));
}

TEST_F(LockFile, OneThatInheritedItKeepsWhatADeadProcessHeld) {
  int news[2], end[2];
  ASSERT_EQ(pipe(news), 0);
  ASSERT_EQ(pipe(end), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    DeviceLock lock = Open(3);
    const auto held = lock.TryLock("the worker");
    const pid_t runner = held.ok() ? fork() : -1;
    char byte = 0;
    if (runner == 0) {
      close(end[1]);
      _exit(static_cast<int>(read(end[0], &byte, 1)));
    }
    if (runner > 0 && write(news[1], "k", 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  close(news[1]);
  ASSERT_EQ(read(news[0], &byte, 1), 1) << "nothing was locked";
  DeviceLock other = Open(3);
  EXPECT_FALSE(other.TryLock("another").ok());
  kill(worker, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  EXPECT_EQ(other.TryLock("another").status().code(), absl::StatusCode::kUnavailable);
  close(end[1]);  // the runner ends
  Status s = other.TryLock("another").status();
  for (const int64_t limit = MonotonicNs() + 20 * kSecond; !s.ok() && MonotonicNs() < limit;)
    s = other.TryLock("another").status();
  EXPECT_TRUE(s.ok()) << s;
  for (const int fd : {news[0], end[0]}) close(fd);
}

TEST_F(LockFile, FileThatWasReplacedLocksNothing) {
  DeviceLock lock = Open(DeviceLock::kWholeMachine);
  std::filesystem::remove(path());
  EXPECT_EQ(lock.TryLock("x").status().code(), absl::StatusCode::kFailedPrecondition);
  DeviceLock fresh = Open(DeviceLock::kWholeMachine);
  EXPECT_THAT(Message(lock.TryLock("x").status()), HasSubstr("start the worker anew"));
  EXPECT_TRUE(fresh.TryLock("x").ok());
}

// A folder that looks like the system's.
class FakeSystem : public ::testing::Test {
 protected:
  FakeSystem() {
    std::string name = "/tmp/whet-sys-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~FakeSystem() override { std::filesystem::remove_all(dir_); }
  void Put(const std::string& path, const std::string& text) {
    const std::string full = dir_ + path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFile(full, text).ok());
  }
  std::string dir_;
};

TEST_F(FakeSystem, IdentityHasWhatIsToldAndNamesTheRest) {
  v1::DeviceIdentity d = CpuIdentity({0, 1, 2, 3}, dir_);
  for (const char* field : {"governor", "min_khz", "max_khz", "boost", "board", "physical_cores"})
    EXPECT_THAT(d.unobserved(), Contains(field));
  EXPECT_FALSE(d.has_boost());
  EXPECT_THAT(d.cores(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(d.processors(), 4u);

  for (int c = 0; c < 4; ++c) {
    const std::string cpu = fmt::format("/devices/system/cpu/cpu{}", c);
    Put(cpu + "/cpufreq/scaling_governor", c == 3 ? "powersave\n" : "performance\n");
    Put(cpu + "/cpufreq/cpuinfo_min_freq", "800000\n");
    Put(cpu + "/cpufreq/cpuinfo_max_freq", c == 3 ? "1800000\n" : "3200000\n");
    Put(cpu + "/topology/core_id", fmt::format("{}\n", c / 2));
    Put(cpu + "/topology/physical_package_id", "0\n");
    Put(cpu + "/node0/cpulist", "0-3\n");
  }
  Put("/devices/system/cpu/cpufreq/boost", "0\n");
  Put("/firmware/devicetree/base/model", std::string("Board X rev \x07 2") + '\0');
  d = CpuIdentity({0, 1, 2, 3}, dir_);
  EXPECT_EQ(d.governor(), "performance,powersave");
  EXPECT_EQ(d.min_khz(), 800'000u);
  EXPECT_EQ(d.max_khz(), 3'200'000u);
  EXPECT_EQ(d.physical_cores(), 2u);
  EXPECT_EQ(d.numa_nodes(), 1u);
  EXPECT_EQ(d.board(), "Board X rev  2");
  ASSERT_TRUE(d.has_boost());
  EXPECT_FALSE(d.boost());
  for (const char* field : {"governor", "min_khz", "max_khz", "boost", "board", "physical_cores"})
    EXPECT_THAT(d.unobserved(), Not(Contains(field)));
  EXPECT_EQ(CpuIdentity({2}, dir_).physical_cores(), 1u);
}

TEST(DeviceIdentity, IsThatOfThisMachine) {
  const v1::DeviceIdentity d = CpuIdentity();
  EXPECT_EQ(d.cores_size(), static_cast<int>(AllowedCores().size()));
  EXPECT_GT(d.cpu_features_size(), 0);
  EXPECT_TRUE(CheckFeatureSet(d.feature_set(), d).ok());
  EXPECT_FALSE(CheckFeatureSet(d.feature_set() + ",+no-such", d).ok());
}

TEST(DeviceCores, HoldUntilTheEndOfTheScope) {
  const std::vector<int> before = AllowedCores();
  {
    const OnCores one({before.back()});
    EXPECT_THAT(AllowedCores(), ElementsAre(before.back()));
  }
  EXPECT_EQ(AllowedCores(), before);
}

TEST(Baseline, IsATimeThatComesAgain) {
  const auto first = TimeBaseline();
  ASSERT_TRUE(first.has_value());
  EXPECT_GT(*first, 10e3);
  EXPECT_LT(*first, 1e9);
  // A crowded machine may hold one of them up; not all.
  double nearest = 1e9;
  for (int i = 0; i < 20 && nearest > 1.25; ++i) {
    const double ratio = TimeBaseline().value_or(1e18) / *first;
    nearest = std::min(nearest, std::max(ratio, 1 / ratio));
  }
  EXPECT_LT(nearest, 1.25);
}

// No clock that a person can set decides anything in a worker.
TEST(WorkerSources, AskNoWallClock) {
  const char* root = std::getenv("WHET_SOURCE_DIR");
  if (root == nullptr) GTEST_SKIP() << "WHET_SOURCE_DIR is not set";
  int files = 0, monotonic = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(root) + "/worker")) {
    const StatusOr<std::string> text =
        entry.is_regular_file() ? ReadFile(entry.path().string(), 1 << 20) : "";
    ASSERT_TRUE(text.ok());
    ++files;
    monotonic += text->find("MonotonicNs") != std::string::npos;
    for (const char* clock : {"system_clock", "CLOCK_REALTIME", "gettimeofday", "time(nullptr)",
                              "absl::Now", "WallMs", "utc_clock"})
      EXPECT_EQ(text->find(clock), std::string::npos) << entry.path() << " asks " << clock;
  }
  EXPECT_GT(files, 10);
  EXPECT_GT(monotonic, 2);
}

}  // namespace
}  // namespace whet::worker
