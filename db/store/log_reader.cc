#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "db/record/jsonl.h"
#include "db/store/codec.h"
#include "db/store/identify.h"
#include "db/store/schema.h"
#include "db/store/tuning_log.h"

namespace whet::db {
namespace {

constexpr int kChunkRows = 500;  // of one read transaction
constexpr int kLostAfter = 3;    // attempts, then a trial that only loses devices is given up
constexpr size_t kMaxWarnings = 20;

Status OldSchema(const std::string& path, int version) {
  return FailedPrecondition(
      "tuning log '{}' has schema {}, this release reads schema {}: open it once for writing "
      "(tuner-server "
      "--db, or whet tune --db), which migrates it after a backup",
      path, version, kSchemaVersion);
}

// "a, b, c" of at most five.
std::string Listed(const std::set<std::string>& names) {
  std::string out;
  int n = 0;
  for (const std::string& name : names) {
    if (++n > 5) return out + fmt::format(", and {} more", names.size() - 5);
    out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  }
  return out;
}

bool Settles(const TrialRow& row) {
  if (row.origin == Origin::kImported || row.status == TrialStatus::kLate) return false;
  return !IsRetried(row.failure) || row.ids.attempt >= kLostAfter;
}

}  // namespace

class LogReader::Impl {
 public:
  Impl(Connection db, LogMeta meta, std::optional<HighWater> mark, int64_t limit_ms)
      : db_(std::move(db)), meta_(std::move(meta)), mark_(std::move(mark)), limit_ms_(limit_ms) {}

  // Runs `query` as one read transaction under the time limit.
  template <typename Query>
  Status Read(const Query& query) {
    const std::lock_guard lock(mu_);
    db_.LimitTime(limit_ms_);
    Status status = db_.Exec("BEGIN");
    if (status.ok()) status = query();
    db_.Rollback();  // nothing was written
    db_.LimitTime(0);
    return status;
  }

  StatusOr<VerifyReport> Verify() {
    const std::lock_guard lock(mu_);
    // Checks are as long as the log: one transaction without a limit, asked for by name.
    const auto mark = HighWaterFile::Read(db_.path());
    WHET_RETURN_IF_ERROR(db_.Exec("BEGIN"));
    StatusOr<VerifyReport> report = VerifyInside(mark);
    db_.Rollback();
    return report;
  }

  StatusOr<int64_t> ForEachTrial(const RecordKey* key,
                                 const std::function<bool(const TrialRow&)>& visit,
                                 const std::function<Status(const Status&)>& on_damage) {
    int64_t last_seq = 0;
    int64_t damaged = 0;
    while (true) {
      std::vector<StatusOr<TrialRow>> chunk;
      const Status read = Read([&] { return ReadChunk(key, last_seq, chunk); });
      const bool page_lost = absl::IsDataLoss(read) && key == nullptr;
      if (!read.ok() && !page_lost) return read;
      for (const StatusOr<TrialRow>& row : chunk) {
        if (!row.ok()) {
          ++damaged;
          WHET_RETURN_IF_ERROR(on_damage(row.status()));
        } else if (!visit(*row)) {
          return damaged;
        }
      }
      if (page_lost) {
        WHET_RETURN_IF_ERROR(on_damage(read));
        return RestByIndex(last_seq, damaged, visit, on_damage);
      }
      if (chunk.size() < kChunkRows) return damaged;
    }
  }

  StatusOr<Best> FindBest(const BestQuery& query) {
    BestChooser chooser(query.device);
    Best best;
    int64_t rows = 0;
    WHET_ASSIGN_OR_RETURN(best.damaged_rows,
                          ForEachTrial(
                              &query.key,
                              [&](const TrialRow& row) {
                                if (row.codegen_version == query.codegen_version &&
                                    row.initial_program == query.initial_program) {
                                  ++rows;
                                  chooser.Add(row);
                                }
                                return true;
                              },
                              [](const Status&) { return OkStatus(); }));
    best.default_ns = chooser.default_ns();
    best.calm_default_ns = chooser.calm_default_ns();
    if (const auto choice = chooser.Choose()) {
      WHET_ASSIGN_OR_RETURN(TrialRow row, Trial(choice->seq));
      best.record = {std::move(row), choice->ratio, choice->evidence_rows, choice->other_device};
      return best;
    }
    if (rows > 0) {
      std::tie(best.miss, best.why) = chooser.Miss();
      return best;
    }
    WHET_RETURN_IF_ERROR(Read([&] { return ExplainMiss(query, best); }));
    return best;
  }

