// A tuning log as a file to keep beside the figures that came of it: the rows that decide which
// schedules win, as JSON Lines (db/record/jsonl.h), compressed by gzip. `whet log import` would
// mark such rows as another machine's, which never win; these are restored as they were measured.
#pragma once
#include <memory>
#include <string>

#include "compiler/support/status.h"

namespace whet::bench {

// Of each task the rows of its best schedule and of the default one.
Status PackLog(const std::string& log, const std::string& file);
// `log` must not be there.
Status RestoreLog(const std::string& file, const std::string& log);

// A restored log in a folder of its own, which goes with this object.
class RestoredLog {
 public:
  static StatusOr<std::unique_ptr<RestoredLog>> Open(const std::string& file);
  ~RestoredLog();
  std::string path() const { return folder_ + "/tuning.db"; }

 private:
  std::string folder_;
};

}  // namespace whet::bench
