#include "compiler/driver/records.h"

#include <cstdio>

#include "compiler/driver/tuner_client.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/version.h"
#include "compiler/task/workload_program.h"
#include "db/store/tuning_log.h"

namespace whet::driver {
namespace {

// A trace replays only on the program that it was made for.
StatusOr<Fingerprint> InitialProgram(const std::string& workload) {
  WHET_ASSIGN_OR_RETURN(const task::WorkloadProgram w, task::OpenWorkload(workload));
  return schedule::DigestOf(w.program);
}

TaskRecord RecordOf(bool found, double ratio, double best_ns, double default_ns) {
  TaskRecord r;
  r.default_ns = default_ns;
  if (!found) return r;
  r.ratio = ratio;
  r.best_ns = default_ns > 0 ? ratio * default_ns : best_ns;
  if (default_ns <= 0 && ratio > 0) r.default_ns = best_ns / ratio;
  return r;
}

class LogRecords : public Records {
 public:
  explicit LogRecords(std::unique_ptr<db::LogReader> log) : log_(std::move(log)) {}

  StatusOr<std::vector<TaskRecord>> Find(const std::vector<std::string>& workloads,
                                         const std::string& feature_set, int threads) override {
    std::vector<TaskRecord> records;
    for (const std::string& text : workloads) {
      db::BestQuery query;
      query.key = {FingerprintOf(text), feature_set, threads, db::CacheMode::kTurns};
      query.codegen_version = kCodegenVersion;
      WHET_ASSIGN_OR_RETURN(query.initial_program, InitialProgram(text));
      WHET_ASSIGN_OR_RETURN(const db::Best best, log_->FindBest(query));
      const bool found = best.record.has_value();
      TaskRecord r = RecordOf(found, found ? best.record->ratio : 0,
                              found ? best.record->row.median_ns : 0, best.default_ns);
      if (found) r.trace = best.record->row.trace;
      r.reason = best.why;
      for (const auto& [device, ns] : best.calm_default_ns)
        r.calm_ns[device] = found ? r.ratio * ns : ns;
      records.push_back(std::move(r));
    }
    return records;
  }

  StatusOr<std::string> Machine(const std::string& feature_set) override {
    return log_->FiguresOf(feature_set);
  }

  StatusOr<PlanRows> Plans(const std::vector<Fingerprint>& regions) override {
    PlanRows plans;
    for (const Fingerprint& region : regions) {
      WHET_ASSIGN_OR_RETURN(db::Plans found, log_->FindPlans(region));
      for (db::PlanRow& row : found.rows) plans.rows.push_back(std::move(row));
      for (auto& [workload, row] : found.workloads)
        plans.texts.emplace(workload, std::move(row.text));
    }
    return plans;
  }

 private:
  const std::unique_ptr<db::LogReader> log_;
};

class ServerRecords : public Records {
 public:
  ServerRecords(std::string address, std::unique_ptr<TunerClient> client)
      : address_(std::move(address)), client_(std::move(client)) {}

  StatusOr<std::vector<TaskRecord>> Find(const std::vector<std::string>& workloads,
                                         const std::string& feature_set, int threads) override {
    v1::GetRecordsRequest request;
    for (const std::string& text : workloads) {
      v1::RecordQuery* q = request.add_queries();
      q->set_workload_fingerprint(FingerprintOf(text).Hex());
      q->set_feature_set(feature_set);
      q->set_threads(static_cast<uint32_t>(threads));
      q->set_codegen_version(kCodegenVersion);
      WHET_ASSIGN_OR_RETURN(const Fingerprint program, InitialProgram(text));
      q->set_initial_program(program.Hex());
    }
    WHET_ASSIGN_OR_RETURN(const v1::GetRecordsReply reply, client_->Records(request));
    if (reply.records_size() != request.queries_size())
      return Unavailable("server '{}' answered {} of {} queries", address_, reply.records_size(),
                         request.queries_size());
    for (const auto& [features, figures] : reply.machines()) machines_[features] = figures;
    std::vector<TaskRecord> records;
    for (const v1::RecordReply& r : reply.records()) {
      records.push_back(RecordOf(r.found(), r.ratio(), r.median_ns(), r.default_ns()));
      records.back().trace = r.trace();
      records.back().reason = r.why();
      for (const auto& [device, ns] : r.calm_default_ns()) {
        WHET_ASSIGN_OR_RETURN(const Fingerprint print, ParseFingerprint(device));
        records.back().calm_ns[print] = r.found() ? r.ratio() * ns : ns;
      }
    }
    return records;
  }

  StatusOr<std::string> Machine(const std::string& feature_set) override {
    const auto known = machines_.find(feature_set);
    return known == machines_.end() ? std::string() : known->second;
  }

  StatusOr<PlanRows> Plans(const std::vector<Fingerprint>& regions) override {
    v1::GetPlansRequest request;
    for (const Fingerprint& region : regions) request.add_regions(region.Hex());
    WHET_ASSIGN_OR_RETURN(const v1::GetPlansReply reply, client_->Plans(request));
    PlanRows plans;
    for (const v1::Plan& p : reply.plans()) {
      db::PlanRow row;
      WHET_ASSIGN_OR_RETURN(row.region, ParseFingerprint(p.region()));
      row.alternative = p.alternative();
      for (const v1::Plan::Part& part : p.parts()) {
        WHET_ASSIGN_OR_RETURN(const Fingerprint workload, ParseFingerprint(part.workload()));
        row.parts.push_back({workload, part.count()});
      }
      WHET_RETURN_IF_ERROR(db::Normalize(row));
      plans.rows.push_back(std::move(row));
    }
    for (const v1::GetPlansReply::Workload& w : reply.workloads())
      plans.texts[FingerprintOf(w.text())] = w.text();
    return plans;
  }

 private:
  const std::string address_;
  const std::unique_ptr<TunerClient> client_;
  std::map<std::string, std::string> machines_;  // by feature set, of all answers
};

}  // namespace

StatusOr<std::unique_ptr<Records>> OpenLogRecords(const std::string& path) {
  WHET_ASSIGN_OR_RETURN(std::unique_ptr<db::LogReader> log,
                        db::LogReader::Open(path, {.check = db::ReaderOptions::Check::kFull}));
  for (const std::string& w : log->warnings()) fmt::print(stderr, "warning: {}\n", w);
  return std::unique_ptr<Records>(new LogRecords(std::move(log)));
}

StatusOr<std::unique_ptr<Records>> OpenServerRecords(const std::string& address) {
  WHET_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, TunerClient::Connect(address));
  return std::unique_ptr<Records>(new ServerRecords(address, std::move(client)));
}

}  // namespace whet::driver
