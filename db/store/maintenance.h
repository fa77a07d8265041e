// Copies of a tuning log, and the ways back: from a copy, and from damage. Functions of paths, each
// one whole operation; none needs the log to be open. Every way back gives the log a new
// generation, so that results of trials that were given out before come in late instead of counting
// for trials of other numbers, and keeps the files that it replaces.
#pragma once
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "db/store/tuning_log.h"

namespace whet::db {

struct BackupReport {
  int64_t rows = 0;      // of all tables
  int64_t last_seq = 0;  // of its trials
  int64_t bytes = 0;
  std::vector<std::string> warnings;  // the log's own, e.g. that its end is missing
};

// Copies the log at `path`, as it is at one moment, to the new file `to`, while it may be written.
// A copy that exists is whole and was checked row by row. InvalidArgument: something lies at `to`.
// DataLoss: the log is damaged; nothing is left at `to`.
StatusOr<BackupReport> BackupLog(const std::string& path, const std::string& to);

struct RestoreReport {
  std::string generation;
  int64_t rows = 0;
  int64_t last_seq = 0;  // numbers go on after it
  int64_t lost = 0;      // trials that were acknowledged after the backup, if that is known
  std::string kept_as;   // where the log now is that lay there; empty: none did
};

// Puts a copy of `backup` in the place of the log at `path`, which must not be open for writing.
// The backup stays as it is. DataLoss: the backup is damaged. InvalidArgument: the backup is no
// tuning log, or what lies at `path` is none.
StatusOr<RestoreReport> RestoreLog(const std::string& backup, const std::string& path);

struct SalvageReport {
  bool salvaged = false;  // false: nothing was wrong
  std::string generation;
  int64_t trials = 0;  // that the log has now
  int64_t lost = 0;    // numbers of trials that nothing is left of
  std::vector<Damage> damage;
  std::string kept_as;  // the damaged file; empty: only the end was missing, and nothing replaced
};

// Goes on with what is whole: a log that only lost its end is told so; of one that is damaged
// inside, every whole row goes into a new file. DataLoss: damaged beyond reading.
StatusOr<SalvageReport> SalvageLog(const std::string& path);

}  // namespace whet::db
