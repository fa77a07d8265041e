// Keeping a tuning log for years: backups while it is written, the way back from one, salvage,
// retention.
#include <sqlite3.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "compiler/support/rng.h"
#include "db/record/retention.h"
#include "db/store/file_guard.h"
#include "db/store/maintenance.h"
#include "tests/unit/db_testing.h"

namespace whet::db {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// Runs SQL on a file behind the log's back.
void Alter(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

void CloseJob(TuningLog& log, const std::string& id = "job-1") {
  JobRow job = SampleJob();
  job.job_id = id;
  job.state = JobState::kDone;
  ASSERT_TRUE(log.AppendWait(job).ok());
}

void MakeSample(const std::string& path, int trials) {
  auto log = OpenSampleLog(path);
  for (int i = 1; i <= trials; ++i) {
    ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), i, 1 - 0.001 * i)).ok());
  }
}

std::vector<int64_t> SeqsOf(const std::string& path) {
  std::vector<int64_t> seqs;
  const auto reader = OpenReader(path);
  EXPECT_TRUE(reader
                  ->ForEachTrial(nullptr,
                                 [&](const TrialRow& row) {
                                   seqs.push_back(row.seq);
                                   return true;
                                 })
                  .ok());
  return seqs;
}

// ---- backup and restore ----

TEST(BackupTest, TheRestoreDrill) {
  TempFolder dir;
  const std::string path = dir / "tuning.db", backup = dir / "monday.db";
  std::atomic<int64_t> acknowledged{0};
  std::string generation;
  int64_t before = 0, last = 0;
  {
    auto log = OpenSampleLog(path);
    generation = log->generation();
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      for (int64_t i = 1; !stop || i < 400; ++i) {
        const auto verdict = log->AppendWait(SampleTrial(generation, i));
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        acknowledged = verdict->seq;
      }
    });
    while (acknowledged < 100) std::this_thread::yield();
    before = acknowledged;
    const auto report = BackupLog(path, backup);
    EXPECT_TRUE(report.ok()) << report.status();
    if (report.ok()) {
      EXPECT_GE(report->last_seq, before);
      EXPECT_THAT(report->warnings, testing::IsEmpty());
    }
    const int64_t then = acknowledged;
    while (acknowledged < then + 20) std::this_thread::yield();
    stop = true;
    writer.join();
    last = acknowledged;
  }
  const std::string backed_up = ReadFile(backup);
  const auto kept = SeqsOf(backup);
  ASSERT_GE(static_cast<int64_t>(kept.size()), before);
  ASSERT_LT(static_cast<int64_t>(kept.size()), last);
  const auto in_backup = static_cast<int64_t>(kept.size());

  // The disaster: the first pages of the log are gone.
  WriteFile(path, std::string(8192, '\0') + ReadFile(path).substr(8192));
  EXPECT_FALSE(TuningLog::Open(path).ok());
  EXPECT_THAT(RestoreLog(backup, path), Fails(StatusCode::kInvalidArgument, "move it away first"));
  std::filesystem::rename(path, dir / "broken.db");
  EXPECT_THAT(TuningLog::Open(path), Fails(StatusCode::kDataLoss, "is gone"));
  const auto restored = RestoreLog(backup, path);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_NE(restored->generation, generation);
  EXPECT_EQ(restored->lost, last - in_backup);  // the mark beside the lost file knows
  EXPECT_EQ(restored->last_seq, last);
  EXPECT_EQ(restored->kept_as, "");
  EXPECT_EQ(ReadFile(backup), backed_up);

  // Work goes on; what was given out before comes in late, what was resent finds its verdict.
  {
    auto log = TuningLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->generation(), restored->generation);
    const auto known = (*log)->AppendWait(SampleTrial(generation, 1));
    EXPECT_EQ(known->delivery, AppendVerdict::Delivery::kRepeated);
    EXPECT_EQ(known->status, TrialStatus::kCounted);
    const auto lost = (*log)->AppendWait(SampleTrial(generation, last));
    EXPECT_EQ(lost->delivery, AppendVerdict::Delivery::kFirst);
    EXPECT_EQ(lost->status, TrialStatus::kLate);
    EXPECT_EQ(lost->seq, last + 1);
    const auto fresh = (*log)->AppendWait(SampleTrial(restored->generation, last + 1));
    EXPECT_EQ(fresh->status, TrialStatus::kCounted);
  }
  const auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
  EXPECT_EQ(reader->Stats()->trials, in_backup + 1);
  EXPECT_EQ(reader->Stats()->late, 1);
  EXPECT_EQ(reader->Verify()->high_water, VerifyReport::Mark::kChecked);
}

