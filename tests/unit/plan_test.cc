// The plan table from end to end: what tune would write, forged times, what compile makes of them.
// whet-builder is started as compile starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "compiler/driver/plan.h"
#include "compiler/driver/prepare.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/version.h"
#include "compiler/target/target.h"
#include "compiler/task/workload_program.h"
#include "db/store/tuning_log.h"
#include "tests/support/test_model.h"
#include "tests/unit/db_testing.h"

namespace whet::driver {
namespace {

using db::OpenReader;
using testing::HasSubstr;

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    testing_support::TestModel m(13);
    m.Input("x", {1, 8, 16, 16}).Weights("w", {16, 8, 3, 3}).Weights("v", {8, 16, 1, 1});
    m.Node("Conv", {"x", "w"}, {"c"}).Ints("pads", {1, 1, 1, 1});
    m.Node("Relu", {"c"}, {"r"});
    m.Node("Conv", {"r", "v"}, {"d"});
    m.Node("Add", {"d", "x"}, {"y"});
    m.Output("y");
    options_.model = folder_ / "m.onnx";
    std::ofstream(options_.model, std::ios::binary) << m.Serialize();
    options_.db = folder_ / "tuning.db";
    options_.output = folder_ / "m.so";
  }

  // It and what says how far it was.
  void RemoveLog() const {
    std::filesystem::remove(options_.db);
    std::filesystem::remove(options_.db + "-highwater");
  }

  // A log that holds the plans and one trial of the default schedule for each of their tasks, as
  // fast as `ns` says; 0: none.
  using Time = std::function<double(const TaskInfo&)>;
  void MakeLog(const Time& ns, bool all = true, bool plans = true) {
    const auto found = ListAlternatives(options_, all);
    ASSERT_TRUE(found.ok()) << found.status();
    known_ = *found;
    auto log = db::TuningLog::Open(options_.db);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->AppendWait(db::SampleJob()).ok());
    ASSERT_TRUE((*log)->AppendWait(db::SampleDevice()).ok());
    ASSERT_TRUE((*log)->AppendWait(db::SampleDevice("board-2")).ok());
    int64_t number = 0;
    for (const TaskInfo& t : known_.tasks) {
      ASSERT_TRUE((*log)->AppendWait(db::WorkloadRow{t.workload, t.op_summary}).ok());
      if (ns(t) == 0) continue;
      db::TrialRow row = db::SampleTrial((*log)->generation(), ++number);
      row.key = {FingerprintOf(t.workload), Target::Host().FeatureSet(), 1, db::CacheMode::kTurns};
      row.initial_program = schedule::DigestOf(task::OpenWorkload(t.workload)->program);
      row.codegen_version = kCodegenVersion;
      row.is_default = true;
      row.samples_ns = {ns(t)};
      row.baseline_ratio.reset();
      row.contended = contended_;
      if (other_board_ && number % 2 == 0) row.device = other_board_;
      const auto verdict = (*log)->AppendWait(row);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
    }
    for (const db::PlanRow& plan : known_.plans) {
      if (!plans) break;
      const auto verdict = (*log)->AppendWait(plan);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
    }
  }

  PreparedModel Prepared() {
    auto records = OpenRecords(options_);
    EXPECT_TRUE(records.ok()) << records.status();
    auto m = PrepareModel(options_, records->get());
    EXPECT_TRUE(m.ok()) << m.status();
    return m.ok() ? *std::move(m) : PreparedModel();
  }

  // Compiled by the log and by the same log again: same bytes, right results, layer by layer.
  CompileReport CompileAndVerify() {
    const auto report = CompileModel(options_);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return {};
    const std::string bytes = db::ReadFile(options_.output);
    EXPECT_TRUE(CompileModel(options_).ok());
    EXPECT_EQ(db::ReadFile(options_.output), bytes);
    VerifyOptions verify;
    verify.model = options_.model;
    verify.artifact = options_.output;
    verify.layers = true;
    const auto verified = VerifyArtifact(verify);
    EXPECT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified.ok() && verified->passed) << verified->first_divergent_layer;
    return *report;
  }

  static bool Fused(const TaskInfo& t) { return t.op_summary.find('+') != std::string::npos; }

  db::TempFolder folder_;
  CompileOptions options_;
  Alternatives known_;
  bool contended_ = false;
  std::optional<Fingerprint> other_board_;  // which timed every second task
};

TEST_F(PlanTest, WithoutALogTheEstimateDecides) {
  options_.db.clear();
  const PreparedModel m = Prepared();
  EXPECT_EQ(m.plan.layouts, "selected");
  EXPECT_EQ(m.plan.source, "default");
  EXPECT_EQ(m.plan.why, "no tuning log given");
}

