// Which trials a log may forget: the pure decision, fed row by row. Whole traces of a task are
// forgotten, never a part of what was measured about one, and never
//   the default schedule's rows,
//   a trace that is the best of its task, for any board or without one, and one that was a final,
//   a trace with a row of a job that is still open.
// So BestChooser (best.h) gives the same record before and after: its winner stays, what could beat
// it does not come back, a trace that was barred is gone with its evidence. What is forgotten may
// be proposed and measured again. The oldest go first, by a trace's newest row.
//
// Ages are differences of wall clocks, the one thing here that a wrong clock spoils: they count
// from the newest row of the log or from now, whichever is earlier.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "db/record/best.h"
#include "db/record/record.h"

namespace whet::db {

struct Retention {  // 0: no limit
  int64_t max_age_ms = 0;
  int64_t trials_per_task = 0;
  int64_t max_bytes = 0;  // of all trials, as StoredBytes counts
  bool any() const { return max_age_ms > 0 || trials_per_task > 0 || max_bytes > 0; }
};

// About what a trial takes up in a log, its part of the indexes included.
int64_t StoredBytes(const TrialRow& row);

struct ForgottenTrace {
  Fingerprint task, trace;
  std::vector<int64_t> seqs;            // ascending
  std::map<std::string, int64_t> jobs;  // that measured it, and how many of the rows are theirs
};

struct RetentionPlan {
  std::vector<ForgottenTrace> traces;  // the oldest first
  // Closed, and without a trial: since the traces are forgotten, or older than the limit.
  std::set<std::string> idle_jobs;
  int64_t trials = 0;  // of the traces
  int64_t bytes = 0;   // of the traces
  int64_t kept_trials = 0;
  int64_t kept_bytes = 0;  // above a limit where too much of the rest must stay
  int64_t as_of_seq = 0;   // the newest row that was looked at
};

class RetentionPlanner {
 public:
  explicit RetentionPlanner(const std::vector<JobRow>& jobs);
  void Add(const TrialRow& row);  // every row of the log, in order of seq
  RetentionPlan Plan(const Retention& limits, int64_t now_ms) const;

 private:
  struct Trace {
    ForgottenTrace rows;
    int64_t bytes = 0;
    int64_t newest_ms = 0;
    bool stays = false;     // the default schedule's, or of an open job
    int64_t final_seq = 0;  // its newest undisturbed final; 0: none
  };
  // What one BestChooser judges: a task under one code generation and initial program.
  struct Group {
    std::map<Fingerprint, Trace> traces;
    BestChooser chooser{std::nullopt};
    int64_t trials = 0;
  };
  using GroupKey = std::tuple<Fingerprint, int64_t, Fingerprint>;

  // Traces that may go, by their newest row.
  static std::map<int64_t, const Trace*> Forgettable(const Group& group);

  struct ClosedJob {
    int64_t trials = 0;
    int64_t updated_ms = 0;
  };
  std::map<std::string, ClosedJob> closed_jobs_;
  std::map<GroupKey, Group> groups_;
  int64_t bytes_ = 0, trials_ = 0, newest_ms_ = 0, last_seq_ = 0;
};

}  // namespace whet::db
