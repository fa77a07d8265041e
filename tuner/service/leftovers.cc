#include "tuner/service/leftovers.h"

#include <google/protobuf/util/json_util.h>

namespace whet::tuner {
namespace {

StatusOr<v1::KeptJob> Restore(const db::JobRow& row, db::LogReader& log) {
  v1::KeptJob kept;
  if (!google::protobuf::util::JsonStringToMessage(row.spec, &kept).ok() ||
      kept.spec().tasks().empty())
    return FailedPrecondition("its row was written by another release");
  for (v1::TaskSpec& task : *kept.mutable_spec()->mutable_tasks()) {
    WHET_ASSIGN_OR_RETURN(const Fingerprint workload, ParseFingerprint(task.workload()));
    WHET_ASSIGN_OR_RETURN(db::WorkloadRow text, log.Workload(workload));
    task.set_workload(std::move(text.text));
  }
  return kept;
}

}  // namespace

StatusOr<std::vector<Leftover>> ReadLeftovers(db::LogReader& log) {
  WHET_ASSIGN_OR_RETURN(std::vector<db::JobRow> jobs, log.Jobs(db::OnDamage::kSkip));
  std::vector<Leftover> leftovers;
  for (db::JobRow& row : jobs) {
    if (db::IsTerminal(row.state)) continue;
    StatusOr<v1::KeptJob> kept = Restore(row, log);
    leftovers.push_back({std::move(row), std::move(kept)});
  }
  return leftovers;
}

}  // namespace whet::tuner
