// The service, the tracker and workers together, simulated in one thread: jobs end, results count
// once, nothing that was acknowledged is missing, losses are retried a bounded number of times, a
// late worker cannot win.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/sim/fleet_sim.h"

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
  // A result that its worker may forget is in the log, or was refused in words.
  const auto same = [](const v1::TrialIds& a, const v1::TrialIds& b) {
    return a.SerializeAsString() == b.SerializeAsString();
  };
  for (const v1::TrialIds& ids : sim.dropped) {
    if (std::any_of(sim.refused.begin(), sim.refused.end(),
                    [&](const v1::TrialIds& r) { return same(r, ids); }))
      continue;
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

TEST(Service, TasksOfNoModelCountByTheirOwnTime) {
  Sim model({.workers = 1, .tasks = 3, .proposals = 6});
  model.Run(300 * kSecond);
  EXPECT_THAT(model.weights, ::testing::ElementsAre(1, 1, 1));
  Sim list({.workers = 1, .tasks = 3, .proposals = 6, .tasks_alike = true});
  list.Run(300 * kSecond);
  ASSERT_EQ(list.ended_, v1::JOB_DONE);
  const v1::JobSnapshot s = list.snapshot();
  ASSERT_EQ(list.weights.size(), 3u);
  for (int i = 0; i < 3; ++i)
    EXPECT_DOUBLE_EQ(list.weights[static_cast<size_t>(i)], 1 / s.tasks(i).default_ns());
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
  EXPECT_EQ(a.trace_hash(), b.trace_hash());
  EXPECT_NE(a.trace_hash(), 0u);
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

TEST(Service, RestartedServerTakesItsJobUpAgain) {
  size_t refused = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Sim sim({.seed = seed, .workers = 2, .tasks = 3, .proposals = 60});
    int64_t spent = 0;
    for (int restart = 0; restart < 3; ++restart) {
      const size_t rows = sim.rows.size() + static_cast<size_t>(rng.Below(20));
      sim.RunUntil([&] { return sim.rows.size() > rows || sim.ended_; }, 600 * kSecond);
      if (sim.ended_) break;
      spent = sim.snapshot().elapsed_ns();
      sim.RestartServer(kSecond + rng.Below(20 * kSecond));
      sim.RunUntil([&] { return sim.up() && sim.core().open_jobs() > 0; }, 600 * kSecond);
    }
    sim.Run(900 * kSecond);
    ASSERT_EQ(sim.ended_, v1::JOB_DONE);
    CheckHistory(sim);
    // What the first process had measured counts for the job, and is not measured again.
    std::map<std::pair<std::string, std::string>, int> measured;
    int64_t verified = 0;
    for (const auto& [id, row] : sim.rows) {
      if (row.rung == 4 || row.status != db::TrialStatus::kCounted || db::IsRetried(row.failure))
        continue;
      ++measured[{row.key.workload.Hex(), row.trace}];
      verified += row.failure == db::FailureKind::kOk;
    }
    for (const auto& [trace, n] : measured) EXPECT_EQ(n, 1) << trace.second;
    const v1::JobSnapshot s = sim.snapshot();
    EXPECT_EQ(s.trials_done(), static_cast<int64_t>(measured.size()));
    EXPECT_EQ(s.trials_before(), 0);
    EXPECT_EQ(s.verified(), verified);
    EXPECT_GT(s.elapsed_ns() + 11 * kSecond, spent);
    refused += sim.refused.size();
  }
  EXPECT_GT(refused, 0u) << "no restart left a result behind: this tests too little";
}

TEST(Service, TimeThatWasSpentBeforeARestartCounts) {
  Sim sim({.workers = 1, .tasks = 1, .proposals = 100000, .time_limit_ns = 60 * kSecond});
  sim.RunUntil([&] { return sim.now() > 45 * kSecond; }, 60 * kSecond);
  const int64_t before = sim.snapshot().elapsed_ns();
  ASSERT_GT(before, 30 * kSecond);
  sim.RestartServer(kSecond);
  const int64_t restarted = sim.now();
  sim.RunUntil([&] { return sim.ended_.has_value(); }, 300 * kSecond);
  ASSERT_EQ(sim.ended_, v1::JOB_DONE);
  // Nearly all of it: the row is written every ten seconds.
  EXPECT_LT(sim.now() - restarted, 40 * kSecond);
  EXPECT_GT(sim.snapshot().elapsed_ns(), 50 * kSecond);
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

v1::Plan PlanOf(const std::string& workload, int64_t count) {
  v1::Plan plan;
  plan.set_region(FingerprintOf("network").Hex());
  plan.set_alternative("selected");
  v1::Plan::Part& part = *plan.add_parts();
  part.set_workload(FingerprintOf(workload).Hex());
  part.set_count(count);
  return plan;
}

TEST_F(Core, PlansAreKeptAfterTheirWorkloadsAndBeforeTheJob) {
  v1::JobSpec spec = Spec();
  *spec.add_plans() = PlanOf("w", 3);
  tuner::Actions actions;
  ASSERT_TRUE(core_.Submit(0, "j", spec, "cpu", "f", 0, &actions).ok());
  std::vector<db::Row> rows;
  for (const tuner::Action& a : actions) {
    if (const auto* append = std::get_if<tuner::AppendRow>(&a)) rows.push_back(append->row);
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<db::WorkloadRow>(rows[0]));
  ASSERT_TRUE(std::holds_alternative<db::PlanRow>(rows[1]));
  const auto& plan = std::get<db::PlanRow>(rows[1]);
  EXPECT_EQ(plan.region, FingerprintOf("network"));
  EXPECT_EQ(plan.parts, (std::vector<db::PlanRow::Part>{{FingerprintOf("w"), 3}}));
  // The job's own row need not repeat what has a row.
  ASSERT_TRUE(std::holds_alternative<db::JobRow>(rows[2]));
  EXPECT_EQ(std::get<db::JobRow>(rows[2]).spec.find("plans"), std::string::npos);
}

TEST_F(Core, RefusesPlansInWords) {
  using ::testing::HasSubstr;
  v1::JobSpec s = Spec();
  *s.add_plans() = PlanOf("elsewhere", 1);
  EXPECT_THAT(Message(Submit(s)), HasSubstr("is no task of the job"));
  s = Spec();
  *s.add_plans() = PlanOf("w", 0);
  EXPECT_THAT(Message(Submit(s)), HasSubstr("plan 'selected': count 0 is outside"));
  s = Spec();
  *s.add_plans() = PlanOf("w", 1);
  s.mutable_plans(0)->set_region("a network");
  EXPECT_THAT(Message(Submit(s)), HasSubstr("plan 'selected'"));
  s = Spec();
  for (int i = 0; i < 9000; ++i) *s.add_plans() = PlanOf("w", 1);
  EXPECT_THAT(Message(Submit(s)), HasSubstr("9000 plans, the limit is 8192"));
}

TEST_F(Core, SameJobSubmittedAfterARestartIsTheOneThatWasTakenUp) {
  EXPECT_TRUE(Submit(Spec()).ok());
  EXPECT_EQ(core_.ResumedLike(Spec(), "cpu"), std::nullopt) << "two who ask get a job each";
  v1::KeptJob kept;
  *kept.mutable_spec() = Spec();
  kept.mutable_spec()->set_target("cpu");
  kept.set_trials_before(3);
  tuner::Actions a;
  ASSERT_TRUE(core_.Resume(0, "old", kept, "f", 0, &a).ok());
  EXPECT_FALSE(core_.Resume(0, "old", kept, "f", 0, &a).ok());
  EXPECT_EQ(core_.ResumedLike(Spec(), "cpu"), "old");
  EXPECT_EQ(core_.ResumedLike(Spec(), "another cpu"), std::nullopt);
  v1::JobSpec more = Spec();
  more.set_trials(11);
  EXPECT_EQ(core_.ResumedLike(more, "cpu"), std::nullopt);
  EXPECT_FALSE(core_.Prepared("old").has_value());
  tuner::PreparedTask task;
  task.tried = 7;
  core_.TaskPrepared(0, "old", 0, task);
  EXPECT_EQ(core_.Prepared("old")->already_measured, 7);
  EXPECT_EQ(core_.Prepared("old")->to_measure, 3);
  EXPECT_EQ(core_.Snapshot(0, "old")->trials_before(), 3);
  ASSERT_TRUE(core_.Cancel(kSecond, "old", &a).ok());
  EXPECT_EQ(core_.ResumedLike(Spec(), "cpu"), std::nullopt);
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
