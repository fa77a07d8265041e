// Lines of the log that strangers can cause: a few at once, then one a second, with the number of
// those that were left out, so that nobody fills a disk from outside. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>

#include "compiler/support/clock.h"
#include "proto/rpc/token_bucket.h"

namespace whet::rpc {

class SparingLog {
 public:
  // How many lines were left out since the last one, when this one may be written.
  std::optional<int64_t> Next() {
    const std::lock_guard lock(mu_);
    if (!lines_.Take(MonotonicNs())) {
      ++left_out_;
      return std::nullopt;
    }
    const int64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  std::mutex mu_;
  TokenBucket lines_{1, 20};
  int64_t left_out_ = 0;
};

// From now on gRPC's own errors (a line for each handshake that fails) go to the program's log this
// way, as event=grpc.
void LogGrpcSparingly();

}  // namespace whet::rpc