  StatusOr<TrialRow> Trial(int64_t seq) {
    StatusOr<TrialRow> row = NotFound("trial {} is not in the log", seq);
    WHET_RETURN_IF_ERROR(Read([&]() -> Status {
      WHET_ASSIGN_OR_RETURN(Statement find, db_.Prepare(SelectSql(TrialsTable(), "WHERE seq=?")));
      const Cell cell = seq;
      find.Bind(1, cell);
      WHET_ASSIGN_OR_RETURN(const bool there, find.Step());
      if (there) row = TrialAt(find);
      return OkStatus();
    }));
    return row;
  }

  // The row of `table` whose first column is `key`.
  StatusOr<std::vector<Cell>> Find(const Table& table, const std::string& key) {
    StatusOr<std::vector<Cell>> cells =
        NotFound("{} has no row '{}'", table.name, CleanText(key, 64));
    WHET_RETURN_IF_ERROR(Read([&]() -> Status {
      WHET_ASSIGN_OR_RETURN(cells, FindInside(table, key, std::move(cells)));
      return OkStatus();
    }));
    return cells;
  }

  // Every row of a small table, in the given order.
  Status ForEachRow(const Table& table, const char* order,
                    const std::function<Status(StatusOr<std::vector<Cell>>)>& visit) {
    return Read([&]() -> Status {
      WHET_ASSIGN_OR_RETURN(Statement rows, db_.Prepare(SelectSql(table, order)));
      while (true) {
        WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
        if (!row) return OkStatus();
        WHET_RETURN_IF_ERROR(visit(ReadChecked(table, rows)));
      }
    });
  }

  Status CountRoom(LogStats& stats) {
    return Read([&]() -> Status {
      WHET_ASSIGN_OR_RETURN(const int64_t page, db_.QueryInt("PRAGMA page_size"));
      WHET_ASSIGN_OR_RETURN(const int64_t pages, db_.QueryInt("PRAGMA page_count"));
      WHET_ASSIGN_OR_RETURN(const int64_t unused, db_.QueryInt("PRAGMA freelist_count"));
      WHET_ASSIGN_OR_RETURN(stats.buried,
                            db_.QueryInt("SELECT sum(seq_last - seq_first + 1) FROM tombstones"));
      stats.bytes = (pages - unused) * page;
      stats.free_bytes = unused * page;
      stats.journal_bytes = db_.JournalBytes();
      return OkStatus();
    });
  }

  StatusOr<VerifyReport> VerifyInside(const std::optional<HighWater>& mark) {
    WHET_ASSIGN_OR_RETURN(const LogMeta now, ReadMeta(db_));
    return VerifyLog(db_, now, mark);
  }

  const LogMeta& meta() const { return meta_; }
  const std::optional<HighWater>& mark() const { return mark_; }
  const std::string& path() const { return db_.path(); }
  std::vector<std::string> warnings;

 private:
  StatusOr<std::vector<Cell>> FindInside(const Table& table, const std::string& key,
                                         StatusOr<std::vector<Cell>> missing) {
    WHET_ASSIGN_OR_RETURN(
        Statement find,
        db_.Prepare(SelectSql(table, fmt::format("WHERE {}=?", table.columns[0].name))));
    const Cell cell = key;
    find.Bind(1, cell);
    WHET_ASSIGN_OR_RETURN(const bool there, find.Step());
    return there ? ReadChecked(table, find) : std::move(missing);
  }