TEST(BackupTest, ALogThatIsReplacedIsKeptWithWhatLayBesideIt) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  MakeSample(path, 3);
  ASSERT_TRUE(BackupLog(path, dir / "b.db").ok());
  {
    auto log = TuningLog::Open(path);
    ASSERT_TRUE((*log)->AppendWait(SampleTrial((*log)->generation(), 4)).ok());
    EXPECT_THAT(RestoreLog(dir / "b.db", path),
                Fails(StatusCode::kUnavailable, "is being written by process"));
    // Killed: its last row is in the write-ahead log alone.
    for (const char* name : {"", "-wal", "-highwater"}) {
      std::filesystem::copy_file(path + name, dir / (std::string("killed.db") + name));
    }
  }
  const std::string killed = dir / "killed.db";
  for (const char* name : {".before-restore", ".before-restore.2"}) {
    const auto restored = RestoreLog(dir / "b.db", killed);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(restored->kept_as, std::filesystem::canonical(killed).string() + name);
    EXPECT_EQ(SeqsOf(killed).size(), 3u);
  }
  EXPECT_EQ(SeqsOf(killed + ".before-restore").size(), 4u);
  EXPECT_EQ(SeqsOf(killed + ".before-restore.2").size(), 3u);
  EXPECT_TRUE(TuningLog::Open(killed).ok());
}

TEST(BackupTest, RefusesInWordsAndLeavesNothingBehind) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  EXPECT_THAT(BackupLog(path, dir / "b.db"), Fails(StatusCode::kNotFound, "no tuning log"));
  MakeSample(path, 5);
  WriteFile(dir / "precious", "x");
  EXPECT_THAT(BackupLog(path, dir / "precious"),
              Fails(StatusCode::kInvalidArgument, "is there already"));
  EXPECT_THAT(BackupLog(path, dir / "no/such/b.db"), Fails(StatusCode::kNotFound, "no/such"));
  EXPECT_THAT(RestoreLog(dir / "none.db", path), Fails(StatusCode::kNotFound, "no backup"));
  EXPECT_THAT(RestoreLog(path, path), Fails(StatusCode::kInvalidArgument, "both the backup and"));
  EXPECT_THAT(RestoreLog(dir / "precious", path), Fails(StatusCode::kInvalidArgument, "one byte"));
  ASSERT_TRUE(BackupLog(path, dir / "b.db").ok());
  EXPECT_THAT(RestoreLog(dir / "b.db", dir / "precious"),
              Fails(StatusCode::kInvalidArgument, "one byte"));
  EXPECT_EQ(ReadFile(dir / "precious"), "x");
  // Damage is not passed on as a backup, nor put in the place of a log.
  Alter(dir / "b.db", "UPDATE trials SET median_ns=1 WHERE seq=2");
  EXPECT_THAT(RestoreLog(dir / "b.db", path), Fails(StatusCode::kDataLoss, "trials row 2"));
  EXPECT_EQ(SeqsOf(path).size(), 5u);
  Alter(path, "UPDATE trials SET median_ns=1 WHERE seq=3");
  EXPECT_THAT(BackupLog(path, dir / "c.db"), Fails(StatusCode::kDataLoss, "trials row 3"));
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    EXPECT_THAT(entry.path().string(),
                testing::AnyOf(HasSubstr("tuning.db"), HasSubstr("/b.db"), HasSubstr("precious")));
    EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr("partial")));
    EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr("restoring")));
  }
}

