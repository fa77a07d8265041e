// The service, the tracker and workers together, simulated in one thread: jobs end, results count
// once, nothing that was acknowledged is missing, losses are retried a bounded number of times, a
// late worker cannot win.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/service_sim.h"

namespace whet::testing {
namespace {

// What must hold of any history.
void CheckHistory(Sim& sim) {
  EXPECT_EQ(sim.overlapping_runs, 0);
  std::map<std::pair<std::string, int64_t>, int> counted;
  for (const auto& [id, row] : sim.rows) {
    if (row.status == db::TrialStatus::kCounted && !db::IsRetried(row.failure))
      ++counted[{row.key.workload.Hex(), row.ids.trial}];
  }
  for (const auto& [trial, n] : counted)
    EXPECT_EQ(n, 1) << "trial " << trial.second << " counts more than once";
  for (const auto& [sha, n] : sim.kept) EXPECT_EQ(n, 0) << "blob " << sha << " is still kept";
  for (const auto& [trial, n] : sim.starts)
    EXPECT_LE(n, 4) << trial;  // three, and one that was revoked as it began
  // A result that its worker may forget is in the log.
  for (const v1::TrialIds& ids : sim.dropped) {
    const bool there = std::any_of(sim.rows.begin(), sim.rows.end(), [&](const auto& r) {
      const db::TrialIds& k = r.second.ids;
      return k.trial == ids.trial() && k.attempt == ids.attempt() &&
             k.lease_epoch == ids.lease_epoch() && k.device_id == ids.device_id();
    });
    EXPECT_TRUE(there) << ids.ShortDebugString();
  }
}

TEST(Service, RunsAJobToItsEnd) {
  Sim sim({.workers = 1, .tasks = 3, .proposals = 30});
  sim.Run(300 * kSecond);
  ASSERT_EQ(sim.ended_, v1::JOB_DONE);
  CheckHistory(sim);
  const v1::JobSnapshot s = sim.snapshot();
  EXPECT_EQ(s.trials_done(), 33);
  for (const v1::TaskProgress& t : s.tasks()) {
    EXPECT_EQ(t.state(), "done");
    EXPECT_GT(t.default_ns(), 0);
    EXPECT_LE(t.best_ns(), t.default_ns());
    EXPECT_GT(t.best_ratio(), 0);
  }
  // The default comes first, then search, then paired finals; each of the best is confirmed by one
  // of rung 4.
  int finals = 0, defaults = 0;
  for (const auto& [id, row] : sim.rows) {
    defaults += row.is_default;
    if (row.rung == 4) {
      ++finals;
      EXPECT_TRUE(row.baseline_ratio.has_value());
      EXPECT_FALSE(row.contended) << "finals are measured with the builders idle";
    }
  }
  EXPECT_EQ(defaults, 3);
  EXPECT_GE(finals, 3);
  EXPECT_EQ(sim.told.size(), 30u);
  // The device went back to the tracker.
  EXPECT_EQ(sim.table().leases(), 0u);
}

TEST(Service, SameSeedSameHistory) {
  const SimOptions o{.seed = 7,
                     .workers = 3,
                     .tasks = 2,
                     .proposals = 40,
                     .break_link = 0.1,
                     .crash_worker = 0.02,
                     .lose_device = 0.03};
  Sim a(o), b(o);
  a.Run(600 * kSecond);
  b.Run(600 * kSecond);
  EXPECT_EQ(a.history, b.history);
  EXPECT_NE(a.history, 0u);
}

TEST(Service, SurvivesBrokenLinksCrashesAndLostDevices) {
  int late = 0, retried = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Sim sim({.seed = seed,
             .workers = 3,
             .tasks = 2,
             .proposals = 40,
             .break_link = 0.2,
             .crash_worker = 0.05,
             .lose_device = 0.05,
             .fail_candidate = 0.1,
             .run_ns = 400 * kMillisecond});
    sim.Run(3600 * kSecond);
    ASSERT_EQ(sim.ended_, v1::JOB_DONE);
    CheckHistory(sim);
    EXPECT_EQ(sim.told.size(), 40u);
    for (const auto& [id, row] : sim.rows) {
      late += row.status == db::TrialStatus::kLate;
      retried += row.ids.attempt > 1;
    }
  }
  EXPECT_GT(late + retried, 0) << "the faults did not happen";
}

TEST(Service, StaleWorkerCannotWin) {
  Sim sim({.workers = 2, .tasks = 1, .proposals = 30, .run_ns = 200 * kMillisecond});
  sim.RunUntil([&] { return sim.Running(0) && sim.rows.size() > 3; }, 60 * kSecond);
  ASSERT_TRUE(sim.Running(0));
  sim.Freeze(0);
  sim.Run(300 * kSecond);  // the other one finishes the job, the frozen one's trial included
  ASSERT_EQ(sim.ended_, v1::JOB_DONE);
  const size_t before = sim.rows.size();
  sim.Thaw(0);
  sim.RunUntil([] { return false; }, sim.now() + 60 * kSecond);
  ASSERT_GT(sim.rows.size(), before) << "the stale result did not come";
  int late = 0;
  for (const auto& [id, row] : sim.rows) late += row.status == db::TrialStatus::kLate;
  EXPECT_EQ(late, static_cast<int>(sim.rows.size() - before));
  CheckHistory(sim);
}

TEST(Service, DeviceThatIsAlwaysLostPoisonsTheTrialNotTheJob) {
  Sim sim({.workers = 3, .tasks = 1, .proposals = 3, .lose_device = 1});
  sim.Run(600 * kSecond);
  ASSERT_EQ(sim.ended_, v1::JOB_FAILED);  // its default could not be measured
  int attempts = 0, poisoned = 0;
  std::set<std::string> devices;
  for (const auto& [id, row] : sim.rows) {
    attempts += row.failure == db::FailureKind::kDeviceLost;
    poisoned += row.failure == db::FailureKind::kPoisoned;
    if (row.failure == db::FailureKind::kDeviceLost) devices.insert(row.ids.device_id);
  }
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(poisoned, 1);
  EXPECT_EQ(devices.size(), 3u) << "attempts go to distinct devices where there are";
  EXPECT_THAT(sim.snapshot().error(), ::testing::HasSubstr("default schedule failed (poisoned)"));
}

TEST(Service, CancelKeepsWhatIsMeasured) {
  Sim sim({.workers = 2, .tasks = 2, .proposals = 1000, .run_ns = 300 * kMillisecond});
  sim.RunUntil([&] { return sim.rows.size() > 20; }, 100 * kSecond);
  sim.CancelJob();
  sim.Run(sim.now() + 60 * kSecond);
  ASSERT_EQ(sim.ended_, v1::JOB_CANCELLED);
  CheckHistory(sim);
  // What ran at that moment is there as well.
  EXPECT_EQ(sim.dropped.size(), sim.results.size());
  EXPECT_EQ(sim.table().leases(), 0u);
}

TEST(Service, TimeLimitEndsTheSearchAndLeavesTimeForFinals) {
  Sim sim({.workers = 1, .tasks = 2, .proposals = 100000, .time_limit_ns = 30 * kSecond});
  sim.Run(300 * kSecond);
  ASSERT_EQ(sim.ended_, v1::JOB_DONE);
  EXPECT_LT(sim.snapshot().elapsed_ns(), 34 * kSecond);
  EXPECT_GT(sim.snapshot().elapsed_ns(), 20 * kSecond);
  int finals = 0;
  for (const auto& [id, row] : sim.rows) finals += row.rung == 4;
  EXPECT_GE(finals, 2);
}

TEST(Service, ProposalsAreBoundedBySpeedOfDevices) {
  Sim sim({.workers = 1, .tasks = 1, .proposals = 100000, .run_ns = 2 * kSecond});
  sim.RunUntil([] { return false; }, 60 * kSecond);
  // Far fewer are chosen than there would be time to build: each with what is known by then.
  EXPECT_LT(sim.kept.size(), 60u);
  EXPECT_GT(sim.rows.size(), 15u);
}

class Core : public ::testing::Test {
 protected:
  v1::JobSpec Spec() {
    v1::JobSpec spec;
    spec.set_key("k");
    spec.set_threads(1);
    spec.set_trials(10);
    spec.add_tasks()->set_workload("w");
    return spec;
  }
  Status Submit(const v1::JobSpec& spec) {
    tuner::Actions a;
    return core_.Submit(0, "j" + std::to_string(++n_), spec, "cpu", "f", 0, &a);
  }
  tuner::ServiceCore core_{tuner::CoreConfig{.max_jobs = 3}};
  int n_ = 0;
};

TEST_F(Core, RefusesSpecsInWords) {
  using ::testing::HasSubstr;
  v1::JobSpec s = Spec();
  s.clear_tasks();
  EXPECT_THAT(Message(Submit(s)), HasSubstr("no tasks"));
  s = Spec();
  s.set_threads(0);
  EXPECT_THAT(Message(Submit(s)), HasSubstr("threads is 0"));
  s = Spec();
  s.set_trials(0);
  EXPECT_THAT(Message(Submit(s)), HasSubstr("no budget"));
  s = Spec();
  s.set_strategy("magic");
  EXPECT_THAT(Message(Submit(s)), HasSubstr("evolutionary and random"));
  s = Spec();
  s.set_key("a b");
  EXPECT_THAT(Message(Submit(s)), HasSubstr("not a device key"));
  s = Spec();
  *s.add_tasks() = s.tasks(0);
  EXPECT_THAT(Message(Submit(s)), HasSubstr("same workload twice"));
  s = Spec();
  s.mutable_tasks(0)->set_weight(-1);
  EXPECT_FALSE(Submit(s).ok());
  EXPECT_TRUE(Submit(Spec()).ok());
}

TEST_F(Core, BoundsTheJobsUnderWay) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Submit(Spec()).ok());
  EXPECT_EQ(Submit(Spec()).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(Core, TaskThatCannotBePreparedFailsAloneAndAllOfThemFailTheJob) {
  v1::JobSpec spec = Spec();
  spec.add_tasks()->set_workload("v");
  ASSERT_TRUE(Submit(spec).ok());
  core_.TaskPrepared(0, "j1", 0, InvalidArgument("no such operator"));
  EXPECT_EQ(core_.Snapshot(0, "j1")->state(), v1::JOB_RUNNING);
  core_.TaskPrepared(0, "j1", 1, InvalidArgument("nor this one"));
  EXPECT_THAT(core_.Snapshot(0, "j1")->error(), ::testing::HasSubstr("no such operator"));
}

TEST_F(Core, WorkerOfAnotherReleaseIsRefusedInWords) {
  v1::WorkerMessage m;
  m.mutable_hello()->mutable_protocol()->set_min(8);
  m.mutable_hello()->mutable_protocol()->set_max(9);
  const tuner::Actions a = core_.FromWorker(0, 1, m);
  ASSERT_GE(a.size(), 2u);
  EXPECT_THAT(std::get<tuner::SendWorker>(a[0]).message.hello().refusal(),
              ::testing::HasSubstr("protocol 1, the worker 8 to 9"));
  EXPECT_TRUE(std::holds_alternative<tuner::CloseWorker>(a[1]));
  // Nothing but a Hello may come first.
  v1::WorkerMessage result;
  result.mutable_result()->set_sequence(1);
  EXPECT_TRUE(std::holds_alternative<tuner::CloseWorker>(core_.FromWorker(0, 2, result).at(0)));
}

}  // namespace
}  // namespace whet::testing
