// Where a compilation looks up what was measured: a tuning log, or the server that holds one.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"
#include "db/record/record.h"

namespace whet::driver {

// The best record of a workload, or why there is none.
struct TaskRecord {
  std::string trace;  // empty: the default schedule
  std::string reason;
  double default_ns = 0;  // 0: not timed
  double best_ns = 0;     // on the default's scale, which was measured side by side; 0: no record
  double ratio = 0;       // best / default; 0: no record
  // By exact device: the best known time, where nothing disturbed the measurement of the default.
  std::map<Fingerprint, double> calm_ns;
};

struct PlanRows {
  std::vector<db::PlanRow> rows;
  std::map<Fingerprint, std::string> texts;  // of the workloads that they name
};

// Used by one thread. Errors: those of opening a log (db/store/tuning_log.h), Unavailable for a
// server.
class Records {
 public:
  virtual ~Records() = default;
  // In the order of `workloads`, which are canonical texts.
  virtual StatusOr<std::vector<TaskRecord>> Find(const std::vector<std::string>& workloads,
                                                 const std::string& feature_set, int threads) = 0;
  // Figures of the machine that measured for this instruction set first; empty: none was measured.
  virtual StatusOr<std::string> Machine(const std::string& feature_set) = 0;
  // The alternatives of these regions.
  virtual StatusOr<PlanRows> Plans(const std::vector<Fingerprint>& regions) = 0;
  // Words for a task without a record when nothing was asked.
  static constexpr const char* kNone = "no tuning log given";
};

// Prints the log's warnings on standard error.
StatusOr<std::unique_ptr<Records>> OpenLogRecords(const std::string& path);
StatusOr<std::unique_ptr<Records>> OpenServerRecords(const std::string& address);

}  // namespace whet::driver
