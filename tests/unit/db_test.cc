// The tuning log as its users see it: appending, finding the best record, misses, resuming,
// exchange.
#include <sstream>

#include "compiler/support/crc32c.h"
#include "db/record/jsonl.h"
#include "db/record/plan.h"
#include "tests/unit/db_testing.h"

namespace whet::db {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(Crc32cTest, MatchesThePublishedVectorsAndChains) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c("56789", Crc32c("1234")), Crc32c("123456789"));
}

TEST(TuningLogTest, ARowComesBackAsItWasGiven) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  TrialRow row;
  {
    auto log = OpenSampleLog(path);
    row = SampleTrial(log->generation(), 1);
    row.failure = FailureKind::kRunCrash;
    row.message = "signal 11";
    row.rung = 2;
    row.contended = true;
    row.runs_per_sample = 16;
    row.object_hash = std::string(64, 'a');
    row.sandbox_bits = 0x80000001;
    row.build_ns = 123;
    const auto verdict = log->AppendWait(row);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    row.seq = verdict->seq;
  }
  auto reader = OpenReader(path);
  const auto back = reader->Trial(1);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_TRUE(Normalize(row).ok());
  EXPECT_EQ(RowLine(*back), RowLine(row));  // the exchange form shows every field
  EXPECT_EQ(back->median_ns, row.median_ns);
  EXPECT_EQ(reader->Workload(row.key.workload)->text, kWorkloadText);
  EXPECT_EQ(reader->Device(*row.device)->identity, SampleDevice().identity);
  EXPECT_EQ(reader->Job("job-1")->state, JobState::kRunning);
  EXPECT_EQ(reader->Job("job-2").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
}

TEST(TuningLogTest, AReaderSeesRowsAsSoonAsTheyAreAcknowledged) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  auto reader = OpenReader(dir / "tuning.db");
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), i)).ok());
    EXPECT_TRUE(reader->Trial(i).ok());
  }
}

TEST(TuningLogTest, EveryQueuedRowIsReportedOnceInOrder) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  std::vector<int64_t> seqs;  // touched by the writer thread only, until Flush
  for (int i = 1; i <= 2000; ++i) {
    ASSERT_TRUE(log->Append(SampleTrial(log->generation(), i),
                            [&](const StatusOr<AppendVerdict>& v) { seqs.push_back(v->seq); })
                    .ok());
  }
  ASSERT_TRUE(log->Flush().ok());
  ASSERT_EQ(seqs.size(), 2000u);
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(seqs[i], i + 1);
}

TEST(TuningLogTest, AFullQueueRefusesAndAcceptsAgainLater) {
  TempFolder dir;
  WriterOptions options;
  options.queue_rows = 8;
  options.batch_rows = 1;
  auto log = OpenSampleLog(dir / "tuning.db", options);
  int accepted = 0;
  Status refused = OkStatus();
  for (int i = 1; i <= 10000 && refused.ok(); ++i) {
    refused = log->Append(SampleTrial(log->generation(), i), nullptr);
    accepted += refused.ok();
  }
  EXPECT_THAT(StatusOr<int>(refused), Fails(StatusCode::kResourceExhausted, "the limits are 8"));
  ASSERT_TRUE(log->Flush().ok());
  EXPECT_TRUE(log->AppendWait(SampleTrial(log->generation(), 20000)).ok());
  EXPECT_EQ(OpenReader(dir / "tuning.db")->Stats()->trials, accepted + 1);
}

TEST(TuningLogTest, AResendFindsTheFirstVerdict) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const auto first = log->AppendWait(SampleTrial(log->generation(), 1, 0.5));
  const auto again =
      log->AppendWait(SampleTrial(log->generation(), 1, 0.1));  // other content, same ids
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->delivery, AppendVerdict::Delivery::kRepeated);
  EXPECT_EQ(again->seq, first->seq);
  auto reader = OpenReader(dir / "tuning.db");
  EXPECT_EQ(reader->Stats()->trials, 1);
  EXPECT_EQ(reader->FindBest(SampleQuery())->record->ratio, 0.5);
}

