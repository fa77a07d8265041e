// What a candidate's process and the zygote share during one measurement: one memory file, and one
// byte at a time over a socket. The candidate can write anything here, so the zygote copies and
// clamps what it reads, and trusts only its own clock and its own comparison.
//
//   memory file: SharedPage, then for each seed and, last, for the run after timing: each output's
//   pages (guarded.h)
//   bytes: candidate -> zygote                       zygote -> candidate
//     kOutputsReady (runs for all seeds are done)    kGo if they are right
//     kTimingReady (before each batch)               kGo, its clock running
//     kTimed (after each batch: the ladder, then     kGo once the time it took of a processor has
//     the pairs if there are any)                    been read: what comes next is no part of it
//     kFinalReady (one more run is done)             kGo
//     kFailed instead of any of them
#pragma once
#include <cstdint>

#include "worker/measure/ladder.h"

namespace whet::worker {

enum StepByte : char {
  kOutputsReady = 'V',
  kGo = 'G',
  kTimingReady = 'S',
  kTimed = 'T',
  kFinalReady = 'F',
  kFailed = 'E'
};

struct SharedPage {
  int32_t failure;  // v1::FailureKind after kFailed
  char message[500];
  int64_t load_ns;
  int32_t rung;
  int32_t promising;
  int64_t runs_per_sample;
  uint32_t n_samples;
  uint32_t n_pairs;
  int64_t pair_candidate_runs, pair_baseline_runs;
  double samples_ns[kMaxTimingSamples];
  double pair_candidate_ns[kMaxPairs];
  double pair_baseline_ns[kMaxPairs];
};
inline constexpr uint64_t kSharedPageBytes = (sizeof(SharedPage) + 4095) / 4096 * 4096;

}  // namespace whet::worker
