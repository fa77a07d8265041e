// The tuning log when things go wrong: kill -9, full disks, damage, foreign files, other writers,
// old and newer schemas. Faults are made from outside, with SQLite's own interface or by changing
// bytes.
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "compiler/support/rng.h"
#include "db/store/file_guard.h"
#include "tests/unit/db_schema1_sample.h"
#include "tests/unit/db_testing.h"

namespace whet::db {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// Runs SQL on a file behind the log's back.
void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

std::string QueryText(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  std::string out;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  sqlite3_exec(
      db, sql.c_str(),
      [](void* to, int n, char** values, char**) {
        for (int i = 0; i < n; ++i)
          *static_cast<std::string*>(to) += values[i] ? values[i] : "NULL";
        return 0;
      },
      &out, nullptr);
  sqlite3_close(db);
  return out;
}

// A closed log with `trials` trials, whose ratios are 0.9, 0.8, …
void MakeLog(const std::string& path, int trials) {
  auto log = OpenSampleLog(path);
  for (int i = 1; i <= trials; ++i) {
    ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), i, 1 - 0.1 * i)).ok());
  }
}

// ---- kill -9 ----

// Appends without end and writes the sequence number of every acknowledged row to `fd`.
[[noreturn]] void AppendUntilKilled(const std::string& path, int64_t first, int fd) {
  auto log = TuningLog::Open(path);
  if (!log.ok()) _exit(1);
  for (int64_t i = first;; ++i) {
    const Status queued = (*log)->Append(
        SampleTrial((*log)->generation(), i), [fd](const StatusOr<AppendVerdict>& verdict) {
          if (!verdict.ok() || write(fd, &verdict->seq, sizeof(int64_t)) < 0) _exit(2);
        });
    if (!queued.ok()) usleep(100);  // the queue is full
  }
}

TEST(KillTest, EveryAcknowledgedRowSurvivesKillNine) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  OpenSampleLog(path).reset();
  int64_t acknowledged = 0;
  for (int round = 1; round <= 5; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) AppendUntilKilled(path, round * 1000000, pipe_fds[1]);
    close(pipe_fds[1]);
    // Some rows, a different number each round, then the kill at whatever it is doing.
    const int64_t enough = acknowledged + 150 * round + 37;
    int64_t seq = 0;
    while (acknowledged < enough && read(pipe_fds[0], &seq, sizeof(seq)) == sizeof(seq))
      acknowledged = seq;
    kill(child, SIGKILL);
    while (read(pipe_fds[0], &seq, sizeof(seq)) == sizeof(seq)) acknowledged = seq;
    close(pipe_fds[0]);
    int state = 0;
    waitpid(child, &state, 0);
    ASSERT_TRUE(WIFSIGNALED(state)) << "the child failed by itself, code " << WEXITSTATUS(state);

    auto reader = OpenReader(path);
    EXPECT_THAT(reader->warnings(), testing::IsEmpty());
    const int64_t stored = reader->Stats()->trials;
    EXPECT_GE(stored, acknowledged);
    // Rows that were committed but not acknowledged come before the next ones.
    acknowledged = stored;
  }
}

// ---- one writer ----

TEST(LockTest, ASecondWriterIsToldWhoWritesAndHowToGoOn) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  std::filesystem::create_symlink(dir / "tuning.db", dir / "alias.db");
  for (const char* name : {"tuning.db", "alias.db"}) {
    EXPECT_THAT(
        TuningLog::Open(dir / name),
        Fails(StatusCode::kUnavailable,
              fmt::format("tuning.db' is being written by process {}; use that server", getpid())));
  }
  EXPECT_TRUE(LogReader::Open(dir / "tuning.db").ok());
  log.reset();
  EXPECT_TRUE(TuningLog::Open(dir / "tuning.db").ok());
}

