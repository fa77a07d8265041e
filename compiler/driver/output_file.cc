#include "compiler/driver/output_file.h"

#include <filesystem>

namespace whet::driver {

namespace fs = std::filesystem;

bool SameFile(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == "-" || b == "-") return false;
  std::error_code failed;
  if (fs::equivalent(a, b, failed)) return true;
  const fs::path whole = fs::weakly_canonical(fs::absolute(a, failed), failed);
  return !failed && whole == fs::weakly_canonical(fs::absolute(b, failed), failed) && !failed;
}

Status CheckNotRead(const std::string& path, const std::vector<std::string>& read) {
  for (const std::string& r : read) {
    if (SameFile(path, r))
      return InvalidArgument("'{}' is read by this command, and would be overwritten", path);
  }
  return OkStatus();
}

Status CheckDistinct(const std::string& flag, const std::string& path,
                     const std::string& other_flag, const std::string& other_path) {
  if (!SameFile(path, other_path)) return OkStatus();
  return InvalidArgument("{} and {} are one file, '{}'", flag, other_flag, path);
}

std::vector<std::string> FilesOf(const std::vector<std::string>& specs) {
  std::vector<std::string> files = specs;
  for (const std::string& spec : specs) {
    for (size_t at = 0; (at = spec.find('=', at)) != std::string::npos;)
      files.push_back(spec.substr(++at));
  }
  return files;
}

Status CheckPlace(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return InvalidArgument("cannot write '{}': it is a folder", path);
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    return InvalidArgument("cannot write '{}': there is no folder '{}'", path, folder.string());
  return OkStatus();
}

Status CheckReplaceable(const std::string& path) {
  WHET_RETURN_IF_ERROR(CheckPlace(path));
  std::error_code ignored;
  const fs::file_status s = fs::status(path, ignored);
  if (fs::exists(s) && !fs::is_regular_file(s))
    return InvalidArgument("cannot write '{}': it is not a regular file", path);
  return OkStatus();
}

}  // namespace whet::driver
