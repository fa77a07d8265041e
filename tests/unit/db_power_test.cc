// The tuning log on a disk whose power fails, that lies about its syncs, that is full at any write:
// whatever was acknowledged is there, once, or its loss is said.
#include <sqlite3.h>

#include <sstream>

#include "db/store/log_writer.h"
#include "tests/support/crash_disk.h"
#include "tests/unit/db_testing.h"

namespace whet::db {
namespace {

using testing_support::CrashDisk;

// More of them at night.
uint64_t Seeds(uint64_t usual) {
  const char* more = getenv("WHET_POWER_SEEDS");
  return more == nullptr ? usual : strtoull(more, nullptr, 10);
}

struct SentRow {
  TrialRow row;
  int64_t seq = 0;  // under which it was acknowledged; 0: it was not
};

WriterOptions SmallSteps() {
  WriterOptions options;
  options.checkpoint_pages = 24;  // so that a short run has checkpoints in it
  return options;
}

// Rows in batches through one life of the writer after another, until the power fails.
class PowerRun {
 public:
  PowerRun(const std::string& path, uint64_t seed, CrashDisk& disk)
      : path_(path), rng_(seed), disk_(disk) {}

  void Run() {
    for (int life = 0; life < 3 && !disk_.cut(); ++life) {
      const auto writer = LogWriter::Open(path_, SmallSteps());
      if (!writer.ok()) {
        // Without a power failure nothing may go wrong; before the first row nothing is lost.
        EXPECT_TRUE(disk_.cut()) << writer.status();
        return;
      }
      if (!Commit(**writer, {SampleWorkload(), SampleDevice(), SampleJob()})) return;
      const int64_t batches = 1 + rng_.Below(12);
      for (int64_t b = 0; b < batches && !disk_.cut(); ++b) {
        if (!CommitTrials(**writer)) return;
      }
      if (rng_.Below(4) == 0) TearMark();
    }
  }

  std::vector<SentRow>& sent() { return sent_; }

 private:
  bool Commit(LogWriter& writer, std::vector<Row> rows) {
    std::vector<const Row*> pointers;
    for (Row& row : rows) {
      EXPECT_TRUE(std::visit([](auto& r) { return Normalize(r); }, row).ok());
      pointers.push_back(&row);
    }
    const auto verdicts = writer.Commit(pointers);
    last_acknowledged_.clear();
    if (!verdicts.ok()) return false;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE((*verdicts)[i].ok()) << (*verdicts)[i].status();
      if (!std::holds_alternative<TrialRow>(rows[i])) continue;
      SentRow& s = sent_[sent_.size() - rows.size() + i];
      s.seq = (*verdicts)[i]->seq;
      last_acknowledged_.push_back(&s - sent_.data());
    }
    return true;
  }

  bool CommitTrials(LogWriter& writer) {
    std::vector<Row> rows;
    const int64_t n = 1 + rng_.Below(6);
    for (int64_t i = 0; i < n; ++i) {
      TrialRow row = SampleTrial(writer.meta().generation, static_cast<int64_t>(sent_.size()) + 1);
      row.trace += std::string(static_cast<size_t>(rng_.Below(3000)), 'x') + "\n";
      sent_.push_back({row, 0});
      rows.emplace_back(row);
    }
    mark_before_ = ReadFile(HighWaterFile::PathFor(path_));
    return Commit(writer, std::move(rows));
  }

  // The power fails while the mark of the last commit is being written: it was not acknowledged.
  void TearMark() {
    disk_.Cut();
    const std::string file = HighWaterFile::PathFor(path_);
    const std::string after = ReadFile(file);
    std::string torn = mark_before_;
    for (size_t i = 0; i < torn.size() && i < after.size(); ++i) {
      if (torn[i] != after[i] && rng_.Below(2) == 0) torn[i] = after[i];
    }
    WriteFile(file, torn);
    for (const int64_t i : last_acknowledged_) sent_[static_cast<size_t>(i)].seq = 0;
  }