  StatusOr<std::string> TargetText(const std::string& fingerprint) {
    if (const auto it = targets_.find(fingerprint); it != targets_.end()) return it->second;
    WHET_ASSIGN_OR_RETURN(
        const std::vector<Cell> cells,
        FindInside(TargetsTable(), fingerprint, DataLoss("target {} is missing", fingerprint)));
    return targets_[fingerprint] = std::get<std::string>(cells[1]);
  }

  StatusOr<TrialRow> TrialAt(const Statement& s) {
    WHET_ASSIGN_OR_RETURN(std::vector<Cell> cells, ReadChecked(TrialsTable(), s));
    WHET_ASSIGN_OR_RETURN(const std::string target, TargetText(std::get<std::string>(cells[3])));
    StatusOr<TrialRow> row = TrialFrom(std::move(cells), target);
    return row.ok() ? std::move(row)
                    : Annotate(row.status(), fmt::format("trials row {}", s.Int(0)));
  }

  Status ReadChunk(const RecordKey* key, int64_t& last_seq,
                   std::vector<StatusOr<TrialRow>>& chunk) {
    std::vector<Cell> cells = {last_seq};
    std::string where = "WHERE seq>?1";
    if (key != nullptr) {
      where += " AND workload=?2 AND target=?3 AND threads=?4 AND cache_mode=?5";
      cells.insert(cells.end(),
                   {key->workload.Hex(), FingerprintOf(key->target).Hex(), int64_t{key->threads},
                    std::string(CacheModeName(key->cache_mode))});
    }
    WHET_ASSIGN_OR_RETURN(
        Statement rows, db_.Prepare(SelectSql(TrialsTable(), fmt::format("{} ORDER BY seq LIMIT {}",
                                                                         where, kChunkRows))));
    rows.BindAll(cells);
    while (true) {
      WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) return OkStatus();
      last_seq = rows.Int(0);
      chunk.push_back(TrialAt(rows));
    }
  }

  // What a scan could not reach behind a corrupt page: the index knows the rows, each is asked for
  // alone.
  StatusOr<int64_t> RestByIndex(int64_t last_seq, int64_t damaged,
                                const std::function<bool(const TrialRow&)>& visit,
                                const std::function<Status(const Status&)>& on_damage) {
    std::vector<int64_t> seqs;
    WHET_RETURN_IF_ERROR(Read([&]() -> Status {
      WHET_ASSIGN_OR_RETURN(Statement rows,
                            db_.Prepare("SELECT seq FROM trials INDEXED BY trials_ids"));
      while (true) {
        WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
        if (!row) return OkStatus();
        if (rows.Int(0) > last_seq) seqs.push_back(rows.Int(0));
      }
    }));
    std::sort(seqs.begin(), seqs.end());
    for (const int64_t seq : seqs) {
      const StatusOr<TrialRow> row = Trial(seq);
      if (absl::IsDataLoss(row.status()) || absl::IsNotFound(row.status())) {
        ++damaged;
        WHET_RETURN_IF_ERROR(on_damage(row.status()));
      } else if (!row.ok()) {
        return row.status();
      } else if (!visit(*row)) {
        return damaged;
      }
    }
    return damaged;
  }

  struct Seen {
    std::string target, threads, cache_mode, codegen;
  };

