// The worker's parts that need no device: the racing ladder, guarded memory, the core's
// conversation with tracker and server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "compiler/support/rng.h"
#include "compiler/support/sha256.h"
#include "worker/core/worker_core.h"
#include "worker/measure/guarded.h"
#include "worker/measure/known_good.h"
#include "worker/measure/ladder.h"

namespace whet::worker {
namespace {

using ::testing::HasSubstr;

v1::Measurement Outcome(v1::FailureKind kind) {
  v1::Measurement m;
  m.set_failure(kind);
  m.set_message(kind == v1::FAILURE_OK ? "" : "it did not");
  return m;
}

TEST(FailureStreak, FiveCandidatesThatFailInARowAreLookedInto) {
  FailureStreak streak(5);
  for (const auto kind : {v1::FAILURE_RUN_CRASH, v1::FAILURE_WRONG_OUTPUT, v1::FAILURE_RUN_TIMEOUT,
                          v1::FAILURE_INVALID_TIMING})
    EXPECT_FALSE(streak.Suspicious(Outcome(kind)));
  EXPECT_TRUE(streak.Suspicious(Outcome(v1::FAILURE_RUN_CRASH)));
  streak.Probed(Outcome(v1::FAILURE_OK));
  EXPECT_FALSE(streak.unfit());
  // Counted anew.
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(streak.Suspicious(Outcome(v1::FAILURE_RUN_CRASH)));
  EXPECT_TRUE(streak.Suspicious(Outcome(v1::FAILURE_RUN_CRASH)));
}

TEST(FailureStreak, OneThatIsRightEndsItAndWhatNeverRanDoesNotCount) {
  FailureStreak streak(3);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(streak.Suspicious(Outcome(v1::FAILURE_RUN_CRASH)));
    EXPECT_FALSE(streak.Suspicious(Outcome(v1::FAILURE_BUILD_ERROR)));
    EXPECT_FALSE(streak.Suspicious(Outcome(v1::FAILURE_RUN_CRASH)));
    EXPECT_FALSE(streak.Suspicious(Outcome(v1::FAILURE_OK)));
  }
}

TEST(FailureStreak, ADeviceOnWhichTheKnownGoodFailsIsUnfitUntilItPasses) {
  FailureStreak streak(1);
  EXPECT_TRUE(streak.Suspicious(Outcome(v1::FAILURE_RUN_CRASH)));
  streak.Probed(Outcome(v1::FAILURE_WRONG_OUTPUT));
  EXPECT_TRUE(streak.unfit());
  EXPECT_EQ(streak.reason(), "it did not");
  streak.Probed(Outcome(v1::FAILURE_OK));
  EXPECT_FALSE(streak.unfit());
}

// A kernel that takes `ns` a run with relative noise; counts what it was made to run.
struct Kernel {
  double ns;
  double noise = 0;
  int64_t spent_ns = 0;
  int64_t runs = 0;
  Rng rng{5};
  TimeRuns timer() {
    return [this](int64_t n) {
      const double t = ns * static_cast<double>(n) * (1 + noise * (2 * rng.Uniform() - 1));
      spent_ns += static_cast<int64_t>(t);
      runs += n;
      return std::max<int64_t>(static_cast<int64_t>(t), 1);
    };
  }
};

v1::MeasurePlan Plan(double incumbent) {
  v1::MeasurePlan plan;
  plan.set_incumbent_ns(incumbent);
  plan.set_min_measured_ns(3'000'000);
  plan.set_rung2_ns(10'000'000);
  plan.set_rung3_ns(50'000'000);
  plan.set_sigma(0.02);
  plan.set_min_pairs(10);
  plan.set_pairs_ns(20'000'000);
  return plan;
}

double Total(const LadderResult& r) {
  double total = 0;
  for (const double s : r.samples_ns) total += s * static_cast<double>(r.runs_per_sample);
  return total;
}

TEST(Ladder, ACalibrationThatWasInterruptedIsMadeGood) {
  for (const int interrupted : {1, 2, 3, 4}) {
    Kernel k{500};
    int call = 0;
    const LadderResult r = RunLadder(Plan(0), [&, time = k.timer()](int64_t n) {
      return time(n) + (call++ == interrupted ? 4'000'000 : 0);
    });
    EXPECT_GE(r.runs_per_sample * 500, kSampleNs / 4) << interrupted;
    EXPECT_GE(Total(r), 50'000'000) << interrupted;
    EXPECT_DOUBLE_EQ(Median(r.samples_ns), 500) << interrupted;
  }
}

TEST(Ladder, CandidatesStopOnTheRungThatTheyDeserve) {
  for (const auto& [factor, rung] :
       std::vector<std::pair<double, int>>{{4, 0}, {2, 1}, {1.3, 2}, {1.0, 3}, {0.5, 3}}) {
    Kernel k{100'000 * factor, 0.005};
    const LadderResult r = RunLadder(Plan(100'000), k.timer());
    EXPECT_EQ(r.rung, rung) << factor;
    EXPECT_EQ(r.promising, factor <= 1.0) << factor;
    EXPECT_GE(Total(r), 3e6) << factor;
    EXPECT_NEAR(Median(r.samples_ns) / k.ns, 1, 0.01);
  }
}

TEST(Ladder, DroppedCandidatesAreCheap) {
  Kernel slow{400'000}, good{100'000};
  RunLadder(Plan(100'000), slow.timer());
  RunLadder(Plan(100'000), good.timer());
  EXPECT_LT(slow.spent_ns * 5, good.spent_ns);
}

TEST(Ladder, ALongRunIsASampleAtOnce) {
  Kernel hopeless{40e6}, fair{5e6};
  EXPECT_EQ(RunLadder(Plan(10e6), hopeless.timer()).samples_ns.size(), 2u);
  EXPECT_EQ(hopeless.runs, 3);  // one of them to warm up
  const LadderResult r = RunLadder(Plan(0), fair.timer());
  EXPECT_EQ(fair.runs, 1 + static_cast<int64_t>(r.samples_ns.size()));
}

TEST(Ladder, ARunThatWasHeldUpIsNotTheRecord) {
  for (const int64_t stalled : {2, 3}) {  // after the one to warm up
    Kernel k{1.5e6};
    const auto time = k.timer();
    const LadderResult r = RunLadder(
        Plan(0), [&](int64_t n) { return time(n) + (k.runs == stalled ? 60'000'000 : 0); });
    EXPECT_GE(r.samples_ns.size(), 3u);
    EXPECT_NEAR(Median(r.samples_ns) / k.ns, 1, 0.01) << stalled;
  }
}

TEST(Ladder, EverySuccessHasThreeMillisecondsWhateverItsSpeed) {
  for (const double ns : {50.0, 1'000.0, 77'000.0, 2'900'000.0, 40'000'000.0}) {
    Kernel k{ns};
    const LadderResult r = RunLadder(Plan(ns / 10), k.timer());
    EXPECT_GE(Total(r), 3e6) << ns;
    EXPECT_LE(r.samples_ns.size(), kMaxTimingSamples);
    EXPECT_TRUE(ns > 10e6 || static_cast<int64_t>(r.samples_ns.size()) * r.runs_per_sample >= 3)
        << ns;
  }
}

TEST(Ladder, SamplesOfTinyKernelsAreLongEnoughForTheClock) {
  Kernel k{30};
  const LadderResult r = RunLadder(Plan(0), k.timer());
  EXPECT_GE(k.ns * static_cast<double>(r.runs_per_sample), kSampleNs * 0.9);
  EXPECT_EQ(r.rung, 3);
}

TEST(Ladder, PairsCancelDriftAndGiveTheRatio) {
  double speed = 1;  // of the machine, falling all the time
  auto drifting = [&](double ns) {
    return [&, ns](int64_t n) {
      const double t = ns * static_cast<double>(n) * speed;
      speed *= 1.001;
      return static_cast<int64_t>(t);
    };
  };
  const PairsResult r = RunPairs(Plan(0), drifting(80'000), drifting(100'000));
  EXPECT_GE(r.ratios.size(), 10u);
  EXPECT_NEAR(Median(r.ratios), 0.8, 0.004);
}

TEST(Ladder, MedianOfEvenAndOdd) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(Guarded, BuffersEndAtAPageAndShowWritesBeside) {
  GuardedMemory memory;
  char* a = memory.Add(100);
  char* b = memory.Add(4096);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ((reinterpret_cast<uintptr_t>(b) + 4096) % 4096, 0u);
  EXPECT_EQ(memory.FirstDamaged(), -1);
  a[100] = 1;
  EXPECT_EQ(memory.FirstDamaged(), 0);
  a[100] = static_cast<char>(kCanary);
  a[-1] = 1;
  EXPECT_EQ(memory.FirstDamaged(), 0);
  EXPECT_DEATH(b[4096] = 1, "");
  ASSERT_TRUE(memory.MakeReadOnly(b));
  EXPECT_DEATH(b[0] = 1, "");
}

// ---- the core, driven by hand

class WorkerCoreTest : public ::testing::Test {
 protected:
  WorkerCoreTest() : core_(Config(), {}, {}, 1) {}

  static WorkerConfig Config() {
    WorkerConfig c;
    c.device.set_worker_id("w");
    c.device.set_device_id("w/cpu0");
    c.device.set_key("k");
    c.max_spool = 3;
    return c;
  }
  template <typename T>
  static std::vector<T> All(const Actions& actions) {
    std::vector<T> r;
    for (const Action& a : actions) {
      if (const T* x = std::get_if<T>(&a)) r.push_back(*x);
    }
    return r;
  }
  // Another process, or one that is configured otherwise.
  void Restart(const WorkerConfig& config, const std::map<std::string, uint64_t>& cached = {},
               std::map<std::string, PartialBlob> partial = {}) {
    std::destroy_at(&core_);
    std::construct_at(&core_, config, std::vector<v1::SpooledResult>{}, cached, uint64_t{1},
                      std::move(partial));
  }
  Actions Step(const Event& e) { return core_.Step(now_, e); }
  Actions After(int64_t ns) {
    now_ += ns;
    return Step(Tick{});
  }

  // Registered, leased and greeted.
  void Connect() {
    Step(Tick{});
    FromTracker registered;
    registered.message.mutable_registered()->set_heartbeat_ns(5 * kSecond);
    Step(registered);
    Step(LeaseMessage(7));
    Greet();
  }
  static FromTracker LeaseMessage(int64_t epoch) {
    FromTracker m;
    m.message.mutable_lease()->set_epoch(epoch);
    m.message.mutable_lease()->set_incarnation("i");
    m.message.mutable_lease()->set_server_address("server:1");
    return m;
  }
  Actions Greet(uint64_t fetch_bytes = 0) {
    FromServer m;
    m.message.mutable_hello()->set_fetch_bytes(fetch_bytes);
    m.message.mutable_hello()->set_protocol(1);
    m.message.mutable_hello()->set_log_id("log");
    m.message.mutable_hello()->set_heartbeat_ns(5 * kSecond);
    return Step(m);
  }
  static FromServer AssignMessage(int64_t trial, int64_t epoch = 7) {
    FromServer m;
    v1::Assign& a = *m.message.mutable_assign();
    a.mutable_ids()->set_log_id("log");
    a.mutable_ids()->set_trial(trial);
    a.mutable_ids()->set_lease_epoch(epoch);
    a.mutable_ids()->set_incarnation("i");
    a.set_object_sha256(Sha256Hex("object"));
    a.set_object_bytes(6);
    a.set_expected_sha256(Sha256Hex("expected"));
    a.set_expected_bytes(8);
    return m;
  }
  static FromServer ChunkMessage(const std::string& of, const std::string& data) {
    FromServer m;
    m.message.mutable_chunk()->set_sha256(Sha256Hex(of));
    m.message.mutable_chunk()->set_total(data.size());
    m.message.mutable_chunk()->set_data(data);
    return m;
  }
  void HaveBlobs() {
    for (const std::string text : {"object", "expected"}) {
      Step(ChunkMessage(text, text));
      Step(BlobStored{Sha256Hex(text), OkStatus()});
    }
  }
  static FromServer PieceMessage(const std::string& whole, size_t at, size_t n) {
    FromServer m;
    m.message.mutable_chunk()->set_sha256(Sha256Hex(whole));
    m.message.mutable_chunk()->set_total(whole.size());
    m.message.mutable_chunk()->set_offset(at);
    m.message.mutable_chunk()->set_data(whole.substr(at, n));
    return m;
  }
  static std::vector<v1::Fetch> Fetches(const Actions& a) {
    std::vector<v1::Fetch> r;
    for (const ToServer& m : All<ToServer>(a)) {
      if (m.message.has_fetch()) r.push_back(m.message.fetch());
    }
    return r;
  }
  static RunEnded Ok() {
    RunEnded e;
    e.measurement.set_failure(v1::FAILURE_OK);
    return e;
  }
  static std::vector<v1::Result> Results(const Actions& a) {
    std::vector<v1::Result> r;
    for (const ToServer& m : All<ToServer>(a)) {
      if (m.message.has_result()) r.push_back(m.message.result());
    }
    return r;
  }
  static FromServer AckMessage(int64_t watermark) {
    FromServer m;
    m.message.mutable_ack()->set_watermark(watermark);
    return m;
  }

  WorkerCore core_;
  int64_t now_ = kSecond;
};

TEST_F(WorkerCoreTest, FetchesRunsReportsAndForgetsAfterTheAck) {
  Connect();
  Actions a = Step(AssignMessage(1));
  std::set<std::string> fetched;
  for (const ToServer& m : All<ToServer>(a)) fetched.insert(m.message.fetch().sha256());
  EXPECT_EQ(fetched, (std::set<std::string>{Sha256Hex("object"), Sha256Hex("expected")}));
  EXPECT_TRUE(All<StartRun>(a).empty());
  HaveBlobs();
  EXPECT_TRUE(core_.running());
  a = Step(Ok());
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_EQ(All<SaveResult>(a).size(), 1u);
  EXPECT_EQ(core_.kept_results(), 1u);
  a = Step(AckMessage(Results(a)[0].sequence()));
  EXPECT_EQ(All<DropResult>(a).size(), 1u);
  EXPECT_EQ(core_.kept_results(), 0u);
  // The next one with the same blobs runs at once.
  EXPECT_EQ(All<StartRun>(Step(AssignMessage(2))).size(), 1u);
}

TEST_F(WorkerCoreTest, RunsOneAtATime) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  EXPECT_TRUE(All<StartRun>(Step(AssignMessage(2))).empty());
  EXPECT_EQ(All<StartRun>(Step(Ok())).size(), 1u);
}

TEST_F(WorkerCoreTest, BlobWithOtherContentsIsNotRun) {
  Connect();
  Step(AssignMessage(1));
  const Actions a = Step(ChunkMessage("object", "evil!!"));
  EXPECT_TRUE(All<StoreBlob>(a).empty());
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_EQ(Results(a)[0].measurement().failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_THAT(Results(a)[0].measurement().message(), HasSubstr("other contents"));
}

TEST_F(WorkerCoreTest, BlobBeyondTheCapIsRefusedBeforeItIsFetched) {
  Connect();
  FromServer m = AssignMessage(1);
  m.message.mutable_assign()->set_object_bytes(uint64_t{1} << 40);
  const Actions a = Step(m);
  EXPECT_EQ(Results(a).size(), 1u);
  for (const ToServer& s : All<ToServer>(a)) EXPECT_FALSE(s.message.has_fetch());
}

TEST_F(WorkerCoreTest, NothingNewStartsWithoutTheServerAndResultsAreResent) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  Step(AssignMessage(2));
  Step(ServerLost{Unavailable("gone")});
  Actions a = Step(Ok());  // what ran is finished and kept
  EXPECT_TRUE(Results(a).empty());
  EXPECT_TRUE(All<StartRun>(a).empty());
  EXPECT_EQ(core_.kept_results(), 1u);
  a = After(20 * kSecond);
  ASSERT_EQ(All<ConnectServer>(a).size(), 1u);
  a = Greet();
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_EQ(Results(a)[0].ids().trial(), 1);
  EXPECT_TRUE(All<StartRun>(a).empty()) << "the server gives its trials out again";
}

TEST_F(WorkerCoreTest, ResultsOfAnotherLogAreNotSentToThisServer) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  Step(ServerLost{Unavailable("gone")});
  Step(Ok());
  After(20 * kSecond);
  FromServer m;
  m.message.mutable_hello()->set_protocol(1);
  m.message.mutable_hello()->set_log_id("another");
  m.message.mutable_hello()->set_heartbeat_ns(5 * kSecond);
  EXPECT_TRUE(Results(Step(m)).empty());
  EXPECT_EQ(core_.kept_results(), 1u);
}

TEST_F(WorkerCoreTest, SpoolIsBoundedAndSaysWhatItDrops) {
  Connect();
  for (int64_t trial = 1; trial <= 4; ++trial) {
    Step(AssignMessage(trial));
    if (trial == 1) HaveBlobs();
    const Actions a = Step(Ok());
    EXPECT_EQ(All<SayStatus>(a).size(), trial == 4 ? 1u : 0u);
  }
  EXPECT_EQ(core_.kept_results(), 3u);
}

TEST_F(WorkerCoreTest, AssignmentsUnderAnotherLeaseAreIgnored) {
  Connect();
  EXPECT_TRUE(All<ToServer>(Step(AssignMessage(1, 6))).empty());
  FromTracker ended;
  ended.message.mutable_ended()->set_epoch(7);
  Step(ended);
  EXPECT_TRUE(All<ToServer>(Step(AssignMessage(2, 7))).empty());
}

TEST_F(WorkerCoreTest, SilentServerAndTrackerAreGivenUp) {
  Connect();
  bool closed = false;
  for (int i = 0; i < 40 && !closed; ++i) closed = !All<CloseServer>(After(kSecond)).empty();
  EXPECT_TRUE(closed);
  EXPECT_LE(now_, kSecond + 27 * kSecond);
  // A tracker that accepts and says nothing.
  Step(TrackerLost{Unavailable("gone")});
  const Actions a = After(20 * kSecond);
  ASSERT_EQ(All<ConnectTracker>(a).size(), 1u);
  EXPECT_EQ(All<CloseTracker>(After(6 * kSecond)).size(), 1u);
}

TEST_F(WorkerCoreTest, ReconnectsBackOff) {
  Step(Tick{});
  int64_t last = 0;
  int attempts = 0;
  for (const int64_t end = now_ + 120 * kSecond; now_ < end;) {
    Step(TrackerLost{Unavailable("refused")});
    for (bool again = false; !again && now_ < end;)
      again = !All<ConnectTracker>(After(50 * kMillisecond)).empty();
    ++attempts;
    last = now_;
  }
  EXPECT_GT(attempts, 10);
  EXPECT_LT(attempts, 40);
  EXPECT_GT(last, 0);
}

TEST_F(WorkerCoreTest, DrainFinishesDeliversAndLeaves) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  Step(AssignMessage(2));
  Actions a = Step(DrainRequested{});
  EXPECT_TRUE(All<Exit>(a).empty());
  a = Step(Ok());
  EXPECT_TRUE(All<StartRun>(a).empty());
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_TRUE(All<Exit>(a).empty()) << "the result is not acknowledged yet";
  a = Step(AckMessage(Results(a)[0].sequence()));
  EXPECT_EQ(All<Exit>(a).size(), 1u);
  bool left = false;
  for (const ToTracker& m : All<ToTracker>(a)) left = left || m.message.has_leave();
  EXPECT_TRUE(left);
}

TEST_F(WorkerCoreTest, DrainWithoutAServerEndsWithinItsLimit) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  Step(ServerLost{Unavailable("gone")});
  Step(DrainRequested{});
  Actions a = Step(Ok());
  int64_t waited = 0;
  for (; All<Exit>(a).empty() && waited < 60; ++waited) a = After(kSecond);
  EXPECT_LE(waited, 10);
  EXPECT_EQ(core_.kept_results(), 1u);  // on disk, for the next start
}

TEST_F(WorkerCoreTest, KeptResultsOfAFormerProcessAreDeliveredWithoutALease) {
  v1::SpooledResult kept;
  kept.mutable_result()->set_sequence(5);
  kept.set_server_address("server:1");
  kept.set_log_id("log");
  WorkerCore core(Config(), {kept}, {}, 1);
  const Actions a = core.Step(now_, Tick{});
  ASSERT_EQ(All<ConnectServer>(a).size(), 1u);
  EXPECT_EQ(All<ConnectServer>(a)[0].address, "server:1");
  FromServer m;
  m.message.mutable_hello()->set_protocol(1);
  m.message.mutable_hello()->set_log_id("log");
  m.message.mutable_hello()->set_heartbeat_ns(5 * kSecond);
  EXPECT_EQ(Results(core.Step(now_, m)).size(), 1u);
}

TEST_F(WorkerCoreTest, ResultWhoseNumberNoWorkerGaveOutIsLeftAlone) {
  std::vector<v1::SpooledResult> spool(4);
  const int64_t sequences[] = {INT64_MAX, -1, WorkerCore::kMaxSequence, 0};
  for (size_t i = 0; i < spool.size(); ++i) {
    spool[i].mutable_result()->set_sequence(sequences[i]);
    spool[i].set_server_address("server:1");
  }
  EXPECT_EQ(WorkerCore(Config(), spool, {}, 1).kept_results(), 1u);
}

TEST_F(WorkerCoreTest, TransferGoesOnWhereTheLinkBroke) {
  Connect();
  Step(ServerLost{Unavailable("gone")});
  After(20 * kSecond);
  Greet(4);  // this server answers with four bytes at a time
  std::vector<v1::Fetch> f = Fetches(Step(AssignMessage(1)));
  ASSERT_EQ(f.size(), 2u);
  EXPECT_EQ(f[0].max_bytes(), 4u);
  Actions a = Step(PieceMessage("expected", 0, 4));
  ASSERT_EQ(All<StoreBlob>(a).size(), 1u);
  EXPECT_FALSE(All<StoreBlob>(a)[0].last);
  f = Fetches(a);
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].offset(), 4u);
  Step(ServerLost{Unavailable("gone again")});
  After(20 * kSecond);
  Greet();
  f = Fetches(Step(AssignMessage(1)));
  ASSERT_EQ(f.size(), 2u);
  EXPECT_EQ(f[0].sha256(), Sha256Hex("expected"));
  EXPECT_EQ(f[0].offset(), 4u);
  EXPECT_EQ(f[1].offset(), 0u);
  a = Step(PieceMessage("expected", 4, 4));
  ASSERT_EQ(All<StoreBlob>(a).size(), 1u);
  EXPECT_EQ(All<StoreBlob>(a)[0].offset, 4u);
  EXPECT_TRUE(All<StoreBlob>(a)[0].last);
  Step(ChunkMessage("object", "object"));
  Step(BlobStored{Sha256Hex("expected"), OkStatus()});
  EXPECT_EQ(All<StartRun>(Step(BlobStored{Sha256Hex("object"), OkStatus()})).size(), 1u);
}

TEST_F(WorkerCoreTest, TransferOfALeaseThatEndedIsAskedForAgainUnderTheNext) {
  Connect();
  EXPECT_EQ(Fetches(Step(AssignMessage(1))).size(), 2u);
  FromTracker ended;
  ended.message.mutable_ended()->set_epoch(7);
  EXPECT_EQ(All<CloseServer>(Step(ended)).size(), 1u);
  Step(LeaseMessage(8));
  Greet();
  EXPECT_EQ(Fetches(Step(AssignMessage(1, 8))).size(), 2u);
}

TEST_F(WorkerCoreTest, TransferGoesOnWhereAFormerProcessStopped) {
  for (const std::string left : {"expe", "evil", "expected"}) {
    std::map<std::string, PartialBlob> partial;
    PartialBlob& p = partial[Sha256Hex("expected")];
    p.bytes = left.size();
    p.hash.Update(left);
    Restart(Config(), {{Sha256Hex("object"), 6}}, std::move(partial));
    Connect();
    const std::vector<v1::Fetch> f = Fetches(Step(AssignMessage(1)));
    ASSERT_EQ(f.size(), 1u) << left;
    // What has nothing left to come is not believed: its process did not find it whole.
    EXPECT_EQ(f[0].offset(), left.size() < 8 ? 4u : 0u);
    const Actions a = Step(PieceMessage("expected", f[0].offset(), 8));
    EXPECT_EQ(All<StoreBlob>(a).size(), left == "evil" ? 0u : 1u);
    EXPECT_EQ(All<DropBlob>(a).size(), left == "evil" ? 1u : 0u);
    EXPECT_EQ(Results(a).size(), left == "evil" ? 1u : 0u);
  }
}

TEST_F(WorkerCoreTest, ChunksThatDoNotFitGiveTheTrialBack) {
  const std::vector<FromServer> nonsense = {
      PieceMessage("object", 1, 5), PieceMessage("object", 0, 0), ChunkMessage("object", "objec"),
      ChunkMessage("object", "objects"), [] {
        FromServer m = ChunkMessage("object", "object");
        m.message.mutable_chunk()->set_error("no such blob");
        return m;
      }()};
  Connect();
  int64_t trial = 0;
  for (const FromServer& m : nonsense) {
    Step(AssignMessage(++trial));
    const Actions a = Step(m);
    EXPECT_TRUE(All<StoreBlob>(a).empty()) << trial;
    ASSERT_EQ(Results(a).size(), 1u) << trial;
    EXPECT_EQ(Results(a)[0].measurement().failure(), v1::FAILURE_INFRASTRUCTURE);
  }
  // Nobody asked for this one.
  EXPECT_TRUE(Step(ChunkMessage("unwanted", "unwanted")).empty());
  Step(AssignMessage(++trial));
  HaveBlobs();
  EXPECT_TRUE(core_.running());
}

TEST_F(WorkerCoreTest, FullDiskGivesTheTrialBackAndTheNextIsFetchedAnew) {
  Connect();
  Step(AssignMessage(1));
  Step(ChunkMessage("object", "object"));
  Actions a = Step(BlobStored{Sha256Hex("object"), ResourceExhausted("No space left on device")});
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_THAT(Results(a)[0].measurement().message(), HasSubstr("No space left"));
  const std::vector<v1::Fetch> f = Fetches(Step(AssignMessage(2)));
  ASSERT_EQ(f.size(), 1u);  // the other one is on its way
  EXPECT_EQ(f[0].sha256(), Sha256Hex("object"));
  HaveBlobs();
  EXPECT_TRUE(core_.running());
}

TEST_F(WorkerCoreTest, FileThatChangedIsFetchedAgain) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  RunEnded e;
  e.measurement.set_failure(v1::FAILURE_INFRASTRUCTURE);
  e.damaged = {Sha256Hex("object")};
  const Actions a = Step(e);
  EXPECT_EQ(All<DropBlob>(a).size(), 1u);
  EXPECT_EQ(Results(a).size(), 1u);
  ASSERT_EQ(Fetches(Step(AssignMessage(2))).size(), 1u);
}

TEST_F(WorkerCoreTest, WhatTheDeviceCannotRunIsRefusedBeforeItIsFetched) {
  WorkerConfig config = Config();
  config.device.set_feature_set("x86_64 +avx,+avx2");
  config.device.add_cpu_features("lzcnt");
  Restart(config);
  Connect();
  int64_t trial = 0;
  for (const auto& [features, words] : std::vector<std::pair<std::string, std::string>>{
           {"x86_64 +avx,+avx512f", "avx512f"}, {"aarch64 +neon", "aarch64"}, {"\n", "?"}}) {
    FromServer m = AssignMessage(++trial);
    m.message.mutable_assign()->set_feature_set(features);
    const Actions a = Step(m);
    EXPECT_TRUE(Fetches(a).empty()) << features;
    ASSERT_EQ(Results(a).size(), 1u) << features;
    EXPECT_EQ(Results(a)[0].measurement().failure(), v1::FAILURE_NOT_RUNNABLE);
    EXPECT_THAT(Results(a)[0].measurement().message(), HasSubstr(words));
  }
  for (const std::string features :
       {"x86_64 +avx,+avx2", "x86_64 +avx", "x86_64", "x86_64 +lzcnt"}) {
    FromServer m = AssignMessage(++trial);
    m.message.mutable_assign()->set_feature_set(features);
    EXPECT_TRUE(Results(Step(m)).empty()) << features;
  }
}

TEST_F(WorkerCoreTest, BaselineIsTimedAgainAfterSoManyRuns) {
  WorkerConfig config = Config();
  config.baseline_version = 9;
  config.baseline_ns = 1000;
  config.baseline_every = 2;
  Restart(config);
  Connect();
  std::vector<bool> due;
  std::vector<std::pair<double, uint32_t>> sent;
  for (int64_t trial = 1; trial <= 6; ++trial) {
    Actions a = Step(AssignMessage(trial));
    if (trial == 1) {
      Step(ChunkMessage("object", "object"));
      Step(BlobStored{Sha256Hex("object"), OkStatus()});
      Step(ChunkMessage("expected", "expected"));
      a = Step(BlobStored{Sha256Hex("expected"), OkStatus()});
    }
    ASSERT_EQ(All<StartRun>(a).size(), 1u);
    due.push_back(All<StartRun>(a)[0].baseline);
    RunEnded e = Ok();
    if (trial == 4) e.baseline_ns = 1100;  // at the third it could not be timed
    const auto r = Results(Step(e));
    ASSERT_EQ(r.size(), 1u);
    EXPECT_EQ(r[0].measurement().device_baseline_version(), 9u);
    sent.emplace_back(r[0].measurement().device_baseline_ns(),
                      r[0].measurement().device_baseline_age());
    Step(AckMessage(r[0].sequence()));
  }
  EXPECT_EQ(due, (std::vector<bool>{false, false, true, true, false, true}));
  EXPECT_EQ(sent, (std::vector<std::pair<double, uint32_t>>{
                      {1000, 0}, {1000, 1}, {1000, 2}, {1100, 0}, {1100, 1}, {1100, 2}}));
}

TEST_F(WorkerCoreTest, DrainGivesALongRunUpAndSaysSo) {
  Connect();
  Step(AssignMessage(1));
  HaveBlobs();
  Step(DrainRequested{});
  int64_t waited = 0;
  Actions a;
  while (Results(a).empty() && ++waited < 20) a = After(kSecond);
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_LE(waited, 5);
  EXPECT_EQ(Results(a)[0].measurement().failure(), v1::FAILURE_INFRASTRUCTURE);
  EXPECT_TRUE(All<Exit>(a).empty()) << "the result is not acknowledged yet";
  EXPECT_TRUE(Results(Step(Ok())).empty()) << "one result each";
  while (All<Exit>(a).empty() && ++waited < 20) a = After(kSecond);
  EXPECT_LE(waited, 9);
}

// Whatever a server sends: one run at a time, none twice, a bounded cache, and honest work after
// it.
TEST_F(WorkerCoreTest, NonsenseFromAServerIsSurvived) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    WorkerConfig config = Config();
    config.max_cache_bytes = 20;
    Restart(config);
    now_ = kSecond;
    Connect();
    Rng rng(seed);
    std::set<std::string> started;
    int runs = 0;
    bool running = false;
    const auto take = [&](const Actions& actions) {
      for (const StartRun& s : All<StartRun>(actions)) {
        EXPECT_FALSE(running) << "seed " << seed;
        running = true;
        ++runs;
        started.insert(s.assign.ids().SerializeAsString());
      }
    };
    const std::vector<std::string> blobs = {"object", "expected", "another", ""};
    for (int64_t i = 0; i < 300; ++i) {
      const std::string& blob = blobs[static_cast<size_t>(rng.Below(4))];
      FromServer m;
      switch (rng.Below(10)) {
        case 0: m = AssignMessage(i, 7 + (rng.Below(4) == 0)); break;
        case 1: m = ChunkMessage(blob, blob); break;
        case 2: m = PieceMessage(blob, blob.empty() ? 0 : 1, 2); break;
        case 3: m = AckMessage(rng.Below(1000) - 2); break;
        case 4: m.message.mutable_revoke()->mutable_ids()->set_trial(i); break;
        case 5: m.message.mutable_hello()->set_refusal("go away"); break;
        case 6: m.message.mutable_assign()->set_object_bytes(rng.Next()); break;
        case 7: break;
        case 8:
          take(Step(BlobStored{Sha256Hex(blob), rng.Below(2) ? OkStatus() : DataLoss("torn")}));
          continue;
        default:
          if (running) {
            running = false;
            take(Step(Ok()));
          }
          continue;
      }
      take(Step(m));
      EXPECT_LE(core_.kept_results(), 3u);
    }
    EXPECT_EQ(static_cast<size_t>(runs), started.size()) << "seed " << seed;
    if (running) Step(Ok());
    Step(ServerLost{Unavailable("gone")});
    After(20 * kSecond);
    Greet();
    Step(AssignMessage(1000));
    HaveBlobs();
    EXPECT_TRUE(core_.running()) << "seed " << seed;
  }
}

TEST_F(WorkerCoreTest, SpoolIsBoundedInBytes) {
  WorkerConfig config = Config();
  config.max_spool_bytes = 1000;
  Restart(config);
  Connect();
  for (int64_t trial = 1; trial <= 2; ++trial) {
    Step(AssignMessage(trial));
    if (trial == 1) HaveBlobs();
    RunEnded e = Ok();
    e.measurement.set_message(std::string(600, 'x'));
    EXPECT_EQ(All<DropResult>(Step(e)).size(), trial == 2 ? 1u : 0u);
  }
  EXPECT_EQ(core_.kept_results(), 1u);
}

TEST_F(WorkerCoreTest, CacheIsBounded) {
  WorkerConfig config = Config();
  config.max_cache_bytes = 10;
  WorkerCore core(config, {}, {{Sha256Hex("a"), 6}, {Sha256Hex("b"), 6}}, 1);
  EXPECT_EQ(All<DropBlob>(core.Step(now_, Tick{})).size(), 1u);
}

}  // namespace
}  // namespace whet::worker
