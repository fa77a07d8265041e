// The half of LogWriter that forgets trials. What it removes is buried under a range of numbers, so
// that a check can tell forgotten rows from lost ones.
#include "db/store/log_writer.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

constexpr const char* kForgotten = "prune";  // reason of the tombstones

}  // namespace

std::string PrunedMark(const std::string& job_id) { return "pruned " + job_id; }

StatusOr<std::set<std::pair<std::string, std::string>>> LogWriter::TracesAfter(int64_t seq) {
  WHET_ASSIGN_OR_RETURN(Statement rows,
                        db_.Prepare("SELECT task, trace_fingerprint FROM trials WHERE seq>?"));
  const Cell after = seq;
  rows.Bind(1, after);
  std::set<std::pair<std::string, std::string>> out;
  while (true) {
    WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return out;
    out.emplace(rows.Text(0), rows.Text(1));
  }
}

StatusOr<int64_t> LogWriter::Forget(std::span<const ForgottenTrace> traces, int64_t as_of_seq) {
  WHET_RETURN_IF_ERROR(Begin());
  std::set<int64_t> gone;
  const auto remove_all = [&]() -> Status {
    WHET_ASSIGN_OR_RETURN(const auto newer, TracesAfter(as_of_seq));
    WHET_ASSIGN_OR_RETURN(Statement remove, db_.Prepare("DELETE FROM trials WHERE seq=?"));
    for (const ForgottenTrace& trace : traces) {
      if (newer.contains({trace.task.Hex(), trace.trace.Hex()})) continue;
      for (const int64_t seq : trace.seqs) {
        const Cell cell = seq;
        remove.Bind(1, cell);
        WHET_RETURN_IF_ERROR(remove.Run());
        if (db_.changes() > 0) gone.insert(seq);
      }
      for (const auto& [job, n] : trace.jobs) {
        WHET_RETURN_IF_ERROR(SetMeta(PrunedMark(job), "1"));
      }
    }
    for (auto first = gone.begin(); first != gone.end();) {
      auto last = first;
      while (std::next(last) != gone.end() && *std::next(last) == *last + 1) ++last;
      WHET_RETURN_IF_ERROR(BuryForgotten(*first, *last));
      first = std::next(last);
    }
    return Finish();
  };
  if (const Status removed = remove_all(); !removed.ok()) {
    Abandon();
    return removed;
  }
  return static_cast<int64_t>(gone.size());
}

// Joins what was forgotten next to it before: one tombstone between two rows is enough.
Status LogWriter::BuryForgotten(int64_t first, int64_t last) {
  const auto neighbour = [&](const char* where, int64_t seq) -> StatusOr<std::vector<Cell>> {
    WHET_ASSIGN_OR_RETURN(Statement find, db_.Prepare(SelectSql(TombstonesTable(), where)));
    const Cell cell = seq;
    find.Bind(1, cell);
    WHET_ASSIGN_OR_RETURN(const bool there, find.Step());
    if (!there) return std::vector<Cell>();
    auto cells = ReadChecked(TombstonesTable(), find);
    const bool ours = cells.ok() && std::get<std::string>((*cells)[2]) == kForgotten;
    return ours ? *std::move(cells) : std::vector<Cell>();
  };
  const auto remove = [&](const Cell& seq_first) -> Status {
    WHET_ASSIGN_OR_RETURN(Statement gone, db_.Prepare("DELETE FROM tombstones WHERE seq_first=?"));
    gone.Bind(1, seq_first);
    return gone.Run();
  };
  WHET_ASSIGN_OR_RETURN(const std::vector<Cell> before,
                        neighbour("WHERE seq_first<? ORDER BY seq_first DESC LIMIT 1", first));
  if (!before.empty() && std::get<int64_t>(before[1]) == first - 1) {
    first = std::get<int64_t>(before[0]);
    WHET_RETURN_IF_ERROR(remove(before[0]));
  }
  WHET_ASSIGN_OR_RETURN(const std::vector<Cell> after, neighbour("WHERE seq_first=?", last + 1));
  if (!after.empty()) {
    last = std::get<int64_t>(after[1]);
    WHET_RETURN_IF_ERROR(remove(after[0]));
  }
  return Bury(db_, first, last, kForgotten);
}

StatusOr<int64_t> LogWriter::ForgetJobs(const std::set<std::string>& jobs, int64_t as_of_seq) {
  // Each deletion would look through every trial for one that refers to the job. The plan has
  // looked at those up to `as_of_seq`; the few after it are looked at here.
  WHET_RETURN_IF_ERROR(db_.Exec("PRAGMA foreign_keys=OFF"));
  int64_t forgotten = 0;
  const auto remove_all = [&]() -> Status {
    WHET_RETURN_IF_ERROR(Begin());
    std::set<std::string> busy;
    WHET_ASSIGN_OR_RETURN(Statement rows,
                          db_.Prepare("SELECT DISTINCT job_id FROM trials WHERE seq>?"));
    const Cell after = as_of_seq;
    rows.Bind(1, after);
    while (true) {
      WHET_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      busy.insert(rows.Text(0));
    }
    WHET_ASSIGN_OR_RETURN(Statement remove, db_.Prepare("DELETE FROM jobs WHERE job_id=?"));
    WHET_ASSIGN_OR_RETURN(Statement unmark, db_.Prepare("DELETE FROM meta WHERE name=?"));
    for (const std::string& job : jobs) {
      if (busy.contains(job)) continue;
      const Cell id = job, mark = PrunedMark(job);
      remove.Bind(1, id);
      WHET_RETURN_IF_ERROR(remove.Run());
      forgotten += db_.changes();
      unmark.Bind(1, mark);
      WHET_RETURN_IF_ERROR(unmark.Run());
    }
    rows.Reset();
    return Finish();
  };
  const Status removed = remove_all();
  if (!removed.ok()) Abandon();
  WHET_RETURN_IF_ERROR(db_.Exec("PRAGMA foreign_keys=ON"));
  if (!removed.ok()) return removed;
  return forgotten;
}

}  // namespace whet::db
