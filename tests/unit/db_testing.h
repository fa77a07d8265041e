// What the tests of the tuning log share: a temporary folder, sample rows, file helpers.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "db/store/tuning_log.h"

namespace whet::db {

class TempFolder {
 public:
  // In memory where that is possible: the log syncs at every commit, and a busy disk takes its
  // time.
  TempFolder() {
    for (const std::filesystem::path& parent :
         {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
      std::string pattern = parent / "whet-db-XXXXXX";
      if (mkdtemp(pattern.data()) == nullptr) continue;
      path_ = pattern;
      return;
    }
    ADD_FAILURE() << "no temporary folder";
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline constexpr const char* kWorkloadText =
    "whet-workload 1\nconv2d v1 f32[1,16,32,32] f32[16,16,1,1]\n";

inline WorkloadRow SampleWorkload() { return {kWorkloadText, "conv2d 1x16x32x32"}; }

inline DeviceRow SampleDevice(const std::string& id = "board-1") {
  return {id, "local", R"({"triple":"x86_64","cores":2})", "cpu -mattr=+avx2"};
}

inline JobRow SampleJob() { return {"job-1", JobState::kRunning, "{}", "", 1000, 1000}; }

inline RecordKey SampleKey() {
  return {FingerprintOf(kWorkloadText), "cpu -mattr=+avx2", 2, CacheMode::kTurns};
}

inline BestQuery SampleQuery() { return {SampleKey(), 7, FingerprintOf("program"), std::nullopt}; }

// Trial `number`, ok, `ratio` times the default.
inline TrialRow SampleTrial(const std::string& generation, int64_t number, double ratio = 0.5) {
  TrialRow row;
  row.key = SampleKey();
  row.ids = {generation, "job-1", number, 1, "incarnation-1", 10, "worker-1", "boot-1", "board-1"};
  row.device = SampleDevice().fingerprint();
  row.trace = "whet-trace 1\nsplit i " + std::to_string(number) + "\n";
  row.initial_program = FingerprintOf("program");
  row.codegen_version = 7;
  row.compiler_version = "whet 0.1.0";
  row.samples_ns = {1000.5 * ratio, 1001.25 * ratio, 1100 * ratio};
  row.baseline_ratio = ratio;
  row.input_seed = 0xfedcba9876543210;
  row.device_state = R"({"governor":"performance"})";
  row.created_ms = 1000 + number;
  return row;
}

inline PlanRow SamplePlan(const std::string& alternative, int64_t count) {
  return {FingerprintOf("network"), alternative, {{FingerprintOf(kWorkloadText), count}}, 5};
}

// A log with the sample workload, device and job in it.
inline std::unique_ptr<TuningLog> OpenSampleLog(const std::string& path,
                                                const WriterOptions& options = {}) {
  auto log = TuningLog::Open(path, options);
  if (!log.ok()) {
    ADD_FAILURE() << Message(log.status());
    return nullptr;
  }
  EXPECT_TRUE((*log)->AppendWait(SampleWorkload()).ok());
  EXPECT_TRUE((*log)->AppendWait(SampleDevice()).ok());
  EXPECT_TRUE((*log)->AppendWait(SampleJob()).ok());
  return *std::move(log);
}

inline std::unique_ptr<LogReader> OpenReader(
    const std::string& path, ReaderOptions::Check check = ReaderOptions::Check::kFull) {
  auto reader = LogReader::Open(path, {check});
  if (!reader.ok()) {
    ADD_FAILURE() << Message(reader.status());
    return nullptr;
  }
  return *std::move(reader);
}

MATCHER_P2(Fails, code, fragment, "") {
  *result_listener << arg.status();
  return arg.status().code() == code && Message(arg.status()).find(fragment) != std::string::npos;
}

}  // namespace whet::db