TEST(LockTest, NetworkFileSystemsAreKnownByName) {
  EXPECT_EQ(NetworkFileSystemName(0x6969), "NFS");
  EXPECT_EQ(NetworkFileSystemName(static_cast<int32_t>(0xff534d42)),
            "CIFS");                                           // sign-extended on some ABIs
  EXPECT_EQ(NetworkFileSystemName(0xef53), std::nullopt);      // ext4
  EXPECT_EQ(NetworkFileSystemName(0x01021994), std::nullopt);  // tmpfs
}

TEST(LockTest, AReaderNeverCheckpointsOrWrites) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  auto log = OpenSampleLog(path);
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 1)).ok());
  const std::string before = ReadFile(path);
  const std::string wal = ReadFile(path + "-wal");
  ASSERT_FALSE(wal.empty());
  OpenReader(path)->Stats().IgnoreError();
  EXPECT_EQ(ReadFile(path), before);
  EXPECT_EQ(ReadFile(path + "-wal"), wal);
}

// ---- full disks ----

TEST(FullDiskTest, TheLogIsReadOnlyUntilThereIsRoomAgain) {
  TempFolder dir;
  WriterOptions options;
  options.full_retry = std::chrono::milliseconds(1);
  options.page_limit = 60;
  auto log = OpenSampleLog(dir / "tuning.db", options);
  Status full = OkStatus();
  int64_t stored = 0;
  for (int i = 1; i <= 10000 && full.ok(); ++i) {
    full = log->AppendWait(SampleTrial(log->generation(), i)).status();
    stored += full.ok();
  }
  EXPECT_THAT(StatusOr<int>(full),
              Fails(StatusCode::kResourceExhausted, "the log is read-only until"));
  EXPECT_GT(stored, 10);
  EXPECT_EQ(OpenReader(dir / "tuning.db")->Stats()->trials, stored);

  log->SetPageLimit(0);
  StatusOr<AppendVerdict> verdict = full;
  for (int i = 0; i < 10000 && !verdict.ok(); ++i) {
    verdict = log->AppendWait(SampleTrial(log->generation(), 20000));
  }
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->seq, stored + 1);
  EXPECT_TRUE(log->state().ok());
  EXPECT_TRUE(OpenReader(dir / "tuning.db")->Verify()->ok());
}

