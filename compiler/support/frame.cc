#include "compiler/support/frame.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compiler/support/crc32c.h"
#include "compiler/support/env.h"

namespace whet {
namespace {

constexpr char kMagic[4] = {'W', 'H', 'F', '1'};

void Put32(std::string* out, uint32_t v) {
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(v >> (8 * i)));
}

uint32_t Get32(const char* p) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i)
    v |= static_cast<uint32_t>(static_cast<unsigned char>(p[i])) << (8 * i);
  return v;
}

struct Header {
  uint32_t type, length, crc;
};

StatusOr<Header> ParseHeader(const char* p, size_t cap) {
  if (std::memcmp(p, kMagic, 4) != 0) return DataLoss("frame does not begin with its magic");
  const Header h{Get32(p + 4), Get32(p + 8), Get32(p + 12)};
  if (h.length > cap)
    return DataLoss("frame of type {} has {} bytes, the limit is {}", h.type, h.length, cap);
  return h;
}

uint32_t Check(const char* header, std::string_view payload) {
  return Crc32c(payload, Crc32c(std::string_view(header + 4, 8)));
}

Status WaitFor(int fd, short events, int64_t deadline_ns) {
  while (true) {
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, PollTimeoutMs(MonotonicNs(), deadline_ns));
    if (n > 0) return OkStatus();
    if (n == 0) return DeadlineExceeded("timed out");
    if (errno != EINTR) return ErrnoStatus(errno, "cannot poll");
  }
}

}  // namespace

std::string EncodeFrame(uint32_t type, std::string_view payload) {
  std::string frame(kMagic, 4);
  frame.reserve(kFrameHeaderBytes + payload.size());
  Put32(&frame, type);
  Put32(&frame, static_cast<uint32_t>(payload.size()));
  Put32(&frame, Check(frame.data(), payload));
  frame.append(payload);
  return frame;
}

StatusOr<Frame> DecodeFrame(std::string_view bytes, size_t cap, size_t* used) {
  if (bytes.size() < kFrameHeaderBytes) return Unavailable("frame is not complete");
  WHET_ASSIGN_OR_RETURN(const Header h, ParseHeader(bytes.data(), cap));
  if (bytes.size() - kFrameHeaderBytes < h.length) return Unavailable("frame is not complete");
  const std::string_view payload = bytes.substr(kFrameHeaderBytes, h.length);
  if (Check(bytes.data(), payload) != h.crc) return DataLoss("frame of type {} is damaged", h.type);
  *used = kFrameHeaderBytes + h.length;
  return Frame{h.type, std::string(payload)};
}

Status WriteFrame(int fd, uint32_t type, std::string_view payload, int64_t deadline_ns) {
  if (payload.size() > UINT32_MAX) return ResourceExhausted("frame of {} bytes", payload.size());
  const std::string frame = EncodeFrame(type, payload);
  size_t done = 0;
  bool is_socket = true;
  while (done < frame.size()) {
    ssize_t n = -1;
    if (is_socket) {
      n = send(fd, frame.data() + done, frame.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == ENOTSOCK) is_socket = false;
    }
    if (!is_socket) {
      WHET_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline_ns));
      n = write(fd, frame.data() + done, frame.size() - done);
    }
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return ErrnoStatus(errno, "cannot write a frame");
      WHET_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline_ns));
      continue;
    }
    done += static_cast<size_t>(n);
  }
  return OkStatus();
}

Status ReadExact(int fd, char* out, size_t bytes, int64_t deadline_ns) {
  size_t done = 0;
  while (done < bytes) {
    if (deadline_ns != kNever) WHET_RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline_ns));
    const ssize_t n = read(fd, out + done, bytes - done);
    if (n == 0) return Unavailable("the other side closed the pipe");
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return ErrnoStatus(errno, "cannot read a frame");
      WHET_RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline_ns));
      continue;
    }
    done += static_cast<size_t>(n);
  }
  return OkStatus();
}

StatusOr<Frame> ReadFrame(int fd, size_t cap, int64_t deadline_ns) {
  char header[kFrameHeaderBytes];
  WHET_RETURN_IF_ERROR(ReadExact(fd, header, sizeof header, deadline_ns));
  WHET_ASSIGN_OR_RETURN(const Header h, ParseHeader(header, cap));
  Frame frame{h.type, std::string(h.length, '\0')};
  WHET_RETURN_IF_ERROR(ReadExact(fd, frame.payload.data(), h.length, deadline_ns));
  if (Check(header, frame.payload) != h.crc) return DataLoss("frame of type {} is damaged", h.type);
  return frame;
}

}  // namespace whet
