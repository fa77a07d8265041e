#include "fleet/pki/deny_list.h"

#include <sys/stat.h>

#include "compiler/support/env.h"

namespace whet::pki {
namespace {

constexpr size_t kMaxListBytes = 1 << 20;  // some 20,000 names
constexpr std::string_view kSerial = "serial:";

std::string_view Trimmed(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

}  // namespace

StatusOr<std::string> DenyList::LineOf(std::string_view text) {
  if (text.substr(0, kSerial.size()) == kSerial) {
    const std::string_view hex = text.substr(kSerial.size());
    if (hex.empty() || hex.size() > 40 ||
        hex.find_first_not_of("0123456789abcdef") != std::string_view::npos)
      return InvalidArgument("'{}' is not serial: and up to 40 lower-case hex digits",
                             Printable(text));
    return std::string(text);
  }
  WHET_ASSIGN_OR_RETURN(const Name name, ParseName(text));
  return name.Text();
}

StatusOr<DenyList> DenyList::Parse(std::string_view text) {
  DenyList list;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = Trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    if (line.empty()) continue;
    const StatusOr<std::string> entry = LineOf(line);
    if (!entry.ok()) return Annotate(entry.status(), fmt::format("line {}", number));
    if (line.substr(0, kSerial.size()) == kSerial) {
      list.serials_.insert(entry->substr(kSerial.size()));
    } else {
      list.names_.insert(*entry);
    }
  }
  return list;
}

StatusOr<DenyList> DenyList::Read(const std::string& path) {
  const StatusOr<std::string> text = ReadFile(path, kMaxListBytes);
  if (text.status().code() == absl::StatusCode::kNotFound) return DenyList();
  struct stat info = {};
  if (text.ok() && stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return PermissionDenied(
        "'{}' has mode {:04o}: others than its owner can change whom it denies; chmod 600 '{}'",
        path, info.st_mode & 07777, path);
  }
  WHET_RETURN_IF_ERROR(text.status());
  const StatusOr<DenyList> list = Parse(*text);
  if (!list.ok()) return Annotate(list.status(), fmt::format("'{}'", path));
  return list;
}

bool DenyList::Denies(const CertificateInfo& certificate) const {
  return DeniesName(certificate.name) || serials_.count(certificate.serial) > 0;
}

}  // namespace whet::pki