TEST(TuningLogTest, AStaleLeaseIsKeptAsLateAndNeverWins) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  TrialRow second = SampleTrial(log->generation(), 1, 0.8);
  second.ids.attempt = 2;
  second.ids.lease_epoch = 11;
  ASSERT_EQ(log->AppendWait(second)->status, TrialStatus::kCounted);
  EXPECT_EQ(log->AppendWait(SampleTrial(log->generation(), 1, 0.1))->status, TrialStatus::kLate);
  TrialRow other_lease = SampleTrial(log->generation(), 1, 0.2);
  other_lease.ids.attempt = 2;
  other_lease.ids.device_id = "board-2";
  EXPECT_EQ(log->AppendWait(other_lease)->status, TrialStatus::kLate);
  EXPECT_EQ(log->AppendWait(SampleTrial("another-generation", 2, 0.1))->status, TrialStatus::kLate);
  TrialRow told = SampleTrial(log->generation(), 3, 0.1);
  told.status = TrialStatus::kLate;
  EXPECT_EQ(log->AppendWait(told)->status, TrialStatus::kLate);

  auto reader = OpenReader(dir / "tuning.db");
  EXPECT_EQ(reader->FindBest(SampleQuery())->record->ratio, 0.8);
  EXPECT_EQ(reader->Stats()->late, 4);
}

TEST(TuningLogTest, AMissingReferenceFailsThatRowAlone) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  TrialRow stray = SampleTrial(log->generation(), 1);
  stray.ids.job_id = "job-9";
  std::vector<Status> results;
  const auto note = [&](const StatusOr<AppendVerdict>& v) { results.push_back(v.status()); };
  ASSERT_TRUE(log->Append(SampleTrial(log->generation(), 2), note).ok());
  ASSERT_TRUE(log->Append(stray, note).ok());
  ASSERT_TRUE(log->Append(SampleTrial(log->generation(), 3), note).ok());
  ASSERT_TRUE(log->Flush().ok());
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].ok() && results[2].ok());
  EXPECT_THAT(Message(results[1]), HasSubstr("job 'job-9' is not in the log"));
  auto report = OpenReader(dir / "tuning.db")->Verify();
  EXPECT_TRUE(report->ok());  // and it left no gap in the sequence
}

TEST(TuningLogTest, ATerminalJobStaysAsItIs) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  JobRow job = SampleJob();
  job.state = JobState::kDone;
  job.created_ms = 5;  // the first one counts
  job.updated_ms = 2000;
  ASSERT_TRUE(log->AppendWait(job).ok());
  job.state = JobState::kRunning;
  EXPECT_THAT(log->AppendWait(job), Fails(StatusCode::kFailedPrecondition, "already done"));
  const auto stored = OpenReader(dir / "tuning.db")->Job("job-1");
  EXPECT_EQ(stored->state, JobState::kDone);
  EXPECT_EQ(stored->created_ms, 1000);
}

void AddTrial(TuningLog& log, int64_t number, int trace, double ratio, int rung, bool contended) {
  TrialRow row = SampleTrial(log.generation(), number, ratio);
  row.trace = fmt::format("whet-trace 1\nsplit i {}\n", trace);
  row.rung = rung;
  row.contended = contended;
  ASSERT_TRUE(log.AppendWait(row).ok());
}

TEST(BestTest, TheBestIsTheMedianOfTheMostCarefulMeasurements) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const auto add = [&](int64_t number, int trace, double ratio, int rung, bool contended) {
    AddTrial(*log, number, trace, ratio, rung, contended);
  };
  add(1, 1, 0.30, 1, false);  // lucky at an early rung
  add(2, 1, 0.70, 4, false);
  add(3, 1, 0.72, 4, false);
  add(4, 1, 0.71, 4, false);
  add(5, 2, 0.80, 4, false);
  add(6, 3, 0.10, 4, true);  // contended: behind every quiet measurement
  auto reader = OpenReader(dir / "tuning.db");
  const auto best = reader->FindBest(SampleQuery());
  ASSERT_TRUE(best.ok() && best->record) << best->why;
  EXPECT_EQ(best->record->ratio, 0.71);
  EXPECT_EQ(best->record->evidence_rows, 3);
  EXPECT_EQ(best->record->row.seq, 4);
}

