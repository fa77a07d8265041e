// Frames on a pipe or local socket between a program and its zygote.
//   layout: magic 'WHF1' | type u32 | length u32 | crc32c u32 of type, length and payload
//           | payload; little endian
// A reader gives a cap on the length (what its protocol can need at most): a damaged or hostile
// peer costs at most that much memory, and any violation is DataLoss, after which the stream cannot
// be used. Blocking, with a deadline; one reader and one writer per descriptor.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/support/clock.h"
#include "compiler/support/status.h"

namespace whet {

inline constexpr size_t kFrameHeaderBytes = 16;

struct Frame {
  uint32_t type = 0;
  std::string payload;
};

std::string EncodeFrame(uint32_t type, std::string_view payload);
// From bytes that begin with a frame. Unavailable: more bytes are needed. `used` is how many the
// frame took.
StatusOr<Frame> DecodeFrame(std::string_view bytes, size_t cap, size_t* used);

// DeadlineExceeded after `deadline_ns` (monotonic); Unavailable when the peer is gone. Never raises
// SIGPIPE on sockets.
Status WriteFrame(int fd, uint32_t type, std::string_view payload, int64_t deadline_ns = kNever);
StatusOr<Frame> ReadFrame(int fd, size_t cap, int64_t deadline_ns = kNever);

// Of one frame's payload.
Status ReadExact(int fd, char* out, size_t bytes, int64_t deadline_ns);

}  // namespace whet
