#include "compiler/driver/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace whet::driver {

Status WriteJson(const std::string& json, const nlohmann::ordered_json& value) {
  if (json.empty()) return OkStatus();
  // Names in a model may be any bytes.
  const std::string text =
      value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (json == "-") {
    fmt::print("{}", text);
    return OkStatus();
  }
  std::ofstream out(json);
  out << text;
  out.close();
  return out ? OkStatus() : InvalidArgument("cannot write '{}': {}", json, std::strerror(errno));
}

int Explain(const std::string& verb, const Status& status) {
  if (status.ok()) return kExitDone;
  std::fflush(stdout);
  // Not by fmt, which throws where standard error cannot be written.
  std::fputs(fmt::format("whet {}: {}\n", verb, Message(status)).c_str(), stderr);
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded: return kExitUnreachable;
    case absl::StatusCode::kCancelled: return kExitInterrupted;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAborted: return kExitFailed;
    default: return kExitUsage;
  }
}

}  // namespace whet::driver