// Many candidates of which none is faster, timed while others were built: one of them looks it.
TEST(BestTest, LuckBesideOtherWorkDoesNotWinOnceFinalsWereHeld) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const auto add = [&](int64_t number, int trace, double ratio, int rung, bool contended) {
    AddTrial(*log, number, trace, ratio, rung, contended);
  };
  add(1, 1, 0.97, 3, true);
  EXPECT_TRUE(OpenReader(dir / "tuning.db")->FindBest(SampleQuery())->record.has_value());
  add(2, 2, 0.96, 3, true);
  add(3, 2, 1.01, 4, false);
  const auto best = OpenReader(dir / "tuning.db")->FindBest(SampleQuery());
  ASSERT_TRUE(best.ok());
  EXPECT_FALSE(best->record.has_value());
  EXPECT_EQ(best->miss, MissReason::kNotBetter);
  add(4, 1, 0.98, 4, false);
  EXPECT_EQ(OpenReader(dir / "tuning.db")->FindBest(SampleQuery())->record->ratio, 0.98);
}

TEST(BestTest, ATraceThatEverAnsweredWronglyIsOut) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 1, 0.2)).ok());
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 2, 0.6)).ok());
  TrialRow wrong = SampleTrial(log->generation(), 3);
  wrong.trace = SampleTrial("", 1).trace;
  wrong.failure = FailureKind::kWrongOutput;
  wrong.samples_ns = {};
  ASSERT_TRUE(log->AppendWait(wrong).ok());
  EXPECT_EQ(OpenReader(dir / "tuning.db")->FindBest(SampleQuery())->record->ratio, 0.6);
}

TEST(BestTest, TheAskedBoardOverrulesOthers) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  ASSERT_TRUE(log->AppendWait(SampleDevice("board-2")).ok());
  const auto add = [&](int64_t number, int trace, const std::string& board, double ratio) {
    TrialRow row = SampleTrial(log->generation(), number, ratio);
    row.trace = fmt::format("whet-trace 1\nsplit i {}\n", trace);
    row.ids.device_id = board;
    row.device = SampleDevice(board).fingerprint();
    ASSERT_TRUE(log->AppendWait(row).ok());
  };
  add(1, 1, "board-1", 0.3);
  add(2, 1, "board-2", 1.2);  // the same trace is slow on board 2
  add(3, 2, "board-1", 0.5);
  auto reader = OpenReader(dir / "tuning.db");
  BestQuery query = SampleQuery();
  query.device = SampleDevice("board-2").fingerprint();
  const auto best = reader->FindBest(query);
  EXPECT_EQ(best->record->ratio, 0.5);
  EXPECT_TRUE(best->record->other_device);
  query.device = SampleDevice("board-1").fingerprint();
  EXPECT_EQ(reader->FindBest(query)->record->ratio, 0.3);
  EXPECT_FALSE(reader->FindBest(query)->record->other_device);
}

TEST(BestTest, EveryMissIsExplained) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 1, 0.5)).ok());
  auto reader = OpenReader(dir / "tuning.db");
  const auto miss = [&](auto change) {
    BestQuery query = SampleQuery();
    change(query);
    const auto best = reader->FindBest(query);
    EXPECT_TRUE(best.ok()) << best.status();
    return std::pair(std::string(MissName(best->miss)), best->why);
  };
  using Q = BestQuery&;
  EXPECT_EQ(miss([](Q q) {}).first, "none");
  EXPECT_EQ(miss([](Q q) { q.key.workload = FingerprintOf("x"); }).first, "no_workload");
  const auto target = miss([](Q q) { q.key.target = "cpu -mattr=+sve"; });
  EXPECT_EQ(target.first, "other_target");
  EXPECT_EQ(target.second,
            "recorded only for target 'cpu -mattr=+avx2', asked for cpu -mattr=+sve");
  const auto threads = miss([](Q q) { q.key.threads = 4; });
  EXPECT_EQ(threads.first, "other_threads");
  EXPECT_EQ(threads.second, "recorded only for thread count 2, asked for 4");
  EXPECT_EQ(miss([](Q q) { q.key.cache_mode = CacheMode::kCold; }).first, "other_cache_mode");
  EXPECT_EQ(miss([](Q q) { q.codegen_version = 8; }).first, "other_codegen");
  EXPECT_EQ(miss([](Q q) { q.initial_program = {}; }).first, "other_program");
}