TEST(BackupTest, AnOldBackupOpensAsTheLogItIs) {
  TempFolder dir;
  MakeSample(dir / "tuning.db", 3);
  ASSERT_TRUE(BackupLog(dir / "tuning.db", dir / "b.db").ok());
  auto log = TuningLog::Open(dir / "b.db");
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ((*log)->AppendWait(SampleTrial((*log)->generation(), 4))->seq, 4);
}

// ---- salvage ----

TEST(SalvageTest, WhatIsWholeGoesOnUnderANewGenerationAndWhatIsLostIsBuried) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  MakeSample(path, 120);
  const auto untouched = SalvageLog(path);
  ASSERT_TRUE(untouched.ok()) << untouched.status();
  EXPECT_FALSE(untouched->salvaged);
  const std::string old_generation = untouched->generation;
  const std::string whole = ReadFile(path), mark = ReadFile(path + "-highwater");
  int partly = 0;
  for (size_t page = 1; page < whole.size() / 4096; ++page) {
    SCOPED_TRACE(page);
    std::filesystem::create_directory(dir / "cell");
    const std::string cell = dir / "cell/tuning.db";
    std::string bytes = whole;
    WriteFile(cell, bytes.replace(page * 4096, 4096, 4096, '\xff'));
    WriteFile(cell + "-highwater", mark);
    const auto salvaged = SalvageLog(cell);
    if (!salvaged.ok()) {
      EXPECT_THAT(salvaged, Fails(StatusCode::kDataLoss, ""));
      EXPECT_EQ(ReadFile(cell), bytes);
    } else {
      EXPECT_TRUE(salvaged->salvaged);
      EXPECT_NE(salvaged->generation, old_generation);
      EXPECT_EQ(salvaged->trials + salvaged->lost, 120);
      EXPECT_EQ(ReadFile(salvaged->kept_as), bytes);
      auto log = TuningLog::Open(cell);
      ASSERT_TRUE(log.ok()) << log.status();
      EXPECT_TRUE((*log)->AppendWait(SampleWorkload()).ok());
      log->reset();
      const auto reader = OpenReader(cell);
      EXPECT_THAT(reader->warnings(), testing::IsEmpty());
      EXPECT_EQ(reader->Stats()->trials, salvaged->trials);
      EXPECT_EQ(reader->Stats()->buried, salvaged->lost);
      partly += salvaged->trials > 0 && salvaged->lost > 0;
    }
    std::filesystem::remove_all(dir / "cell");
  }
  EXPECT_GT(partly, 10);
}

TEST(SalvageTest, ADamagedRowGoesAndItsNeighboursStay) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  MakeSample(path, 6);
  Alter(path,
        "UPDATE trials SET baseline_ratio=0.01 WHERE seq=2; "
        "UPDATE jobs SET error='?'; DELETE FROM trials WHERE seq=5");
  const auto salvaged = SalvageLog(path);
  ASSERT_TRUE(salvaged.ok()) << salvaged.status();
  EXPECT_EQ(salvaged->trials, 4);
  EXPECT_EQ(salvaged->lost, 2);
  EXPECT_EQ(salvaged->damage.size(), 3u);
  EXPECT_THAT(SeqsOf(path), testing::ElementsAre(1, 3, 4, 6));
  const auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
  EXPECT_EQ(reader->Job("job-1")->state, JobState::kFailed);
  EXPECT_THAT(reader->Job("job-1")->error, HasSubstr("lost to damage"));
  EXPECT_EQ(reader->FindBest(SampleQuery())->record->row.seq, 6);
  EXPECT_FALSE(SalvageLog(path)->salvaged);
}

// ---- retention ----

constexpr int64_t kDay = 86'400'000;