  // Why there is no row for the query at all: the first part of the key that no row shares, in the
  // order workload, target, threads, cache mode, code generation, initial program.
  Status ExplainMiss(const BestQuery& query, Best& best) {
    WHET_ASSIGN_OR_RETURN(
        Statement rows,
        db_.Prepare("SELECT DISTINCT target, threads, cache_mode, codegen_version FROM trials "
                    "WHERE workload=?"));
    const Cell workload = query.key.workload.Hex();
    rows.Bind(1, workload);
    std::vector<Seen> seen;
    while (true) {
      WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      seen.push_back({rows.Text(0), rows.Text(1), rows.Text(2), rows.Text(3)});
    }
    if (seen.empty()) {
      best.miss = MissReason::kNoWorkload;
      best.why = "the log has no trial of this workload";
      return OkStatus();
    }
    struct Part {
      MissReason reason;
      std::string Seen::* field;
      std::string want, words;
    };
    const Part parts[] = {
        {MissReason::kOtherTarget, &Seen::target, FingerprintOf(query.key.target).Hex(), "target"},
        {MissReason::kOtherThreads, &Seen::threads, std::to_string(query.key.threads),
         "thread count"},
        {MissReason::kOtherCacheMode, &Seen::cache_mode,
         std::string(CacheModeName(query.key.cache_mode)), "cache mode"},
        {MissReason::kOtherCodegen, &Seen::codegen, std::to_string(query.codegen_version),
         "code generation version"}};
    for (const Part& part : parts) {
      std::set<std::string> have;
      for (const Seen& s : seen) have.insert(s.*part.field);
      if (have.contains(part.want)) {
        std::erase_if(seen, [&](const Seen& s) { return s.*part.field != part.want; });
        continue;
      }
      best.miss = part.reason;
      const bool target = part.reason == MissReason::kOtherTarget;
      const std::string shown = target ? Listed(TargetTexts(have)) : Listed(have);
      best.why = fmt::format("recorded only for {} {}, asked for {}", part.words, shown,
                             target ? query.key.target : part.want);
      return OkStatus();
    }
    best.miss = MissReason::kOtherProgram;
    best.why = "recorded for another initial loop program: its traces would not replay";
    return OkStatus();
  }

  std::set<std::string> TargetTexts(const std::set<std::string>& fingerprints) {
    std::set<std::string> out;
    for (const std::string& f : fingerprints) out.insert("'" + TargetText(f).value_or(f) + "'");
    return out;
  }

  std::mutex mu_;
  Connection db_;
  const LogMeta meta_;  // when opened
  const std::optional<HighWater> mark_;
  const int64_t limit_ms_;
  std::map<std::string, std::string> targets_;
};

StatusOr<std::unique_ptr<LogReader>> LogReader::Open(const std::string& given_path,
                                                     const ReaderOptions& options) {
  WHET_ASSIGN_OR_RETURN(const std::string path, CanonicalPath(given_path));
  WHET_ASSIGN_OR_RETURN(const FileState state, LookAt(path));
  if (state == FileState::kMissing) return NotFound("tuning log '{}' does not exist", given_path);
  if (state == FileState::kEmpty)
    return InvalidArgument("'{}' is not a tuning log: it is empty", path);
  WHET_RETURN_IF_ERROR(RefuseNetworkFileSystem(path));
  // The mark first: rows are durable before it moves, so what it claims must be in the log read
  // after.
  const std::optional<HighWater> mark = HighWaterFile::Read(path);
  WHET_ASSIGN_OR_RETURN(Connection db, OpenForReading(path));
  WHET_ASSIGN_OR_RETURN(const int version, IdentifyLog(db));
  if (version == 0) return InvalidArgument("'{}' is not a tuning log: it has no tables", path);
  if (version < kSchemaVersion) return OldSchema(path, version);
  WHET_ASSIGN_OR_RETURN(LogMeta meta, ReadMeta(db));
  auto impl =
      std::make_unique<Impl>(std::move(db), std::move(meta), mark, options.query_limit.count());
  if (options.check == ReaderOptions::Check::kFull) {
    WHET_ASSIGN_OR_RETURN(const VerifyReport report, impl->Verify());
    for (const Damage& d : report.damage) {
      if (impl->warnings.size() == kMaxWarnings) break;
      impl->warnings.push_back(
          fmt::format("tuning log '{}' is damaged: {}: {}", path, d.where, d.what));
    }
  } else if (const auto lost = LostTailOf(impl->meta(), mark)) {
    impl->warnings.push_back(fmt::format("tuning log '{}': {}", path, *lost));
  }
  return std::unique_ptr<LogReader>(new LogReader(std::move(impl)));
}

LogReader::LogReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LogReader::~LogReader() = default;