TEST(FullDiskTest, RowsBehindOneThatFoundNoRoomFailLikeItAndNotForLackOfIt) {
  TempFolder dir;
  WriterOptions options;
  options.full_retry = std::chrono::hours(1);
  options.batch_rows = 1;
  options.page_limit = 60;
  auto log = OpenSampleLog(dir / "tuning.db", options);
  std::vector<Status> outcomes;
  const WorkloadRow large{"whet-workload 1\n" + std::string(500'000, 'x') + "\n", "large"};
  const auto note = [&](const StatusOr<AppendVerdict>& v) { outcomes.push_back(v.status()); };
  ASSERT_TRUE(log->Append(large, note).ok());
  for (int i = 1; i <= 3; ++i) {
    TrialRow row = SampleTrial(log->generation(), i);
    row.key.workload = large.fingerprint();
    const Status refused = log->Append(row, note);
    if (refused.ok()) continue;  // it is in the queue behind the large one
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
    break;
  }
  EXPECT_EQ(log->Flush().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(outcomes.empty());
  for (const Status& s : outcomes) EXPECT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
}

TEST(FullDiskTest, ARealFullFileSystem) {
  TempFolder dir;
  if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=8m") != 0) {
    GTEST_SKIP() << "mounting a tmpfs needs root: " << strerror(errno);
  }
  WriterOptions options;
  options.full_retry = std::chrono::milliseconds(1);
  {
    auto log = OpenSampleLog(dir / "tuning.db", options);
    WriteFile(dir / "ballast", std::string((7 << 20) + (400 << 10), 'x'));
    Status full = OkStatus();
    int64_t stored = 0;
    for (int i = 1; i <= 20000 && full.ok(); ++i) {
      full = log->AppendWait(SampleTrial(log->generation(), i)).status();
      stored += full.ok();
    }
    EXPECT_THAT(StatusOr<int>(full), Fails(StatusCode::kResourceExhausted, "read-only"));
    EXPECT_EQ(OpenReader(dir / "tuning.db")->Stats()->trials, stored);
    std::filesystem::remove(dir / "ballast");
    StatusOr<AppendVerdict> verdict = full;
    for (int i = 0; i < 10000 && !verdict.ok(); ++i) {
      verdict = log->AppendWait(SampleTrial(log->generation(), 30000));
    }
    EXPECT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_TRUE(OpenReader(dir / "tuning.db")->Verify()->ok());
  }
  umount(dir.path().c_str());
}

// ---- files that are not a log ----

TEST(ForeignFileTest, IsRefusedInWordsAndLeftAsItIs) {
  TempFolder dir;
  Rng rng(1);
  std::string random(5000, '\0');
  for (char& c : random) c = static_cast<char>(rng.Next());
  WriteFile(dir / "random", random);
  WriteFile(dir / "text", "hello\n");
  RunSql(dir / "other", "CREATE TABLE t(x); INSERT INTO t VALUES(1);");
  RunSql(dir / "forged",
         "PRAGMA application_id=1464354132; PRAGMA user_version=2; CREATE TABLE trials(x);");
  MakeLog(dir / "extra", 1);
  RunSql(dir / "extra", "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END;");
  MakeLog(dir / "virtual", 1);
  RunSql(dir / "virtual", "CREATE VIRTUAL TABLE zz USING fts5(x);");
  MakeLog(dir / "loose", 1);
  RunSql(dir / "loose",
         "DROP TABLE tombstones; CREATE TABLE tombstones(seq_first INTEGER PRIMARY KEY NOT "
         "NULL, seq_last INTEGER NOT NULL, reason TEXT NOT NULL, created_ms INTEGER NOT NULL, "
         "crc INTEGER NOT NULL);");
  const std::pair<std::string, std::string> cases[] = {
      {"random", "it is not a SQLite database (it begins with"},
      {"text", "it begins with 68 65 6c 6c 6f 0a"},
      {"other", "a SQLite database of another program (application_id 0x00000000"},
      {"forged", "is not a tuning log of schema 2, though it says so: expected"},
      {"extra", "found trigger t on trials"},
      {"virtual", "table zz on zz  without pages"},
      {"loose", "is not a tuning log of schema 4"}};
  for (const auto& [name, words] : cases) {
    const std::string path = dir / name;
    const std::string bytes = ReadFile(path);
    std::filesystem::create_directory(dir / "cell");  // alone, so that new files beside it show
    const std::string alone = dir / "cell/tuning.db";
    std::filesystem::copy_file(path, alone);
    EXPECT_THAT(TuningLog::Open(alone), Fails(StatusCode::kInvalidArgument, words)) << name;
    EXPECT_THAT(LogReader::Open(alone), Fails(StatusCode::kInvalidArgument, words)) << name;
    EXPECT_EQ(ReadFile(alone), bytes) << name;
    EXPECT_FALSE(std::filesystem::exists(alone + "-lock")) << name;
    EXPECT_FALSE(std::filesystem::exists(alone + "-highwater")) << name;
    std::filesystem::remove_all(dir / "cell");
  }
}

TEST(ForeignFileTest, FoldersMissingFilesAndEmptyOnes) {
  TempFolder dir;
  EXPECT_THAT(TuningLog::Open(dir.path()), Fails(StatusCode::kInvalidArgument, "is a folder"));
  EXPECT_THAT(LogReader::Open(dir.path()), Fails(StatusCode::kInvalidArgument, "is a folder"));
  EXPECT_THAT(LogReader::Open(dir / "none.db"),
              Fails(StatusCode::kNotFound, "none.db' does not exist"));
  EXPECT_THAT(TuningLog::Open(dir / "no/such/t.db"), Fails(StatusCode::kNotFound, "no/such"));
  WriteFile(dir / "empty.db", "");
  EXPECT_THAT(LogReader::Open(dir / "empty.db"),
              Fails(StatusCode::kInvalidArgument, "it is empty"));
  EXPECT_TRUE(TuningLog::Open(dir / "empty.db").ok());  // as mktemp leaves it
  EXPECT_TRUE(OpenReader(dir / "empty.db")->Verify()->ok());
  // A name full of URI syntax stays a name.
  EXPECT_TRUE(TuningLog::Open(dir / "a?mode=memory#%41.db").ok());
  EXPECT_TRUE(std::filesystem::exists(dir / "a?mode=memory#%41.db"));
}

TEST(ForeignFileTest, ACreationCutShortIsTakenUpAgain) {
  TempFolder dir;
  RunSql(dir / "tuning.db", "PRAGMA journal_mode=WAL;");
  ASSERT_GT(std::filesystem::file_size(dir / "tuning.db"), 0u);
  EXPECT_THAT(LogReader::Open(dir / "tuning.db"),
              Fails(StatusCode::kInvalidArgument, "has no tables"));
  MakeLog(dir / "tuning.db", 1);
  EXPECT_EQ(OpenReader(dir / "tuning.db")->Stats()->trials, 1);
}

TEST(ForeignFileTest, ATruncatedLogIsNeverQuietlyShorter) {
  TempFolder dir;
  MakeLog(dir / "whole.db", 9);
  const std::string whole = ReadFile(dir / "whole.db");
  for (size_t size = 1; size < whole.size(); size += 1 + whole.size() / 40) {
    const std::string path = dir / "cut.db";
    WriteFile(path, whole.substr(0, size));
    EXPECT_FALSE(TuningLog::Open(path).ok()) << size;
    EXPECT_EQ(ReadFile(path).size(), size);
    auto reader = LogReader::Open(path, {ReaderOptions::Check::kFull});
    EXPECT_TRUE(!reader.ok() || !(*reader)->warnings().empty()) << size;
  }
}

TEST(PlanTest, DamagedPlansAreLeftOutAndWrittenAgain) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  {
    auto log = OpenSampleLog(path);
    ASSERT_TRUE(log->AppendWait(SamplePlan("selected", 2)).ok());
    ASSERT_TRUE(log->AppendWait(SamplePlan("row-major", 2)).ok());
  }
  RunSql(path, "UPDATE plans SET created_ms=6 WHERE alternative='selected'");
  auto plans = OpenReader(path)->FindPlans();
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_EQ(plans->rows.size(), 1u);
  EXPECT_EQ(plans->rows[0].alternative, "row-major");
  EXPECT_EQ(plans->damaged_rows, 1);
  {
    auto log = TuningLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->AppendWait(SamplePlan("selected", 3)).ok());
  }
  plans = OpenReader(path)->FindPlans();
  EXPECT_EQ(plans->damaged_rows, 0);
  ASSERT_EQ(plans->rows.size(), 2u);
  EXPECT_EQ(plans->rows[1].parts, SamplePlan("selected", 3).parts);
  // A workload that a plan names.
  RunSql(path, "UPDATE workloads SET op_summary='another'");
  plans = OpenReader(path)->FindPlans();
  EXPECT_TRUE(plans->rows.empty());
  EXPECT_EQ(plans->damaged_rows, 1);
}

