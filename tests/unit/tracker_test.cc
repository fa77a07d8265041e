// The lease table: grants, fences, silence, restarts; and a long random run against its invariants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/support/rng.h"
#include "tracker/core/lease_table.h"

namespace whet::tracker {
namespace {

using ::testing::HasSubstr;

v1::AttachRequest RegisterMessage(const std::string& worker, const std::string& key,
                                  const std::string& boot = "boot1", int64_t held = 0) {
  v1::AttachRequest m;
  v1::Register& r = *m.mutable_register_();
  r.mutable_protocol()->set_min(1);
  r.mutable_protocol()->set_max(1);
  r.mutable_device()->set_worker_id(worker);
  r.mutable_device()->set_device_id(worker + "/cpu0");
  r.mutable_device()->set_boot_id(boot);
  r.mutable_device()->set_key(key);
  if (held) {
    r.mutable_held()->set_epoch(held);
    r.mutable_held()->set_device_id(worker + "/cpu0");
  }
  return m;
}
v1::AttachRequest HeartbeatMessage() {
  v1::AttachRequest m;
  m.mutable_heartbeat();
  return m;
}
v1::LeaseRequest PresentMessage(const std::string& server,
                                std::vector<std::pair<int64_t, std::string>> held = {}) {
  v1::LeaseRequest m;
  v1::Present& p = *m.mutable_present();
  p.mutable_protocol()->set_min(1);
  p.mutable_protocol()->set_max(1);
  p.set_server_id(server);
  p.set_server_address("127.0.0.1:1");
  for (const auto& [epoch, device] : held) {
    v1::HeldLease& h = *p.add_held();
    h.set_epoch(epoch);
    h.set_device_id(device);
    h.set_incarnation("before");
    h.set_key("k");
  }
  return m;
}
v1::LeaseRequest WantMessage(const std::string& key, uint32_t count) {
  v1::LeaseRequest m;
  m.mutable_want()->set_key(key);
  m.mutable_want()->set_count(count);
  return m;
}
v1::LeaseRequest RenewMessage(int64_t epoch) {
  v1::LeaseRequest m;
  m.mutable_renew()->add_epochs(epoch);
  return m;
}
v1::LeaseRequest ReleaseMessage(int64_t epoch) {
  v1::LeaseRequest m;
  m.mutable_release()->set_epoch(epoch);
  return m;
}

template <typename T>
std::vector<T> All(const Actions& actions) {
  std::vector<T> found;
  for (const Action& a : actions) {
    if (const T* x = std::get_if<T>(&a)) found.push_back(*x);
  }
  return found;
}
std::vector<int64_t> Granted(const Actions& actions) {
  std::vector<int64_t> epochs;
  for (const ToServer& s : All<ToServer>(actions)) {
    if (s.message.has_granted()) epochs.push_back(s.message.granted().epoch());
  }
  return epochs;
}
std::vector<std::string> Ended(const Actions& actions) {
  std::vector<std::string> reasons;
  for (const ToServer& s : All<ToServer>(actions)) {
    if (s.message.has_ended()) reasons.push_back(s.message.ended().reason());
  }
  return reasons;
}

class Table : public ::testing::Test {
 protected:
  LeaseTable table_{TableConfig{}, "inc", 1, 1'000'000, false, kSecond};
  int64_t now_ = kSecond;
};

TEST_F(Table, GrantsAWaitingServerTheDeviceThatComes) {
  table_.FromServer(now_, 100, PresentMessage("s"));
  table_.FromServer(now_, 100, WantMessage("k", 2));
  const Actions a = table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  EXPECT_EQ(Granted(a).size(), 1u);
  // The worker hears of it too, with the address to dial.
  const auto to_worker = All<ToWorker>(a);
  ASSERT_EQ(to_worker.size(), 2u);
  EXPECT_TRUE(to_worker[0].message.has_registered());
  EXPECT_EQ(to_worker[1].message.lease().server_address(), "127.0.0.1:1");
  EXPECT_EQ(to_worker[1].message.lease().epoch(), Granted(a)[0]);
  EXPECT_TRUE(Granted(table_.FromWorker(now_, 2, RegisterMessage("w2", "other"))).empty());
}

TEST_F(Table, UnknownKeyAnswersAtOnceWithTheKeysThatExist) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "rpi4"));
  table_.FromWorker(now_, 2, RegisterMessage("w2", "local"));
  table_.FromServer(now_, 100, PresentMessage("s"));
  const auto replies = All<ToServer>(table_.FromServer(now_, 100, WantMessage("rpi5", 1)));
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_THAT(replies[0].message.unknown_key().known(), ::testing::ElementsAre("local", "rpi4"));
  // A device of that key that comes later is granted all the same.
  EXPECT_EQ(Granted(table_.FromWorker(now_, 3, RegisterMessage("w3", "rpi5"))).size(), 1u);
}

