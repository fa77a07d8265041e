#include "compiler/support/paths.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "compiler/support/env.h"

namespace whet {

StatusOr<std::string> StateDir(const std::string& flag) {
  std::string dir = flag;
  const char* xdg = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (dir.empty() && xdg && xdg[0] == '/') dir = std::string(xdg) + "/whet";
  if (dir.empty() && home && home[0] == '/') dir = std::string(home) + "/.local/state/whet";
  if (dir.empty()) dir = fmt::format("/var/tmp/whet-{}", getuid());
  WHET_RETURN_IF_ERROR(MakeDirs(dir));
  return dir;
}

std::string DeviceLockPath(const std::string& state_dir) { return state_dir + "/device.lock"; }

std::string ProgramDir() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return ".";
  const std::string full(path, static_cast<size_t>(n));
  return full.substr(0, full.rfind('/'));
}

StatusOr<std::string> FindProgram(const std::string& name) {
  const std::string here = ProgramDir();
  std::vector<std::string> dirs = {here, here + "/../libexec/whet", here + "/../bin"};
  if (const char* extra = std::getenv("WHET_LIBEXEC")) dirs.emplace_back(extra);
  std::string looked;
  for (const std::string& dir : dirs) {
    const std::string path = dir + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
    looked += (looked.empty() ? "" : ", ") + dir;
  }
  return NotFound(
      "the program '{}' is not installed beside this one (looked in {}); WHET_LIBEXEC may name its "
      "folder",
      name, looked);
}

}  // namespace whet
