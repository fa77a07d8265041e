// The parts of the simulation do to the code under test what the real world does, and no more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/sim_log.h"
#include "tests/sim/sim_net.h"

namespace whet::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Net : public ::testing::Test {
 protected:
  SimNet::StreamId Open() {
    return net_.Open(
        link_, SimNet::KeepAlive::kMayHang, [this](uint64_t) { ++client_lost_; },
        [this](uint64_t) { ++server_lost_; });
  }
  void Send(SimNet::StreamId id, int n) {
    net_.Send(id, StreamEnd::kClient, [this, n] { got_.push_back(n); });
  }
  void RunFor(int64_t ns) {
    for (const int64_t until = loop_.now() + ns; loop_.now() < until;) loop_.Step(until);
  }
  bool IsPrefix() const {
    for (size_t i = 0; i < got_.size(); ++i) {
      if (got_[i] != static_cast<int>(i)) return false;
    }
    return true;
  }

  EventLoop loop_;
  Rng rng_{1};
  SimNet net_{&loop_, &rng_};
  SimNet::LinkId link_ = net_.AddLink();
  std::vector<int> got_;
  int client_lost_ = 0, server_lost_ = 0;
};

TEST_F(Net, StreamKeepsItsOrder) {
  net_.set_slow(0.2);
  const auto id = Open();
  for (int i = 0; i < 100; ++i) Send(id, i);
  RunFor(100 * kSecond);
  EXPECT_EQ(got_.size(), 100u);
  EXPECT_TRUE(IsPrefix());
}

TEST_F(Net, BrokenStreamDeliversAPrefixAndBothEndsLearn) {
  std::set<size_t> lengths;
  for (int round = 0; round < 50; ++round) {
    got_.clear();
    client_lost_ = server_lost_ = 0;
    const auto id = Open();
    for (int i = 0; i < 20; ++i) Send(id, i);
    RunFor(4 * kMillisecond);
    net_.Break(id, SimNet::Learn::kBoth);
    Send(id, 20);  // its client does not know yet
    RunFor(kSecond);
    EXPECT_TRUE(IsPrefix());
    EXPECT_LE(got_.size(), 20u);
    EXPECT_EQ(client_lost_, 1);
    EXPECT_EQ(server_lost_, 1);
    EXPECT_FALSE(net_.open(id, StreamEnd::kClient));
    lengths.insert(got_.size());
  }
  EXPECT_GT(lengths.size(), 5u) << "what arrives varies";
}

TEST_F(Net, HalfOpenStreamTakesWhatNobodyGets) {
  const auto id = Open();
  net_.Break(id, SimNet::Learn::kServerOnly);
  RunFor(kSecond);
  EXPECT_EQ(server_lost_, 1);
  EXPECT_EQ(client_lost_, 0);
  Send(id, 0);
  RunFor(kSecond);
  EXPECT_THAT(got_, ElementsAre());
}

TEST_F(Net, KeepAliveThatWorksFindsADeadPeer) {
  const auto id =
      net_.Open(link_, SimNet::KeepAlive::kWorks, [this](uint64_t) { ++client_lost_; }, nullptr);
  net_.Die(id, StreamEnd::kServer, SimNet::Death::kSilent);
  RunFor(10 * kSecond);
  EXPECT_EQ(client_lost_, 0);
  RunFor(15 * kSecond);
  EXPECT_EQ(client_lost_, 1);
}