TEST_F(Table, ReleasedDeviceGoesToTheNextServerUnderALaterEpoch) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  table_.FromServer(now_, 100, PresentMessage("a"));
  table_.FromServer(now_, 200, PresentMessage("b"));
  const auto first = Granted(table_.FromServer(now_, 100, WantMessage("k", 1)));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(Granted(table_.FromServer(now_, 200, WantMessage("k", 1))).empty());
  table_.FromServer(now_, 100, WantMessage("k", 0));
  const auto second = Granted(table_.FromServer(now_, 100, ReleaseMessage(first[0])));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_GT(second[0], first[0]);
  // The former holder can neither renew nor release what is no longer its own.
  EXPECT_THAT(Ended(table_.FromServer(now_, 100, RenewMessage(second[0]))),
              ::testing::ElementsAre("the lease has ended"));
  table_.FromServer(now_, 100, ReleaseMessage(second[0]));
  EXPECT_EQ(table_.leases(), 1u);
}

TEST_F(Table, DevicesAreSharedBetweenServers) {
  table_.FromServer(now_, 100, PresentMessage("a"));
  table_.FromServer(now_, 200, PresentMessage("b"));
  table_.FromServer(now_, 100, WantMessage("k", 10));
  table_.FromServer(now_, 200, WantMessage("k", 10));
  std::map<uint64_t, int> got;
  for (uint64_t w = 1; w <= 4; ++w) {
    for (const ToServer& s :
         All<ToServer>(table_.FromWorker(now_, w, RegisterMessage("w" + std::to_string(w), "k"))))
      got[s.session] += s.message.has_granted();
  }
  EXPECT_EQ(got[100], 2);
  EXPECT_EQ(got[200], 2);
}

TEST_F(Table, SilentWorkerIsSuspectThenForgottenWithin25Seconds) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  table_.FromServer(now_, 100, PresentMessage("s"));
  table_.FromServer(now_, 100, WantMessage("k", 1));
  int64_t now = now_;
  for (; now - now_ <= 25 * kSecond; now += kSecond) {
    table_.FromServer(now, 100, RenewMessage(1));
    EXPECT_TRUE(Ended(table_.Tick(now)).empty()) << now;
    EXPECT_EQ(table_.List(now, "").devices(0).state(),
              now - now_ > 15 * kSecond ? "suspect" : "leased");
  }
  EXPECT_THAT(Ended(table_.Tick(now)), ::testing::ElementsAre("the worker is silent"));
  EXPECT_EQ(table_.List(now, "").devices_size(), 0);
}

TEST_F(Table, LateHeartbeatsEvictNobody) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  Rng rng(7);
  int64_t now = now_;
  while (now < now_ + 600 * kSecond) {  // 5 s interval with up to 4 s of jitter
    const int64_t next = now + 5 * kSecond + rng.Below(4 * kSecond);
    for (; now < next; now += kSecond) EXPECT_TRUE(All<EndSession>(table_.Tick(now)).empty());
    now = next;
    table_.FromWorker(now, 1, HeartbeatMessage());
  }
  EXPECT_EQ(table_.List(now, "k").devices(0).state(), "idle");
}

TEST_F(Table, LeaseThatIsNotRenewedEnds) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  table_.FromServer(now_, 100, PresentMessage("s"));
  table_.FromServer(now_, 100, WantMessage("k", 1));
  table_.ServerGone(now_, 100);
  EXPECT_EQ(table_.leases(), 1u);
  table_.FromWorker(now_ + 14 * kSecond, 1, HeartbeatMessage());
  table_.Tick(now_ + 14 * kSecond);
  EXPECT_EQ(table_.leases(), 1u);
  const Actions a = table_.Tick(now_ + 15 * kSecond);
  EXPECT_EQ(table_.leases(), 0u);
  ASSERT_EQ(All<ToWorker>(a).size(), 1u);
  EXPECT_TRUE(All<ToWorker>(a)[0].message.has_ended());
}

TEST_F(Table, ServerThatComesBackKeepsItsLease) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  table_.FromServer(now_, 100, PresentMessage("s"));
  table_.FromServer(now_, 100, WantMessage("k", 1));
  table_.ServerGone(now_, 100);
  EXPECT_TRUE(
      Ended(table_.FromServer(now_ + 10 * kSecond, 101, PresentMessage("s", {{1, "w1/cpu0"}})))
          .empty());
  table_.FromWorker(now_ + 20 * kSecond, 1, HeartbeatMessage());
  table_.Tick(now_ + 20 * kSecond);
  EXPECT_EQ(table_.leases(), 1u);
}