// ---- schemas ----

TEST(MigrationTest, ALogOfSchemaOneIsBackedUpAndTakenOver) {
  TempFolder dir;
  const std::string path = dir / "old.db";
  RunSql(path, kSchema1Sample);
  RunSql(path, "UPDATE trials SET median_ns=1 WHERE seq=4");  // damaged before, damaged after
  EXPECT_THAT(LogReader::Open(path),
              Fails(StatusCode::kFailedPrecondition,
                    "has schema 1, this release reads schema 4: open it once for writing"));
  std::string generation;
  {
    auto log = TuningLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    generation = (*log)->generation();
    EXPECT_EQ((*log)->AppendWait(SampleTrial(generation, 5, 0.9))->seq, 5);
  }
  EXPECT_EQ(QueryText(path + ".schema1.bak", "PRAGMA user_version"), "1");
  EXPECT_EQ(QueryText(path + ".schema1.bak", "SELECT count(*) FROM trials"), "4");
  EXPECT_EQ(QueryText(path, "PRAGMA user_version"), "4");

  auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(),
              testing::ElementsAre(HasSubstr("trials row 4: its CRC does not match")));
  EXPECT_EQ(reader->generation(), generation);
  BestQuery query = SampleQuery();
  query.key.cache_mode = CacheMode::kWarm;  // as all were then
  const auto best = reader->FindBest(query);
  EXPECT_EQ(best->record->row.seq, 2);
  EXPECT_EQ(best->record->row.origin, Origin::kMeasured);
  EXPECT_EQ(best->record->row.runs_per_sample, 1);
  EXPECT_EQ(reader->Stats()->trials, 4);
}

