#include "compiler/support/status.h"

#include <cstdio>
#include <cstdlib>

namespace whet {

void CheckFailed(const char* file, int line, const char* cond, const std::string& what) {
  std::fprintf(stderr, "%s:%d: internal error: %s%s%s\n", file, line, cond,
               what.empty() ? "" : ": ", what.c_str());
  std::abort();
}

}  // namespace whet
