#include <algorithm>

#include "db/store/codec.h"
#include "db/store/identify.h"
#include "db/store/schema.h"

namespace whet::db {
namespace {

constexpr size_t kMaxListed = 1000;

class Verifier {
 public:
  Verifier(Connection& db, VerifyReport& report) : db_(db), report_(report) {}

  void Say(std::string where, std::string what) {
    ++report_.damaged;
    if (report_.damage.size() < kMaxListed)
      report_.damage.push_back({std::move(where), std::move(what)});
  }

  // Pages, cells, indexes against their tables, and references.
  Status Structure() {
    WHET_ASSIGN_OR_RETURN(Statement check, db_.Prepare("PRAGMA integrity_check(100)"));
    WHET_RETURN_IF_ERROR(EachRow(check, [&] {
      if (check.Text(0) != "ok") Say("file", check.Text(0));
    }));
    WHET_ASSIGN_OR_RETURN(Statement keys, db_.Prepare("PRAGMA foreign_key_check"));
    return EachRow(keys, [&] {
      Say(fmt::format("{} row {}", keys.Text(0), keys.Int(1)),
          fmt::format("refers to a row of {} that is missing", keys.Text(2)));
    });
  }

  Status Rows() {
    for (const Table* table : AllTables()) {
      WHET_ASSIGN_OR_RETURN(Statement rows, db_.Prepare(SelectSql(*table, "")));
      WHET_RETURN_IF_ERROR(EachRow(rows, [&] {
        ++report_.rows;
        const auto cells = ReadChecked(*table, rows);
        if (!cells.ok()) {
          Say(fmt::format("{} row {}", table->name, CleanText(rows.Text(table->key), 64)),
              "its CRC does not match");
        }
      }));
    }
    return OkStatus();
  }

  // Sequence numbers start at 1 and have no gap but the buried ones.
  Status Sequence() {
    WHET_ASSIGN_OR_RETURN(
        Statement used,
        db_.Prepare(
            "SELECT seq, seq FROM trials UNION ALL SELECT seq_first, seq_last FROM tombstones "
            "ORDER BY 1"));
    int64_t next = 1;
    return EachRow(used, [&] {
      const int64_t first = used.Int(0);
      if (first > next) Say(fmt::format("trials rows {}..{}", next, first - 1), "missing");
      next = std::max(next, used.Int(1) + 1);
    });
  }

 private:
  template <typename Visit>
  Status EachRow(Statement& statement, const Visit& visit) {
    while (true) {
      WHET_ASSIGN_OR_RETURN(const bool row, statement.Step());
      if (!row) return OkStatus();
      visit();
    }
  }

  Connection& db_;
  VerifyReport& report_;
};

}  // namespace

StatusOr<VerifyReport> VerifyLog(Connection& db, const LogMeta& meta,
                                 const std::optional<HighWater>& mark) {
  VerifyReport report;
  Verifier v(db, report);
  if (mark && mark->generation == meta.generation) report.high_water = VerifyReport::Mark::kChecked;
  if (const auto lost = LostTailOf(meta, mark)) v.Say("file", *lost);
  for (const Status& s : {v.Structure(), v.Rows(), v.Sequence()}) {
    // A corrupt page ends a scan; the others may still have something to say.
    if (absl::IsDataLoss(s)) {
      v.Say("file", Message(s));
    } else if (!s.ok()) {
      return s;
    }
  }
  return report;
}

}  // namespace whet::db
