// Jobs that a former server process left open in its log, with what is needed to take them up
// again. Functions of a reader; called while a server starts.
#pragma once
#include <vector>

#include "compiler/support/status.h"
#include "db/store/tuning_log.h"
#include "proto/tuner.pb.h"

namespace whet::tuner {

struct Leftover {
  db::JobRow row;
  // With the workloads' texts put back. Not OK: it cannot be taken up again, in words (kept by
  // another release, a text that is missing or damaged).
  StatusOr<v1::KeptJob> kept;
};

// In the order in which they came; damaged rows are left out.
StatusOr<std::vector<Leftover>> ReadLeftovers(db::LogReader& log);

}  // namespace whet::tuner
