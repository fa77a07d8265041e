// Files that a verb is about to write, looked at before it works for minutes: they may be mistakes.
// What can change meanwhile is found when the file is written. Stateless.
#pragma once
#include <string>
#include <vector>

#include "compiler/support/status.h"

namespace whet::driver {

// `path` is none of the files that the command reads, under whatever name; empty ones are no files.
Status CheckNotRead(const std::string& path, const std::vector<std::string>& read);
// A regular file, or nothing yet, in a folder that exists: it is going to be replaced by renaming,
// which would put a file in the place of a device or a pipe.
Status CheckReplaceable(const std::string& path);

}  // namespace whet::driver
