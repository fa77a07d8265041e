// The tuning log on a simulated disk: rows are queued, committed in batches, durable once they are
// synced, and said to be durable then, in order. A kill loses what is queued; a power loss also
// what was committed and not synced, but for some prefix of it. A full disk refuses rows, and fails
// the batch that meets it. Rows are unique by their ids; another delivery gets the first verdict.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/support/rng.h"
#include "compiler/support/status.h"
#include "db/record/record.h"
#include "tests/sim/event_loop.h"

namespace whet::testing {

class SimLog {
 public:
  // By their identity, as the log's unique index has them (the workload stands for the task).
  using RowId =
      std::tuple<std::string, std::string, int64_t, std::string, int64_t, std::string, int64_t>;
  using Done = std::function<void(const StatusOr<db::TrialStatus>&)>;

  SimLog(EventLoop* loop, Rng* rng) : loop_(*loop), rng_(*rng) {}

  static RowId IdOf(const db::TrialRow& row) {
    return {row.ids.job_id,  row.key.workload.Hex(), row.ids.trial,      row.ids.device_id,
            row.ids.attempt, row.ids.incarnation,    row.ids.lease_epoch};
  }

  Status Append(db::Row row, Done done);
  void Crash(bool power_loss);
  void set_full(bool full) { full_ = full; }
  void set_sync_ns(int64_t most) { sync_ns_ = most; }

  // What a reader sees: all that is committed.
  std::map<RowId, db::TrialRow> trials;
  std::map<std::string, db::JobRow> jobs;
  std::map<Fingerprint, std::string> workloads;  // their texts

 private:
  static constexpr size_t kQueueRows = 4096;
  static constexpr size_t kBatchRows = 16;
  struct Item {
    db::Row row;
    Done done;
  };
  // What one row changed, to be taken back by a power loss.
  struct Undo {
    std::optional<RowId> trial;
    std::optional<std::pair<std::string, std::optional<db::JobRow>>> job;
  };
  struct Batch {
    std::vector<Done> done;
    std::vector<StatusOr<db::TrialStatus>> verdicts;
    std::vector<Undo> undo;
  };

  void CommitLater();
  void Commit();
  void Synced();
  StatusOr<db::TrialStatus> Insert(db::Row& row, Undo* undo);

  EventLoop& loop_;
  Rng& rng_;
  std::deque<Item> queue_;
  std::deque<Batch> committed_;  // not synced; one at a time is being synced
  std::set<std::string> devices_;
  int64_t next_seq_ = 1;
  bool full_ = false, committing_ = false, syncing_ = false;
  int64_t sync_ns_ = 4 * 1'000'000;
  uint64_t life_ = 0;  // counts crashes: what a former process had begun does not go on
};

}  // namespace whet::testing