TEST_F(PlanTest, ALogKnowsTheNetworkButNoAlternativesUntilTheyAreAskedFor) {
  MakeLog([](const TaskInfo&) { return 100; }, /*all=*/false);
  ASSERT_EQ(known_.plans.size(), 1u);
  EXPECT_EQ(known_.plans[0].alternative, "selected");
  const PreparedModel m = Prepared();
  EXPECT_EQ(PartsOf(m.partition), known_.plans[0].parts);
  EXPECT_THAT(m.plan.why, HasSubstr("whet tune --alternatives"));
}

TEST_F(PlanTest, AFusedGroupWhosePartsAreFasterIsTakenApart) {
  MakeLog([](const TaskInfo& t) { return Fused(t) ? 1000 : 100; });
  const CompileReport report = CompileAndVerify();
  EXPECT_EQ(report.plan.source, "measured");
  EXPECT_EQ(report.plan.layouts, "selected");
  EXPECT_EQ(report.plan.split, 2);
  // Two convolutions, an activation, an addition and what is copied on this processor: the input,
  // maybe the output.
  ASSERT_EQ(known_.plans[0].alternative, "selected");
  const size_t copies = known_.plans[0].parts.size() - 2;
  EXPECT_GE(copies, 1u);
  EXPECT_DOUBLE_EQ(report.plan.ratio, (400.0 + 100.0 * static_cast<double>(copies)) /
                                          (2000.0 + 100.0 * static_cast<double>(copies)));
  EXPECT_EQ(report.tasks.size(), 4 + copies);
  for (const TaskInfo& t : report.tasks) EXPECT_FALSE(Fused(t)) << t.op_summary;
}

TEST_F(PlanTest, OtherLayoutsAreTakenWhereTheirTasksAreFaster) {
  MakeLog([](const TaskInfo&) { return 0; });
  std::set<Fingerprint> own, rows;
  for (const db::PlanRow& p : known_.plans) {
    for (const db::PlanRow::Part& part : p.parts) {
      if (p.alternative == "selected") own.insert(part.workload);
      if (p.alternative == "row-major") rows.insert(part.workload);
    }
  }
  ASSERT_FALSE(rows.empty());
  RemoveLog();
  MakeLog([&](const TaskInfo& t) {
    const Fingerprint f = FingerprintOf(t.workload);
    return rows.count(f) ? 10 : own.count(f) ? 500 : 0;
  });
  const CompileReport report = CompileAndVerify();
  EXPECT_EQ(report.plan.source, "measured");
  EXPECT_EQ(report.plan.layouts, "row-major");
  EXPECT_EQ(report.plan.split, 0);
  EXPECT_LT(report.plan.ratio, 0.5);
}

TEST_F(PlanTest, AnAlternativeThatIsNotTimedOrNotFasterIsNotTaken) {
  MakeLog([](const TaskInfo& t) { return Fused(t) ? 100 : 0; });
  EXPECT_EQ(Prepared().plan.source, "default");
  RemoveLog();
  MakeLog([](const TaskInfo& t) { return Fused(t) ? 100 : 60; });
  const PreparedModel m = Prepared();
  EXPECT_EQ(m.plan.source, "default");
  EXPECT_THAT(m.plan.why, HasSubstr("the nearest alternative"));
  EXPECT_EQ(m.partition.tasks.size(), 3u);
}

TEST_F(PlanTest, DisturbedTimesAndTimesOfSeveralBoardsChooseNothing) {
  const Time faster_apart = [](const TaskInfo& t) { return Fused(t) ? 1000 : 100; };
  contended_ = true;
  MakeLog(faster_apart);
  EXPECT_EQ(Prepared().plan.source, "default");
  RemoveLog();
  contended_ = false;
  other_board_ = db::SampleDevice("board-2").fingerprint();
  MakeLog(faster_apart);
  EXPECT_EQ(Prepared().plan.layouts, "selected");
  EXPECT_EQ(Prepared().plan.source, "default");
}

TEST_F(PlanTest, APlanOfAReleaseThatCutsInAnotherWayIsAMissInWords) {
  MakeLog([](const TaskInfo&) { return 100; });
  {
    auto log = db::TuningLog::Open(options_.db);
    ASSERT_TRUE(log.ok()) << log.status();
    db::PlanRow stale;
    for (const db::PlanRow& p : known_.plans) {
      if (p.alternative == "row-major") stale = p;
    }
    stale.parts.resize(1);
    stale.parts[0].count = 1;
    ASSERT_TRUE((*log)->AppendWait(stale).ok());
  }
  const PreparedModel m = Prepared();
  EXPECT_EQ(m.plan.source, "default");
  EXPECT_EQ(m.plan.layouts, "selected");
  EXPECT_THAT(m.plan.why, HasSubstr("cut in another way"));
}