TEST(BestTest, RowsThatAreNoEvidenceAreNamed) {
  const auto miss = [](auto change) {
    TempFolder dir;
    auto log = OpenSampleLog(dir / "tuning.db");
    TrialRow row = SampleTrial(log->generation(), 1, 0.5);
    change(row);
    EXPECT_TRUE(log->AppendWait(row).ok());
    const auto best = OpenReader(dir / "tuning.db")->FindBest(SampleQuery());
    EXPECT_FALSE(best->record);
    return std::string(MissName(best->miss));
  };
  EXPECT_EQ(miss([](TrialRow& r) { r.baseline_ratio = 1.0; }), "not_better");
  EXPECT_EQ(miss([](TrialRow& r) { r.baseline_ratio.reset(); }), "not_compared");
  EXPECT_EQ(miss([](TrialRow& r) { r.exec_class = ExecClass::kEmulated; }), "only_emulated");
  EXPECT_EQ(miss([](TrialRow& r) { r.status = TrialStatus::kLate; }), "only_late");
  EXPECT_EQ(miss([](TrialRow& r) { r.is_default = true; }), "no_valid_trial");
  EXPECT_EQ(miss([](TrialRow& r) { r.failure = FailureKind::kBuildError; }), "no_valid_trial");
}

TEST(BestTest, AUserIsToldWhyNoCandidateWasCompared) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const auto why = [&](int64_t number, double ratio, bool is_default) {
    TrialRow row = SampleTrial(log->generation(), number, ratio);
    row.baseline_ratio.reset();
    row.is_default = is_default;
    EXPECT_TRUE(log->AppendWait(row).ok());
    return OpenReader(dir / "tuning.db")->FindBest(SampleQuery())->why;
  };
  EXPECT_EQ(why(1, 1.0, true), "no candidate was tried yet");
  EXPECT_EQ(why(2, 1.5, false),
            "1 candidate tried, none looks faster than the default schedule: the best took 1.50 x "
            "its time");
  EXPECT_EQ(
      why(3, 0.5, false),
      "2 candidates tried; the best looks faster than the default schedule (0.50 x its time), "
      "but they were not measured side by side yet: tune on");
}

TEST(ResumeTest, TriedTracesAreThoseThatNeedNoFurtherTrial) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const auto add = [&](int64_t number, FailureKind failure, int64_t attempt) {
    TrialRow row = SampleTrial(log->generation(), number);
    row.failure = failure;
    row.ids.attempt = attempt;
    ASSERT_TRUE(log->AppendWait(row).ok());
  };
  add(1, FailureKind::kOk, 1);
  add(2, FailureKind::kBuildError, 1);
  add(3, FailureKind::kDeviceLost, 1);  // to be tried again
  add(4, FailureKind::kDeviceLost, 3);  // enough
  TrialRow other = SampleTrial(log->generation(), 5);
  other.codegen_version = 6;
  ASSERT_TRUE(log->AppendWait(other).ok());
  auto tried = OpenReader(dir / "tuning.db")->Tried(SampleKey(), 7, FingerprintOf("program"));
  const auto trace = [](int64_t n) { return SampleTrial("", n).trace_fingerprint(); };
  EXPECT_THAT(tried->traces, testing::UnorderedElementsAre(trace(1), trace(2), trace(4)));
}