const std::vector<std::string>& LogReader::warnings() const { return impl_->warnings; }
const std::string& LogReader::log_id() const { return impl_->meta().log_id; }
const std::string& LogReader::generation() const { return impl_->meta().generation; }

StatusOr<Best> LogReader::FindBest(const BestQuery& query) { return impl_->FindBest(query); }
StatusOr<TrialRow> LogReader::Trial(int64_t seq) { return impl_->Trial(seq); }
Status LogReader::CountRoom(LogStats& stats) { return impl_->CountRoom(stats); }
StatusOr<VerifyReport> LogReader::Verify() { return impl_->Verify(); }

StatusOr<int64_t> LogReader::ForEachTrial(const RecordKey* key,
                                          const std::function<bool(const TrialRow&)>& visit) {
  return impl_->ForEachTrial(key, visit, [](const Status&) { return OkStatus(); });
}

StatusOr<TriedTraces> LogReader::Tried(const RecordKey& key, int64_t codegen_version,
                                       const Fingerprint& initial_program) {
  TriedTraces tried;
  WHET_ASSIGN_OR_RETURN(tried.damaged_rows, ForEachTrial(&key, [&](const TrialRow& row) {
                          if (row.codegen_version == codegen_version &&
                              row.initial_program == initial_program && Settles(row)) {
                            tried.traces.insert(row.trace_fingerprint());
                          }
                          return true;
                        }));
  return tried;
}

StatusOr<WorkloadRow> LogReader::Workload(const Fingerprint& fingerprint) {
  WHET_ASSIGN_OR_RETURN(std::vector<Cell> cells, impl_->Find(WorkloadsTable(), fingerprint.Hex()));
  return WorkloadFrom(std::move(cells));
}

StatusOr<DeviceRow> LogReader::Device(const Fingerprint& fingerprint) {
  WHET_ASSIGN_OR_RETURN(std::vector<Cell> cells, impl_->Find(DevicesTable(), fingerprint.Hex()));
  return DeviceFrom(std::move(cells));
}

StatusOr<JobRow> LogReader::Job(const std::string& job_id) {
  WHET_ASSIGN_OR_RETURN(std::vector<Cell> cells, impl_->Find(JobsTable(), job_id));
  return JobFrom(std::move(cells));
}

StatusOr<std::vector<JobRow>> LogReader::Jobs(OnDamage on_damage) {
  std::vector<JobRow> jobs;
  WHET_RETURN_IF_ERROR(impl_->ForEachRow(
      JobsTable(), "ORDER BY created_ms, job_id", [&](StatusOr<std::vector<Cell>> cells) -> Status {
        StatusOr<JobRow> job =
            cells.ok() ? JobFrom(*std::move(cells)) : StatusOr<JobRow>(cells.status());
        if (!job.ok()) return on_damage == OnDamage::kSkip ? OkStatus() : job.status();
        jobs.push_back(*std::move(job));
        return OkStatus();
      }));
  return jobs;
}

StatusOr<Plans> LogReader::FindPlans(const std::optional<Fingerprint>& region) {
  Plans plans;
  // A fingerprint's text is hexadecimal digits.
  const std::string where = region ? fmt::format("WHERE region='{}' ", region->Hex()) : "";
  WHET_RETURN_IF_ERROR(
      impl_->ForEachRow(PlansTable(), (where + "ORDER BY region, alternative").c_str(),
                        [&](StatusOr<std::vector<Cell>> cells) -> Status {
                          StatusOr<PlanRow> plan = cells.ok() ? PlanFrom(*std::move(cells))
                                                              : StatusOr<PlanRow>(cells.status());
                          if (plan.ok()) {
                            plans.rows.push_back(*std::move(plan));
                          } else {
                            ++plans.damaged_rows;
                          }
                          return OkStatus();
                        }));
  std::set<Fingerprint> lost;
  for (const PlanRow& row : plans.rows) {
    for (const PlanRow::Part& p : row.parts) {
      if (plans.workloads.contains(p.workload) || lost.contains(p.workload)) continue;
      StatusOr<WorkloadRow> workload = Workload(p.workload);
      if (workload.ok()) {
        plans.workloads.emplace(p.workload, *std::move(workload));
      } else if (absl::IsDataLoss(workload.status()) || absl::IsNotFound(workload.status())) {
        ++plans.damaged_rows;
        lost.insert(p.workload);
      } else {
        return workload.status();
      }
    }
  }
  std::erase_if(plans.rows, [&](const PlanRow& row) {
    return std::any_of(row.parts.begin(), row.parts.end(),
                       [&](const PlanRow::Part& p) { return lost.contains(p.workload); });
  });
  return plans;
}

