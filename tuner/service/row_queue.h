// Rows on their way to the log, in the order in which the core wanted them: a trial's workload, job
// and device go before it. A row that the log could not take just now (its disk is full) goes back
// to its old place, before all that came after it; in the order of their return a whole batch that
// failed would come out backwards, and the log refuses a trial whose device it does not know.
// Of one thread.
#pragma once
#include <cstdint>
#include <map>
#include <utility>

#include "tuner/service/actions.h"

namespace whet::tuner {

class RowQueue {
 public:
  void Add(AppendRow row) {
    const uint64_t ticket = row.ticket;  // these grow
    rows_.emplace(ticket, std::move(row));
  }
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  const AppendRow& front() const { return rows_.begin()->second; }
  void Pop() { rows_.erase(rows_.begin()); }

  // What the log said of a row that it had queued: true when it was put back, to be tried again.
  bool PutBack(const AppendRow& row, const Status& said) {
    const bool later = said.code() == absl::StatusCode::kResourceExhausted ||
                       said.code() == absl::StatusCode::kUnavailable;
    // One that was queued behind a batch that failed, and got through: what it needs is here.
    const bool too_early = said.code() == absl::StatusCode::kFailedPrecondition && !rows_.empty() &&
                           rows_.begin()->first < row.ticket;
    if (later || too_early) Add(row);
    return later || too_early;
  }

 private:
  std::map<uint64_t, AppendRow> rows_;  // by ticket
};

}  // namespace whet::tuner