  const std::string path_;
  Rng rng_;
  CrashDisk& disk_;
  std::vector<SentRow> sent_;
  std::vector<int64_t> last_acknowledged_;
  std::string mark_before_;
};

// Every acknowledged row is there as it was sent, and a resend of any row leaves it there once.
void ExpectAllThere(const std::string& path, const std::vector<SentRow>& sent) {
  {
    const auto writer = LogWriter::Open(path, SmallSteps());
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Row& row : std::vector<Row>{SampleWorkload(), SampleDevice(), SampleJob()}) {
      const Row* const one[] = {&row};
      ASSERT_TRUE((*writer)->Commit(one).ok());
    }
    for (const SentRow& s : sent) {
      Row row = s.row;
      ASSERT_TRUE(Normalize(std::get<TrialRow>(row)).ok());
      const Row* const one[] = {&row};
      const auto verdicts = (*writer)->Commit(one);
      ASSERT_TRUE(verdicts.ok()) << verdicts.status();
      const StatusOr<AppendVerdict>& verdict = (*verdicts)[0];
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      if (s.seq == 0) continue;
      EXPECT_EQ(verdict->delivery, AppendVerdict::Delivery::kRepeated) << s.seq;
      EXPECT_EQ(verdict->seq, s.seq);
    }
  }
  const auto reader = OpenReader(path);
  ASSERT_NE(reader, nullptr);
  EXPECT_THAT(reader->warnings(), testing::IsEmpty());
  std::map<std::string, int> times;
  const auto damaged = reader->ForEachTrial(nullptr, [&](const TrialRow& row) {
    ++times[row.trace];
    return true;
  });
  EXPECT_EQ(*damaged, 0);
  EXPECT_EQ(times.size(), sent.size());
  for (const SentRow& s : sent) EXPECT_EQ(times[s.row.trace], 1) << s.row.ids.trial;
}

TEST(PowerTest, NoAcknowledgedRowIsLostAndNoneIsThereTwiceWheneverThePowerFails) {
  int cut = 0, unacknowledged = 0;
  const uint64_t seeds = Seeds(200);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    TempFolder dir;
    const std::string path = dir / "tuning.db";
    CrashDisk disk(seed, CrashDisk::Syncs::kHonest);
    PowerRun run(path, seed, disk);
    disk.CutAfter(1 + Rng(seed).Below(500));
    run.Run();
    cut += disk.cut();
    disk.Cut();
    disk.Restart();
    for (const SentRow& s : run.sent()) unacknowledged += s.seq == 0;
    ExpectAllThere(path, run.sent());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(cut, static_cast<int>(seeds / 2));
  EXPECT_GT(unacknowledged, static_cast<int>(seeds / 6));
}

TEST(PowerTest, WhatADiskLosesThatLiesAboutItsSyncsIsSaid) {
  int whole = 0, said = 0;
  const uint64_t seeds = Seeds(200);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    TempFolder dir;
    const std::string path = dir / "tuning.db";
    CrashDisk disk(seed, CrashDisk::Syncs::kLost);
    PowerRun run(path, seed, disk);
    disk.CutAfter(100 + Rng(seed).Below(400));
    run.Run();
    disk.Cut();
    disk.Restart();
    const auto reader = LogReader::Open(path, {ReaderOptions::Check::kFull});
    if (!reader.ok() || !(*reader)->warnings().empty()) {
      ++said;
      continue;
    }
    ++whole;
    for (const SentRow& s : run.sent()) {
      if (s.seq == 0) continue;
      const auto row = (*reader)->Trial(s.seq);
      ASSERT_TRUE(row.ok()) << row.status();
      EXPECT_EQ(row->trace, s.row.trace);
    }
  }
  EXPECT_GT(whole, static_cast<int>(seeds / 10));
  EXPECT_GT(said, static_cast<int>(seeds / 10));
}

