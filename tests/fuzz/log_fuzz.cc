// A tuning log's file, which anyone may hand over or a disk may spoil. The input is a list of
// edits of a good log, five bytes each: a position and the byte that is put there; a position
// beyond the end cuts the file at that position modulo its size. The log is refused, or said to be
// damaged, or it is read, and then it says what the good one says: no answer is silently another.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "db/store/tuning_log.h"

namespace whet::db {
namespace {

struct Good {
  std::string folder, path, bytes, exported;
};

std::string ExportOf(LogReader& log) {
  std::ostringstream out;
  return log.Export(out, OnDamage::kRefuse).ok() ? out.str() : "";
}

Good MakeGood() {
  Good good;
  good.folder = "/dev/shm/whet-log-fuzz-XXXXXX";
  if (mkdtemp(good.folder.data()) == nullptr) std::abort();
  good.path = good.folder + "/fuzzed.db";
  const std::string path = good.folder + "/good.db";
  {
    auto log = TuningLog::Open(path);
    if (!log.ok()) std::abort();
    const WorkloadRow workload{"whet-workload 1\ninput f32[8,16]\nop Relu.1(0)\n", "relu 8x16"};
    const JobRow job{"job-1", JobState::kDone, "{}", "", 1, 1};
    if (!(*log)->AppendWait(workload).ok() || !(*log)->AppendWait(job).ok()) std::abort();
    for (int i = 1; i <= 12; ++i) {
      TrialRow row;
      row.key = {workload.fingerprint(), "cpu", 1, CacheMode::kTurns};
      row.ids = {(*log)->generation(), "job-1", i, 1, "i", 1, "w", "b", "d"};
      row.trace = "whet-trace 1\nsplit " + std::to_string(i) + "\n";
      row.initial_program = FingerprintOf("program");
      row.codegen_version = 1;
      row.compiler_version = "fuzz";
      row.samples_ns = {100.0 + i, 101.0 + i};
      row.baseline_ratio = 1.0 - 0.01 * i;
      row.created_ms = i;
      if (!(*log)->AppendWait(row).ok()) std::abort();
    }
  }
  std::ifstream in(path, std::ios::binary);
  good.bytes = std::string(std::istreambuf_iterator<char>(in), {});
  const auto reader = LogReader::Open(path, {ReaderOptions::Check::kFull});
  if (!reader.ok() || !(*reader)->warnings().empty()) std::abort();
  good.exported = ExportOf(**reader);
  if (good.exported.empty()) std::abort();
  return good;
}

const Good& TheGood() {
  static const Good good = MakeGood();
  static const int at_exit = std::atexit([] { std::filesystem::remove_all(TheGood().folder); });
  (void)at_exit;
  return good;
}

void Try(const uint8_t* data, size_t size) {
  const Good& good = TheGood();
  std::string bytes = good.bytes;
  for (size_t i = 0; i + 5 <= size && i < 5 * 64; i += 5) {
    uint32_t at = 0;
    std::memcpy(&at, data + i, sizeof(at));
    if (at % (1u << 20) < bytes.size()) {
      bytes[at % (1u << 20)] = static_cast<char>(data[i + 4]);
    } else {
      bytes.resize(at % bytes.size());
      if (bytes.empty()) break;
    }
  }
  std::ofstream(good.path, std::ios::binary) << bytes;
  for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(good.path + suffix);
  const auto log = LogReader::Open(good.path, {ReaderOptions::Check::kFull});
  if (!log.ok() || !(*log)->warnings().empty()) return;
  if (ExportOf(**log) != good.exported) std::abort();
}

}  // namespace
}  // namespace whet::db

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  whet::db::Try(data, size);
  return 0;
}