TEST_F(Table, ServerThatComesBackWithoutItsLeaseIsGrantedTheDeviceAnewAtOnce) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  table_.FromServer(now_, 100, PresentMessage("s"));
  ASSERT_EQ(Granted(table_.FromServer(now_, 100, WantMessage("k", 1))), std::vector<int64_t>{1});
  // Killed and started again: it knows of no lease, and its old stream may still look alive.
  const Actions back = table_.FromServer(now_ + kSecond, 101, PresentMessage("s"));
  EXPECT_EQ(Ended(back).size(), 1u);
  ASSERT_EQ(All<ToWorker>(back).size(), 1u);
  EXPECT_TRUE(All<ToWorker>(back)[0].message.has_ended());
  EXPECT_EQ(Granted(table_.FromServer(now_ + kSecond, 101, WantMessage("k", 1))),
            std::vector<int64_t>{2});
}

TEST_F(Table, SecondLiveProcessOfAWorkerIsRefusedByName) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k", "boot1"));
  const auto ends =
      All<EndSession>(table_.FromWorker(now_, 2, RegisterMessage("w1", "k", "boot2")));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].session, 2u);
  EXPECT_THAT(Message(ends[0].status), HasSubstr("w1"));
  // Once the first is gone the second is welcome, and the lease of the first is over.
  table_.FromServer(now_, 100, PresentMessage("s"));
  table_.FromServer(now_, 100, WantMessage("k", 1));
  table_.WorkerGone(now_, 1);
  const Actions a = table_.FromWorker(now_, 3, RegisterMessage("w1", "k", "boot2"));
  EXPECT_THAT(Ended(a), ::testing::ElementsAre("the worker restarted"));
  EXPECT_EQ(Granted(a).size(), 1u);
}

TEST_F(Table, WorkerThatReconnectsKeepsItsLease) {
  table_.FromWorker(now_, 1, RegisterMessage("w1", "k"));
  table_.FromServer(now_, 100, PresentMessage("s"));
  table_.FromServer(now_, 100, WantMessage("k", 1));
  table_.WorkerGone(now_, 1);
  const auto to_worker = All<ToWorker>(table_.FromWorker(now_, 2, RegisterMessage("w1", "k")));
  ASSERT_EQ(to_worker.size(), 2u);
  EXPECT_EQ(to_worker[1].message.lease().epoch(), 1);
}

TEST_F(Table, RestartedTrackerGrantsNothingUntilOldLeasesAreBack) {
  LeaseTable table(TableConfig{}, "inc2", 1000, 2000, true, now_);
  table.FromWorker(now_, 1, RegisterMessage("w1", "k", "boot1", 7));
  table.FromWorker(now_, 2, RegisterMessage("w2", "k"));
  table.FromServer(now_, 200, PresentMessage("other"));
  EXPECT_TRUE(Granted(table.FromServer(now_, 200, WantMessage("k", 2))).empty());
  EXPECT_TRUE(
      Ended(table.FromServer(now_ + kSecond, 100, PresentMessage("s", {{7, "w1/cpu0"}}))).empty());
  table.FromServer(now_ + 10 * kSecond, 100, RenewMessage(7));
  for (uint64_t w = 1; w <= 2; ++w) table.FromWorker(now_ + 10 * kSecond, w, HeartbeatMessage());
  const auto granted = Granted(table.Tick(now_ + 15 * kSecond));
  ASSERT_EQ(granted.size(), 1u);  // w2 only: w1 is the lease that came back
  EXPECT_GE(granted[0], 1000);
  // Too late for others: after the quiet time a former lease is worth nothing.
  EXPECT_THAT(
      Ended(table.FromServer(now_ + 16 * kSecond, 300, PresentMessage("late", {{8, "w9/cpu0"}}))),
      ::testing::ElementsAre("the lease has ended"));
}

TEST_F(Table, EpochsStayBelowWhatIsReserved) {
  LeaseTable table(TableConfig{}, "inc", 1, 2, false, now_);
  const auto reserve = All<ReserveEpochs>(table.FromServer(now_, 100, PresentMessage("s")));
  ASSERT_EQ(reserve.size(), 1u);
  EXPECT_GT(reserve[0].below, 2);
  table.FromServer(now_, 100, WantMessage("k", 5));
  EXPECT_EQ(Granted(table.FromWorker(now_, 1, RegisterMessage("w1", "k"))).size(), 1u);
  EXPECT_TRUE(Granted(table.FromWorker(now_, 2, RegisterMessage("w2", "k"))).empty());
  EXPECT_EQ(Granted(table.EpochsReserved(now_, reserve[0].below)).size(), 1u);
}