TEST_F(Net, CutLinkHoldsBackAndLetsGoInOrder) {
  const auto id = Open();
  Send(id, 0);
  RunFor(kSecond);
  net_.Cut(link_, true, false, 5 * kSecond);
  Send(id, 1);
  Send(id, 2);
  RunFor(4 * kSecond);
  EXPECT_THAT(got_, ElementsAre(0));
  RunFor(4 * kSecond);
  Send(id, 3);
  RunFor(kSecond);
  EXPECT_THAT(got_, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(client_lost_ + server_lost_, 0);
}

TEST_F(Net, LongCutEndsTheStreamAtBothEnds) {
  const auto id = Open();
  Send(id, 0);
  RunFor(kSecond);
  net_.Cut(link_, true, true, 60 * kSecond);
  Send(id, 1);
  RunFor(50 * kSecond);
  EXPECT_EQ(client_lost_, 1);
  EXPECT_EQ(server_lost_, 1);
  RunFor(50 * kSecond);
  EXPECT_THAT(got_, ElementsAre(0));
  EXPECT_FALSE(net_.open(id, StreamEnd::kServer));
}

TEST_F(Net, CloseComesAfterWhatWasSent) {
  const auto id = Open();
  Send(id, 0);
  net_.Close(id, StreamEnd::kClient);
  RunFor(kSecond);
  EXPECT_THAT(got_, ElementsAre(0));
  EXPECT_EQ(server_lost_, 1);
  EXPECT_EQ(client_lost_, 0) << "who closes is not told";
}

class Log : public ::testing::Test {
 protected:
  db::Row Job(const std::string& id, db::JobState state = db::JobState::kRunning) {
    return db::JobRow{id, state, "{}", "", 1, 1};
  }
  void Append(db::Row row) {
    const Status s = log_.Append(std::move(row), [this](const StatusOr<db::TrialStatus>& v) {
      said_.push_back(v.status().code());
    });
    ASSERT_TRUE(s.ok()) << s;
  }
  void RunFor(int64_t ns) {
    for (const int64_t until = loop_.now() + ns; loop_.now() < until;) loop_.Step(until);
  }

  EventLoop loop_;
  Rng rng_{1};
  SimLog log_{&loop_, &rng_};
  std::vector<absl::StatusCode> said_;
};

TEST_F(Log, SaysNothingBeforeItIsSynced) {
  log_.set_sync_ns(10 * kSecond);
  Append(Job("a"));
  RunFor(10 * kMillisecond);
  EXPECT_TRUE(log_.jobs.contains("a")) << "committed";
  EXPECT_THAT(said_, ElementsAre());
  RunFor(20 * kSecond);
  EXPECT_THAT(said_, ElementsAre(absl::StatusCode::kOk));
}

TEST_F(Log, PowerLossTakesWhatIsNotSyncedAndAKillDoesNot) {
  int lost = 0, kept = 0;
  for (int i = 0; i < 40; ++i) {
    log_.set_sync_ns(kMillisecond);
    Append(Job(fmt::format("safe {}", i)));
    RunFor(kSecond);
    log_.set_sync_ns(1000 * kSecond);
    const std::string id = fmt::format("job {}", i);
    Append(Job(id));
    RunFor(kSecond / 10);
    const bool synced = said_.size() > 1;
    said_.clear();
    log_.Crash(true);
    EXPECT_TRUE(log_.jobs.contains(fmt::format("safe {}", i)));
    if (!synced) (log_.jobs.contains(id) ? kept : lost) += 1;
  }
  EXPECT_GT(lost, 5);
  EXPECT_GT(kept, 5);
  Append(Job("killed"));
  RunFor(kSecond / 10);
  log_.Crash(false);
  EXPECT_TRUE(log_.jobs.contains("killed"));
}

TEST_F(Log, CrashTakesWhatIsQueued) {
  Append(Job("a"));
  log_.Crash(false);
  RunFor(kSecond);
  EXPECT_FALSE(log_.jobs.contains("a"));
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(Log, FullDiskFailsTheBatchAndRefusesMore) {
  Append(Job("a"));
  log_.set_full(true);
  RunFor(kSecond);
  EXPECT_THAT(said_, ElementsAre(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(log_.Append(Job("b"), nullptr).code(), absl::StatusCode::kResourceExhausted);
  log_.set_full(false);
  Append(Job("b"));
  RunFor(kSecond);
  EXPECT_EQ(said_.back(), absl::StatusCode::kOk);
}

TEST_F(Log, JobThatIsOverStaysAsItIs) {
  Append(Job("a", db::JobState::kDone));
  Append(Job("a"));
  RunFor(kSecond);
  EXPECT_THAT(said_, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(log_.jobs.at("a").state, db::JobState::kDone);
}

}  // namespace
}  // namespace whet::testing
