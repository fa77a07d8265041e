// Real rpc-worker processes against a fleet that is scripted: what a worker does on its host,
// whatever tracker, server, disk and neighbours do.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/service/scripted_fleet.h"
#include "worker/device/cpu.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

class HostedWorker {
 public:
  HostedWorker(const std::vector<std::string>& args, std::string log) : log_(std::move(log)) {
    std::string command = "exec '" + Program("rpc-worker") + "'";
    for (const std::string& a : args) command += " '" + a + "'";
    SpawnOptions options;
    options.program = "/bin/sh";
    options.args = {"-c", command + " >>'" + log_ + "' 2>&1"};
    StatusOr<Subprocess> child = Subprocess::Spawn(options);
    EXPECT_TRUE(child.ok()) << child.status();
    if (child.ok()) process_ = std::move(*child);
  }
  Subprocess& process() { return process_; }
  // The exit code; -1 when it still runs, 1000 + n after signal n.
  int Exit(int64_t limit_ns) {
    const std::optional<int> status = process_.Wait(MonotonicNs() + limit_ns);
    if (!status) return -1;
    return WIFEXITED(*status) ? WEXITSTATUS(*status) : 1000 + WTERMSIG(*status);
  }
  std::string Log() const {
    const StatusOr<std::string> text = ReadFile(log_, 4 << 20);
    return text.ok() ? *text : "";
  }
  // Of the log's lines, the number behind `name`.
  std::vector<int64_t> Numbers(const std::string& name) const {
    std::vector<int64_t> numbers;
    const std::string log = Log();
    const std::regex pattern(" " + name + "=([0-9]+)");
    for (std::sregex_iterator it(log.begin(), log.end(), pattern), end; it != end; ++it)
      numbers.push_back(std::stoll((*it)[1]));
    return numbers;
  }

 private:
  const std::string log_;
  Subprocess process_;
};

class WorkerHost : public ::testing::Test {
 protected:
  std::vector<std::string> Args(const std::string& state = "state") {
    return {"--tracker",   fleet_.address(), "--key",     "local",
            "--state-dir", dir_ / state,     "--verbose", "--allow-weak-sandbox"};
  }
  std::unique_ptr<HostedWorker> Start(const std::vector<std::string>& more = {},
                                      const std::string& state = "state") {
    std::vector<std::string> args = Args(state);
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<HostedWorker>(args, dir_ / (state + ".log"));
  }
  // One that must end by itself: its exit code and what it said.
  std::pair<int, std::string> RunToItsEnd(const std::vector<std::string>& args) {
    HostedWorker w(args, dir_ / "refused.log");
    const int code = w.Exit(20 * kSecond);
    std::string log = w.Log();
    EXPECT_TRUE(RemoveFile(dir_ / "refused.log").ok());
    return {code, log};
  }
  static std::string Candidate(const std::string& animal) {
    const StatusOr<std::string> bytes = ReadFile(ZooPath(animal), 4 << 20);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *bytes : "";
  }
  v1::Measurement Measure(const std::string& device, const std::string& object) {
    return fleet_.AwaitResult(fleet_.Assign(device, object));
  }

  TempDir dir_;
  ScriptedFleet fleet_;
};

TEST_F(WorkerHost, SaysWhatItIsAndHowFast) {
  const auto worker = Start();
  const std::string device = fleet_.AwaitDevice();
  const v1::DeviceIdentity d = fleet_.registered()[device].device();
  EXPECT_EQ(d.device_id(), d.worker_id() + "/cpu0");
  EXPECT_GT(d.cores_size(), 0);
  EXPECT_GT(d.cpu_features_size(), 0);
  EXPECT_TRUE(d.has_baseline_ns());
  EXPECT_GT(d.baseline_ns(), 0);
  for (const std::string& name : d.unobserved())
    EXPECT_NE(v1::DeviceIdentity::descriptor()->FindFieldByName(name), nullptr) << name;
  std::vector<uint32_t> ages;
  for (int i = 0; i < 22; ++i) {
    const v1::Measurement m = Measure(device, Candidate("good"));
    EXPECT_EQ(m.failure(), v1::FAILURE_OK) << m.message();
    EXPECT_GT(m.device_baseline_ns(), 0);
    EXPECT_EQ(m.device_baseline_version(), d.baseline_version());
    ages.push_back(m.device_baseline_age());
  }
  EXPECT_EQ(ages[0], 0u);
  EXPECT_EQ(ages[19], 19u);
  EXPECT_EQ(ages[20], 0u) << "timed again after twenty";
  worker->process().Signal(SIGTERM);
  EXPECT_EQ(worker->Exit(10 * kSecond), 0) << worker->Log();
  EXPECT_EQ(fleet_.leaves(), 1);
}

