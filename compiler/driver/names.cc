#include "compiler/driver/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace whet::driver {
namespace {

std::vector<std::string> Parts(std::string_view label) {
  std::vector<std::string> parts;
  while (true) {
    const size_t plus = std::min(label.find('+'), label.size());
    parts.emplace_back(label.substr(0, plus));
    if (plus == label.size()) return parts;
    label.remove_prefix(plus + 1);
  }
}

}  // namespace

std::string Join(const std::vector<std::string>& items, std::string_view separator) {
  std::string s;
  for (const std::string& i : items) s += (s.empty() ? "" : std::string(separator)) + i;
  return s;
}

std::string FileNameFor(std::string_view name) {
  std::string s(name);
  for (char& c : s) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!keep) c = '_';
  }
  if (s.empty() || s == "." || s == "..") s = "output";
  return s;
}

std::string CommonPath(const std::vector<std::string>& labels) {
  std::optional<std::string> common;
  for (const std::string& label : labels) {
    for (const std::string& part : Parts(label)) {
      if (!common) common = part;
      const auto [a, b] = std::mismatch(common->begin(), common->end(), part.begin(), part.end());
      common->erase(a, common->end());
    }
  }
  const size_t slash = common ? common->rfind('/') : std::string::npos;
  return slash == std::string::npos ? "" : common->substr(0, slash + 1);
}

std::string WithoutPath(std::string_view label, std::string_view path) {
  std::string out;
  for (const std::string& part : Parts(label)) {
    const bool has =
        part.size() > path.size() && std::string_view(part).substr(0, path.size()) == path;
    out += (out.empty() ? "" : "+") + (has ? part.substr(path.size()) : part);
  }
  return out;
}

std::string BytesText(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t u = 0;
  while (bytes >= 1024 && u + 1 < std::size(units)) {
    bytes /= 1024;
    ++u;
  }
  return u == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[u]);
}

}  // namespace whet::driver
