// Each layer of the sandbox by itself: that it stands where it is claimed, that it holds, and that
// it needs none of the others.
#include "compiler/support/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "compiler/support/cgroup.h"
#include "compiler/support/clock.h"
#include "compiler/support/env.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kAll = (1u << 16) - 1;
// Namespaces of an ordinary user come with this one.
constexpr uint32_t kWithUser = kSandboxPidNamespace | kSandboxNetNamespace | kSandboxIpcNamespace |
                               kSandboxMountNamespace | kSandboxOtherUser;

// What `test` returns in a process of its own (0 to 255), whose children have only these layers:
// which there are is found once in a process.
int InFreshProcess(uint32_t layers, const std::function<int()>& test) {
  const pid_t pid = fork();
  if (pid == 0) {
    LeaveOutSandboxLayers(kAll & ~layers);
    const int code = test();
    std::exit(code);  // with the destructors that take groups away
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

bool Offers(uint32_t layers) {
  return InFreshProcess(kAll, [&] { return (SandboxLayers() & layers) == layers ? 1 : 0; }) == 1;
}

constexpr int kTrouble = 200, kSignal = 100;

// The code that `body` ends with in a child with these layers and no others; kSignal + n for a
// signal.
int Confined(uint32_t layers, SandboxOptions options, const std::function<int()>& body) {
  if (layers & kWithUser) layers |= kSandboxUserNamespace;
  if (layers & kSandboxOtherUser) layers |= kSandboxMountNamespace;
  if (layers & kSandboxSyscalls) options.syscalls = Syscalls::kCompute;
  options.confine_files = true;
  // Without this one there is no filter for an ordinary user.
  if (layers & (kSandboxSyscalls | kSandboxLandlock)) layers |= kSandboxNoNewPrivileges;
  return InFreshProcess(layers, [&] {
    StatusOr<SandboxedChild> child = SandboxedChild::Start(options, body);
    if (!child.ok() || (child->bits() & ~layers) != 0) return kTrouble;
    const std::optional<int> status = child->Finish(MonotonicNs() + 20 * kSecond);
    if (!status || !child->trouble().empty()) return kTrouble + 1;
    return WIFEXITED(*status) ? WEXITSTATUS(*status) : kSignal + WTERMSIG(*status);
  });
}

// The first of several checks that fails, as a number; 0: none.
int FirstWrong(std::initializer_list<bool> checks) {
  int n = 0;
  for (const bool ok : checks) {
    ++n;
    if (!ok) return n;
  }
  return 0;
}

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/whet-test-XXXXXX";
    path_ = mkdtemp(name.data()) ? name : "";
    EXPECT_TRUE(WriteFile(path_ + "/named", "one").ok());
    EXPECT_TRUE(WriteFile(path_ + "/other", "two").ok());
    EXPECT_TRUE(MakeDirs(path_ + "/work").ok());
  }
  ~Folder() {
    if (std::system(("rm -rf '" + path_ + "'").c_str()) != 0) ADD_FAILURE();
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

bool CanRead(const std::string& path) {
  char byte;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && read(fd, &byte, 1) == 1;
  if (fd >= 0) close(fd);
  return ok;
}
bool CanMake(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

#define NEEDS(layers) \
  if (!Offers(layers)) GTEST_SKIP() << "this host does not offer " << SandboxBitsText(layers)

TEST(Sandbox, EachLayerStandsAlone) {
  for (uint32_t bit = 1; bit < kAll; bit <<= 1) {
    if (!Offers(bit)) continue;
    EXPECT_EQ(Confined(bit, {}, [] { return 7; }), 7) << SandboxBitsText(bit);
  }
}

TEST(Sandbox, RunsWithNoLayerAtAll) {
  EXPECT_EQ(Confined(0, {}, [] { return 9; }), 9);
}

TEST(Sandbox, AllThatAHostOffersStandTogether) {
  const int code = InFreshProcess(kAll, [] {
    SandboxOptions options;
    options.syscalls = Syscalls::kCompute;
    options.confine_files = true;
    options.processes = 64;
    options.memory_bytes = 256 << 20;
    StatusOr<SandboxedChild> child = SandboxedChild::Start(options, [] { return 5; });
    if (!child.ok() || child->bits() != SandboxLayers()) return kTrouble;
    const std::optional<int> status = child->Finish(MonotonicNs() + 20 * kSecond);
    return status && child->trouble().empty() ? WEXITSTATUS(*status) : kTrouble + 1;
  });
  EXPECT_EQ(code, 5);
}

TEST(Sandbox, SystemCallsAreThoseOfAComputation) {
  NEEDS(kSandboxSyscalls);
  const Folder dir;
  const int code = Confined(kSandboxSyscalls, {}, [&] {
    int other = 0;
    std::thread([&] { other = 1; }).join();
    void* memory =
        mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return FirstWrong({other == 1, memory != MAP_FAILED, CanRead(dir / "named"), fork() < 0,
                       socket(AF_INET, SOCK_STREAM, 0) < 0, !CanMake(dir / "new"),
                       kill(getppid(), 0) < 0, syscall(SYS_tgkill, getppid(), getppid(), 0) < 0,
                       unlink((dir / "named").c_str()) < 0, execl("/bin/true", "true", nullptr) < 0,
                       setpriority(PRIO_PROCESS, 0, 5) < 0, syscall(SYS_memfd_create, "x", 0) < 0,
                       syscall(SYS_io_uring_setup, 1, 0) < 0, shmget(IPC_PRIVATE, 4096, 0600) < 0});
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(Confined(kSandboxSyscalls, {}, []() -> int { std::abort(); }), kSignal + SIGABRT);
}

TEST(Sandbox, ABuildMayChangeFilesAndNothingElse) {
  NEEDS(kSandboxSyscalls | kSandboxNoNewPrivileges);
  const Folder dir;
  SandboxOptions options;
  options.syscalls = Syscalls::kBuild;
  options.file_bytes = 1 << 20;
  const int code = InFreshProcess(kSandboxSyscalls | kSandboxNoNewPrivileges, [&] {
    auto child = SandboxedChild::Start(options, [&] {
      return FirstWrong({WriteFile(dir / "new", "three").ok(), RemoveFile(dir / "new").ok(),
                         fork() < 0, socket(AF_UNIX, SOCK_STREAM, 0) < 0,
                         execl("/bin/true", "true", nullptr) < 0});
    });
    const std::optional<int> status = child->Finish(MonotonicNs() + 20 * kSecond);
    return status ? WEXITSTATUS(*status) : kTrouble;
  });
  EXPECT_EQ(code, 0);
}

class Files : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Files, OnlyThoseThatWereNamed) {
  NEEDS(GetParam());
  const Folder dir;
  SandboxOptions options;
  options.file_bytes = 1 << 20;
  options.readable = {dir / "named", dir / "not-there"};
  options.writable = {dir / "work"};
  const int code = Confined(GetParam(), options, [&] {
    return FirstWrong({CanRead(dir / "named"), !CanRead(dir / "other"), !CanRead("/etc/passwd"),
                       !CanRead("/proc/1/environ"), !CanMake(dir / "new"), !CanMake("/tmp/new"),
                       CanMake(dir / "work/new"), CanRead("/etc/ld.so.cache"),
                       !CanMake(dir / "named")});
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(CanRead(dir / "named"));
  EXPECT_TRUE(ReadFile(dir / "work/new", 10).ok());
}
INSTANTIATE_TEST_SUITE_P(Layers, Files,
                         ::testing::Values(uint32_t{kSandboxLandlock},
                                           uint32_t{kSandboxMountNamespace},
                                           uint32_t{kSandboxOtherUser}));

TEST(Sandbox, AnotherUserReadsWhatOnlyItsOwnerMayIfItIsNamed) {
  NEEDS(kSandboxOtherUser);
  const Folder dir;
  ASSERT_EQ(chmod((dir / "named").c_str(), 0600), 0);
  SandboxOptions options;
  options.readable = {dir / "named"};
  EXPECT_EQ(Confined(kSandboxOtherUser, options,
                     [&] { return FirstWrong({getuid() == 65534, CanRead(dir / "named")}); }),
            0);
}

TEST(Sandbox, RootCanDoNoMoreThanOthers) {
  NEEDS(kSandboxNoCapabilities);
  EXPECT_EQ(Confined(kSandboxNoCapabilities, {},
                     [] {
                       __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
                       __user_cap_data_struct data[2] = {};
                       return FirstWrong({syscall(SYS_capget, &header, data) == 0,
                                          data[0].effective == 0 && data[1].effective == 0,
                                          data[0].permitted == 0 && data[1].permitted == 0});
                     }),
            0);
}

TEST(Sandbox, ProcessesAreCounted) {
  NEEDS(kSandboxCgroupPids);
  SandboxOptions options;
  options.processes = 20;
  const int code = Confined(kSandboxCgroupPids | kSandboxCgroupKill, options, [] {
    for (int n = 0; n < 90; ++n) {
      const pid_t pid = fork();
      if (pid < 0) return n;
      if (pid == 0) {
        for (;;) pause();
      }
    }
    return 90;
  });
  EXPECT_EQ(code, 19);
}

TEST(Sandbox, MemoryOfAllProcessesIsBounded) {
  NEEDS(kSandboxCgroupMemory);
  SandboxOptions options;
  options.memory_bytes = 64 << 20;
  EXPECT_EQ(Confined(kSandboxCgroupMemory, options,
                     [] {
                       constexpr size_t kBytes = size_t{200} << 20;
                       void* p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                       std::memset(p, 1, kBytes);
                       return 0;
                     }),
            kSignal + SIGKILL);
}

class Leftovers : public ::testing::TestWithParam<uint32_t> {};

// With each of these layers alone, and with none.
TEST_P(Leftovers, AreGoneOnReturn) {
  if (GetParam() != 0) NEEDS(GetParam());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  SandboxOptions options;
  options.keep_fds = {ready[1]};
  const int code = Confined(GetParam(), options, [&] {
    const pid_t child = fork();
    if (child == 0) {
      setsid();
      if (fork() == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, nullptr);
        for (;;) pause();  // holds the pipe open as long as it lives
      }
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    return 0;
  });
  EXPECT_EQ(code, 0);
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 0);  // would wait for ever, which the test's limit ends
  close(ready[0]);
}
INSTANTIATE_TEST_SUITE_P(Layers, Leftovers,
                         ::testing::Values(0u, uint32_t{kSandboxPidNamespace},
                                           uint32_t{kSandboxCgroupKill}));

TEST(Sandbox, NamesOfLayersAreReadAsTheyArePrinted) {
  for (uint32_t bit = 1; bit < kAll; bit <<= 1) {
    const auto parsed = ParseSandboxBits(SandboxBitsText(bit));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bit);
  }
  EXPECT_EQ(*ParseSandboxBits("seccomp,landlock"), kSandboxSyscalls | kSandboxLandlock);
  EXPECT_EQ(*ParseSandboxBits(""), 0u);
  EXPECT_THAT(ParseSandboxBits("seccomp,moat").status().message(), HasSubstr("'moat'"));
}

TEST(Sandbox, StrangersNeedWallsAroundCallsAndFiles) {
  EXPECT_EQ(MissingForStrangers(kAll), "");
  const uint32_t container = kSandboxLimits | kSandboxNoNewPrivileges | kSandboxDescriptors |
                             kSandboxSyscalls | kSandboxGroup | kSandboxNoCapabilities;
  EXPECT_THAT(MissingForStrangers(container), HasSubstr("landlock"));
  EXPECT_EQ(MissingForStrangers(container | kSandboxLandlock), "");
  EXPECT_EQ(MissingForStrangers(container | kSandboxMountNamespace), "");
  EXPECT_THAT(MissingForStrangers(kAll & ~kSandboxSyscalls), HasSubstr("seccomp"));
}

TEST(Cgroup, PlacesOfBothVersionsAreFound) {
  const auto places = CgroupPlaces(
      "4:memory:/a/b\n2:cpu,cpuacct:/\n9:name=systemd:/\n0::/user.slice/x\n",
      "30 1 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
      "31 1 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "32 1 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
      "33 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0].dir, "/sys/fs/cgroup/memory/a/b");
  EXPECT_FALSE(places[0].unified);
  EXPECT_EQ(places[0].controllers, std::vector<std::string>{"memory"});
  EXPECT_EQ(places[1].dir, "/sys/fs/cgroup/cpu");
  EXPECT_EQ(places[2].dir, "/sys/fs/cgroup/unified/user.slice/x");
  EXPECT_TRUE(places[2].unified);
}

TEST(Cgroup, InAContainerThePathBeginsAtItsRoot) {
  const auto places =
      CgroupPlaces("0::/docker/c1/inner\n",
                   "30 1 0:27 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n");
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].dir, "/sys/fs/cgroup/inner");
  EXPECT_TRUE(
      CgroupPlaces("0::/../../elsewhere\n", "30 1 0:27 / /sys/fs/cgroup ro - cgroup2 c rw\n")
          .empty());
  EXPECT_TRUE(CgroupPlaces("rubbish\n::\n7:\n", "more rubbish - cgroup\n").empty());
}

}  // namespace
}  // namespace whet