TEST(MigrationTest, ALogOfSchemaTwoKeepsItsRowsAndGetsThePlanTable) {
  TempFolder dir;
  const std::string path = dir / "old.db";
  MakeLog(path, 3);
  RunSql(path, "DROP TABLE plans; DROP TABLE machines; PRAGMA user_version=2;");
  ASSERT_TRUE(TuningLog::Open(path).ok());
  EXPECT_EQ(QueryText(path + ".schema2.bak", "PRAGMA user_version"), "2");
  EXPECT_EQ(QueryText(path + ".schema2.bak", "SELECT count(*) FROM trials"), "3");
  auto reader = OpenReader(path);
  EXPECT_TRUE(reader->warnings().empty());
  EXPECT_EQ(reader->Stats()->trials, 3);
  EXPECT_TRUE(reader->FindPlans()->rows.empty());
}

TEST(MigrationTest, ALogOfSchemaThreeKeepsItsPlansAndGetsTheTableOfMachines) {
  TempFolder dir;
  const std::string path = dir / "old.db";
  MakeLog(path, 3);
  {
    auto log = TuningLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->AppendWait(SamplePlan("selected", 2)).ok());
  }
  RunSql(path, "DROP TABLE machines; PRAGMA user_version=3;");
  {
    auto log = TuningLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_TRUE((*log)->AppendWait(MachineRow{SampleDevice().fingerprint(), "clock=1", 5}).ok());
  }
  EXPECT_EQ(QueryText(path + ".schema3.bak", "PRAGMA user_version"), "3");
  auto reader = OpenReader(path);
  EXPECT_TRUE(reader->warnings().empty());
  EXPECT_EQ(reader->Stats()->trials, 3);
  EXPECT_EQ(reader->FindPlans()->rows.size(), 1u);
  EXPECT_EQ(reader->Machines()->size(), 1u);
}

TEST(MigrationTest, ABackupIsNeverOverwritten) {
  TempFolder dir;
  const std::string path = dir / "old.db";
  RunSql(path, kSchema1Sample);
  WriteFile(path + ".schema1.bak", "precious");
  ASSERT_TRUE(TuningLog::Open(path).ok());
  EXPECT_EQ(ReadFile(path + ".schema1.bak"), "precious");
  EXPECT_EQ(QueryText(path + ".schema1.bak.2", "SELECT count(*) FROM trials"), "4");
}

TEST(MigrationTest, ANewerSchemaIsRefusedNamingBothVersions) {
  TempFolder dir;
  const std::string path = dir / "new.db";
  MakeLog(path, 1);
  RunSql(path, "ALTER TABLE trials ADD COLUMN later TEXT; PRAGMA user_version=5;");
  const std::string bytes = ReadFile(path);
  const std::string words =
      "has schema 5, made by a newer release; this release knows up to schema 4";
  EXPECT_THAT(TuningLog::Open(path), Fails(StatusCode::kFailedPrecondition, words));
  EXPECT_THAT(LogReader::Open(path), Fails(StatusCode::kFailedPrecondition, words));
  EXPECT_EQ(ReadFile(path), bytes);
}

