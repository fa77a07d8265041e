// Files that a verb is about to write, looked at before it works for minutes: they may be mistakes.
// What can change meanwhile is found when the file is written. Stateless.
#pragma once
#include <string>
#include <vector>

#include "compiler/support/status.h"

namespace whet::driver {

// Whether the paths lead to one file, which need not be there yet. "" and "-" are no files.
bool SameFile(const std::string& a, const std::string& b);
// `path` is none of the files that the command reads, under whatever name; empty ones are no files.
Status CheckNotRead(const std::string& path, const std::vector<std::string>& read);
// Two files that the command writes, each named by the flag that gives it, are not one.
Status CheckDistinct(const std::string& flag, const std::string& path,
                     const std::string& other_flag, const std::string& other_path);
// All files that NAME=FILE or FILE may mean: a name may hold a '=', and so may a path.
std::vector<std::string> FilesOf(const std::vector<std::string>& specs);
// No folder, and in one that exists.
Status CheckPlace(const std::string& path);
// The same, and a regular file or nothing yet: it is going to be replaced by renaming,
// which would put a file in the place of a device or a pipe.
Status CheckReplaceable(const std::string& path);

}  // namespace whet::driver
