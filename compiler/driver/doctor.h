// Looks at the machine: processor, clocks, layers of the sandbox, GPUs, state folder, sibling
// programs. Read-only but for making the state folder and two short timing probes (half a second).
// What cannot be seen is said to be unknown, never assumed good.
#pragma once
#include <string>
#include <vector>

namespace whet::driver {

struct Finding {
  enum class Level { kOk, kNote, kFail };
  std::string what, value;
  Level level = Level::kOk;
  std::string fix;
};

const char* LevelName(Finding::Level level);  // "ok", "note", "fail"

std::vector<Finding> Examine(const std::string& state_dir);

}  // namespace whet::driver