// People copy the one file that has the log's name.
TEST(CopyTest, AClosedLogIsWholeInItsOwnFileThoughReadersAreOpen) {
  TempFolder dir;
  auto log = OpenSampleLog(dir / "tuning.db");
  ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), 1)).ok());
  const auto reader = OpenReader(dir / "tuning.db");
  log.reset();
  WriteFile(dir / "copy.db", ReadFile(dir / "tuning.db"));
  EXPECT_EQ(OpenReader(dir / "copy.db")->Stats()->trials, 1);
}

// ---- damage ----

TEST(DamageTest, ADamagedRowIsNamedAndNeverUsed) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  MakeLog(path, 5);
  RunSql(path, "UPDATE trials SET baseline_ratio=0.01 WHERE seq=2");
  auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(),
              testing::ElementsAre(HasSubstr("trials row 2: its CRC does not match")));
  EXPECT_THAT(reader->Trial(2), Fails(StatusCode::kDataLoss, "trials row 2 is damaged"));
  const auto best = reader->FindBest(SampleQuery());
  EXPECT_EQ(best->record->row.seq, 5);
  EXPECT_EQ(best->damaged_rows, 1);
  EXPECT_EQ(reader->Stats()->damaged_rows, 1);
  std::ostringstream out;
  EXPECT_THAT(reader->Export(out, OnDamage::kRefuse), Fails(StatusCode::kDataLoss, "trials row 2"));
  EXPECT_EQ(*reader->Export(out, OnDamage::kSkip), 3 + 4);
}

TEST(DamageTest, AMissingRowLeavesAGapThatIsNamed) {
  TempFolder dir;
  MakeLog(dir / "tuning.db", 6);
  RunSql(dir / "tuning.db", "DELETE FROM trials WHERE seq IN (3, 4)");
  const auto report = OpenReader(dir / "tuning.db")->Verify();
  ASSERT_EQ(report->damaged, 1);
  EXPECT_EQ(report->damage[0].where, "trials rows 3..4");
}

TEST(DamageTest, ACorruptPageCostsItsOwnRowsOnly) {
  TempFolder dir;
  MakeLog(dir / "whole.db", 1);
  {
    auto log = TuningLog::Open(dir / "whole.db");
    for (int i = 2; i <= 60; ++i) {
      ASSERT_TRUE((*log)->AppendWait(SampleTrial((*log)->generation(), i)).ok());
    }
  }
  const std::string whole = ReadFile(dir / "whole.db");
  int partial = 0;
  for (size_t page = 1; page < whole.size() / 4096; ++page) {
    const std::string path = dir / fmt::format("page{}.db", page);
    std::string bytes = whole;
    WriteFile(path, bytes.replace(page * 4096, 4096, 4096, '\xff'));
    EXPECT_THAT(TuningLog::Open(path), Fails(StatusCode::kDataLoss, "")) << page;
    auto reader = LogReader::Open(path);
    if (!reader.ok()) continue;
    int64_t whole_rows = 0;
    const auto damaged = (*reader)->ForEachTrial(nullptr, [&](const TrialRow& row) {
      EXPECT_EQ(row.trace, SampleTrial("", row.seq).trace);
      ++whole_rows;
      return true;
    });
    if (!damaged.ok()) continue;  // the top of the table is gone: said, not guessed
    EXPECT_EQ(whole_rows + *damaged, 60) << page;
    partial += whole_rows > 0 && *damaged > 0;
  }
  EXPECT_GT(partial, 5);
}