TEST(StatsTest, CountsByTaskAndFailure) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  TrialRow base = SampleTrial(log->generation(), 1, 1.0);
  base.is_default = true;
  ASSERT_TRUE(log->AppendWait(base).ok());
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 2, 0.25)).ok());
  TrialRow crash = SampleTrial(log->generation(), 3);
  crash.failure = FailureKind::kRunCrash;
  ASSERT_TRUE(log->AppendWait(crash).ok());
  TrialRow four = SampleTrial(log->generation(), 1, 1.5);
  four.key.threads = 4;
  ASSERT_TRUE(log->AppendWait(four).ok());
  const auto stats = OpenReader(dir / "tuning.db")->Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->trials, 4);
  EXPECT_EQ(stats->by_failure[static_cast<size_t>(FailureKind::kRunCrash)], 1);
  EXPECT_EQ(stats->first_ms, 1001);
  EXPECT_EQ(stats->last_ms, 1003);
  ASSERT_EQ(stats->tasks.size(), 2u);
  EXPECT_EQ(stats->tasks[0].trials, 3);
  EXPECT_EQ(stats->tasks[0].op_summary, "conv2d 1x16x32x32");
  EXPECT_EQ(stats->tasks[0].default_median_ns, 1001.25);
  EXPECT_EQ(stats->tasks[0].best->ratio, 0.25);
  EXPECT_EQ(stats->tasks[1].miss, MissReason::kNotBetter);
  EXPECT_THAT(stats->tasks[1].why, HasSubstr("1.500 x the default"));
}

std::string Exported(const std::string& path) {
  std::ostringstream out;
  const auto rows = OpenReader(path)->Export(out, OnDamage::kRefuse);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return out.str();
}

TEST(TransferTest, ImportedRowsKeepTheirContentAndNeverWin) {
  TempFolder dir;
  {
    auto log = OpenSampleLog(dir / "a.db");
    for (int i = 1; i <= 3; ++i) {
      ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), i, 0.1 * i)).ok());
    }
    WriteFile(dir / "a.jsonl", Exported(dir / "a.db"));
  }
  auto log = TuningLog::Open(dir / "b.db");
  ASSERT_TRUE(log.ok());
  auto report = (*log)->Import(dir / "a.jsonl");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->added, 6);
  report = (*log)->Import(dir / "a.jsonl");
  EXPECT_EQ(report->added, 0);
  EXPECT_EQ(report->repeated, 6);

  auto reader = OpenReader(dir / "b.db");
  EXPECT_EQ(reader->FindBest(SampleQuery())->miss, MissReason::kOnlyImported);
  EXPECT_TRUE(reader->Tried(SampleKey(), 7, FingerprintOf("program"))->traces.empty());
  EXPECT_EQ(reader->Job("job-1")->state, JobState::kCancelled);  // must not start to run here
  EXPECT_EQ(reader->Trial(2)->samples_ns, SampleTrial("", 2, 0.1 * 2).samples_ns);
  // Measured again here, the trace wins.
  TrialRow again = SampleTrial((*log)->generation(), 1, 0.4);
  ASSERT_EQ((*log)->AppendWait(again)->status, TrialStatus::kCounted);
  EXPECT_EQ(reader->FindBest(SampleQuery())->record->ratio, 0.4);
}

TEST(PlanTest, TheLatestRowOfAnAlternativeStands) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  EXPECT_EQ(log->AppendWait(SamplePlan("selected", 2))->delivery, AppendVerdict::Delivery::kFirst);
  EXPECT_EQ(log->AppendWait(SamplePlan("selected", 2))->delivery,
            AppendVerdict::Delivery::kRepeated);
  EXPECT_TRUE(log->AppendWait(SamplePlan("row-major", 7)).ok());
  EXPECT_EQ(log->AppendWait(SamplePlan("selected", 3))->delivery, AppendVerdict::Delivery::kFirst);
  PlanRow unknown = SamplePlan("selected", 1);
  unknown.parts.push_back({FingerprintOf("elsewhere"), 1});
  EXPECT_THAT(log->AppendWait(unknown),
              Fails(StatusCode::kFailedPrecondition,
                    FingerprintOf("elsewhere").Hex() + " is not in the log"));
  auto reader = OpenReader(dir / "tuning.db");
  const auto plans = reader->FindPlans(FingerprintOf("network"));
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_EQ(plans->rows.size(), 2u);
  EXPECT_EQ(plans->rows[0].alternative, "row-major");
  EXPECT_EQ(plans->rows[1].alternative, "selected");
  EXPECT_EQ(plans->rows[1].parts, SamplePlan("selected", 3).parts);
  EXPECT_TRUE(reader->FindPlans(FingerprintOf("another"))->rows.empty());
  EXPECT_EQ(reader->FindPlans()->rows.size(), 2u);
  EXPECT_TRUE(reader->Verify()->ok());
}