TEST(FullDiskTest, AtWhateverWriteTheDiskIsFullTheRowsComeInOnceThereIsRoom) {
  int stopped = 0;
  for (int64_t write = 1; write <= 120; ++write) {
    SCOPED_TRACE(write);
    TempFolder dir;
    const std::string path = dir / "tuning.db";
    OpenSampleLog(path).reset();
    CrashDisk disk(static_cast<uint64_t>(write), CrashDisk::Syncs::kHonest);
    std::vector<SentRow> sent;
    {
      const auto writer = LogWriter::Open(path, SmallSteps());
      ASSERT_TRUE(writer.ok()) << writer.status();
      disk.FillAfter(write);
      for (int64_t i = 1; i <= 12; ++i) {
        Row row = SampleTrial((*writer)->meta().generation, i);
        ASSERT_TRUE(Normalize(std::get<TrialRow>(row)).ok());
        sent.push_back({std::get<TrialRow>(row), 0});
        const Row* const one[] = {&row};
        auto verdicts = (*writer)->Commit(one);
        if (!verdicts.ok()) {
          ++stopped;
          EXPECT_EQ(verdicts.status().code(), absl::StatusCode::kResourceExhausted)
              << verdicts.status();
          EXPECT_FALSE((*writer)->Probe().ok());  // still full
          disk.SetFull(false);
          EXPECT_TRUE((*writer)->Probe().ok());
          verdicts = (*writer)->Commit(one);
        }
        ASSERT_TRUE(verdicts.ok()) << verdicts.status();
        sent.back().seq = (*verdicts)[0]->seq;
      }
    }
    disk.SetFull(false);
    ExpectAllThere(path, sent);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(stopped, 60);
}

TEST(DamageTest, AFlippedBitInTheWriteAheadLogIsReportedOrHarmless) {
  TempFolder dir;
  const std::string live = dir / "live.db";
  auto log = OpenSampleLog(live);
  for (int i = 1; i <= 8; ++i) {
    ASSERT_TRUE(log->AppendWait(SampleTrial(log->generation(), i, 1 - 0.1 * i)).ok());
  }
  // As a power failure would leave them.
  const std::string file = ReadFile(live), wal = ReadFile(live + "-wal"),
                    mark = ReadFile(live + "-highwater");
  ASSERT_GT(wal.size(), 4096u * 8);
  log.reset();
  std::ostringstream good;
  ASSERT_TRUE(OpenReader(live)->Export(good, OnDamage::kRefuse).ok());

  Rng rng(21);
  int reported = 0, harmless = 0;
  const std::string path = dir / "flipped.db";
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = wal, marks = mark;
    // A few in the mark as well: a slot that is damaged leaves the other one.
    std::string& hit = i % 20 == 0 ? marks : bytes;
    const int64_t bit = rng.Below(static_cast<int64_t>(hit.size()) * 8);
    hit[bit / 8] = static_cast<char>(hit[bit / 8] ^ (1 << (bit % 8)));
    WriteFile(path, file);
    WriteFile(path + "-wal", bytes);
    WriteFile(path + "-highwater", marks);
    std::filesystem::remove(path + "-shm");
    const auto reader = LogReader::Open(path, {ReaderOptions::Check::kFull});
    if (!reader.ok() || !(*reader)->warnings().empty()) {
      ++reported;
      continue;
    }
    ++harmless;
    std::ostringstream out;
    const auto rows = (*reader)->Export(out, OnDamage::kRefuse);
    ASSERT_TRUE(rows.ok()) << "bit " << bit << ": " << rows.status();
    ASSERT_EQ(out.str(), good.str()) << "bit " << bit << " changed the answer silently";
  }
  EXPECT_GT(reported, 300);
  EXPECT_GT(harmless, 20);
}

// ---- readers beside the writer ----

// A transaction of some other program, open until it is told to end.
class LongReader {
 public:
  explicit LongReader(const std::string& path) {
    EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db_, "BEGIN; SELECT count(*) FROM trials", nullptr, nullptr, nullptr),
              SQLITE_OK);
  }
  ~LongReader() { sqlite3_close(db_); }

 private:
  sqlite3* db_ = nullptr;
};

int64_t JournalBytesOf(const std::string& path) {
  std::error_code none;
  const auto size = std::filesystem::file_size(path + "-wal", none);
  return none ? 0 : static_cast<int64_t>(size);
}

TEST(ReaderTest, AReaderThatStaysOpenWhileTenThousandRowsAreWrittenDoesNotHoldTheJournal) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  auto log = OpenSampleLog(path);
  const auto reader = OpenReader(path);
  int64_t longest = 0;
  for (int i = 1; i <= 10000; ++i) {
    Status queued = Unavailable("not yet");
    while (!queued.ok()) queued = log->Append(SampleTrial(log->generation(), i), nullptr);
    if (i % 500 != 0) continue;
    ASSERT_TRUE(log->Flush().ok());
    longest = std::max(longest, JournalBytesOf(path));
    EXPECT_TRUE(reader->Trial(i).ok());  // and reads in between
  }
  EXPECT_EQ(reader->Stats()->trials, 10000);
  // A thousand pages, and the batch that was under way.
  EXPECT_LT(longest, 16 << 20);
}

TEST(ReaderTest, AJournalThatAForgottenTransactionHoldsIsBoundedAndSaid) {
  TempFolder dir;
  const std::string path = dir / "tuning.db";
  WriterOptions options;
  options.checkpoint_pages = 16;
  options.journal_limit = 1 << 20;
  options.full_retry = std::chrono::milliseconds(1);
  auto log = OpenSampleLog(path, options);
  Status full = OkStatus();
  int64_t stored = 0;
  {
    const LongReader forgotten(path);
    for (int i = 1; i <= 20000 && full.ok(); ++i) {
      full = log->AppendWait(SampleTrial(log->generation(), i)).status();
      stored += full.ok();
    }
    EXPECT_THAT(StatusOr<int>(full), Fails(absl::StatusCode::kResourceExhausted, "fuser"));
    EXPECT_LT(JournalBytesOf(path), (1 << 20) + (256 << 10));
    EXPECT_FALSE(log->AppendWait(SampleTrial(log->generation(), 30000)).ok());
  }
  StatusOr<AppendVerdict> verdict = full;
  for (int i = 0; i < 10000 && !verdict.ok(); ++i) {
    verdict = log->AppendWait(SampleTrial(log->generation(), 30000));
  }
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->seq, stored + 1);
  EXPECT_LT(JournalBytesOf(path), 1 << 20);
}

}  // namespace
}  // namespace whet::db