TEST(DamageTest, ALostTailIsNoticedAndCanBeSalvaged) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  MakeLog(path, 3);
  const std::string earlier = ReadFile(path);
  std::string old_generation;
  {
    auto log = TuningLog::Open(path);
    old_generation = (*log)->generation();
    ASSERT_TRUE((*log)->AppendWait(SampleTrial(old_generation, 4)).ok());
  }
  WriteFile(path, earlier);  // a copy from before the last row comes back
  EXPECT_THAT(OpenReader(path, ReaderOptions::Check::kTail)->warnings(),
              testing::ElementsAre(HasSubstr("it holds 3 trial rows")));
  EXPECT_THAT(TuningLog::Open(path),
              Fails(StatusCode::kDataLoss, "acknowledged rows are missing at its end"));

  WriterOptions options;
  options.lost_tail = WriterOptions::LostTail::kSalvage;
  {
    auto log = TuningLog::Open(path, options);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_NE((*log)->generation(), old_generation);
    // What was given out before the loss comes in late, under a new number.
    const auto verdict = (*log)->AppendWait(SampleTrial(old_generation, 5));
    EXPECT_EQ(verdict->status, TrialStatus::kLate);
    EXPECT_EQ(verdict->seq, 5);
  }
  auto reader = OpenReader(path);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
  EXPECT_EQ(reader->Verify()->high_water, VerifyReport::Mark::kChecked);
  EXPECT_TRUE(TuningLog::Open(path).ok());
}

TEST(DamageTest, TheHighWaterFileSurvivesATornWriteAndAForeignMark) {
  TempFolder dir;
  const std::string path = dir / "t.db";
  auto file = HighWaterFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write({"g", 1, 1}).ok());
  ASSERT_TRUE(file->Write({"g", 2, 2}).ok());
  std::string bytes = ReadFile(path + "-highwater");
  EXPECT_EQ(HighWaterFile::Read(path)->seq, 2);
  bytes[512 + 20] ^= 1;
  WriteFile(path + "-highwater", bytes);
  EXPECT_EQ(HighWaterFile::Read(path)->seq, 1);
  // The next write of a new opener spares the slot that counts.
  file = HighWaterFile::Open(path);
  ASSERT_TRUE(file->Write({"g", 3, 3}).ok());
  bytes = ReadFile(path + "-highwater");
  EXPECT_THAT(bytes, HasSubstr("whet-highwater 1 g 1 1 "));
  // A log that is not there though rows were acknowledged is gone, not new.
  EXPECT_THAT(TuningLog::Open(path), Fails(StatusCode::kDataLoss, "t.db' is gone: 3 trial rows"));
  std::filesystem::remove(path + "-highwater");
  MakeLog(path, 1);
  // A mark of another log that lay here says nothing about this one.
  file = HighWaterFile::Open(path);
  ASSERT_TRUE(file->Write({"other", 1000, 1000}).ok());
  EXPECT_TRUE(TuningLog::Open(path).ok());
  EXPECT_THAT(OpenReader(path)->warnings(), testing::IsEmpty());
  EXPECT_NE(HighWaterFile::Read(path)->generation, "other");
}

TEST(DamageTest, AFlippedBitIsReportedOrHarmless) {
  TempFolder dir;
  MakeLog(dir / "whole.db", 6);
  const std::string whole = ReadFile(dir / "whole.db");
  std::ostringstream good;
  ASSERT_TRUE(OpenReader(dir / "whole.db")->Export(good, OnDamage::kRefuse).ok());
  const uint64_t seed = 20;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  int reported = 0;
  int harmless = 0;
  const std::string path = dir / "flipped.db";
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    const int64_t bit = rng.Below(static_cast<int64_t>(bytes.size()) * 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    WriteFile(path, bytes);
    for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(path + suffix);
    auto reader = LogReader::Open(path, {ReaderOptions::Check::kFull});
    if (!reader.ok() || !(*reader)->warnings().empty()) {
      ++reported;
      continue;
    }
    ++harmless;
    std::ostringstream out;
    const auto rows = (*reader)->Export(out, OnDamage::kRefuse);
    ASSERT_TRUE(rows.ok()) << "bit " << bit << ": " << rows.status();
    ASSERT_EQ(out.str(), good.str()) << "bit " << bit << " changed the answer silently";
    ASSERT_EQ((*reader)->FindBest(SampleQuery())->record->row.seq, 6) << "bit " << bit;
  }
  EXPECT_GT(reported, 50);
  EXPECT_GT(harmless, 50);  // free space
}

}  // namespace
}  // namespace whet::db