TEST(PlanTest, BadPlansAreRefusedByName) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  PlanRow twice = SamplePlan("selected", 1);
  twice.parts.push_back(twice.parts[0]);
  EXPECT_THAT(log->AppendWait(twice), Fails(StatusCode::kInvalidArgument, "occurs twice"));
  EXPECT_THAT(log->AppendWait(SamplePlan("selected", 0)),
              Fails(StatusCode::kInvalidArgument, "count 0 is outside 1.."));
  EXPECT_THAT(log->AppendWait(SamplePlan("", 1)),
              Fails(StatusCode::kInvalidArgument, "alternative is empty"));
  PlanRow empty = SamplePlan("selected", 1);
  empty.parts.clear();
  EXPECT_THAT(log->AppendWait(empty),
              Fails(StatusCode::kInvalidArgument, "number of parts 0 is outside 1..10000"));
}

TEST(MachineRowTest, TheFirstFiguresOfABoardStayAndNeedTheBoard) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const Fingerprint board = SampleDevice().fingerprint();
  EXPECT_THAT(log->AppendWait(MachineRow{FingerprintOf("elsewhere"), "clock=1", 5}),
              Fails(StatusCode::kFailedPrecondition, "is not in the log"));
  EXPECT_THAT(log->AppendWait(MachineRow{board, "", 5}),
              Fails(StatusCode::kInvalidArgument, "figures is empty"));
  EXPECT_THAT(log->AppendWait(MachineRow{board, "a\nb", 5}),
              Fails(StatusCode::kInvalidArgument, ""));
  EXPECT_EQ(log->AppendWait(MachineRow{board, "clock=1", 5})->delivery,
            AppendVerdict::Delivery::kFirst);
  EXPECT_EQ(log->AppendWait(MachineRow{board, "clock=2", 6})->delivery,
            AppendVerdict::Delivery::kRepeated);
  DeviceRow later = SampleDevice();
  later.device_id = "board-2";
  ASSERT_TRUE(log->AppendWait(later).ok());
  ASSERT_TRUE(log->AppendWait(MachineRow{later.fingerprint(), "clock=3", 7}).ok());
  auto reader = OpenReader(dir / "tuning.db");
  const auto machines = reader->Machines();
  ASSERT_TRUE(machines.ok()) << machines.status();
  ASSERT_EQ(machines->size(), 2u);
  EXPECT_EQ((*machines)[0].device.device_id, SampleDevice().device_id);
  EXPECT_EQ(*reader->FiguresOf(SampleDevice().feature_set), "clock=1");
  EXPECT_EQ(*reader->FiguresOf("another"), "");
  EXPECT_TRUE(reader->Verify()->ok());
}

TEST(MachineRowTest, FiguresAreExportedAndComeIn) {
  TempFolder dir;
  {
    auto log = OpenSampleLog(dir / "a.db");
    ASSERT_TRUE(log->AppendWait(MachineRow{SampleDevice().fingerprint(), "clock=1", 5}).ok());
    WriteFile(dir / "a.jsonl", Exported(dir / "a.db"));
  }
  auto log = TuningLog::Open(dir / "b.db");
  ASSERT_TRUE(log.ok()) << log.status();
  const auto report = (*log)->Import(dir / "a.jsonl");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(*OpenReader(dir / "b.db")->FiguresOf(SampleDevice().feature_set), "clock=1");
}