// A log of three tasks, by thread count 1..3: default rows, ten traces each of which two boards
// measured, a barred one, finals of one; a closed job and, of the newest rows, an open one.
void MakeHistory(const std::string& path) {
  auto log = OpenSampleLog(path);
  ASSERT_TRUE(log->AppendWait(SampleDevice("board-2")).ok());
  JobRow open = SampleJob();
  open.job_id = "job-open";
  ASSERT_TRUE(log->AppendWait(open).ok());
  int64_t number = 0;
  const auto add = [&](int threads, int trace, double ratio, const auto& change) {
    TrialRow row = SampleTrial(log->generation(), ++number, ratio);
    row.key.threads = threads;
    row.trace = fmt::format("whet-trace 1\ntrace {}\n", trace);
    row.created_ms = number * kDay;
    change(row);
    ASSERT_TRUE(log->AppendWait(row).ok());
  };
  const auto as_is = [](TrialRow&) {};
  const auto on_board_2 = [](TrialRow& r) {
    r.ids.device_id = "board-2";
    r.device = SampleDevice("board-2").fingerprint();
  };
  for (int threads = 1; threads <= 3; ++threads) {
    add(threads, 0, 1, [](TrialRow& r) { r.is_default = true; });
    for (int trace = 1; trace <= 10; ++trace) add(threads, trace, 0.5 + 0.01 * trace, as_is);
    for (int trace = 1; trace <= 10; ++trace) {
      add(threads, trace, 0.9 - 0.01 * trace, on_board_2);
    }
    // A crash after a fine ratio: out for good.
    add(threads, 11, 0.1, as_is);
    add(threads, 11, 0.1, [](TrialRow& r) { r.failure = FailureKind::kRunCrash; });
    add(threads, 12, 0.3, [](TrialRow& r) { r.contended = true; });
    add(threads, 13, 0.95, [](TrialRow& r) { r.rung = 4; });
    add(threads, 0, 1, [](TrialRow& r) {
      r.is_default = true;
      r.rung = 4;
    });
  }
  add(1, 14, 0.7, [](TrialRow& r) { r.ids.job_id = "job-open"; });
  CloseJob(*log);
}

std::vector<std::pair<int64_t, double>> BestOfAll(const std::string& path) {
  const auto reader = OpenReader(path);
  std::vector<std::pair<int64_t, double>> out;
  for (int threads = 1; threads <= 3; ++threads) {
    for (const std::optional<Fingerprint>& board :
         {std::optional<Fingerprint>(), std::optional(SampleDevice().fingerprint()),
          std::optional(SampleDevice("board-2").fingerprint()),
          std::optional(FingerprintOf("unknown board"))}) {
      BestQuery query = SampleQuery();
      query.key.threads = threads;
      query.device = board;
      const auto best = reader->FindBest(query);
      EXPECT_TRUE(best.ok() && best->record) << threads;
      out.emplace_back(best->record->row.seq, best->record->ratio);
    }
  }
  return out;
}