TEST_F(WorkerHost, StartsNothingThatWasMadeForAnother) {
  const auto worker = Start();
  const std::string device = fleet_.AwaitDevice();
  const std::string good = Candidate("good");
  for (const auto& [features, words] : std::vector<std::pair<std::string, std::string>>{
           {"sparc +vis", "sparc"},
           {worker::CpuIdentity().feature_set() + ",+no-such", "no-such"}}) {
    const size_t fetched = fleet_.fetches().size();
    const v1::Measurement m = fleet_.AwaitResult(
        fleet_.Assign(device, good, [f = features](v1::Assign* a) { a->set_feature_set(f); }));
    EXPECT_EQ(m.failure(), v1::FAILURE_NOT_RUNNABLE);
    EXPECT_THAT(m.message(), HasSubstr(words));
    EXPECT_EQ(fleet_.fetches().size(), fetched);
  }
  const auto changed = [&](size_t at, unsigned char value) {
    std::string object = good;
    object[at] = static_cast<char>(value);
    return object;
  };
  for (const auto& [object, words] : std::vector<std::pair<std::string, std::string>>{
           {changed(EI_CLASS, ELFCLASS32), "32-bit"},
           {changed(EI_DATA, ELFDATA2MSB), "big-endian"},
           {changed(offsetof(Elf64_Ehdr, e_machine), EM_RISCV), "riscv"},
           {changed(offsetof(Elf64_Ehdr, e_type), ET_EXEC), "no shared library"},
           {"#!/bin/sh\nreboot\n", "no ELF"},
           {good.substr(0, 30), "cut off"}}) {
    const v1::Measurement m = Measure(device, object);
    EXPECT_EQ(m.failure(), v1::FAILURE_NOT_RUNNABLE) << words << ": " << m.message();
    EXPECT_THAT(m.message(), HasSubstr(words));
  }
  EXPECT_EQ(Measure(device, good).failure(), v1::FAILURE_OK);
}

TEST_F(WorkerHost, BrokenTransferGoesOnOverReconnectsAndRestarts) {
  const std::string good = Candidate("good");
  const uint64_t piece = good.size() / 4;
  fleet_.fetch_bytes = piece;
  const std::string sha = Sha256Hex(good);
  std::atomic<int> pieces{0};
  // The stream breaks at the second piece of it; at the third, the worker dies.
  fleet_.answer = [&](const v1::Fetch& f) -> std::optional<std::vector<v1::ServerMessage>> {
    if (f.sha256() == sha && ++pieces == 2) return std::nullopt;
    if (f.sha256() == sha && pieces == 4) return std::vector<v1::ServerMessage>{};
    return fleet_.Honest(f);
  };
  auto worker = Start();
  fleet_.Assign(fleet_.AwaitDevice(), good);
  ASSERT_TRUE(fleet_.Await([&] { return pieces == 2; }));
  const auto sent_again = [&](int until) {
    for (int i = 0; i < 100 && pieces < until; ++i) {
      fleet_.Assign(fleet_.AwaitDevice(), good);
      fleet_.Await([&] { return pieces >= until; }, 500 * kMillisecond);
    }
  };
  fleet_.AwaitStreams(2);
  sent_again(4);
  ASSERT_EQ(pieces, 4);
  worker->process().Kill();
  worker = Start();
  fleet_.AwaitStreams(3);
  EXPECT_EQ(Measure(fleet_.AwaitDevice(), good).failure(), v1::FAILURE_OK) << worker->Log();
  std::vector<uint64_t> offsets;
  for (const v1::Fetch& f : fleet_.fetches()) {
    EXPECT_LE(f.max_bytes(), piece);
    if (f.sha256() == sha) offsets.push_back(f.offset());
  }
  ASSERT_GE(offsets.size(), 5u);
  offsets.resize(5);
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, piece, piece, 2 * piece, 2 * piece}));
}