TEST(PlanTest, ExportedPlansComeInAndReplaceNone) {
  TempFolder dir;
  {
    auto log = OpenSampleLog(dir / "a.db");
    ASSERT_TRUE(log->AppendWait(SamplePlan("selected", 2)).ok());
    ASSERT_TRUE(log->AppendWait(SamplePlan("row-major", 4)).ok());
    WriteFile(dir / "a.jsonl", Exported(dir / "a.db"));
  }
  auto log = OpenSampleLog(dir / "b.db");
  ASSERT_TRUE(log->AppendWait(SamplePlan("selected", 3)).ok());
  const auto report = log->Import(dir / "a.jsonl");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->added, 1);
  const auto plans = OpenReader(dir / "b.db")->FindPlans();
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_EQ(plans->rows.size(), 2u);
  EXPECT_EQ(plans->rows[0].parts, SamplePlan("row-major", 4).parts);
  EXPECT_EQ(plans->rows[1].parts, SamplePlan("selected", 3).parts);

  std::string bad = ReadFile(dir / "a.jsonl");
  bad.replace(bad.find("\"count\":2"), 9, "\"count\":\"");
  WriteFile(dir / "bad.jsonl", bad);
  EXPECT_FALSE(log->Import(dir / "bad.jsonl").ok());
}

TEST(PlanTest, TheFasterAlternativeIsChosenWhenAllOfItHasBeenTimed) {
  const Fingerprint a = FingerprintOf("a"), b = FingerprintOf("b"), c = FingerprintOf("c");
  const std::vector<PlanRow> rows = {{{}, "apart", {{b, 2}, {c, 1}}, 0}, {{}, "own", {{a, 3}}, 0}};
  auto times = [&](double ta, double tb, double tc) {
    return [=](const Fingerprint& f) -> std::optional<double> {
      const double ns = f == a ? ta : f == b ? tb : tc;
      return ns > 0 ? std::optional(ns) : std::nullopt;
    };
  };
  PlanChoice choice = ChoosePlan(rows, "own", times(100, 50, 20));
  EXPECT_EQ(choice.alternative, "apart");
  EXPECT_EQ(choice.own_ns, 300);
  EXPECT_EQ(choice.chosen_ns, 120);
  // Not by less than the margin.
  choice = ChoosePlan(rows, "own", times(100, 140, 10));
  EXPECT_EQ(choice.alternative, "own");
  EXPECT_EQ(choice.why, "the nearest alternative, 'apart', takes 0.967 x the time");
  choice = ChoosePlan(rows, "own", times(100, 50, 0));
  EXPECT_EQ(choice.alternative, "own");
  EXPECT_EQ(choice.why, "no alternative has undisturbed times of all its tasks");
  choice = ChoosePlan(rows, "own", times(0, 50, 20));
  EXPECT_EQ(choice.alternative, "own");
  EXPECT_EQ(choice.why, "not every task of 'own' has an undisturbed time");
  EXPECT_THAT(ChoosePlan({rows[1]}, "own", times(1, 1, 1)).why, HasSubstr("no alternatives"));
  EXPECT_EQ(ChoosePlan({rows[0]}, "own", times(1, 1, 1)).alternative, "own");
}