TEST(RetentionTest, TheBestOfEveryTaskAndBoardStaysWhateverIsForgotten) {
  size_t left = 0;
  for (const Retention& limits : {Retention{20 * kDay, 0, 0}, Retention{0, 12, 0},
                                  Retention{0, 0, 30'000}, Retention{1, 1, 1}}) {
    TempFolder dir;
    const std::string path = dir / "tuning.db";
    MakeHistory(path);
    const auto best = BestOfAll(path);
    const auto all = SeqsOf(path);
    PruneOptions options;
    options.limits = limits;
    options.now_ms = 1000 * kDay;  // a clock that is wrong by years: the newest row is of day 79
    auto log = TuningLog::Open(path);
    ASSERT_TRUE(log.ok());
    const auto pruned = (*log)->Prune(options);
    ASSERT_TRUE(pruned.ok()) << pruned.status();
    EXPECT_EQ(pruned->kept, static_cast<int64_t>(SeqsOf(path).size()));
    EXPECT_EQ(pruned->forgotten, static_cast<int64_t>(all.size()) - pruned->kept);
    EXPECT_GT(pruned->forgotten, 0);
    EXPECT_EQ(BestOfAll(path), best);
    EXPECT_EQ((*log)->Prune(options)->forgotten, 0);  // nothing more by the same limits
    const auto reader = OpenReader(path);
    EXPECT_THAT(reader->warnings(), testing::IsEmpty());
    EXPECT_EQ(reader->Stats()->buried, static_cast<int64_t>(all.size()) - pruned->kept);
    EXPECT_EQ(reader->Jobs()->size(), 2u);
    left = SeqsOf(path).size();
  }
  // Of each task: the default twice, the bests of both boards with all their rows, the final; and
  // what the open job measured.
  EXPECT_EQ(left, 3u * (2 + 2 + 2 + 1) + 1);
}

TEST(RetentionTest, AgesCountFromTheNewestRowWhenTheClockIsAhead) {
  RetentionPlanner planner({{"job-1", JobState::kDone, "{}", "", 0, 0}});
  for (int i = 1; i <= 10; ++i) {
    TrialRow row = SampleTrial("g", i, 2);
    row.seq = i;
    row.created_ms = i * kDay;
    planner.Add(row);
  }
  const Retention four_days{4 * kDay, 0, 0};
  EXPECT_EQ(planner.Plan(four_days, 10 * kDay).trials, 5);
  EXPECT_EQ(planner.Plan(four_days, 9000 * kDay).trials, 5);
  EXPECT_EQ(planner.Plan(four_days, 7 * kDay).trials, 2);
  EXPECT_EQ(planner.Plan({}, 9000 * kDay).trials, 0);
  const RetentionPlan all = planner.Plan({1, 0, 0}, 9000 * kDay);
  EXPECT_EQ(all.trials, 9);
  EXPECT_TRUE(all.idle_jobs.empty());
}

TEST(RetentionTest, ALateResultOfAForgottenTrialDoesNotCount) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  const std::string generation = log->generation();
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(log->AppendWait(SampleTrial(generation, i, 0.2 * i)).ok());
  }
  TrialRow second = SampleTrial(generation, 5, 0.9);
  second.ids.attempt = 2;
  ASSERT_EQ(log->AppendWait(second)->status, TrialStatus::kCounted);
  CloseJob(*log);
  PruneOptions options;
  options.limits.trials_per_task = 1;
  EXPECT_EQ(log->Prune(options)->forgotten, 4);
  // Trial 1 is the best and stays. A resend of trial 2, and the first attempt of trial 5, whose
  // second one counted:
  EXPECT_EQ(log->AppendWait(SampleTrial(generation, 2, 0.1))->status, TrialStatus::kLate);
  EXPECT_EQ(log->AppendWait(SampleTrial(generation, 5, 0.1))->status, TrialStatus::kLate);
  EXPECT_EQ(log->AppendWait(SampleTrial(generation, 1, 0.1))->delivery,
            AppendVerdict::Delivery::kRepeated);
  EXPECT_EQ(OpenReader(dir / "tuning.db")->FindBest(SampleQuery())->record->ratio, 0.2);
  // Numbers go on where they were.
  JobRow next = SampleJob();
  next.job_id = "job-2";
  ASSERT_TRUE(log->AppendWait(next).ok());
  TrialRow row = SampleTrial(generation, 1, 0.15);
  row.ids.job_id = "job-2";
  EXPECT_EQ(log->AppendWait(row)->seq, 8);
  EXPECT_THAT(OpenReader(dir / "tuning.db")->warnings(), testing::IsEmpty());
}

TEST(RetentionTest, AClosedJobWithoutTrialsGoesAndAnOpenOneStays) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  auto log = OpenSampleLog(path);
  for (const char* id : {"job-2", "job-3", "job-4"}) {
    JobRow job = SampleJob();
    job.job_id = id;
    ASSERT_TRUE(log->AppendWait(job).ok());
  }
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 1, 0.5)).ok());
  TrialRow slower = SampleTrial(log->generation(), 2, 0.8);
  slower.ids.job_id = "job-2";
  ASSERT_TRUE(log->AppendWait(slower).ok());
  for (const char* id : {"job-1", "job-2", "job-3"}) CloseJob(*log, id);
  PruneOptions options;
  options.limits.trials_per_task = 1;
  const auto pruned = log->Prune(options);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->forgotten, 1);
  EXPECT_EQ(pruned->forgotten_jobs, 1);  // job-2; job-3 never had a trial, and is not old
  std::set<std::string> left;
  const auto rows = OpenReader(path)->Jobs();
  for (const JobRow& job : *rows) left.insert(job.job_id);
  EXPECT_THAT(left, testing::ElementsAre("job-1", "job-3", "job-4"));
  EXPECT_THAT(OpenReader(path)->warnings(), testing::IsEmpty());
  EXPECT_THAT(log->AppendWait(slower), Fails(StatusCode::kFailedPrecondition, "job 'job-2'"));
}

