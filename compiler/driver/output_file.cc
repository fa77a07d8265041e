#include "compiler/driver/output_file.h"

#include <filesystem>

namespace whet::driver {

namespace fs = std::filesystem;

Status CheckNotRead(const std::string& path, const std::vector<std::string>& read) {
  for (const std::string& r : read) {
    std::error_code ignored;
    if (!r.empty() && fs::equivalent(path, r, ignored))
      return InvalidArgument("'{}' is read by this command, and would be overwritten", path);
  }
  return OkStatus();
}

Status CheckReplaceable(const std::string& path) {
  std::error_code ignored;
  const fs::file_status s = fs::status(path, ignored);
  if (fs::is_directory(s)) return InvalidArgument("cannot write '{}': it is a folder", path);
  if (fs::exists(s) && !fs::is_regular_file(s))
    return InvalidArgument("cannot write '{}': it is not a regular file", path);
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    return InvalidArgument("cannot write '{}': there is no folder '{}'", path, folder.string());
  return OkStatus();
}

}  // namespace whet::driver