TEST_F(WorkerHost, WrongBlobsAndNonsenseCostATrialNotTheWorker) {
  const std::string good = Candidate("good"), sha = Sha256Hex(good);
  std::atomic<int> how{0};
  fleet_.answer = [&](const v1::Fetch& f) -> std::optional<std::vector<v1::ServerMessage>> {
    std::vector<v1::ServerMessage> said = fleet_.Honest(f);
    v1::Chunk& c = *said[0].mutable_chunk();
    if (f.sha256() != sha) return said;
    switch (how) {
      case 0: (*c.mutable_data())[100] ^= 1; break;
      case 1: c.mutable_data()->pop_back(), c.set_total(c.total() - 1); break;
      case 2: c.set_offset(5); break;
      case 3: c.set_error("it is not here"); break;
      case 4: c.mutable_data()->append("more"); break;
      case 5: c.clear_data(); break;
      default: break;
    }
    return said;
  };
  const auto worker = Start();
  const std::string device = fleet_.AwaitDevice();
  for (; how < 6; ++how) {
    const v1::Measurement m = Measure(device, good);
    EXPECT_EQ(m.failure(), v1::FAILURE_INFRASTRUCTURE) << how;
    EXPECT_THAT(m.message(), HasSubstr(sha)) << how;
  }
  // Nothing that anybody asked for.
  v1::ServerMessage m;
  fleet_.Say(device, m);
  m.mutable_hello()->set_refusal("again");
  fleet_.Say(device, m);
  m.mutable_ack()->set_watermark(INT64_MAX);
  fleet_.Say(device, m);
  m.mutable_revoke()->mutable_ids()->set_trial(-1);
  fleet_.Say(device, m);
  m.mutable_chunk()->set_sha256("../../etc/passwd");
  m.mutable_chunk()->set_data(std::string(1 << 20, 'x'));
  fleet_.Say(device, m);
  fleet_.Assign(device, good, [](v1::Assign* a) { a->mutable_ids()->set_lease_epoch(99); });
  const int64_t strange = fleet_.Assign(
      device, good, [](v1::Assign* a) { a->set_object_sha256("../../../etc/passwd"); });
  EXPECT_EQ(fleet_.AwaitResult(strange).failure(), v1::FAILURE_INFRASTRUCTURE);
  const int64_t huge =
      fleet_.Assign(device, good, [](v1::Assign* a) { a->set_object_bytes(uint64_t{1} << 60); });
  EXPECT_EQ(fleet_.AwaitResult(huge).failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_EQ(Measure(device, good).failure(), v1::FAILURE_OK) << worker->Log();
  EXPECT_EQ(worker->Exit(0), -1);
}

TEST_F(WorkerHost, FileThatChangesOnItsDiskIsNotRun) {
  const auto worker = Start();
  const std::string device = fleet_.AwaitDevice(), good = Candidate("good");
  EXPECT_EQ(Measure(device, good).failure(), v1::FAILURE_OK);
  const std::string file = dir_ / "state/worker/cache/" + Sha256Hex(good);
  ASSERT_TRUE(WriteFile(file, Candidate("wrong")).ok());
  const v1::Measurement m = Measure(device, good);
  EXPECT_EQ(m.failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_THAT(m.message(), HasSubstr("was changed on this worker's disk"));
  EXPECT_EQ(Measure(device, good).failure(), v1::FAILURE_OK) << "it is fetched again";
}

// Times of all runs of these workers, from start to end, none beside another.
void ExpectNoOverlap(std::vector<std::pair<int64_t, int64_t>> runs) {
  std::sort(runs.begin(), runs.end());
  for (size_t i = 1; i < runs.size(); ++i) {
    EXPECT_LE(runs[i - 1].second, runs[i].first) << "run " << i << " began beside another";
  }
}
std::vector<std::pair<int64_t, int64_t>> RunsOf(const HostedWorker& w) {
  const std::vector<int64_t> start = w.Numbers("start_ns"), end = w.Numbers("end_ns");
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (size_t i = 0; i < std::min(start.size(), end.size()); ++i)
    runs.emplace_back(start[i], end[i]);
  return runs;
}

TEST(Overlap, IsFoundWhereThereIsOne) {
  static const std::vector<std::pair<int64_t, int64_t>> beside = {{0, 10}, {20, 30}, {9, 11}};
  EXPECT_NONFATAL_FAILURE(ExpectNoOverlap(beside), "beside another");
  ExpectNoOverlap({{0, 10}, {20, 30}, {10, 20}});
}

TEST_F(WorkerHost, TwoWorkersOfOneDeviceTakeTurns) {
  const auto a = Start({"--lock-dir", dir_ / "locks"}, "a");
  const std::string first = fleet_.AwaitDevice();
  const auto b = Start({"--lock-dir", dir_ / "locks"}, "b");
  std::string second;
  for (int i = 0; i < 200 && fleet_.registered().size() < 2; ++i)
    fleet_.Await([] { return false; }, 50 * kMillisecond);
  for (const auto& [device, r] : fleet_.registered()) {
    if (device != first) second = device;
  }
  ASSERT_FALSE(second.empty()) << b->Log();
  fleet_.AwaitDevice(second);
  std::vector<int64_t> trials;
  for (int i = 0; i < 12; ++i) {
    trials.push_back(fleet_.Assign(first, Candidate("good")));
    trials.push_back(fleet_.Assign(second, Candidate("slow")));
  }
  for (const int64_t t : trials) EXPECT_EQ(fleet_.AwaitResult(t).failure(), v1::FAILURE_OK);
  // The line is written after the result has been handed on.
  for (int i = 0; i < 100 && RunsOf(*a).size() + RunsOf(*b).size() < 24; ++i)
    fleet_.Await([] { return false; }, 20 * kMillisecond);
  std::vector<std::pair<int64_t, int64_t>> runs = RunsOf(*a);
  EXPECT_EQ(runs.size(), 12u);
  for (const auto& r : RunsOf(*b)) runs.push_back(r);
  EXPECT_EQ(runs.size(), 24u);
  ExpectNoOverlap(runs);
}

TEST_F(WorkerHost, KilledWorkersDeviceStaysItsRunnersUntilTheCandidateIsGone) {
  auto dead = Start();
  std::string device = fleet_.AwaitDevice();
  const int64_t lost = fleet_.Assign(device, Candidate("hang"), [](v1::Assign* a) {
    a->mutable_spec()->set_time_limit_ns(600 * kSecond);
  });
  ASSERT_TRUE(fleet_.AwaitStarted(lost));
  const auto runner = static_cast<pid_t>(dead->Numbers("runner_pid").at(0));
  // Its candidate is loaded as soon as there is a process below it; it measures.
  const std::string children = fmt::format("/proc/{0}/task/{0}/children", runner);
  for (int i = 0; i < 400 && ReadFile(children, 1000).value_or("").empty(); ++i)
    fleet_.Await([] { return false; }, 20 * kMillisecond);
  // It cannot notice yet. Were it not this process's child then, the system would end it: stopped,
  // in a group of its own that nobody looks after.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  kill(runner, SIGSTOP);
  dead->process().Kill();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  const auto next = Start();
  fleet_.AwaitStreams(2);
  device = fleet_.AwaitDevice();
  const int64_t trial = fleet_.Assign(device, Candidate("good"));
  ASSERT_TRUE(fleet_.AwaitStarted(trial));
  fleet_.Await([] { return false; }, kSecond);
  EXPECT_EQ(fleet_.results(trial), 0) << "it was measured beside another";
  const int64_t before = MonotonicNs();
  kill(runner, SIGCONT);
  EXPECT_EQ(fleet_.AwaitResult(trial, 30 * kSecond).failure(), v1::FAILURE_OK);
  for (int i = 0; i < 100 && RunsOf(*next).empty(); ++i)
    fleet_.Await([] { return false; }, 20 * kMillisecond);
  ASSERT_EQ(RunsOf(*next).size(), 1u);
  EXPECT_GE(RunsOf(*next)[0].first, before);
  int status = 0;
  EXPECT_TRUE(WaitPid(runner, MonotonicNs() + 20 * kSecond, &status));
  EXPECT_EQ(fleet_.results(lost), 0);
}

TEST_F(WorkerHost, SpoolFileWithAnImpossibleNumberIsPutAside) {
  v1::SpooledResult r;
  r.mutable_result()->set_sequence(INT64_MAX);
  r.set_server_address(fleet_.address());
  r.set_log_id("log");
  ASSERT_TRUE(MakeDirs(dir_ / "state/worker/spool").ok());
  const std::string file = dir_ / "state/worker/spool/9223372036854775807";
  ASSERT_TRUE(WriteFile(file, r.SerializeAsString()).ok());
  const auto worker = Start();
  EXPECT_EQ(Measure(fleet_.AwaitDevice(), Candidate("good")).failure(), v1::FAILURE_OK);
  EXPECT_THAT(worker->Log(), HasSubstr("event=spool_file_ignored"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(WorkerHost, SeveralDevicesOfOneProcessHaveEachTheirOwn) {
  const std::vector<int> cores = worker::AllowedCores();
  if (cores.size() < 2) GTEST_SKIP() << "one core is one device";
  const auto worker = Start(
      {"--device", fmt::format("cpu0:key=one:cores={}", cores[0]), "--device", "cpu5:key=rest"});
  const std::string one = fleet_.AwaitDevice("/cpu0"), rest = fleet_.AwaitDevice("/cpu5");
  const auto registered = fleet_.registered();
  const v1::DeviceIdentity a = registered.at(one).device(), b = registered.at(rest).device();
  EXPECT_EQ(a.key(), "one");
  EXPECT_EQ(b.key(), "rest");
  EXPECT_EQ(a.worker_id(), b.worker_id());
  EXPECT_EQ(a.boot_id(), b.boot_id());
  EXPECT_EQ(a.processors(), 1u);
  EXPECT_EQ(b.processors(), cores.size() - 1);
  EXPECT_EQ(a.cores(0), static_cast<uint32_t>(cores[0]));
  const std::vector<int64_t> runners = worker->Numbers("runner_pid");
  ASSERT_EQ(runners.size(), 2u);
  std::vector<std::string> held;
  for (const int64_t pid : runners) {
    const StatusOr<std::string> status = ReadFile(fmt::format("/proc/{}/status", pid), 1 << 16);
    ASSERT_TRUE(status.ok());
    std::smatch m;
    ASSERT_TRUE(std::regex_search(*status, m, std::regex("Cpus_allowed_list:\\s*(\\S+)")));
    held.push_back(m[1]);
  }
  EXPECT_EQ(held[0], std::to_string(cores[0]));
  EXPECT_NE(held[1], held[0]);
  std::vector<int64_t> trials;
  for (int i = 0; i < 6; ++i) {
    trials.push_back(fleet_.Assign(one, Candidate("good")));
    trials.push_back(fleet_.Assign(rest, Candidate("good")));
  }
  for (const int64_t t : trials) EXPECT_EQ(fleet_.AwaitResult(t).failure(), v1::FAILURE_OK);
  // The state folder is this process's: by name, and whatever devices the other would have.
  auto args = Args();
  args.insert(args.end(), {"--device", "cpu1"});
  const auto [code, words] = RunToItsEnd(args);
  EXPECT_EQ(code, 2) << words;
  EXPECT_THAT(words, HasSubstr("has a worker already"));
  EXPECT_THAT(words, HasSubstr(fmt::format("pid {}", worker->process().pid())));
  EXPECT_THAT(words, HasSubstr("--state-dir"));
  worker->process().Signal(SIGTERM);
  EXPECT_EQ(worker->Exit(10 * kSecond), 0) << worker->Log();
  EXPECT_EQ(fleet_.leaves(), 2);
}

TEST_F(WorkerHost, DevicesMayComeFromAFile) {
  if (worker::AllowedCores().size() < 2) GTEST_SKIP() << "one core is one device";
  ASSERT_TRUE(WriteFile(dir_ / "worker.toml", "device = [\"cpu0:key=x\", \"cpu1:key=y\"]\n").ok());
  const auto worker = Start({"--config", dir_ / "worker.toml"});
  EXPECT_NE(fleet_.AwaitDevice("/cpu0"), fleet_.AwaitDevice("/cpu1"));
  EXPECT_EQ(fleet_.registered().size(), 2u);
}

TEST_F(WorkerHost, StopsWithinTenSecondsWhateverRuns) {
  const auto worker = Start();
  const std::string device = fleet_.AwaitDevice();
  const int64_t trial = fleet_.Assign(device, Candidate("hang"), [](v1::Assign* a) {
    a->mutable_spec()->set_time_limit_ns(120 * kSecond);
  });
  ASSERT_TRUE(fleet_.AwaitStarted(trial));
  const std::vector<int64_t> runner = worker->Numbers("runner_pid");
  ASSERT_EQ(runner.size(), 1u);
  const int64_t start = MonotonicNs();
  worker->process().Signal(SIGTERM);
  EXPECT_EQ(worker->Exit(20 * kSecond), 0) << worker->Log();
  EXPECT_LT(MonotonicNs() - start, 10 * kSecond);
  EXPECT_EQ(fleet_.AwaitResult(trial).failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_EQ(fleet_.results(trial), 1);
  // Neither runner nor candidate is left.
  const auto left = [&] {
    int n = 0;
    for (const auto& e : std::filesystem::directory_iterator("/proc")) {
      const std::string name = e.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const StatusOr<std::string> maps = ReadFile(e.path().string() + "/maps", 8 << 20);
      n += maps.ok() && maps->find(dir_.path()) != std::string::npos;
    }
    return n + (kill(static_cast<pid_t>(runner[0]), 0) == 0);
  };
  for (int i = 0; i < 40 && left() > 0; ++i) fleet_.Await([] { return false; }, 50 * kMillisecond);
  EXPECT_EQ(left(), 0);
}

TEST_F(WorkerHost, RefusesStateThatItCannotWrite) {
  auto args = Args();
  args[5] = "/sys/whet";
  const auto [code, words] = RunToItsEnd(args);
  EXPECT_EQ(code, 2) << words;
  EXPECT_THAT(words, HasSubstr("cannot make the folder '/sys/whet'"));
}

TEST_F(WorkerHost, FullDiskCostsTrialsNotTheWorker) {
  const std::string small = dir_ / "small";
  ASSERT_TRUE(MakeDirs(small).ok());
  if (mount("whet-test", small.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "no file system can be mounted here: " << std::strerror(errno);
  struct Unmount {
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
    std::string path;
  } const unmount{small};
  auto args = Args();
  args[5] = small;
  HostedWorker worker(args, dir_ / "small.log");
  const std::string device = fleet_.AwaitDevice(), good = Candidate("good");
  EXPECT_EQ(Measure(device, good).failure(), v1::FAILURE_OK) << worker.Log();
  const v1::Measurement m = Measure(device, good + std::string(1 << 20, '\0'));
  EXPECT_EQ(m.failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_THAT(m.message(), HasSubstr("No space left"));
  const std::string spool = small + "/worker/spool";
  for (int i = 0; i < 200 && !std::filesystem::is_empty(spool); ++i)
    fleet_.Await([] { return false; }, 20 * kMillisecond);
  // Not a byte is left: results cannot be kept on disk, and come all the same.
  std::FILE* filler = std::fopen((small + "/filler").c_str(), "w");
  ASSERT_NE(filler, nullptr);
  const std::string block(4096, 'x');
  while (std::fwrite(block.data(), 1, block.size(), filler) == block.size() &&
         std::fflush(filler) == 0) {
  }
  std::fclose(filler);
  EXPECT_EQ(Measure(device, good).failure(), v1::FAILURE_OK) << worker.Log();
  EXPECT_THAT(worker.Log(), HasSubstr("event=result_not_spooled"));
  EXPECT_EQ(worker.Exit(0), -1);
}

TEST_F(WorkerHost, OnlyDialsOut) {
  const auto worker = Start();
  EXPECT_EQ(Measure(fleet_.AwaitDevice(), Candidate("good")).failure(), v1::FAILURE_OK);
  const auto listening = [](pid_t pid) {
    std::set<std::string> sockets;
    for (const auto& e : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
      std::error_code gone;
      const std::string to = std::filesystem::read_symlink(e.path(), gone).string();
      if (to.compare(0, 8, "socket:[") == 0) sockets.insert(to.substr(8, to.size() - 9));
    }
    int n = 0;
    for (const char* table : {"tcp", "tcp6"}) {
      const StatusOr<std::string> text =
          ReadFile(fmt::format("/proc/{}/net/{}", pid, table), 16 << 20);
      if (!text.ok()) continue;
      std::istringstream lines(*text);
      for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::vector<std::string> w;
        for (std::string word; words >> word;) w.push_back(word);
        n += w.size() > 9 && w[3] == "0A" && sockets.contains(w[9]);
      }
    }
    return n;
  };
  EXPECT_GT(listening(getpid()), 0) << "the scripted fleet listens";
  EXPECT_EQ(listening(worker->process().pid()), 0);
}

TEST(WorkerPrograms, HaveNoCompilerInThem) {
  const auto has = [](const std::string& program, const std::string& text) {
    const StatusOr<std::string> bytes = ReadFile(Program(program), size_t{1} << 30);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() && bytes->find(text) != std::string::npos;
  };
  for (const std::string program : {"rpc-worker", "whet-runner"}) {
    for (const std::string of_the_compiler :
         {"libLLVM", "LLVMInitialize", "_ZN4llvm", "liblld", "_ZN3lld"})
      EXPECT_FALSE(has(program, of_the_compiler)) << program << " " << of_the_compiler;
    EXPECT_TRUE(has(program, "libprotobuf.so")) << "the names of libraries are found";
  }
}

}  // namespace
}  // namespace whet::testing