TEST(RetentionTest, AppendsGoOnWhileALogIsPrunedAndATraceThatIsMeasuredAgainStays) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  auto log = OpenSampleLog(path);
  const std::string generation = log->generation();
  JobRow open = SampleJob();
  open.job_id = "job-open";
  ASSERT_TRUE(log->AppendWait(open).ok());
  for (int i = 1; i <= 3000; ++i) {
    ASSERT_TRUE(log->Append(SampleTrial(generation, i, 2), nullptr).ok());
    if (i % 1000 == 0) {
      ASSERT_TRUE(log->Flush().ok());
    }
  }
  CloseJob(*log);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> again{0};
  std::thread writer([&] {
    for (int64_t i = 1; !stop || i < 50; ++i) {
      TrialRow row = SampleTrial(generation, i, 2);  // the traces of the closed job
      row.ids.job_id = "job-open";
      ASSERT_TRUE(log->AppendWait(row).ok());
      again = i;
    }
  });
  PruneOptions options;
  options.limits.trials_per_task = 1;
  options.most = 1000;
  const auto first = log->Prune(options);
  options.most = INT64_MAX;
  const auto rest = log->Prune(options);
  stop = true;
  writer.join();
  ASSERT_TRUE(first.ok() && rest.ok()) << first.status() << rest.status();
  EXPECT_TRUE(first->more);
  EXPECT_FALSE(rest->more);
  EXPECT_GE(first->forgotten, 1000);
  EXPECT_LT(first->forgotten, 1300);
  const auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
  // A trace is either gone with all its old rows or has all of them.
  std::map<std::string, int> rows_of;
  EXPECT_TRUE(reader
                  ->ForEachTrial(nullptr,
                                 [&](const TrialRow& row) {
                                   rows_of[row.trace] += row.ids.job_id == "job-1" ? 1 : 10;
                                   return true;
                                 })
                  .ok());
  for (const auto& [trace, rows] : rows_of) EXPECT_TRUE(rows == 1 || rows == 11 || rows == 10);
  EXPECT_EQ(reader->Stats()->trials, 3000 + again - first->forgotten - rest->forgotten);
}

TEST(RetentionTest, WhatIsForgottenGivesItsRoomBack) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  auto log = OpenSampleLog(path);
  for (int i = 1; i <= 2000; ++i) {
    ASSERT_TRUE(log->Append(SampleTrial(log->generation(), i, 2), nullptr).ok());
  }
  ASSERT_TRUE(log->Flush().ok());
  CloseJob(*log);
  const auto full = OpenReader(path)->Stats();
  // What a limit in bytes counts is what the file has.
  const double stored = 2000.0 * static_cast<double>(StoredBytes(SampleTrial("g", 1000)) + 62);
  EXPECT_NEAR(stored / static_cast<double>(full->bytes), 1, 0.25);
  PruneOptions options;
  options.limits.trials_per_task = 200;
  options.room = PruneOptions::Room::kGiveBack;
  const auto pruned = log->Prune(options);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_TRUE(pruned->shrunk.ok()) << pruned->shrunk;
  EXPECT_EQ(pruned->kept, 200);
  const auto small = OpenReader(path)->Stats();
  EXPECT_EQ(small->free_bytes, 0);
  EXPECT_LT(small->bytes, full->bytes / 5);
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path)), small->bytes);
  EXPECT_EQ(log->AppendWait(SampleTrial(log->generation(), 3000))->seq, 2001);
  // Forgetting again and again leaves one tombstone between two rows, no more.
  options.limits.trials_per_task = 20;
  ASSERT_TRUE(log->Prune(options).ok());
  const auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
  EXPECT_EQ(reader->Stats()->buried, 2001 - 20);
}

}  // namespace
}  // namespace whet::db
