// Status helpers. Errors a caller can meet travel as absl::Status / absl::StatusOr; no exception
// crosses our code. Messages are lower case, name the value, the bound and the place.
//   WHET_RETURN_IF_ERROR(expr)          returns the status when it is not OK
//   WHET_ASSIGN_OR_RETURN(auto x, expr) the value, or returns the status
//   InvalidArgument(...) etc. take a fmt format string
//   WHET_CHECK(cond, ...)               our own bugs only: prints and aborts, also in release
#pragma once
#include <fmt/core.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <utility>

namespace whet {

using absl::Status;
using absl::StatusOr;

inline Status OkStatus() { return absl::OkStatus(); }

#define WHET_STATUS_MAKER(Name, code)                                 \
  template <typename... Args>                                         \
  Status Name(fmt::format_string<Args...> f, Args&&... args) {        \
    return Status(code, fmt::format(f, std::forward<Args>(args)...)); \
  }
WHET_STATUS_MAKER(InvalidArgument, absl::StatusCode::kInvalidArgument)        // bad input
WHET_STATUS_MAKER(FailedPrecondition, absl::StatusCode::kFailedPrecondition)  // illegal now
WHET_STATUS_MAKER(ResourceExhausted, absl::StatusCode::kResourceExhausted)    // over a limit
WHET_STATUS_MAKER(Unavailable, absl::StatusCode::kUnavailable)                // retry
WHET_STATUS_MAKER(DeadlineExceeded, absl::StatusCode::kDeadlineExceeded)
WHET_STATUS_MAKER(DataLoss, absl::StatusCode::kDataLoss)
WHET_STATUS_MAKER(NotFound, absl::StatusCode::kNotFound)
WHET_STATUS_MAKER(Unimplemented, absl::StatusCode::kUnimplemented)
WHET_STATUS_MAKER(PermissionDenied, absl::StatusCode::kPermissionDenied)
WHET_STATUS_MAKER(Internal, absl::StatusCode::kInternal)  // our bug
#undef WHET_STATUS_MAKER

inline std::string Message(const Status& s) {
  return std::string(s.message().data(), s.message().size());
}

// The same error with `where: ` in front.
inline Status Annotate(const Status& s, std::string_view where) {
  return s.ok() ? s : Status(s.code(), fmt::format("{}: {}", where, Message(s)));
}

[[noreturn]] void CheckFailed(const char* file, int line, const char* cond,
                              const std::string& what);

}  // namespace whet

#define WHET_CONCAT_INNER(a, b) a##b
#define WHET_CONCAT(a, b) WHET_CONCAT_INNER(a, b)
#define WHET_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                 \
    if (::absl::Status whet_status_ = (expr); !whet_status_.ok()) return whet_status_; \
  } while (false)
#define WHET_ASSIGN_OR_RETURN(lhs, expr) \
  WHET_ASSIGN_OR_RETURN_IMPL(WHET_CONCAT(whet_statusor_, __LINE__), lhs, expr)
#define WHET_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = std::move(tmp).value()
#define WHET_CHECK(cond, ...)                                                                   \
  do {                                                                                          \
    if (!(cond)) ::whet::CheckFailed(__FILE__, __LINE__, #cond, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
