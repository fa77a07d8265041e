// The candidate's side of a measurement; runs in the sandboxed child. Loads the library, runs it on
// guarded memory for each seed (whole, and split in another order: iterations of a phase must be
// independent), waits for the zygote's verdict, times it with the runtime's own executor, and runs
// it once more for a last check. Single-threaded but for the runtime's own team.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/support/dtype.h"
#include "proto/run.pb.h"
#include "worker/measure/shared_page.h"

namespace whet::worker {

struct Buffer {
  v1::BufferRole role;
  DType dtype;
  std::vector<int64_t> shape, logical_strides;
  uint64_t tensor_index;
  double lo, hi;
  uint64_t bytes;
};
// The contents of a task's inputs and parameters under its seeds, made once by the zygote:
// candidates are forked from it and copy them. Those of one task, which is mostly the next one's
// too; of a task that has more than kMaxFilledBytes none, and candidates compute them.
inline constexpr uint64_t kMaxFilledBytes = 128u << 20;
struct FilledInputs {
  std::string key;
  std::vector<std::vector<std::string>> inputs, parameters;  // by seed, then by buffer
};

struct MeasureJob {
  std::string object_path, baseline_path;
  std::vector<Buffer> inputs, parameters, outputs;
  std::vector<uint64_t> seeds;
  const FilledInputs* filled = nullptr;  // of these buffers and seeds, or nothing
  std::vector<uint64_t> output_offsets;  // per output, in one run's part of the memory file
  uint64_t outputs_bytes = 0;            // of one run's part
  int threads = 1;
  v1::MeasurePlan plan;
  int memory_fd = -1;
  SharedPage* shared = nullptr;
  int control_fd = -1;
};

// The process's exit code. On a failure shared->failure and ->message are set and kFailed is sent.
int RunCandidate(const MeasureJob& job);

// Makes the contents of the job's buffers, unless those are there already; `key` stands for buffers
// and seeds.
const FilledInputs* FillInputs(const MeasureJob& job, std::string key, FilledInputs* filled);

// Which of the seeds the run after timing is for: the last, but of data so large that nobody keeps
// it, the first, whose is there already.
size_t LastCheckSeed(const MeasureJob& job);

// What fills an output before a run: no correct answer looks like it. NaN for floats.
unsigned char PoisonByte(DType dtype);

}  // namespace whet::worker
