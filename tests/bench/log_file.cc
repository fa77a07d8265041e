#include "tests/bench/log_file.h"

#include <stdlib.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>

#include "db/record/jsonl.h"
#include "db/store/tuning_log.h"

namespace whet::bench {
namespace {

StatusOr<std::string> ReadCompressed(const std::string& path) {
  gzFile in = gzopen(path.c_str(), "rb");
  if (in == nullptr) return NotFound("'{}' cannot be read", path);
  std::string text;
  char part[1 << 16];
  int n = 0;
  while ((n = gzread(in, part, sizeof part)) > 0) text.append(part, static_cast<size_t>(n));
  const bool whole = n == 0 && gzclose(in) == Z_OK;
  if (!whole) return DataLoss("'{}' is no whole gzip file", path);
  return text;
}

Status WriteCompressed(const std::string& path, const std::string& text) {
  gzFile out = gzopen(path.c_str(), "wb9");
  if (out == nullptr) return InvalidArgument("'{}' cannot be written", path);
  const bool all = gzwrite(out, text.data(), static_cast<unsigned>(text.size())) ==
                   static_cast<int>(text.size());
  return gzclose(out) == Z_OK && all ? OkStatus() : DataLoss("'{}' was not written", path);
}

// Of many samples some that have the same median, least and greatest, in order of size.
std::vector<double> FewSamples(std::vector<double> samples) {
  constexpr size_t kHalf = 16;
  const size_t n = samples.size(), half = n / 2;
  if (n <= 2 * kHalf + 1) return samples;
  std::sort(samples.begin(), samples.end());
  std::vector<double> few;
  for (size_t i = 0; i < kHalf; ++i) few.push_back(samples[i * (half - 1) / (kHalf - 1)]);
  if (n % 2 == 1) few.push_back(samples[half]);
  for (size_t i = kHalf; i-- > 0;) few.push_back(samples[n - 1 - i * (half - 1) / (kHalf - 1)]);
  return few;
}

}  // namespace

Status PackLog(const std::string& path, const std::string& file) {
  WHET_ASSIGN_OR_RETURN(const auto log, db::LogReader::Open(path));
  WHET_ASSIGN_OR_RETURN(const db::LogStats stats, log->Stats());
  std::set<Fingerprint> workloads, devices;
  std::set<std::string> jobs;
  std::vector<db::TrialRow> trials;
  for (const db::TaskStats& task : stats.tasks) {
    std::string best;
    if (task.best) {
      WHET_ASSIGN_OR_RETURN(const db::TrialRow row, log->Trial(task.best->seq));
      best = row.trace;
    }
    WHET_RETURN_IF_ERROR(log->ForEachTrial(&task.key,
                                           [&](const db::TrialRow& row) {
                                             if (!row.is_default && row.trace != best) return true;
                                             workloads.insert(row.key.workload);
                                             jobs.insert(row.ids.job_id);
                                             if (row.device) devices.insert(*row.device);
                                             trials.push_back(row);
                                             trials.back().samples_ns = FewSamples(row.samples_ns);
                                             return true;
                                           })
                             .status());
  }
  std::string text = db::HeaderLine({db::kJsonlVersion, log->log_id(), log->generation()});
  int64_t rows = 0;
  auto add = [&](const db::Row& row) {
    text += db::RowLine(row);
    ++rows;
  };
  WHET_ASSIGN_OR_RETURN(const db::Plans plans, log->FindPlans());
  for (const auto& [print, row] : plans.workloads) workloads.insert(print);
  for (const Fingerprint& f : workloads) {
    WHET_ASSIGN_OR_RETURN(const db::WorkloadRow row, log->Workload(f));
    add(row);
  }
  for (const Fingerprint& f : devices) {
    WHET_ASSIGN_OR_RETURN(const db::DeviceRow row, log->Device(f));
    add(row);
  }
  for (const std::string& id : jobs) {
    WHET_ASSIGN_OR_RETURN(const db::JobRow row, log->Job(id));
    add(row);
  }
  for (const db::PlanRow& row : plans.rows) add(row);
  for (const db::TrialRow& row : trials) add(row);
  text += db::EndLine(rows);
  return WriteCompressed(file, text);
}

Status RestoreLog(const std::string& file, const std::string& path) {
  if (std::filesystem::exists(path)) return InvalidArgument("'{}' is there already", path);
  WHET_ASSIGN_OR_RETURN(const std::string text, ReadCompressed(file));
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  WHET_ASSIGN_OR_RETURN(const db::JsonlHeader header, db::ParseHeaderLine(line));
  WHET_ASSIGN_OR_RETURN(const auto log, db::TuningLog::Open(path));
  int64_t rows = 0;
  while (std::getline(in, line)) {
    WHET_ASSIGN_OR_RETURN(db::ParsedLine parsed, db::ParseLine(line));
    if (parsed.end) {
      if (*parsed.end == rows) return log->Flush();
      return DataLoss("'{}' has {} rows and says {}", file, rows, *parsed.end);
    }
    // A trial counts under the generation of the log that it is in.
    if (auto* trial = std::get_if<db::TrialRow>(&*parsed.row);
        trial != nullptr && trial->ids.generation == header.generation)
      trial->ids.generation = log->generation();
    WHET_RETURN_IF_ERROR(log->AppendWait(std::move(*parsed.row)).status());
    ++rows;
  }
  return DataLoss("'{}' ends after {} rows without saying so", file, rows);
}

StatusOr<std::unique_ptr<RestoredLog>> RestoredLog::Open(const std::string& file) {
  auto log = std::make_unique<RestoredLog>();
  log->folder_ = (std::filesystem::temp_directory_path() / "whet-bench-XXXXXX").string();
  if (mkdtemp(log->folder_.data()) == nullptr) return Internal("'{}' cannot be made", log->folder_);
  WHET_RETURN_IF_ERROR(RestoreLog(file, log->path()));
  return log;
}

RestoredLog::~RestoredLog() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace whet::bench
