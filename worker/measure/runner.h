// The zygote's side of measurements: whet-runner's main loop, and one measurement. Single-threaded.
// Each candidate runs in a fresh sandboxed child (candidate.h); this side prepares the memory,
// compares outputs with the expected ones before any timing is allowed, brackets each timed batch
// with its own clock, and ends the child when time is up.
#pragma once
#include <cstdint>

#include "proto/run.pb.h"
#include "worker/measure/candidate.h"

namespace whet::worker {

inline constexpr int kRunnerFd = 3;
inline constexpr int kRunnerLockFd = 4;  // only kept open: see worker/device/device_lock.h
enum RunnerFrame : uint32_t { kRunnerHello = 1, kRunRequest = 2, kRunReply = 3 };
inline constexpr size_t kMaxRunFrame = 1u << 20;  // specs and samples; files go by path
inline constexpr uint32_t kKernelAbi = 1;

// Never fails as such: what goes wrong is the measurement's failure kind and message. `filled`
// keeps the task's inputs from one measurement to the next. `client_fd`: a socket whose other end
// is who asked; when that is gone, so is the candidate. -1: there is none.
v1::Measurement RunMeasurement(const v1::RunRequest& request, FilledInputs* filled,
                               int client_fd = -1);

// Serves requests on `fd` until it is closed; the process's exit code.
int RunRunnerZygote(int fd = kRunnerFd);

}  // namespace whet::worker