TEST(TransferTest, OneBadLineImportsNothingAndIsNamed) {
  TempFolder dir;
  std::string good;
  {
    auto log = OpenSampleLog(dir / "a.db");
    ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 1)).ok());
    good = Exported(dir / "a.db");
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 1: the file is empty"},
      {"{\"kind\":\"trial\"}\n", "line 1: not an exported tuning log"},
      {"{\"input\": [\"llvm\", \"dense.x86\", [], {}], \"config\": {}, \"result\": [[0.1], 0]}\n",
       "line 1: it looks like a log of AutoTVM"},
      {"{\"i\": [[\"w\", \"llvm\"], [[], []]], \"r\": [[0.1], 0], \"v\": \"v0.6\"}\n",
       "line 1: it looks like a log of the TVM auto-scheduler"},
      {"[0, [[[], []], [0.1], {}, []]]\n", "line 1: it looks like a log of MetaSchedule"},
      {replaced("\"version\":1", "\"version\":9"),
       "line 1: exported in format 9, this release reads format 1"},
      {good.substr(0, good.rfind("{\"kind\":\"end\"")),
       "line 6: the file ends without an 'end' line"},
      {good.substr(0, good.size() - 30), "not a JSON object"},
      {replaced("\"rows\":4", "\"rows\":5"), "counts 5 rows, the file has 4"},
      {good + "more\n", "line 7: text after the 'end' line"},
      {replaced("[500.25", "[-500.25"), "line 5: sample 0 is -500.25 ns, outside"},
      {replaced("[500.25", "[1e999"), "line 5: not a JSON object"},
      {replaced("[500.25", "[[[[500.25]]]"), "line 5: nested deeper"},
      {replaced("\"threads\":2", "\"threads\":99999999999"),
       "line 5: field 'threads' is not an integer in"},
      {replaced("\"threads\":2,", ""), "line 5: field 'threads' is missing"},
      {replaced("\"threads\":2", "\"threads\":2,\"extra\":1"), "line 5: unknown field 'extra'"},
      {replaced("\"failure\":\"ok\"", "\"failure\":\"fine\""),
       "line 5: field 'failure': unknown failure kind 'fine'"},
      {replaced("conv2d v1", "conv2d v2"), "line 2: field 'fingerprint' is"},
      {replaced("\"job_id\":\"job-1\",\"trial\"", "\"job_id\":\"job-9\",\"trial\""),
       "line 5: trial 1: job 'job-9' is not in the log"},
      {good.substr(0, good.find('\n') + 1) + std::string(kMaxLineBytes + 1, 'x'),
       "line 2: longer than the limit"}};
  auto log = TuningLog::Open(dir / "b.db");
  ASSERT_TRUE(log.ok());
  for (const auto& [text, words] : cases) {
    WriteFile(dir / "bad.jsonl", text);
    EXPECT_THAT((*log)->Import(dir / "bad.jsonl"), Fails(StatusCode::kInvalidArgument, words));
    EXPECT_TRUE((*log)->state().ok());
  }
  EXPECT_EQ(OpenReader(dir / "b.db")->Verify()->rows, 5);  // meta only
  EXPECT_EQ((*log)->Import(dir / "none.jsonl").status().code(), StatusCode::kNotFound);
  EXPECT_THAT((*log)->Import(dir / ""), Fails(StatusCode::kInvalidArgument, "cannot be read"));
}

TEST(NormalizeTest, RefusesWhatNoHonestPeerSends) {
  const auto refused = [](auto change) {
    TrialRow row = SampleTrial("generation", 1);
    change(row);
    return Message(Normalize(row));
  };
  using T = TrialRow&;
  EXPECT_EQ(refused([](T r) {}), "");
  EXPECT_THAT(refused([](T r) { r.samples_ns[1] = 0.0 / 0.0; }), HasSubstr("sample 1 is"));
  EXPECT_THAT(refused([](T r) { r.samples_ns.clear(); }), HasSubstr("no samples"));
  EXPECT_THAT(refused([](T r) { r.baseline_ratio = 0; }), HasSubstr("baseline_ratio 0 is outside"));
  EXPECT_THAT(refused([](T r) { r.ids.worker_id = "a\nb"; }),
              HasSubstr("worker_id: control character 0x0a"));
  EXPECT_THAT(refused([](T r) { r.ids.worker_id = "\xff"; }),
              HasSubstr("worker_id: byte 0 is not valid UTF-8"));
  EXPECT_THAT(refused([](T r) { r.ids.boot_id.assign(257, 'x'); }),
              HasSubstr("257 bytes exceed the limit of 256"));
  EXPECT_THAT(refused([](T r) { r.device_state = "[]"; }), HasSubstr("not a JSON object"));
  EXPECT_THAT(refused([](T r) { r.device_state = "{\"a\":" + std::string(20, '['); }),
              HasSubstr("nested deeper than 8"));
  EXPECT_THAT(refused([](T r) { r.object_hash = "xyz"; }), HasSubstr("64 lower-case hex digits"));
  EXPECT_THAT(refused([](T r) { r.ids.generation.clear(); }), HasSubstr("generation is empty"));

  TrialRow row = SampleTrial("generation", 1);
  row.message = std::string(1023, 'a') + "\xc3\xa9";  // the last character would be cut in two
  ASSERT_TRUE(Normalize(row).ok());
  EXPECT_EQ(row.message, std::string(1023, 'a'));
  EXPECT_EQ(CleanText("a\x1b[0m\xe2\x82\xac\x80", 100), "a?[0m\xe2\x82\xac?");
  EXPECT_EQ(MedianOf({3, 1, 2, 10}), 2.5);
}

}  // namespace
}  // namespace whet::db