StatusOr<std::vector<KnownMachine>> LogReader::Machines() {
  std::vector<MachineRow> rows;
  WHET_RETURN_IF_ERROR(impl_->ForEachRow(MachinesTable(), "ORDER BY created_ms, device",
                                         [&](StatusOr<std::vector<Cell>> cells) -> Status {
                                           // A damaged row counts as none: estimates have others.
                                           auto row = cells.ok()
                                                          ? MachineFrom(*std::move(cells))
                                                          : StatusOr<MachineRow>(cells.status());
                                           if (row.ok()) rows.push_back(*std::move(row));
                                           return OkStatus();
                                         }));
  std::vector<KnownMachine> known;
  for (MachineRow& row : rows) {
    StatusOr<DeviceRow> device = Device(row.device);
    if (device.ok()) {
      known.push_back({*std::move(device), std::move(row)});
    } else if (!absl::IsDataLoss(device.status()) && !absl::IsNotFound(device.status())) {
      return device.status();
    }
  }
  return known;
}

StatusOr<std::string> LogReader::FiguresOf(const std::string& feature_set) {
  WHET_ASSIGN_OR_RETURN(const std::vector<KnownMachine> machines, Machines());
  for (const KnownMachine& m : machines) {
    if (m.device.feature_set == feature_set) return m.machine.figures;
  }
  return std::string();
}

StatusOr<int64_t> LogReader::Export(std::ostream& out, OnDamage on_damage) {
  int64_t rows = 0;
  const auto write = [&](const Row& row) {
    out << RowLine(row);
    ++rows;
  };
  const auto judge = [&](const Status& damage) {
    return on_damage == OnDamage::kSkip
               ? OkStatus()
               : Annotate(damage, fmt::format("exporting '{}' (damaged rows can be skipped)",
                                              impl_->path()));
  };
  const auto table = [&](const Table& t, const char* order, auto decode) {
    return impl_->ForEachRow(t, order, [&](StatusOr<std::vector<Cell>> cells) -> Status {
      if (!cells.ok()) return judge(cells.status());
      auto row = decode(*std::move(cells));
      if (!row.ok()) return judge(row.status());
      write(*std::move(row));
      return OkStatus();
    });
  };
  out << HeaderLine({kJsonlVersion, log_id(), generation()});
  WHET_RETURN_IF_ERROR(table(WorkloadsTable(), "ORDER BY fingerprint", WorkloadFrom));
  WHET_RETURN_IF_ERROR(table(DevicesTable(), "ORDER BY fingerprint", DeviceFrom));
  WHET_RETURN_IF_ERROR(table(JobsTable(), "ORDER BY created_ms, job_id", JobFrom));
  WHET_RETURN_IF_ERROR(table(PlansTable(), "ORDER BY region, alternative", PlanFrom));
  WHET_RETURN_IF_ERROR(table(MachinesTable(), "ORDER BY device", MachineFrom));
  const auto visit = [&](const TrialRow& row) {
    write(row);
    return out.good();
  };
  WHET_RETURN_IF_ERROR(impl_->ForEachTrial(nullptr, visit, judge).status());
  out << EndLine(rows);
  out.flush();
  if (!out.good())
    return Unavailable("exporting '{}': the output cannot be written", impl_->path());
  return rows;
}

}  // namespace whet::db