TEST_F(Table, RefusesOtherProtocolsAndBadIdentitiesInWords) {
  v1::AttachRequest m = RegisterMessage("w1", "k");
  m.mutable_register_()->mutable_protocol()->set_min(9);
  m.mutable_register_()->mutable_protocol()->set_max(9);
  EXPECT_THAT(Message(All<EndSession>(table_.FromWorker(now_, 1, m)).at(0).status),
              HasSubstr("protocol 9 to 9"));
  EXPECT_FALSE(All<EndSession>(table_.FromWorker(now_, 2, RegisterMessage("w\n1", "k"))).empty());
  EXPECT_FALSE(
      All<EndSession>(table_.FromWorker(now_, 3, RegisterMessage("w1", "no spaces"))).empty());
  EXPECT_FALSE(All<EndSession>(table_.FromWorker(now_, 4, HeartbeatMessage())).empty());
  EXPECT_FALSE(All<EndSession>(table_.FromServer(now_, 5, WantMessage("k", 1))).empty());
  EXPECT_FALSE(All<EndSession>(table_.FromServer(now_, 6, v1::LeaseRequest())).empty());
}

// Whatever happens in whatever order: no device has two holders, no epoch comes twice, the worker's
// view follows.
TEST_F(Table, InvariantsHoldOverRandomHistories) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    LeaseTable table(TableConfig{}, "inc", 1, 1'000'000'000, false, 0);
    std::map<int64_t, std::string> held;             // by server's view: epoch -> device
    std::map<std::string, uint64_t> worker_session;  // live streams
    std::map<std::string, uint64_t> server_session;
    uint64_t next_session = 1;
    int64_t now = 0, last_epoch = 0;
    auto check = [&](const Actions& actions) {
      for (const Action& action : actions) {
        if (const auto* a = std::get_if<ToServer>(&action)) {
          if (a->message.has_granted()) {
            const auto& g = a->message.granted();
            ASSERT_GT(g.epoch(), last_epoch) << "seed " << seed;
            last_epoch = g.epoch();
            held[g.epoch()] = g.device().device_id();
          }
          if (a->message.has_ended()) held.erase(a->message.ended().epoch());
        }
        if (const auto* a = std::get_if<EndSession>(&action)) {
          std::erase_if(a->side == Side::kWorker ? worker_session : server_session,
                        [&](const auto& s) { return s.second == a->session; });
        }
      }
      std::set<std::string> devices;
      const auto list = table.List(now, "");
      for (const auto& e : list.devices()) {
        if (e.epoch() == 0) continue;
        ASSERT_TRUE(devices.insert(e.device().device_id()).second);
      }
      ASSERT_GE(table.leases(), devices.size());
    };
    for (int step = 0; step < 300; ++step) {
      now += rng.Below(3 * kSecond);
      const std::string w = "w" + std::to_string(rng.Below(4)),
                        s = "s" + std::to_string(rng.Below(3));
      switch (rng.Below(9)) {
        case 0:
          worker_session[w] = next_session;
          check(table.FromWorker(now, next_session++,
                                 RegisterMessage(w, "k", "boot" + std::to_string(rng.Below(2)))));
          break;
        case 1:
        case 2:
          if (worker_session.contains(w))
            check(table.FromWorker(now, worker_session[w], HeartbeatMessage()));
          break;
        case 3:
          if (worker_session.contains(w)) {
            const uint64_t session = worker_session[w];
            worker_session.erase(w);
            check(table.WorkerGone(now, session));
          }
          break;
        case 4:
          server_session[s] = next_session;
          check(table.FromServer(now, next_session++, PresentMessage(s)));
          if (server_session.contains(s))
            check(table.FromServer(now, server_session[s],
                                   WantMessage("k", static_cast<uint32_t>(rng.Below(4)))));
          break;
        case 5:
          if (server_session.contains(s)) {
            const uint64_t session = server_session[s];
            server_session.erase(s);
            check(table.ServerGone(now, session));
          }
          break;
        case 6:
          if (server_session.contains(s) && !held.empty())
            check(table.FromServer(now, server_session[s], ReleaseMessage(held.begin()->first)));
          break;
        case 7:
          if (server_session.contains(s)) {
            for (const auto& [epoch, device] : std::map(held))
              check(table.FromServer(now, server_session[s], RenewMessage(epoch)));
          }
          break;
        default: check(table.Tick(now));
      }
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace whet::tracker
