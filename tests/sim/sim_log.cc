#include "tests/sim/sim_log.h"

#include "compiler/support/clock.h"

namespace whet::testing {

Status SimLog::Append(db::Row row, Done done) {
  if (full_) return ResourceExhausted("the simulated disk is full");
  if (queue_.size() >= kQueueRows) return ResourceExhausted("{} rows wait", queue_.size());
  const Status bad = std::visit([](auto& r) { return db::Normalize(r); }, row);
  if (!bad.ok()) return bad;
  queue_.push_back({std::move(row), std::move(done)});
  CommitLater();
  return OkStatus();
}

void SimLog::CommitLater() {
  if (committing_ || queue_.empty()) return;
  committing_ = true;
  loop_.After(kMillisecond + rng_.Below(3 * kMillisecond), [this, life = life_] {
    if (life != life_) return;
    committing_ = false;
    Commit();
    CommitLater();
  });
}

void SimLog::Commit() {
  std::vector<Item> items;
  while (!queue_.empty() && items.size() < kBatchRows) {
    items.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  if (full_) {
    for (const Item& item : items) item.done(ResourceExhausted("the simulated disk is full"));
    return;
  }
  Batch batch;
  for (Item& item : items) {
    batch.undo.emplace_back();
    batch.verdicts.push_back(Insert(item.row, &batch.undo.back()));
    batch.done.push_back(std::move(item.done));
  }
  committed_.push_back(std::move(batch));
  Synced();
}

// Syncs the oldest batch that is not.
void SimLog::Synced() {
  if (syncing_ || committed_.empty()) return;
  syncing_ = true;
  loop_.After(kMillisecond / 2 + rng_.Below(sync_ns_), [this, life = life_] {
    if (life != life_) return;
    syncing_ = false;
    const Batch batch = std::move(committed_.front());
    committed_.pop_front();
    for (size_t i = 0; i < batch.done.size(); ++i) {
      batch.done[i](batch.verdicts[i]);
      if (life != life_) return;  // it crashed upon that
    }
    Synced();
  });
}

StatusOr<db::TrialStatus> SimLog::Insert(db::Row& row, Undo* undo) {
  if (const auto* w = std::get_if<db::WorkloadRow>(&row)) workloads[w->fingerprint()] = w->text;
  if (const auto* d = std::get_if<db::DeviceRow>(&row)) devices_.insert(d->device_id);
  if (const auto* job = std::get_if<db::JobRow>(&row)) {
    const auto it = jobs.find(job->job_id);
    undo->job = {job->job_id,
                 it == jobs.end() ? std::nullopt : std::optional<db::JobRow>(it->second)};
    if (it != jobs.end() && db::IsTerminal(it->second.state))
      return FailedPrecondition("job '{}' is over", job->job_id);
    jobs[job->job_id] = *job;
  }
  auto* trial = std::get_if<db::TrialRow>(&row);
  if (!trial) return db::TrialStatus::kCounted;
  const auto known = trials.find(IdOf(*trial));
  if (known != trials.end()) return known->second.status;
  if (!workloads.contains(trial->key.workload))
    return FailedPrecondition("the log has no such workload");
  if (!jobs.contains(trial->ids.job_id)) return FailedPrecondition("the log has no such job");
  if (!trial->ids.device_id.empty() && !devices_.contains(trial->ids.device_id))
    return FailedPrecondition("the log has no such device");
  trial->seq = next_seq_++;
  undo->trial = IdOf(*trial);
  trials.emplace(IdOf(*trial), *trial);
  return trial->status;
}

void SimLog::Crash(bool power_loss) {
  ++life_;
  queue_.clear();
  committing_ = syncing_ = false;
  // Transactions are whole; the last of them may not have reached the disk.
  const size_t kept =
      power_loss ? static_cast<size_t>(rng_.Below(static_cast<int64_t>(committed_.size()) + 1))
                 : committed_.size();
  while (committed_.size() > kept) {
    Batch& batch = committed_.back();
    for (auto u = batch.undo.rbegin(); u != batch.undo.rend(); ++u) {
      if (u->trial) trials.erase(*u->trial);
      if (u->job && u->job->second) jobs[u->job->first] = *u->job->second;
      if (u->job && !u->job->second) jobs.erase(u->job->first);
    }
    committed_.pop_back();
  }
  committed_.clear();  // nobody is told of the rest
}

}  // namespace whet::testing
