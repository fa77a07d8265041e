// The simulated fleet under faults: what was promised holds, every fault happens, and a seed says
// all there is to say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/fleet_sim.h"

namespace whet::testing {
namespace {

std::string Violations(const History& h) {
  std::string text;
  for (const Violation& v : CheckHistory(h)) text += fmt::format("P{}: {}\n", v.promise, v.what);
  return text;
}

TEST(FleetSim, SameSeedSameTrace) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    std::string traces[2];
    uint64_t hashes[2];
    for (int i = 0; i < 2; ++i) {
      Sim sim(ChaosOptions(seed, 1));
      sim.set_trace(&traces[i]);
      sim.RunChaos(1);
      hashes[i] = sim.trace_hash();
    }
    EXPECT_EQ(hashes[0], hashes[1]) << "seed " << seed;
    EXPECT_EQ(traces[0], traces[1]) << "seed " << seed;
    EXPECT_GT(traces[0].size(), 1000u);
  }
}

TEST(FleetSim, OtherSeedOtherTrace) {
  Sim a(ChaosOptions(1, 0.5)), b(ChaosOptions(2, 0.5));
  a.RunChaos(0.5);
  b.RunChaos(0.5);
  EXPECT_NE(a.trace_hash(), b.trace_hash());
}

// Each fault alone, much of it: it happens, and nothing that was promised breaks.
struct Fault {
  const char* name;
  void (*set)(SimOptions*);
};

class EachFault : public ::testing::TestWithParam<Fault> {};

TEST_P(EachFault, HappensAndBreaksNothing) {
  int64_t happened = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SimOptions o;
    o.seed = seed;
    o.workers = 3;
    o.jobs = 3;
    o.proposals = 40;
    o.submit_every_ns = 40 * kSecond;
    o.run_ns = 300 * kMillisecond;
    o.tracker_in_server = false;
    o.faults_until_ns = 150 * kSecond;
    GetParam().set(&o);
    Sim sim(o);
    sim.RunChaos(3);
    EXPECT_EQ(sim.jobs_over(), 3u);
    EXPECT_EQ(sim.overlapping_runs, 0);
    EXPECT_THAT(sim.troubles, ::testing::IsEmpty());
    const History history = sim.TakeHistory();
    EXPECT_EQ(Violations(history), "");
    EXPECT_GT(history.rows.size(), 50u);
    for (const auto& [fault, n] : sim.faults) happened += n;
  }
  EXPECT_GT(happened, 0);
}

const Fault kFaults[] = {
    {"BrokenStreams", [](SimOptions* o) { o->break_link = 0.3; }},
    {"HalfOpenStreams", [](SimOptions* o) { o->half_break = 0.1; }},
    {"CutLinks", [](SimOptions* o) { o->cut_link = 0.05; }},
    {"KilledWorkers", [](SimOptions* o) { o->crash_worker = 0.1; }},
    {"WorkersWithoutPower", [](SimOptions* o) { o->power_worker = 0.03; }},
    {"StoppedWorkers", [](SimOptions* o) { o->freeze_worker = 0.05; }},
    {"DrainedWorkers", [](SimOptions* o) { o->drain_worker = 0.05; }},
    {"KilledServer", [](SimOptions* o) { o->crash_server = 0.05; }},
    {"ServerWithoutPower", [](SimOptions* o) { o->power_server = 0.03; }},
    {"KilledTracker", [](SimOptions* o) { o->crash_tracker = 0.05; }},
    {"FullDisks", [](SimOptions* o) { o->full_disk = 0.05; }},
    {"SlowDisk",
     [](SimOptions* o) {
       o->slow_disk = 0.05;
       o->crash_server = 0.03;
       o->power_server = 0.02;
     }},
    {"ClocksThatStepAndDrift",
     [](SimOptions* o) {
       o->step_wall = 0.2;
       o->clock_ppm = 80'000;
     }},
    {"CancelledJobs", [](SimOptions* o) { o->cancel_job = 0.05; }},
    {"DeathBetweenTwoActions", [](SimOptions* o) { o->crash_in_step = 0.002; }},
    {"SharedDevice",
     [](SimOptions* o) {
       o->workers_per_box = 3;
       o->crash_worker = 0.05;
     }},
};

INSTANTIATE_TEST_SUITE_P(Faults, EachFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

// The simulation itself must be able to find what it is for: a server that acknowledges too early
// loses what it acknowledged. Here the log forgets rows behind its back.
TEST(FleetSim, ALogThatForgetsIsFound) {
  SimOptions o;
  o.workers = 2;
  Sim sim(o);
  sim.Run(300 * kSecond);
  ASSERT_GT(sim.rows.size(), 10u);
  sim.rows.erase(std::next(sim.rows.begin(), 5));
  EXPECT_THAT(Violations(sim.TakeHistory()), ::testing::HasSubstr("P1:"));
}

}  // namespace
}  // namespace whet::testing
