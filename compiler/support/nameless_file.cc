#include "compiler/support/nameless_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "compiler/support/env.h"

namespace whet {

StatusOr<int> NamelessFile() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return InvalidArgument("the temporary folder (TMPDIR): {}", error.message());
  std::string path = folder / "whet-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "make the temporary file '" + path + "'");
  unlink(path.c_str());
  return fd;
}

}  // namespace whet