TEST_F(PlanTest, GivenLayoutsOverruleTheLog) {
  MakeLog([](const TaskInfo& t) { return Fused(t) ? 1000 : 100; });
  options_.layouts = "channels-last";
  const CompileReport report = CompileAndVerify();
  EXPECT_EQ(report.plan.source, "given");
  EXPECT_EQ(report.plan.layouts, "channels-last");
  EXPECT_EQ(report.plan.split, 0);
  EXPECT_THAT(LayoutCostOf("nhwc").status().message(), HasSubstr("row-major, channels-last"));
}

TEST_F(PlanTest, TimesOfTasksDecideWhereLayoutsMeet) {
  // The last convolution writes the model's output, or channels in vectors and a copy follows.
  const auto writes_rows = [](const TaskInfo& t) {
    return t.op_summary.starts_with("Conv+Add") && t.workload.ends_with("f32[1,8,16,16]\n");
  };
  const auto last = [](const TaskInfo& t) { return t.op_summary.starts_with("Conv+Add"); };
  for (const bool rows_are_fast : {true, false}) {
    MakeLog(
        [&](const TaskInfo& t) { return last(t) && writes_rows(t) != rows_are_fast ? 1e6 : 100; },
        /*all=*/true, /*plans=*/false);
    ASSERT_EQ(std::count_if(known_.tasks.begin(), known_.tasks.end(), last), 2);
    const CompileReport report = CompileAndVerify();
    EXPECT_EQ(report.plan.layouts, "selected");
    EXPECT_EQ(std::count_if(report.tasks.begin(), report.tasks.end(), last), 1);
    EXPECT_EQ(std::count_if(report.tasks.begin(), report.tasks.end(), writes_rows), rows_are_fast);
    EXPECT_EQ(report.plan.costs.taken, !rows_are_fast);
    if (!rows_are_fast) {
      EXPECT_EQ(report.plan.costs.ns, 1e6);  // and the copy that is made in either case
      EXPECT_LE(report.plan.costs.other_ns, 300);
    }
    RemoveLog();
  }
}

// The roofline has the last convolution write rows of pixels, which gathers its operand: with the
// copy that follows, channels in vectors take less than half of that.
void WriteModelWhereLayoutsMeet(const std::string& path) {
  testing_support::TestModel m(14);
  m.Input("x", {1, 16, 64, 64}).Weights("w", {16, 16, 3, 3}).Weights("v", {8, 16, 1, 1});
  m.Node("Conv", {"x", "w"}, {"c"}).Ints("pads", {1, 1, 1, 1});
  m.Node("Relu", {"c"}, {"r"});
  m.Node("Conv", {"r", "v"}, {"y"});
  m.Output("y");
  std::ofstream(path, std::ios::binary) << m.Serialize();
}

TEST_F(PlanTest, WithoutALogThePriorDecidesWhereLayoutsMeet) {
  WriteModelWhereLayoutsMeet(options_.model);
  options_.db.clear();
  const CompileReport report = CompileAndVerify();
  EXPECT_EQ(report.plan.source, "default");
  for (const char* target : {"x86-64-v3", "x86-64-v4"}) {
    options_.target = target;
    const Plan plan = Prepared().plan;
    EXPECT_TRUE(plan.costs.taken) << target;
    EXPECT_EQ(plan.costs.tasks, 1) << target;
    EXPECT_EQ(plan.costs.other_tasks, 2) << target;
    EXPECT_LT(2 * plan.costs.other_ns, plan.costs.ns) << target;
    EXPECT_FALSE(plan.stored.empty()) << target;
  }
}

TEST_F(PlanTest, SelectedMeansTheSameWhenItIsGiven) {
  WriteModelWhereLayoutsMeet(options_.model);
  options_.db.clear();
  const PreparedModel by_default = Prepared();
  options_.layouts = "selected";
  const PreparedModel given = Prepared();
  EXPECT_EQ(given.plan.source, "given");
  EXPECT_EQ(given.plan.costs.taken, by_default.plan.costs.taken);
  EXPECT_EQ(given.plan.costs.other_tasks, by_default.plan.costs.other_tasks);
  EXPECT_GT(given.plan.costs.tasks, 0);
  EXPECT_EQ(graph::ToString(given.graph), graph::ToString(by_default.graph));
  EXPECT_EQ(PartsOf(given.partition), PartsOf(by_default.partition));
  // An artifact of it is verified as it was compiled, whatever times say by then.
  EXPECT_EQ(CompileAndVerify().plan.source, "given");
}

TEST_F(PlanTest, WorkloadsKeepTheirKeysWhateverThePlan) {
  MakeLog([](const TaskInfo&) { return 100; });
  std::set<Fingerprint> keys;
  for (const TaskInfo& t : known_.tasks) keys.insert(FingerprintOf(t.workload));
  EXPECT_EQ(keys.size(), known_.tasks.size());
  for (const db::PlanRow& p : known_.plans) {
    for (const db::PlanRow::Part& part : p.parts) EXPECT_TRUE(keys.count(part.workload));
  }
}

}  // namespace
}  // namespace whet::driver
